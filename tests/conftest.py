"""Modules are shared out over processes of one thread each. With IHA_TEST_SHAPES=1 shapes in signatures are checked.

That takes more than half of the time, so `.ci/run` does it for the tests of the layers and the tasks.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch starts; see iha_theory.cli
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tensors here are tiny, and threads of several processes would fight

import pytest
from jaxtyping import install_import_hook

if os.environ.get("IHA_TEST_SHAPES"):
    install_import_hook(["iha_theory", "synthetic", "constructions", "figures"], "beartype.beartype")

from iha_theory.cli.main import main


def pytest_xdist_auto_num_workers(config):
    """A process a core, eight at most; none besides this one for a single module, which is not shared out."""
    modules = {argument.partition("::")[0] for argument in config.args}
    return 0 if len(modules) == 1 and modules.pop().endswith(".py") else min(len(os.sched_getaffinity(0)), 8)


def pytest_collection_modifyitems(items):
    """The longest modules first, so that no process is left waiting for another at the end."""
    longest = ("test_verify_command.py", "test_cases.py", "test_pages.py", "test_mutants.py")
    items.sort(key=lambda item: longest.index(item.path.name) if item.path.name in longest else len(longest))


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


@pytest.fixture
def refused(call):
    """refused(command, ...): `iha-theory command ...` ends with exit code 2 and one line, which is returned."""

    def run(*arguments):
        code, out, err = call(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("iha-theory")
        assert ": error: " in err
        return err

    return run
