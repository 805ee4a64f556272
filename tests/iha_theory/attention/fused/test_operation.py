"""The fused routes are attention by definition, for whatever sizes, pairs and precision, and so are their gradients."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention, patterns
from iha_theory.attention.fused import blocks, operation, token_causal
from iha_theory.attention.masks import Pairs

F64 = torch.float64
CAUSALITIES = ("none", "token", "virtual")


def allowed(pairs: Pairs, queries: int, keys: int) -> Tensor:
    """Which virtual tokens see which, in the words of `Pairs`, (1 or batch, 1, queries, keys)."""
    p = pairs.pseudo
    out = torch.ones(1 if pairs.mask is None else len(pairs.mask), 1, queries * p, keys * p, dtype=torch.bool)
    for b, (a, x), (c, y) in itertools.product(
        range(len(out)), itertools.product(range(queries), range(p)), itertools.product(range(keys), range(p))
    ):
        n = a + pairs.start
        fine = {"none": True, "token": c <= n, "virtual": (c, y) <= (n, x)}[pairs.causality]
        fine = fine and (pairs.window is None or abs(n - c) < pairs.window)
        out[b, 0, a * p + x, c * p + y] = fine and (pairs.mask is None or bool(pairs.mask[b, a, c]))
    return out


def by_definition(q: Tensor, k: Tensor, v: Tensor, scale: float, seen: Tensor) -> Tensor:
    """Softmax over what is seen; 0 where nothing is."""
    scores = scale * q @ k.mT
    weights = torch.where(seen, (scores - scores.detach().amax(-1, keepdim=True)).exp(), 0.0)
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total > 0, total, 1.0) @ v


def tolerances(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, scale: float, dtype: torch.dtype) -> list[float]:
    """Of output and gradients: what rounding can do to each.

    A score of size S is wrong by (d + 3) u S, so that a weight is wrong by twice that and by the roundings of a sum of
    n terms and of an exponential (the kernel's is right to 2^-20) relative to itself: by e. In half precision sums are
    kept in float32, and weights, slopes and partial outputs are rounded. A slope is weight * (dp - delta), of which
    both are at most |g| |v|; sums over queries have as many terms.
    """
    unit = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    half = torch.finfo(dtype).eps if torch.finfo(dtype).bits == 16 else 0.0
    big_q, big_k, big_v, big_g = (x.norm(dim=-1).max().item() for x in (q, k, v, grad))
    n, rows, d = k.shape[2], q.shape[2], max(q.shape[3], v.shape[3])
    exponential = 2.0**-20 if unit > 1e-10 else 0.0
    e = 2 * (d + 3) * unit * abs(scale) * big_q * big_k + (n + 16) * unit + exponential + 4 * half
    slopes = 4 * (e + d * unit) * big_g * big_v * abs(scale)
    return [e * big_v, slopes * big_k, rows * slopes * big_q, rows * e * big_g]


def check(q: Tensor, k: Tensor, v: Tensor, pairs: Pairs, scale: float = 0.7) -> None:
    """Output and gradients of the operation against the definition in float64."""
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    assert operation.takes(q, k, v, pairs)
    out = operation.attention(*inputs, scale, pairs)
    seen = allowed(pairs, q.shape[2] // pairs.pseudo, k.shape[2] // pairs.pseudo)
    right = by_definition(*exact, scale, seen)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(9), dtype=F64).to(q.dtype)
    got = out, *torch.autograd.grad(out, inputs, grad)
    wanted = right, *torch.autograd.grad(right, exact, grad.double())
    for a, b, most in zip(got, wanted, tolerances(*exact, grad.double(), scale, q.dtype), strict=True):
        assert (a.double() - b).abs().max().item() <= most


def random(*shape: int, seed: int, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_routes_are_attention(data):
    draw = data.draw
    pseudo, queries, width, value_width = (draw(st.integers(1, most)) for most in (4, 9, 5, 5))
    batch, heads = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    dtype = draw(st.sampled_from([F64, torch.float32, torch.bfloat16, torch.float16]))
    causality = draw(st.sampled_from(CAUSALITIES))
    window = draw(st.sampled_from([None, 1, 2, 3, 20]))
    keys = queries if causality != "none" or window is not None else draw(st.integers(1, 9))
    mask = draw(st.sampled_from([None, 1, batch]))
    if mask is not None:
        mask = torch.rand(mask, queries, keys, generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))) < 0.6
    lengths = (queries, keys, keys)
    q, k, v = (
        random(batch, n * pseudo, heads, w, seed=i, dtype=dtype).transpose(1, 2)
        for i, (n, w) in enumerate(zip(lengths, (width, width, value_width), strict=True))
    )
    with pytest.MonkeyPatch.context() as patch:  # else these sizes were one block each
        patch.setattr(blocks, "ROWS", 3)
        patch.setattr(blocks, "LEAST_ROWS", draw(st.integers(1, 8)))
        patch.setattr(blocks, "LINE", draw(st.sampled_from([1, 4, 16])))
        patch.setattr(operation, "LONG", draw(st.sampled_from([1, operation.LONG])))
        check(q, k, v, Pairs(mask, causality, window, pseudo))


@pytest.mark.parametrize("causality", CAUSALITIES)
@pytest.mark.parametrize("window", [None, 9])
def test_whole_blocks(causality, window, monkeypatch):
    """Lengths over several of the kernel's own tiles, with true block sizes; queries that come after the first keys."""
    if causality != "none" and window is None:
        whole = [random(1, 130, 2, 4, seed=i).transpose(1, 2) for i in range(3)]
        check(*whole, Pairs(None, causality, None, 2))
        monkeypatch.setattr(operation, "LONG", 200)
    if causality != "none" or window is not None:
        for dtype in (F64, torch.float32, torch.bfloat16):
            q, k, v = (random(1, 130, 2, 4, seed=i, dtype=dtype).transpose(1, 2) for i in range(3))
            check(q, k, v, Pairs(None, causality, window, 2))
    if window is not None:
        check(q[:, :, :60], k, v, Pairs(None, causality, window, 2, start=35))


def nothing_within_a_token(queries: Tensor, keys: Tensor, scale: float) -> Tensor:
    """Scores that leave out what causality by token adds to that of the virtual order."""
    return (queries * keys).sum(-1).fill_(-math.inf)


@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("place", "name", "damaged"),
    [
        (token_causal, "_scores", nothing_within_a_token),
        (torch, "logaddexp", torch.maximum),
        (Pairs, "seen", lambda pairs, rows, keys: range(max(0, rows.start - 1), rows.stop)),
    ],
    ids=["own token", "merging", "keys of a block"],
)
def test_what_is_damaged_is_refused(place, name, damaged, dtype, monkeypatch):
    q, k, v = (random(1, 12, 1, 4, seed=i, dtype=dtype).transpose(1, 2) for i in range(3))
    pairs = Pairs(None, "token", 5 if place is Pairs else None, 2)
    monkeypatch.setattr(blocks, "LEAST_ROWS", 2)
    monkeypatch.setattr(blocks, "LINE", 1)
    monkeypatch.setattr(operation, "LONG", 1)
    check(q, k, v, pairs)
    monkeypatch.setattr(place, name, damaged)
    with pytest.raises(AssertionError):
        check(q, k, v, pairs)


