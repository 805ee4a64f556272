"""A layer of the user's in a run: any class that is called as torch.nn.MultiheadAttention is."""

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iha_theory.options import Options, load, option, users_code

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class OwnLayer(Options):
    """The layer's path, MODULE:CLASS, and its heads."""

    path: str
    heads: int = option(3, "heads H", 1)

    def numbers(self, tokens: int) -> int:
        """One a head: nothing else is known."""
        return self.heads

    def make(
        self,
        query: int,
        key: int,
        value: int,
        *,
        content: int | None,
        tokens: int,
        pattern: str,
        out: int | None,
        bias: bool = False,
    ) -> "nn.Module":
        """The layer between zeros that fill its inputs up and, unless out is None, a linear map behind it.

        It is made as CLASS(embed_dim, heads), with kdim= and vdim= where it accepts them, and called as
        layer(query, key, value). embed_dim is the least multiple of the heads that has room for the inputs it serves.

        Raises:
            ValueError: whatever the class raises, or what it makes is no module with such a call; bias.
        """
        if bias:
            raise ValueError("bias is for layers of ours: a layer of your own has the biases that it makes")
        import torch

        from synthetic.training.model import Filled

        target = load(self.path, "a layer of your own")
        with users_code(f"{self.path} with {self.heads} heads"):
            accepted = inspect.signature(target).parameters
            free = [query, *(w for name, w in (("kdim", key), ("vdim", value)) if name not in accepted)]
            embed = -(-max(free) // self.heads) * self.heads
            own = {name: width for name, width in (("kdim", key), ("vdim", value)) if name in accepted}
            inner = target(embed, self.heads, **own)
            if not isinstance(inner, torch.nn.Module):
                raise TypeError(f"gives {type(inner).__name__}, not a torch module")
            widths = (embed, own.get("kdim", embed), own.get("vdim", embed))
            return Filled(inner, widths, [torch.zeros(2, tokens, width) for width in (query, key, value)], out)
