"""MHA is strictly inside IHA: the theorem and its proof as printed (Sec. 4.1, App. B.1; ledger E8).

**Softmax: strict with positions too.** Let MHA read [X, I_N] everywhere, with any number of heads. On X = 1 x^T its
logits are x^T M x + <x, m_j> + c_ij + terms without j, so its weights are softmaxes over j of functions linear in x,
and along x = t u its output is b t + r(t), r a bounded rational function of exponentials of t. Unless r is constant,
r(t) - lim r is like c exp(-delta t) as t -> infinity, with c != 0 and delta > 0. The witness is tanh(s t^2) t v, and
for s = <W_Q u, W_K u> > 0 it differs from t v by 2 t exp(-2 s t^2) (1 + o(1)): not 0, and smaller than every
exp(-delta t). So r would be constant and the witness affine in t, which it is not: no MHA equals it, although MHA is
not linear on repeated tokens either if its values read positions (P-repeated-linear).

**Linear attention: equal for one head, strict for more.** One head of IHA is
sum_{j,j'} R_j alphaQ_j alphaK_j' alphaV_j' (Q K^T) V, an MHA head with a factor, for every P. For H >= 2
see `constructions.ledger.attention.linear`.
"""

from typing import Any

import torch
from torch import Tensor

from constructions.checks.inclusion import TOKENS, WITNESS_WIDTH, witness_error, witness_weights
from constructions.ledger.attention.inclusion import ROUNDING, normal, randomise, relative_gap
from constructions.ledger.attention.linear import stays_away
from constructions.ledger.statement import Assumption, Claim, Finding, Place, Statement, size
from constructions.targets.inclusion import repeated, witness
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.operators.weights import with_positions

# P-repeated-linear


def linear_on_repeated(pattern: str, reads: str, heads: int, tokens: int, *, power: int = 1) -> Finding:
    """Whether a random MHA on [1 x^T, I_N] is linear in x: f(a x + b y) = a f(x) + b f(y), for two x, y.

    reads: which projections use the positions beside the content: "none", "keys" or "values" (and the keys). power:
    homogeneity is claimed of this degree, f(2 x) = 2^power f(x).
    """
    width = 2
    mha = MultiHeadAttention(width + tokens, heads, head_dim=2, pattern=pattern, scale=1.0, dtype=torch.float64)  # type: ignore[arg-type]
    randomise(mha)
    with torch.no_grad():
        for name, linear in (("queries", mha.q_proj), ("keys", mha.k_proj), ("values", mha.v_proj)):
            if name == "queries" or reads == "none" or (reads == "keys" and name == "values"):
                linear.weight[:, width:] = 0
        x, y = normal(9, 2, 1, width)

        def f(content: Tensor) -> Tensor:
            inputs = with_positions(repeated(content, tokens))
            return mha(inputs, inputs, inputs)

        fx, fy, both, twice = f(x), f(y), f(3 * x - y), f(2 * x)
        additive, homogeneous = relative_gap(both, 3 * fx - fy), relative_gap(twice, 2**power * fx)
        degree = float((twice.norm() / fx.norm()).log2())
    error = max(additive, homogeneous)
    what = (
        f"{pattern}, positions in {reads}, H = {heads}, N = {tokens}: f(3x - y) is off 3 f(x) - f(y) by "
        f"{size(additive):g} of its size, and |f(2x)| = 2^{degree:.3g} |f(x)|"
    )
    return Finding(
        error <= ROUNDING, what, {"additive": size(additive), "homogeneous": size(homogeneous), "degree": degree}
    )


# E8, P-strict


def printed_witness_is_nonlinear(pseudo: int, seed: int, *, queries: float = 1.0) -> Finding:
    """App. B.1's witness with alphaV2 = +1 on repeated tokens. queries: factor on the queries."""
    weights = witness_weights(seed)
    query, key, value = weights
    layer = witness(queries * query, key, value, pseudo)
    with torch.no_grad():
        layer.alpha_v[0, 0, 1] = 1
        x = normal(seed, 8, WITNESS_WIDTH)
        out, twice = (layer(*[repeated(t * x, TOKENS)] * 3) for t in (1, 2))
        departure, from_v = relative_gap(twice, 2 * out), relative_gap(out, repeated(x @ value.T, TOKENS))
    if departure <= ROUNDING:  # no figures here: those of rounding differ between machines, and the README has this
        found = f"the output is {'v = W_V x' if from_v <= ROUNDING else 'not v'}, it is linear to rounding"
    else:
        found = f"the output is off v = W_V x by {from_v:.2g} of its size, and f(2x) off 2 f(x) by {departure:.2g}"
    what = f"P = {pseudo}, alphaV2 = +1: {found}"
    return Finding(departure > ROUNDING, what, {"departure": size(departure), "gap_to_v": size(from_v)})


