"""CPM-3 from its labels: counting pairs modulo M, in softmax attention and an MLP (App. B.3, docs/learning.md)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from iha_theory.options import option
from synthetic.tasks.bank import Mode
from synthetic.tasks.task import Grid, Problem, Setting, Size, Sweep, Task

INITS: tuple[dict[str, Any], ...] = (
    {},
    {"init": "random-keys"},
    {"init": "identity"},
    {"init": "mha"},
    {"gain": 1.0},
    {"circulant": False},
    {"activation": "relu"},
)
"""One change of the defaults each: what learning depends on (docs/learning.md)."""

LARGE: dict[str, Any] = {"tokens": 16, "hidden": 128, "steps": 8000}
"""What the runs of cpm3-large share. Attention's rate is each layer's own, from as many trials (docs/learning.md)."""
SEVEN: dict[str, Any] = {
    "modulus": 7,
    "coefficient": 20,
    "hidden": 128,
    "layers": 3,
    "mlp_lr": 0.005,
    "steps": 8000,
}
"""M = 7, of whose residues an MLP of three layers learns most, the tokens being given to it (docs/learning.md)."""
CONTENT: dict[str, Any] = {"pattern": "linear", "position_values": True, "steps": 2000}
"""What the runs of cpm3-content share. The start is each mode's own, from as many trials."""


@dataclass(frozen=True)
class CPM3(Task):
    """Labels: how many pairs of tokens complete each token to 0. `synthetic.tasks.cpm3_problem.Counting`."""

    summary: ClassVar[str] = "counting pairs modulo M from labels, softmax attention and an MLP (docs/learning.md)"
    defaults: ClassVar[dict[str, Any]] = {
        "init": "construction",
        "circulant": True,
        "gain": 2.0,
        "steps": 4000,
        "lr": 0.003,
        "warmup": 100,
    }
    learned: ClassVar[tuple[str, ...]] = ("embedding", "tokens", "modulus", "coefficient", "mode", "steps")
    sweeps: ClassVar[dict[str, Sweep]] = {
        "cpm3": Sweep(
            "CPM-3 from labels, N = 9, scalar tokens in two numbers of steps, and one-hot tokens",
            (
                *(Grid({"steps": steps}, {"mha": range(1, 10), "iha": range(1, 5)}) for steps in (1000, 4000)),
                Grid({"embedding": "one-hot", "lr": 0.01, "steps": 2000}, {"mha": (1,)}),
            ),
        ),
        "cpm3-init": Sweep(
            "IHA with 3 heads on that from other initial weights, and with another MLP (docs/learning.md)",
            tuple(Grid({"steps": 2000} | changed, {"iha": (3,)}) for changed in INITS),
        ),
        "cpm3-large": Sweep(
            "CPM-3 where one float32 cannot hold a sequence: N = 16, M = 3, and N = 9, M = 7",
            (
                Grid(LARGE | {"lr": 0.01}, {"mha": (4, 8, 10, 12, 14, 16)}),
                Grid(LARGE | {"lr": 0.003}, {"iha": (3, 4, 5)}),
                Grid(SEVEN, {"mha": (3, 9), "iha": (3,)}),
            ),
        ),
        "cpm3-content": Sweep(
            "CPM-3 by linear attention whose values see positions: with content in queries and keys, and without (T18)",
            (
                Grid(CONTENT | {"mode": "content", "circulant": False, "gain": 1.0}, {"mha": (1, 2)}),
                Grid(CONTENT, {"mha": (2, 9)}),
            ),
        ),
    }

    tokens: int = option(9, "tokens N", 1)
    modulus: int = option(3, "modulus M", 1)
    coefficient: int = option(8, "coefficient G")
    embedding: Literal["scalar", "one-hot"] = option("scalar", "form of a token")
    mode: Mode = option("position-only", "whether queries and keys see content")
    pattern: Literal["softmax", "linear"] = option("softmax", "pattern of the attention")
    position_values: bool = option(False, "values see positions beside the token, and a head's are N wide (T18)")
    hidden: int = option(64, "width of the MLP", 1)
    layers: int = option(2, "hidden layers of the MLP", 1)
    activation: Literal["relu", "sin"] = option("sin", "activation of the MLP")
    skip: bool = option(False, "the MLP sees the position's own token beside the attention's output")
    mlp_lr: float | None = option(0.02, "peak learning rate of the MLP (null in a file: lr)", 0)

    @property
    def label(self) -> str:
        """N."""
        return f"N={self.tokens}"

    def size(self) -> Size:
        """With the counts and the MLP."""
        width = 1 if self.embedding == "scalar" else self.modulus
        width += self.tokens * self.position_values
        weights = self.hidden * (self.hidden * (self.layers - 1) + 1)
        return Size(self.tokens, self.tokens * width, self.tokens**2 + weights)

    def build(self, setting: Setting) -> Problem:
        """See the class."""
        from synthetic.tasks.cpm3_problem import Counting

        return Counting(self)
