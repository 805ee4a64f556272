"""Reasoning tasks whose tokens see those before them only: windows, and positions of any length. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from iha_theory.attention import KINDS
from iha_theory.options import option
from synthetic.tasks.reasoning.base import Reasoning
from synthetic.tasks.reasoning.grids import HEADS
from synthetic.tasks.task import Grid, Problem, Setting

GLOBAL_EVERY = 5
"""App. C's, and the default, which says nothing where there is no window."""


@dataclass(frozen=True)
class Causal(Reasoning):
    """Base of the causal tasks: the hybrid schedule of App. C, and rotary positions.

    With a window W token i sees the tokens i - W + 1 .. i, in all layers but each `global_every`-th, which sees all
    before it. App. C's schedule is `matched_window`, one global layer in 5, and that one MHA.

    Raises:
        ValueError: as `Options`; a `global_every` that leaves no layer global; MHA for global layers where
            none is; either without a window.
    """

    causal: ClassVar[bool] = True

    window: int = option(0, "window W of a layer, in tokens with the own one; 0: every layer is global", 0, late=True)
    global_every: int = option(GLOBAL_EVERY, "with a window: every so many-th layer is global; 0: none", 0, late=True)
    global_attention: Literal["alike", "mha"] = option(
        "alike", "with a window: global layers like the others, or of MHA", late=True
    )
    positions: Literal["learned", "rotary"] = option(
        "learned", "vectors learned for each position, or queries and keys that are rotated", late=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window and self.global_every > self.layers:
            accepted = f"give layers {self.global_every} or more, or global_every 1 to {self.layers}, or 0 for none"
            raise ValueError(f"global_every {self.global_every} makes none of {self.layers} layers global: {accepted}")
        if self.window and not self.global_every and self.global_attention != "alike":
            accepted = "give a global_every of 1 or more, or leave it out"
            raise ValueError(f"global_attention {self.global_attention} with global_every 0 is of no layer: {accepted}")
        if not self.window and self.global_every != GLOBAL_EVERY:
            raise ValueError(f"global_every {self.global_every} is for models with a window: give one")
        if not self.window and self.global_attention != "alike":
            raise ValueError(f"global_attention {self.global_attention} is for models with a window: give one")

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Of each layer, None for a global one."""
        every = self.global_every or self.layers + 1
        return tuple(self.window if self.window and at % every else None for at in range(1, self.layers + 1))

    @property
    def placed(self) -> tuple[int, ...]:
        """The channel of learned positions, if there is one."""
        return (self.tokens,) if self.positions == "learned" else ()

    def layer_options(self) -> tuple[Mapping[str, Any], ...]:
        """Its window, and whether it is rotary and MHA."""
        rotary, mha = self.positions == "rotary", self.global_attention == "mha"
        return tuple(
            {"window": window, "rotary": rotary, "ordinary": mha and window is None} if self.window or rotary else {}
            for window in self.windows
        )

    def build(self, setting: Setting) -> Problem:
        """See `Reasoning`.

        Raises:
            ValueError: a window for a layer that does the work outside it all the same; a layer of the user's with a
                window or rotary positions.
        """
        kind = KINDS.get(setting.attention)
        if self.window and not (kind and kind.skips):
            accepted = ", ".join(name for name, own in KINDS.items() if own.skips)
            raise ValueError(f"{setting.attention} spares nothing outside a window: layers that do are {accepted}")
        if self.positions == "rotary" and kind is None:
            raise ValueError("rotary positions are for layers of ours: a layer of your own has learned ones")
        return super().build(setting)


def matched_window(tokens: int, pseudo_heads: int) -> int:
    """W = N / (2 P^2), rounded down: four layers of IHA with it and a global one of MHA cost what App. C says.

    Raises:
        ValueError: too few tokens for a window of 1.
    """
    if (window := tokens // (2 * pseudo_heads**2)) < 1:
        raise ValueError(f"{tokens} tokens are too few for P = {pseudo_heads}: at least {2 * pseudo_heads**2}")
    return window


def schedules(common: Mapping[str, Any], length: int) -> tuple[Grid, ...]:
    """Grids of five layers: MHA and IHA with all layers global, and with App. C's windows, for inputs of this length.

    MHA has the window that matches its FLOPs, N / 2, and that of IHA with P = 2, N / 8: what the window does alone.

    Args:
        common: options of every run.
        length: N, in training.
    """
    own = dict(common) | {"length": length, "layers": 5, "positions": "rotary"}
    plain, narrow = (matched_window(length, pseudo) for pseudo in (1, 2))
    interleaved = own | {"pseudo_heads": 2}
    return (
        *(Grid(own | {"window": window}, {"mha": (HEADS,)}) for window in (0, plain, narrow)),
        Grid(interleaved, {"iha": (HEADS,)}),
        Grid(interleaved | {"window": narrow, "global_attention": "mha"}, {"iha": (HEADS,)}),
    )
