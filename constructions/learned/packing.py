"""Whether a trained layer that counts pairs packs: writes several tokens into one number (docs/cpm3.md, Theorem 3).

A position-only layer hands token i the numbers W_i x + c_i, W_i (r, N), x the sequence. They are enough for every count
only if W_i is injective on sequences (Theorem 1); with r < N numbers some hold more than one token. By powers of M, as
in Theorem 3, or by any other weights: almost all are injective. What tells them apart is precision. These measures say
how much a layer needs, before its MLP and with it:

- `smallest_difference`: the least |W d|, d the difference of two sequences, each number scaled to deviation 1. For a
  number a token it is 1.2 at M = 3; for k tokens a number by powers of M about M^(1-k) of that.
- `carried`: numbers are rounded to 2^p values, evenly spaced over their range; the share of right labels of the best
  function of them. A number a token needs p >= log2 M, k tokens a number k log2 M.
- `power_distance`: how far the ratios of a number's weights are from powers of M.

Bits decide: a layer of r < N numbers packs if it takes more of them a number than one with N does, by log2 M and more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn

from iha_theory.operators.numerical import frozen, position_only, realignment
from synthetic.tasks.count_pairs import all_sequences
from synthetic.tasks.cpm3_problem import Counter, Counting
from synthetic.tasks.task import Samples

BITS = range(1, 13)
"""The p of a table of accuracies."""
LOSS = 0.01
"""The share of labels that rounding may cost."""
MOST_SEQUENCES = 2**16
"""Most sequences that are all gone through."""
MOST_DIFFERENCES = 2**21
"""Most differences kept at a time by `smallest_difference`."""
SMALL = 3
"""Weights below M^-3 of their number's largest are left out of `power_distance`."""


@dataclass(frozen=True)
class Packing:
    """What the numbers of a layer hold.

    Attributes:
        numbers: r, those that a token gets.
        difference: least of `smallest_difference` over the tokens; None where that refuses.
        sums: at each token whose least difference is one of two tokens, 1 and -1, which these are. If it is small, the
            layer hands on their sum and little else of them.
        powers: mean of `power_distance` over the tokens: 0 for powers of M, about .25 for weights of any size.
        accuracy: of the model on the test set, in float64.
        carried: the accuracy at p = 1 .. 12 bits a number, of the best function on all sequences; None where these are
            more than `MOST_SEQUENCES`.
        used: the same of the layer's own MLP on the test set.
        bits: the least p at which the best function loses no more than `LOSS`; None where there is none.
        own_bits: the same of the MLP, beside its own accuracy.
    """

    numbers: int
    difference: float | None
    sums: list[list[int]]
    powers: float
    accuracy: float
    carried: list[float] | None
    used: list[float]
    bits: int | None
    own_bits: int | None


def least_bits(accuracies: Sequence[float], right: float) -> int | None:
    """The first of `BITS` with such an accuracy; None if there is none."""
    return next((p for p, found in zip(BITS, accuracies, strict=True) if found >= right), None)


def packing(model: Counter, problem: Counting, test: Samples) -> Packing:
    """All measures of a trained model.

    Args:
        model: position-only, on scalar tokens, without `skip`.
        problem: its task.
        test: sequences and labels on which the MLP is judged.

    Raises:
        ValueError: a model of another kind.
    """
    options = problem.options
    if options.mode != "position-only" or options.embedding != "scalar" or options.skip or options.position_values:
        raise ValueError("accepted are position-only layers on scalar tokens, whose MLP sees the attention's output")
    modulus, own = options.modulus, frozen(model)
    maps = mixings(own).numpy()
    found = [least for w in maps if (least := smallest_difference(w, modulus)) is not None]
    merged = [np.flatnonzero(d).tolist() for _, d in found if np.array_equal(np.sort(d[d != 0]), (-1, 1))]
    best = None
    if modulus**options.tokens <= MOST_SEQUENCES:
        x = np.concatenate(list(all_sequences(modulus, options.tokens)))
        labels = np.searchsorted(problem.counts, problem.task.target(x))
        numbers = np.einsum("irj,sj->sir", maps, x)
        best = [carried(round_to(numbers, p)[0], labels) for p in BITS]
    with torch.no_grad():
        numbers = own.seen(torch.from_numpy(test[0])).numpy()
    right = accuracy(own.mlp, numbers, test[1])
    used = [accuracy(own.mlp, round_to(numbers, p)[1], test[1]) for p in BITS]
    return Packing(
        numbers=numbers.shape[-1],
        difference=min(size for size, _ in found) if len(found) == len(maps) else None,
        sums=merged,
        powers=float(np.mean([power_distance(w, modulus) for w in maps])),
        accuracy=right,
        carried=best,
        used=used,
        bits=None if best is None else least_bits(best, 1 - LOSS),
        own_bits=least_bits(used, right - LOSS),
    )


def mixings(model: Counter) -> Float[Tensor, "N r N"]:
    """W_i for each token i, by the residues themselves (not by their centred form), float64."""
    layer, positions = model.get_submodule("layer"), model.positions[0]
    tokens = len(positions)
    deviation = model.embed(torch.tensor([[0, 1]])).double().diff(dim=1).item()
    whole = realignment(position_only(layer, positions, width=1))
    return deviation * whole.unflatten(0, (tokens, tokens)).transpose(1, 2)


