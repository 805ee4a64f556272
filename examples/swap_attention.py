"""IHA in place of the attention of a small GPT: the same function at first, then trained on.

    uv run python examples/swap_attention.py

A character-level model with torch.nn.MultiheadAttention learns its own source for some steps. `swap` then puts an IHA
in every block, with 4 pseudo-heads a head, that computes exactly what was there (docs/results.md T11). Both go on from
there with the same batches. What is printed is no benchmark: the text is short, and so is the training.
"""

import copy
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from iha_theory import InterleavedHeadAttention

CONTEXT, WIDTH, HEADS = 32, 32, 4


class Block(nn.Module):
    """Attention and an MLP, each behind a norm and beside a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention: nn.Module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Causal."""
        z = self.norm(x)
        later = torch.ones(z.shape[1], z.shape[1], dtype=torch.bool).triu(1)
        mixed, _ = self.attention(z, z, z, attn_mask=later, is_causal=True, need_weights=False)
        x = x + mixed
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """Logits of the next character."""

    def __init__(self, characters: int, layers: int = 2) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens) to (batch, tokens, characters)."""
        return self.head(self.blocks(self.tokens(x) + self.places(torch.arange(x.shape[1]))))


# The swap.
class Swapped(nn.Module):
    """IHA with the call of torch's layer."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.iha = InterleavedHeadAttention.from_mha(attention, num_pseudo_heads=4)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, is_causal: bool, **_: object) -> tuple[Tensor, None]:
        """As torch's, without weights to look at; the mask is the causal one."""
        return self.iha(query, key, value, is_causal=is_causal), None


def swap(model: nn.Module) -> nn.Module:
    """The model, with IHA in place of every torch.nn.MultiheadAttention; the same function."""
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.MultiheadAttention):
            model.set_submodule(name, Swapped(module))
    return model


# End of the swap.
def train(model: nn.Module, text: Tensor, steps: int, seed: int, name: str) -> float:
    """Trains on random windows of the text, and says how far it is; returns the mean loss of the last ten steps."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[float] = []
    for step in range(steps):
        if step % 25 == 0:
            print(f"{name}: step {step} of {steps}", file=sys.stderr)
        starts = torch.randint(len(text) - CONTEXT, (16,), generator=generator)
        windows = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
        loss = F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return sum(losses[-10:]) / len(losses[-10:])


def main(steps: int = 100) -> tuple[float, float, float, float]:
    """The loss before the swap; how much the swap changed; the losses of both after as many steps again."""
    torch.manual_seed(0)
    source = Path(__file__).read_text(encoding="utf-8")
    characters = sorted(set(source))
    text = torch.tensor([characters.index(c) for c in source])
    mha = GPT(len(characters))
    before = train(mha, text, steps, 1, "MHA")
    iha = swap(copy.deepcopy(mha))
    window = text[None, :CONTEXT]
    difference = float((iha(window) - mha(window)).abs().max().detach())
    return before, difference, train(mha, text, steps, 2, "MHA, on"), train(iha, text, steps, 2, "IHA, swapped in")


if __name__ == "__main__":
    before, difference, mha, iha = main()
    print(f"MHA: loss {before:.2f}. The swap changed the logits by {difference:.1e} at most.")
    print(f"After as many steps again: MHA {mha:.2f}, IHA {iha:.2f}.")