PAIRS = [
    Pairs(None, "token", None, 3),
    Pairs(torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(0)) < 0.6, "virtual", 3, 2),
    Pairs(torch.rand(1, 4, 4, generator=torch.Generator().manual_seed(1)) < 0.6, "none", None, 2),
]
every_pairs = pytest.mark.parametrize("pairs", PAIRS, ids=["token", "virtual, window, mask", "mask"])


@every_pairs
def test_derivatives(pairs):
    inputs = [random(2, 2, 4 * pairs.pseudo, w, seed=i).requires_grad_() for i, w in enumerate((3, 3, 2))]
    assert gradcheck(lambda *x: operation.attention(*x, 0.7, pairs), inputs, fast_mode=True)
    assert gradgradcheck(lambda *x: operation.attention(*x, 0.7, pairs), inputs, fast_mode=True)


def test_what_vmap_maps_takes_the_fused_route(monkeypatch):
    """However few tokens: without it torch writes all weights out. Outside vmap so few do not."""
    taken = []
    monkeypatch.setattr(operation, "attention", lambda q, *_: taken.append(q.shape) or q)
    x = torch.randn(3, 2, 1, 4, 8)

    def one(x: Tensor) -> Tensor:
        return patterns.attend(x, x, x, pattern="softmax", scale=1.0, pairs=Pairs(None, "token"))

    one(x[0])
    assert not taken
    torch.func.vmap(one)(x)
    assert taken == [(2, 1, 4, 8)]


