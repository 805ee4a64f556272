"""Shapes in signatures are checked in every test; two threads, as the machines that run the suite have."""

import torch
from jaxtyping import install_import_hook

install_import_hook(["iha_theory", "synthetic", "constructions", "figures"], "beartype.beartype")
torch.set_num_threads(2)
