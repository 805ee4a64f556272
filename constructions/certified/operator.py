"""The map of content that a trained layer is, from its weights and the layer's definition (Sec. 4), in integers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, arb_mat, fmpz_mat

PRECISION = 320
"""Bits of ball arithmetic, for softmax."""
PROJECTIONS = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight")
MIXING = ("alpha_q", "alpha_k", "alpha_v", "collapse")


@dataclass(frozen=True)
class Sizes:
    """H heads of P pseudo-heads on N tokens of content of width d; D outputs. P is None for MHA."""

    tokens: int
    width: int
    outputs: int
    heads: int
    pseudo: int | None
    per_head: bool = False
    softmax: bool = False


def shapes(sizes: Sizes, tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """The shapes that the tensors have to have; widths of queries and values are as the tensors say."""
    heads, pseudo = sizes.heads, sizes.pseudo
    query, value = (max(1, len(tensors[name]) // heads) if name in tensors else 1 for name in PROJECTIONS[::2])
    found: dict[str, tuple[int, ...]] = {
        "q_proj.weight": (heads * query, sizes.tokens),
        "k_proj.weight": (heads * query, sizes.tokens),
        "v_proj.weight": (heads * value, sizes.width),
        "out_proj.weight": (sizes.outputs, heads * value),
    }
    if pseudo is not None:
        mixing = (heads, heads, pseudo)
        found |= dict.fromkeys(MIXING, mixing) | ({"collapse": mixing[1:]} if sizes.per_head else {})
    return found


def operator(sizes: Sizes, tensors: Mapping[str, np.ndarray]) -> tuple[np.ndarray, int]:
    """M and e: output c of token n is 2^e sum_{a,j} M[c,a,n,j] X[j,a], M (D, d, N, N) of Python's integers, or balls.

    Token n is the virtual tokens (n, p), with queries sum_m alpha_q[m,h,p] Q_m[n] and so on. In linear attention
    (n, p) takes the value of (j, p') times the product s of its query and their key; in softmax attention times exp s
    over the sum of those of all (j, p'), a ball. The collapse and the output projection add up what all (h, p) took.

    Args:
        sizes: of the layer.
        tensors: float32 or float64, of `shapes`.
    """
    tokens, heads, pseudo = sizes.tokens, sizes.heads, sizes.pseudo or 1
    known = {name: _integers(tensor) for name, tensor in tensors.items()}
    exponent = sum(e for _, e in known.values())
    scored = sum(known[name][1] for name in (*PROJECTIONS[:2], *MIXING[:2]) if name in known)
    q, k, v, out = (known[name][0] for name in PROJECTIONS)
    if sizes.pseudo is None:
        own = np.array([[[int(m == h)] for h in range(heads)] for m in range(heads)], dtype=object)
        alpha_q = alpha_k = alpha_v = collapse = own
    else:
        alpha_q, alpha_k, alpha_v, collapse = (known[name][0] for name in MIXING)
        if sizes.per_head:
            spread = np.zeros((heads, heads, pseudo), dtype=object)
            for h in range(heads):
                spread[h, h] = collapse[h]
            collapse = spread
    out = out.reshape(sizes.outputs, heads, -1)
    total = np.zeros((tokens * tokens, sizes.width * sizes.outputs), dtype=object)
    for h in range(heads):
        query, key, value = (
            np.tensordot(alpha[:, h], w.reshape(heads, -1, w.shape[1]), axes=(0, 0))  # [p, coordinate, input]
            for alpha, w in ((alpha_q, q), (alpha_k, k), (alpha_v, v))
        )
        scores = _product(_virtual(query), _virtual(key).T)
        if sizes.softmax:
            scores = _softmax(scores, scored)
        scores = scores.reshape(tokens, pseudo, tokens, pseudo)
        read = np.tensordot(collapse[:, h], out, axes=(0, 1))  # [p, c, coordinate]
        taken = np.tensordot(read, value, axes=(2, 1))  # [p, c, p', a]
        total = total + _product(
            scores.transpose(0, 2, 1, 3).reshape(tokens**2, pseudo**2),
            taken.transpose(0, 2, 1, 3).reshape(pseudo**2, -1),
        )
    made = total.T.reshape(sizes.outputs, sizes.width, tokens, tokens)
    return made, exponent - scored if sizes.softmax else exponent


def _softmax(scores: np.ndarray, exponent: int) -> np.ndarray:
    """exp over the sum of its row, of integers times 2^exponent."""
    weights = [[(arb(x) * arb(2) ** exponent).exp() for x in row] for row in scores.tolist()]
    sums = [sum(row, arb(0)) for row in weights]
    entries = np.empty(scores.shape, dtype=object)
    for n, (row, total) in enumerate(zip(weights, sums, strict=True)):
        entries[n] = [x / total for x in row]
    return entries


def _virtual(made: np.ndarray) -> np.ndarray:
    """[p, coordinate, token] as rows of virtual tokens, token-major."""
    return made.transpose(2, 0, 1).reshape(-1, made.shape[1])


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A B in integers, or balls in A, by flint."""
    if isinstance(a[0, 0], arb):
        entries: Any = (arb_mat(a.tolist()) * arb_mat([[arb(x) for x in row] for row in b.tolist()])).entries()
    else:
        entries = [int(x) for x in (fmpz_mat(a.tolist()) * fmpz_mat(b.tolist())).entries()]
    made = np.empty(len(entries), dtype=object)
    made[:] = entries
    return made.reshape(a.shape[0], b.shape[1])


def _integers(tensor: np.ndarray) -> tuple[np.ndarray, int]:
    """Floats as integers times 2^e, without rounding."""
    fractions, exponents = np.frexp(tensor.astype(np.float64))
    whole, exponents = (fractions * 2.0**53).astype(np.int64), exponents.astype(int) - 53
    least = int(exponents[whole != 0].min(initial=0))
    flat = [int(x) << (int(e) - least) if x else 0 for x, e in zip(whole.flat, exponents.flat, strict=True)]
    return np.array(flat, dtype=object).reshape(tensor.shape), least
