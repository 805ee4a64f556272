"""What `iha_theory` and `constructions` export resolves, and importing them imports no torch."""

import subprocess
import sys

import pytest

import constructions
import iha_theory


@pytest.mark.parametrize("package", [iha_theory, constructions], ids=lambda package: package.__name__)
def test_every_public_name_resolves(package):
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


def test_importing_the_packages_imports_no_torch():
    code = "import sys, iha_theory, constructions; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("layer", ["mha", "iha", "iha-tiled", "mha-two-layer"])
def test_the_public_bank_takes_every_layer(layer):
    import torch

    from constructions.filter_bank.paper import powers

    a = torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=torch.float64)
    built = constructions.bank(layer, powers(a), 5, 2)
    x = torch.arange(6, dtype=torch.float64).view(1, 3, 2)
    assert built.heads == (5 if layer == "mha" else 3)
    assert torch.equal(built(x), torch.cat([torch.linalg.matrix_power(a, t) @ x for t in range(5)], dim=-1))
