"""torch.compile, case 19: compiled once as one graph, then lengths 8, 12 and 1, equal to eager to 1e-5.

In a process of its own, without the checks of shapes that tests install: users compile layers without them. IHA is
traced, its gradients too ("aot_eager"). The other layers, and generating code ("inductor", torch's default, half a
minute a layer on a cold machine), run if IHA_TEST_INDUCTOR=1 is set.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import torch
from tests_of_attention.layers import BY_NAME, tokens
torch.set_num_threads(1)
torch._dynamo.config.fail_on_recompile_limit_hit = True  # it would run uncompiled otherwise
for spec in sys.argv[1:]:
    backend, name = spec.split(":")
    torch._dynamo.reset()
    row = BY_NAME[name]
    options = {"rotary": "token", "window": 4} if row.rotary else {"window": 4}
    layer = row.build(dtype=torch.float32, **options)
    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    for length in (8, 12, 1, 50):  # 50: without a mask of all pairs
        x = tokens(2, length, 8, dtype=torch.float32).requires_grad_(backend == "aot_eager")
        eager, got = (f(x, x, x, is_causal=True) for f in (layer, compiled))
        torch.testing.assert_close(got, eager, rtol=1e-5, atol=1e-5)
        if x.requires_grad:
            gradients = (torch.autograd.grad(out.sum(), x)[0] for out in (got, eager))
            torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)
    print(spec)
"""
NAMES = ["iha-P3-global-virtual", "mha", "gqa", "mla", "tensor-product", "talking", "differential", "simplicial"]
NAMES += ["composable", "multi-token", "gated-linear", "forgetting", "strassen", "gated", "two-layer"]
inductor = pytest.mark.skipif("IHA_TEST_INDUCTOR" not in os.environ, reason="slow: set IHA_TEST_INDUCTOR=1")


@pytest.mark.parametrize(
    "specs",
    [[f"aot_eager:{NAMES[0]}"], pytest.param([f"inductor:{name}" for name in NAMES], marks=inductor)],
    ids=["traced", "inductor"],
)
def test_compiled_equals_eager(specs, tmp_path):
    (tmp_path / "tests_of_attention").symlink_to(Path(__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, *specs], cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.split() == specs
