"""Shapes in signatures are checked in every test; two threads, as the machines that run the suite have."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch starts; see iha_theory.cli
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import pytest
import torch
from jaxtyping import install_import_hook

install_import_hook(["iha_theory", "synthetic", "constructions", "figures"], "beartype.beartype")
torch.set_num_threads(2)

from iha_theory.cli.main import main


@pytest.fixture
def call(capsys):
    """call(command, ...): exit code, standard output and standard error of `iha-theory command ...`."""

    def run(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit_:
            code = exit_.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
