"""AdamW is torch's own, bit for bit, and training starts without modules that take seconds to import."""

import subprocess
import sys

import pytest
import torch

from synthetic.training.optimiser import AdamW

BETAS, DECAY = (0.9, 0.95), 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_torch_bit_for_bit(dtype: torch.dtype) -> None:
    """Two peak rates, weight decay, a schedule, a parameter without a gradient at first, moments handed over."""
    generator = torch.Generator().manual_seed(0)
    start = {name: torch.randn(3, 4, dtype=dtype, generator=generator) for name in ("a", "b", "late")}
    rates = {"a": 0.1, "b": 0.02, "late": 0.1}
    own = {name: p.clone().requires_grad_() for name, p in start.items()}
    torchs = {name: p.clone().requires_grad_() for name, p in start.items()}
    optimiser = AdamW(own, rates, BETAS, DECAY)
    groups = [{"params": [torchs[name]], "lr": rate} for name, rate in rates.items()]
    reference = torch.optim.AdamW(groups, betas=BETAS, weight_decay=DECAY, fused=True)
    for step in range(12):
        if step == 6:
            optimiser = AdamW(own, rates, BETAS, DECAY, optimiser.moments)
        factor = (step + 1) / 12
        for group, rate in zip(reference.param_groups, rates.values(), strict=True):
            group["lr"] = rate * factor
        reference.zero_grad()
        for parameters in (own, torchs):
            used = [p for name, p in parameters.items() if name != "late" or step > 3]
            sum((p**4).sum() for p in used).backward()  # type: ignore[union-attr]
        optimiser.step(factor)
        reference.step()
        for name in start:
            assert torch.equal(own[name], torchs[name]), (name, step)
            assert own[name].grad is None
    assert set(optimiser.moments) == set(start)


def test_training_imports_nothing_that_takes_seconds() -> None:
    """torch._dynamo, sympy, networkx and scipy were 60% of the time to the first loss of a small run.

    Nor does the first pass of a layer with a mask that is not written out, as layers of whole models have.
    """
    code = (
        "import sys; from iha_theory.cli.main import main; import torch;"
        "from iha_theory import attention; x = torch.zeros(1, 200, 2, requires_grad=True);"
        "attention.MultiHeadAttention(2, 1, window=3)(x, x, x).sum().backward();"
        "main(['train', 'polynomial', '--heads', '2', '--steps', '2']);"
        "print(sorted({'torch._dynamo', 'sympy', 'networkx', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