def repaired_witness(pseudo: int, seed: int, *, sign: int = -1, zeroed: bool = True) -> Finding:
    """alphaV2 = -1: 2 sinh(s) / (2 cosh(s) + P - 2) v, s = <q, k>; tanh(s) v for P = 2.

    sign: alphaV2. zeroed: whether the formula counts the softmax mass of the P - 2 pseudo-heads that are 0.
    """
    weights = query, key, value = witness_weights(seed)
    layer = witness(*weights, pseudo)
    with torch.no_grad():
        layer.alpha_v[0, 0, 1] = sign
        _, bound, departure = witness_error(layer, weights)
        x = normal(seed, 8, WITNESS_WIDTH)
        out = layer(*[repeated(x, TOKENS)] * 3)
    s = ((x @ query.T) * (x @ key.T)).sum(-1, keepdim=True)
    formula = s.tanh() if pseudo == 2 or not zeroed else 2 * s.sinh() / (2 * s.cosh() + pseudo - 2)
    error = relative_gap(out, repeated(formula * (x @ value.T), TOKENS))
    what = (
        f"P = {pseudo}, alphaV2 = {sign:+d}: off {'tanh(s) v' if pseudo == 2 else '2 sinh(s) v / (2 cosh(s) + P - 2)'} "
        f"by {size(error):g} of its size; |f(2x) - 2 f(x)| is up to {departure:.3g}, where rounding "
        f"explains {bound:.2g}"
    )
    nonlinear = departure > 1e3 * bound
    return Finding(
        error <= ROUNDING and nonlinear, what, {"error": size(error), "departure": departure, "bound": bound}
    )


def strictly_inside(pattern: str, heads: int, pseudo: int, *, value: int = -1, more: int = 0) -> Finding:
    """Whether an IHA is no MHA of the same pattern.

    Softmax and hard, one head (and others that are 0): the witness is not linear on repeated tokens, where every MHA
    is. Linear: see the module docstring. value: the witness's alphaV2. more: how many heads beyond H^2 - 1 an MHA of
    linear attention has that is told apart from IHA with H heads.
    """
    if pattern == "linear":
        return _one_linear_head(pseudo) if heads == 1 else stays_away(heads, pseudo, "random", more=more)
    layer = witness(*witness_weights(1), pseudo)
    layer.pattern = pattern  # type: ignore[assignment]
    with torch.no_grad():
        layer.alpha_v[0, 0, 1] = value
        x = normal(2, 8, WITNESS_WIDTH)
        fx, fy, both, twice = (layer(*[repeated(z, TOKENS)] * 3) for z in (x, x.roll(1, 0), x + x.roll(1, 0), 2 * x))
    additive, homogeneous = relative_gap(both, fx + fy), relative_gap(twice, 2 * fx)
    what = (
        f"{pattern}, P = {pseudo}, on repeated tokens: f(x + y) is off f(x) + f(y) by {size(additive):g} of its size, "
        f"and f(2x) off 2 f(x) by {size(homogeneous):g}"
    )
    values = {"additive": size(additive), "homogeneous": size(homogeneous)}
    return Finding(max(additive, homogeneous) > ROUNDING, what, values)


