"""A position-only layer's exact operator, over the rationals or modulo a prime (see `iha_theory.operators.weights`).

`layer_columns`, of a torch layer, one or two; `columns`, of weights over any domain.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import nn

from iha_theory import exact
from iha_theory.attention import TwoLayerAttention
from iha_theory.attention.mixing.interleaved import Causality
from iha_theory.exact import Domain
from iha_theory.operators.weights import Mixing, PositionWeights, read


def layer_columns(
    layer: nn.Module, width: int, domain: Domain = QQ, causality: Causality | None = None
) -> Iterator[list[DomainMatrix | None]]:
    """The operator of a torch layer on [X, I_N], as `columns`; two layers are the composition of two operators.

    Args:
        layer: MHA, IHA, or two layers of MHA.
        width: the content's width d.
        domain: QQ, or a prime field into which the weights are mapped.
        causality: as `columns`.

    Raises:
        NotPositionOnlyError, ValueError: as `iha_theory.operators.weights.read` and `columns`.
    """
    if not isinstance(layer, TwoLayerAttention):
        yield from columns(read(layer, width, domain), causality)
        return
    first = read(layer.first, width, domain)
    second = read(layer.second, width, domain, value_width=layer.first.out_dim)
    yield from composed(columns(second, causality), list(columns(first, causality)))


def composed(
    outer: Iterable[list[DomainMatrix | None]], inner: Sequence[list[DomainMatrix | None]]
) -> Iterator[list[DomainMatrix | None]]:
    """The operator of one position-only layer behind another, as `columns`.

    With M1[c][a], M2[e][c] in R^{N x N} the maps from coordinate a of X to coordinate c between the layers, and on to e
    of the output, it is M[e][a] = sum_c M2[e][c] M1[c][a].
    """
    for second in outer:
        yield [_chain(second, [column[a] for column in inner]) for a in range(len(inner[0]))]


def columns(weights: PositionWeights, causality: Causality | None = None) -> Iterator[list[DomainMatrix | None]]:
    """The layer's operator, one output coordinate c at a time: for each content coordinate a the (N, N) matrix

        M[i, j] = d out[i, c] / d X[j, a],    None for 0.

    One head is in memory at a time, unless there is an output projection.

    Args:
        weights: the layer.
        causality: under the causal mask, by original token or by virtual one (as in IHA; the same for MHA); None for no
            mask.

    Raises:
        ValueError: the softmax pattern, which has no exact value.
    """
    coordinates = _head_columns(weights, causality)
    if weights.out is None:
        yield from coordinates
        return
    heads = list(coordinates)
    mix: Any = weights.out.transpose()  # type: ignore[union-attr]
    mixed = [exact.combinations(mix, [column[a] for column in heads]) for a in range(weights.width)]
    yield from map(list, zip(*mixed, strict=True))


def _head_columns(weights: PositionWeights, causality: Causality | None) -> Iterator[list[DomainMatrix | None]]:
    domain = weights.query[0].domain  # type: ignore[union-attr]
    values = [v if isinstance(v, DomainMatrix) else exact.matrix(v, domain) for v in weights.value]
    rows = [v.to_list() for v in values]
    for maps in _maps(weights, causality, domain):
        for b in range(values[0].shape[1]):
            yield [_sum((rows[m][a][b], u) for m, u in maps.items()) for a in range(weights.width)]


def _maps(weights: PositionWeights, causality: Causality | None, domain: Domain) -> Iterator[dict[int, DomainMatrix]]:
    """For each output head o the maps U[o, m] of the module docstring that are not 0, by m."""
    heads = range(weights.num_heads)
    mixing = weights.mixing or _no_mixing(weights.num_heads)
    alpha_q, alpha_k, alpha_v, collapse = (
        np.vectorize(lambda x: exact.element(domain, x), otypes=[object])(a)
        for a in (mixing.alpha_q, mixing.alpha_k, mixing.alpha_v, mixing.collapse)
    )
    pseudo = range(alpha_q.shape[2])
    queries = [[exact.combination(alpha_q[:, h, j], weights.query) for j in pseudo] for h in heads]  # type: ignore
    keys = [[exact.combination(alpha_k[:, h, j], weights.key) for j in pseudo] for h in heads]  # type: ignore
    if weights.pattern == "linear" and causality is None:  # bilinear: collapse the queries and mix the keys first
        mixed_keys = {(m, h): _sum(zip(alpha_v[m, h], keys[h], strict=True)) for m in heads for h in heads}
        for o in heads:
            collapsed = {h: _sum(zip(collapse[o, h], queries[h], strict=True)) for h in heads if any(collapse[o, h])}
            maps = {m: _products([(q, mixed_keys[m, h]) for h, q in collapsed.items()]) for m in heads}
            yield {m: u for m, u in maps.items() if u is not None}
    elif weights.pattern != "softmax":
        patterns = {
            (h, j): _pattern_maps(weights, j, queries[h][j], keys[h], causality, domain)
            for h in heads
            for j in pseudo
            if any(collapse[:, h, j])
        }
        for o in heads:
            yield {
                m: total
                for m in heads
                if (
                    total := _sum(
                        (collapse[o, h, j] * alpha_v[m, h, i], s)
                        for (h, j), row in patterns.items()
                        for i, s in enumerate(row)
                    )
                )
                is not None
            }
    else:
        raise ValueError("softmax attention has no exact operator: accepted patterns are linear and hard")


def _pattern_maps(
    weights: PositionWeights,
    j: int,
    query: DomainMatrix | None,
    keys: list[DomainMatrix | None],
    causality: Causality | None,
    domain: Domain,
) -> list[DomainMatrix]:
    """Attention of pseudo-query j over the pseudo-keys of its head: for each pseudo-key the (N, N) map."""
    if weights.pattern == "hard" and domain != QQ:
        raise ValueError("hard attention compares sizes, which needs the rationals")
    tokens = weights.tokens
    none = exact.zeros((tokens, tokens), domain)
    products = [none if query is None or k is None else query * k.transpose() for k in keys]
    visible = _visible(tokens, len(keys), j, causality)  # [pseudo-key, token, token]
    if weights.pattern == "hard":
        scores, _ = exact.numerators(products)
        scores[~visible] = scores.min() - 1
        best = scores == scores.max(axis=(0, 2), keepdims=True)
        ties = best.sum(axis=(0, 2), keepdims=True)
        share = np.array([domain.zero, *(domain(1) / domain(n) for n in range(1, ties.max() + 1))], dtype=object)
        maps = share[best * ties]
    else:
        maps = np.where(visible, np.array([m.to_list() for m in products], dtype=object), domain.zero)
    return [DomainMatrix(m, (tokens, tokens), domain).to_dense() for m in maps.tolist()]


def _visible(tokens: int, pseudo: int, j: int, causality: Causality | None) -> np.ndarray:
    """Whether virtual token (n, j) may attend to virtual token (t, i): [i, n, t]."""
    i, n, t = np.ogrid[:pseudo, :tokens, :tokens]
    if causality is None:
        return np.ones((pseudo, tokens, tokens), dtype=bool)
    return (t <= n) & ((t < n) | (i <= j) | (causality == "token"))


def _products(pairs: list[tuple[DomainMatrix | None, DomainMatrix | None]]) -> DomainMatrix | None:
    """sum Q K^T over the pairs of which neither is 0."""
    total = None
    for q, k in pairs:
        if q is not None and k is not None:
            s = q * k.transpose()
            total = s if total is None else total + s
    return total


def _chain(outer: list[DomainMatrix | None], inner: list[DomainMatrix | None]) -> DomainMatrix | None:
    """sum_c M2[c] M1[c]."""
    total = None
    for second, first in zip(outer, inner, strict=True):
        if second is not None and first is not None:
            total = second * first if total is None else total + second * first
    return total


def _no_mixing(heads: int) -> Mixing:
    own = np.eye(heads, dtype=np.int64)[:, :, None]
    return Mixing(own, own, own, own)


def _sum(terms: Any) -> DomainMatrix | None:
    pairs = [(c, m) for c, m in terms if c and m is not None]
    return exact.combination([c for c, _ in pairs], [m for _, m in pairs])