def smallest_difference(w: Float[np.ndarray, "r N"], modulus: int) -> tuple[float, Int64[np.ndarray, " N"]] | None:
    """The least |W d| over d != 0 with entries in -(M-1) .. M-1: the Euclidean norm, rows scaled to deviation 1.

    The deviation of a number is that for uniform residues, |w| sqrt((M^2 - 1) / 12). All d are gone through, entry
    after entry, but those whose part so far is too long already (Fincke and Pohst, Math. Comp. 44, 1985).

    Args:
        w: W.
        modulus: M >= 2.

    Returns:
        It, and a d, of those alike one of the least entries; None if there are more than `MOST_DIFFERENCES` at a time.
    """
    n, entries = w.shape[1], np.arange(1 - modulus, modulus)
    size = np.linalg.norm(w, axis=1)
    w = w[size > 0] / (size[size > 0, None] * ((modulus**2 - 1) / 12) ** 0.5)
    triangle = np.zeros((n, n))
    if len(w):
        r = np.linalg.qr(w, mode="r")
        triangle[: len(r)] = r
    least = _one_or_two(triangle)
    found, tails = np.zeros((1, 0), dtype=np.int64), np.zeros(1)
    for i in reversed(range(n)):
        inner = found @ triangle[i, i + 1 :]
        new = tails[:, None] + (inner[:, None] + entries * triangle[i, i]) ** 2
        kept = (new <= least**2 * (1 + 1e-9) + 1e-18) & ((entries >= 0) | (i < n - 1))  # d and -d are alike
        if kept.sum() > MOST_DIFFERENCES:
            return None
        rows, columns = np.nonzero(kept)
        found = np.column_stack((entries[columns], found[rows]))
        tails = new[rows, columns]
    own = found.any(1)
    found, tails = found[own], tails[own]
    alike = np.flatnonzero(tails <= tails.min() * (1 + 1e-9) + 1e-18)  # also 2 d, if |W d| is 0
    best = int(alike[np.abs(found[alike]).sum(1).argmin()])
    return float(np.sqrt(tails[best])), found[best]


def _one_or_two(triangle: Float[np.ndarray, "n n"]) -> float:
    """The least |W d| for d with one entry 1, or two, 1 and 1 or 1 and -1: a length to begin with."""
    gram = triangle.T @ triangle
    i, j = np.triu_indices(len(gram), 1)
    pairs = gram[i, i] + gram[j, j] - 2 * np.abs(gram[i, j])
    return float(np.sqrt(max(0.0, min(np.diag(gram).min(), pairs.min(initial=np.inf)))))


def power_distance(w: Float[np.ndarray, "r N"], modulus: int) -> float:
    """Mean distance of log_M(|w_j| / largest of the row) from a whole number, 0 to .5.

    Over weights of at least M^-`SMALL` of their row's largest, and without this.
    """
    logs = np.log(np.maximum(np.abs(w), 1e-300)) / np.log(modulus)
    logs = np.sort(logs - logs.max(1, keepdims=True), axis=1)[:, :-1]
    logs = logs[logs >= -SMALL]
    return float(np.abs(logs - np.round(logs)).mean()) if len(logs) else 0.0


def round_to(
    numbers: Float[np.ndarray, "samples N r"], bits: int
) -> tuple[Int64[np.ndarray, "samples N r"], Float[np.ndarray, "samples N r"]]:
    """Each number's level among 2^p evenly spaced ones from its least value to its largest, and the level's value."""
    low, high = numbers.min(0), numbers.max(0)
    step = np.where(high > low, high - low, 1.0) / (2**bits - 1)
    levels = np.rint((numbers - low) / step).astype(np.int64)
    return levels, low + levels * step


def carried(levels: Int64[np.ndarray, "samples N r"], labels: Shaped[np.ndarray, "samples N"]) -> float:
    """The share of right labels of the best function of the numbers, at each token its own: the commonest label of
    each combination of them counts as right.
    """
    right, classes = 0, int(labels.max()) + 1
    for token in range(labels.shape[1]):
        cells = np.zeros(len(labels), dtype=np.int64)
        for level in levels[:, token].T:
            if int(cells.max() + 1) * int(level.max() + 1) * classes >= 2**62:
                cells = np.unique(cells, return_inverse=True)[1]
            cells = cells * (level.max() + 1) + level
        cells = np.unique(cells, return_inverse=True)[1]
        both, times = np.unique(cells * classes + labels[:, token], return_counts=True)
        most = np.zeros(int(cells.max()) + 1, dtype=np.int64)
        np.maximum.at(most, both // classes, times)
        right += int(most.sum())
    return right / labels.size


@torch.no_grad()
def accuracy(
    mlp: nn.Module,
    values: Float[np.ndarray, "samples N r"],
    labels: Shaped[np.ndarray, "samples N"],
) -> float:
    """The share of labels that the MLP gets right from these numbers."""
    return float((mlp(torch.from_numpy(values)).argmax(-1).numpy() == labels).mean())