@every_pairs
def test_vmap_is_a_loop(pairs):
    q, k, v = (random(3, 2, 2, 4 * pairs.pseudo, 3, seed=i).requires_grad_() for i in range(3))

    def one(q, k, v):
        return operation.attention(q, k, v, 0.7, pairs)

    looped = torch.stack([one(*x) for x in zip(q, k, v, strict=True)])
    mapped = torch.func.vmap(one)(q, k, v)
    torch.testing.assert_close(mapped, looped, rtol=1e-13, atol=1e-14)
    gradients = (torch.autograd.grad(x.sin().sum(), (q, k, v)) for x in (mapped, looped))
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-13)
    shared = torch.func.vmap(one, in_dims=(None, 1, 0))(q[0], k.transpose(0, 1), v)
    torch.testing.assert_close(shared, torch.stack([one(q[0], k[i], v[i]) for i in range(3)]), rtol=1e-13, atol=1e-14)


@every_pairs
def test_the_operation_is_as_torch_wants_it(pairs):
    q, k, v = (random(2, 2, 4 * pairs.pseudo, 3, seed=i).requires_grad_() for i in range(3))
    rest = (pairs.mask, 0.7, pairs.causality, pairs.window, pairs.pseudo, pairs.start)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(operation._forward, (q, k, v, *rest), test_utils=tests)
    out, lse = operation._forward(q, k, v, *rest)
    inputs = (x.detach() for x in (out, q, k, v, out, lse))
    torch.library.opcheck(operation._backward, (*inputs, *rest), test_utils=tests)


def test_functions_derivatives_go_another_way():
    q = random(1, 1, 4, 3, seed=0)
    seen = []

    def f(x):
        seen.append(operation.takes(x, x, x, Pairs()))
        return x.sum()

    torch.func.grad(f)(q)
    torch.func.vmap(torch.func.grad(f))(q)
    torch.func.grad(lambda x: torch.func.vmap(f)(x).sum())(q)
    torch.func.vmap(f)(q[None])
    assert seen == [False, False, False, True]
    assert not operation.takes(q.to("meta"), q.to("meta"), q.to("meta"), Pairs())
    assert not operation.takes(q, q, q.float(), Pairs())
    assert not operation.takes(q[:, :, :0], q, q, Pairs())


@pytest.mark.parametrize("kind", [MultiHeadAttention, InterleavedHeadAttention])
@pytest.mark.parametrize("window", [None, 5])
def test_layers_take_the_routes(kind, window, monkeypatch):
    """The same outputs and gradients whether the mask is written out or not, and no mask of all pairs if not."""
    layer = kind(8, 4, window=window, dtype=F64)
    x = random(2, 20, 8, seed=1)
    mask = torch.rand(20, 20, generator=torch.Generator().manual_seed(2)) < 0.8
    for call in ({"is_causal": True}, {"mask": mask}, {"mask": mask, "is_causal": True}):
        found = []
        for most in (10**9, 0):
            monkeypatch.setattr(patterns, "DENSE", most)
            out = layer(x, x, x, **call)
            found.append((out, *torch.autograd.grad(out.sin().sum(), tuple(layer.parameters()))))
        torch.testing.assert_close(*found, rtol=1e-11, atol=1e-12)
    assert most == 0
    monkeypatch.setattr(Pairs, "written_out", None)
    if kind is InterleavedHeadAttention or window:
        layer(x, x, x, is_causal=True)
    layer(x, x, x, mask=mask)
