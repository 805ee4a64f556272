"""The hybrid schedule of App. C in closed form: layers with a window, and among them global ones."""

from iha_theory.costs.formulas import AttentionSizes, Number


def hybrid(
    tokens: Number,
    width: Number,
    heads: Number,
    layers: int,
    *,
    window: Number | None,
    global_every: int = 5,
    pseudo_heads: Number | None = None,
    global_pseudo_heads: Number | None = None,
) -> tuple[AttentionSizes, ...]:
    """The attention layers of a causal model, heads width / H wide: each `global_every`-th is global, others windowed.

    With H heads of P pseudo-heads, W = N / (2 P^2) and MHA in the global layer, five layers form, in units of H N^2,
    4 P^2 (N W - W (W - 1) / 2) / N^2 + 1 = 3 - 1 / (2 P^2) + 1 / N pairs: 3/5 of MHA's five up to edge effects
    (ledger P-schedule).

    A global layer counts all N^2 pairs, those that causality forbids too; a window counts those that it allows. So one
    of N or more tokens, which sees what a global layer does, counts half as many, (N + 1) / (2 N).

    Args:
        tokens: N.
        width: of the model.
        heads: H, a divisor of the width.
        layers: attention layers.
        window: W, at least 1; above N it is N, for integers; None: all layers are global.
        global_every: 0 for no global layer.
        pseudo_heads: P of the layers with a window; None for MHA.
        global_pseudo_heads: P of the global layers; None for MHA.
    """

    def sizes(pseudo: Number | None, own: Number | None) -> AttentionSizes:
        share = width // heads
        return AttentionSizes(tokens, width, heads, share, share, pseudo, out_width=width, window=own)

    if isinstance(window, int) and isinstance(tokens, int):
        window = min(window, tokens)
    every = global_every or layers + 1
    return tuple(
        sizes(global_pseudo_heads, None) if window is None or at % every == 0 else sizes(pseudo_heads, window)
        for at in range(1, layers + 1)
    )