def _one_linear_head(pseudo: int) -> Finding:
    """One head of IHA with random mixing, beside the MHA head that its paths through the pseudo-heads add up to."""
    options: dict[str, Any] = {"out_proj": False, "pattern": "linear", "dtype": torch.float64}
    layer = InterleavedHeadAttention(WITNESS_WIDTH, 1, num_pseudo_heads=pseudo, init="random", **options)
    head = MultiHeadAttention(WITNESS_WIDTH, 1, **options)
    randomise(layer)
    with torch.no_grad():
        head.load_state_dict({name: p for name, p in layer.state_dict().items() if "proj" in name})
        mixing = (layer.collapse, layer.alpha_q, layer.alpha_k, layer.alpha_v)
        paths = torch.einsum("j,j,i,i->", *(m[0, 0] for m in mixing))
        head.v_proj.weight.mul_(paths)
        x = normal(3, 4, TOKENS, WITNESS_WIDTH)
        gap = relative_gap(layer(x, x, x), head(x, x, x))
    what = f"linear, H = 1, P = {pseudo}: off the MHA head with values times {float(paths):.3g} by {size(gap):g} of it"
    return Finding(gap > ROUNDING, what, {"gap": size(gap)})


STATEMENTS = (
    Statement(
        id="P-repeated-linear",
        source="Sec. 4.1, App. B.1",
        place=Place("numerical", ("mha",), "constructions.targets.inclusion"),
        claim=Claim(
            text="on repeated tokens X = 1 x^T every MHA is linear in x",
            test=linear_on_repeated,
            cases={
                "heads": (1, 2),
                "tokens": (1, 3),
                "pattern": ("softmax", "hard", "linear"),
                "reads": ("none", "keys", "values"),
            },
            mutants={"homogeneous of degree 3": {"power": 3}},
            wider={
                "pattern": ("softmax", "hard"),
                "reads": ("none", "keys"),
                "heads": range(1, 5),
                "tokens": range(1, 7),
            },
        ),
        assumption=Assumption(
            "the pattern is normalised (softmax or hard) and the values read content only",
            lambda pattern, reads, **_: pattern != "linear" and reads != "values",
        ),
        note="Linear attention is cubic in x: f(2x) = 8 f(x). Values that read the positions of [X, I] add terms that "
        "are not linear. The theorem that the proof serves, strictness for softmax, survives: see P-strict.",
    ),
    Statement(
        id="E8",
        source="App. B.1",
        place=Place("numerical", ("strict-witness",), "constructions.targets.inclusion"),
        claim=Claim(
            text="the IHA of App. B.1 with alphaK2 = -1 and alphaV2 = +1 is not linear on repeated tokens",
            test=printed_witness_is_nonlinear,
            cases={"pseudo": (2, 3), "seed": (0, 1, 2)},
            mutants={"queries 0": {"queries": 0.0}},
        ),
        repaired=Claim(
            text="the IHA of App. B.1 with alphaV2 = -1 is tanh(s) v for P = 2, and 2 sinh(s) v / (2 cosh(s) + P - 2) "
            "for P > 2, s = <q, k>",
            test=repaired_witness,
            cases={"pseudo": (2, 3, 5), "seed": (0, 1, 2)},
            mutants={"alphaV2 = +1, as printed": {"sign": 1}, "no mass for zeroed pseudo-heads": {"zeroed": False}},
            wider={"pseudo": range(2, 9), "seed": range(1000)},
        ),
        note="As printed the two pseudo-values are equal, so P = 2 returns v. With P > 2 the zeroed pseudo-heads save "
        "the printed sign too: 2 cosh(s) v / (2 cosh(s) + P - 2) is not linear.",
    ),
    Statement(
        id="P-strict",
        source="Sec. 4.1",
        place=Place("numerical", ("strict-witness", "robust-strictness")),
        claim=Claim(
            text="for P >= 2 some IHA is no MHA with as many heads",
            test=strictly_inside,
            cases={"heads": (1, 2, 3), "pseudo": (2, 3, 4), "pattern": ("softmax", "hard", "linear")},
            given=lambda pattern, heads, pseudo: heads <= pseudo if pattern == "linear" else heads == 1,
            mutants={"alphaV2 = +1, as printed": {"value": 1}, "H^2 MHA heads": {"more": 1}},
        ),
        assumption=Assumption(
            "softmax or hard attention, or H >= 2 (one head of linear attention is an MHA head for every P)",
            lambda pattern, heads, **_: pattern != "linear" or heads > 1,
        ),
        note="Softmax and hard: by the repaired witness (E8), against any number of heads. Softmax MHA that reads "
        "[X, I] cannot equal it either. Linear: against up to H^2 - 1 heads, which do not come near (T17c). Proofs: "
        "constructions.ledger.attention.strictness.",
    ),
)
