"""The map of content that a trained layer is, from its weights and the layer's definition (Sec. 4), in integers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import fmpz_mat

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
    """M and e: output c of token n is 2^e sum_{a,j} M[c,a,n,j] X[j,a], M in Python's integers, (D, d, N, N).

    Token n is the virtual tokens (n, p), with queries sum_m alpha_q[m,h,p] Q_m[n] and so on. In linear attention
    (n, p) takes the value of (j, p') times the product of its query and their key. The collapse and the output
    projection then add up what all (h, p) took.

    Args:
        sizes: of the layer.
        tensors: float32 or float64, of `shapes`.
    """
    tokens, heads, pseudo = sizes.tokens, sizes.heads, sizes.pseudo or 1
    known = {name: _integers(tensor) for name, tensor in tensors.items()}
    exponent = sum(e for _, e in known.values())
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
        scores = _product(_virtual(query), _virtual(key).T).reshape(tokens, pseudo, tokens, pseudo)
        read = np.tensordot(collapse[:, h], out, axes=(0, 1))  # [p, c, coordinate]
        taken = np.tensordot(read, value, axes=(2, 1))  # [p, c, p', a]
        total = total + _product(
            scores.transpose(0, 2, 1, 3).reshape(tokens**2, pseudo**2),
            taken.transpose(0, 2, 1, 3).reshape(pseudo**2, -1),
        )
    return total.T.reshape(sizes.outputs, sizes.width, tokens, tokens), exponent


def _virtual(made: np.ndarray) -> np.ndarray:
    """[p, coordinate, token] as rows of virtual tokens, token-major."""
    return made.transpose(2, 0, 1).reshape(-1, made.shape[1])


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A B in integers, by flint."""
    entries: Any = (fmpz_mat(a.tolist()) * fmpz_mat(b.tolist())).entries()
    return np.array([int(x) for x in entries], dtype=object).reshape(a.shape[0], b.shape[1])


def _integers(tensor: np.ndarray) -> tuple[np.ndarray, int]:
    """Floats as integers times 2^e, without rounding."""
    fractions, exponents = np.frexp(tensor.astype(np.float64))
    whole, exponents = (fractions * 2.0**53).astype(np.int64), exponents.astype(int) - 53
    least = int(exponents[whole != 0].min(initial=0))
    flat = [int(x) << (int(e) - least) if x else 0 for x, e in zip(whole.flat, exponents.flat, strict=True)]
    return np.array(flat, dtype=object).reshape(tensor.shape), least
