"""Shapes in signatures are checked in every test; two threads, as the machines that run the suite have."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch starts; see iha_theory.cli
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import torch
from jaxtyping import install_import_hook

install_import_hook(["iha_theory", "synthetic", "constructions", "figures"], "beartype.beartype")
torch.set_num_threads(2)
