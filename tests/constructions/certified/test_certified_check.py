"""Claims about trained runs: honest ones hold; damage to a claim, to weights or to what makes claims is refused."""

import copy
import hashlib
import json
import re
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from safetensors.numpy import load, save

from constructions.certified import check
from constructions.certified.check import refusal
from constructions.certified.inertia import inertia
from synthetic.training import records
from synthetic.training.certified import claim as maker
from synthetic.training.certified import softmax
from synthetic.training.config import TrainConfig
from synthetic.training.loop import train

QUICK = {"steps": 2, "batch": 4, "eval_size": 8}
RUNS = {
    "mha": ("polynomial", {"attention": "mha", "heads": 2, "graph": "orthogonal:4", "terms": 3}),
    "iha": ("polynomial", {"attention": "iha", "heads": 2, "graph": "orthogonal:5", "terms": 6, "unit_norm": True}),
    "wide": (
        "polynomial",
        {"attention": "mha", "heads": 1, "graph": "star:3", "terms": 2, "width": 2, "normalise": "row"},
    ),
    "per head": (
        "polynomial",
        {"attention": "iha", "heads": 2, "pseudo_heads": 1, "collapse": "per_head", "graph": "random:4", "terms": 4},
    ),
    "symmetric": (
        "polynomial",
        {"attention": "mha", "heads": 5, "graph": "petersen", "terms": 4, "normalise": "symmetric"},
    ),
    "dependent": ("polynomial", {"attention": "iha", "heads": 1, "graph": "cycle:3", "terms": 5, "unit_norm": True}),
    "random": (
        "unstructured",
        {"attention": "iha", "heads": 2, "pseudo_heads": 1, "tokens": 4, "terms": 3, "head_dim": 3},
    ),
    "cycle": ("polynomial", {"attention": "mha", "heads": 2, "graph": "cycle:3", "terms": 2}),
    "softmax": ("workspace", {"attention": "iha", "heads": 2, "tokens": 5, "width": 2, "gain": 3.0}),
    "softmax mha": ("workspace", {"attention": "mha", "heads": 3, "tokens": 4, "dtype": "float64"}),
    "double": ("unstructured", {"attention": "mha", "heads": 2, "tokens": 3, "terms": 3, "dtype": "float64"}),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(record, claim, weights) by name, and the folder."""
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    with records.writing(folder):
        for task, options in RUNS.values():
            (run,) = train([TrainConfig.for_task(task, options | QUICK)])
            records.write(folder, [records.result(run, 1)])
    for name, record in zip(RUNS, records.read(folder), strict=True):
        found[name] = record, maker.certify(folder, record), maker.weights_file(folder, record["id"]).read_bytes()
    return found | {"": folder}


def remade(claim, weights, change=None, **config):
    """Claim and weights with other tensors or options, and with all that is easily mended mended."""
    claim = copy.deepcopy(claim)
    claim["config"] |= config
    tensors = {name: tensor.copy() for name, tensor in load(weights).items()}
    if change is not None:
        tensors = change(tensors) or tensors
    weights = save(
        {name: np.ascontiguousarray(t) for name, t in tensors.items()}, {"config": json.dumps(claim["config"])}
    )
    claim["sha256"] = hashlib.sha256(weights).hexdigest()
    return claim, weights


@pytest.mark.parametrize("name", RUNS)
def test_honest_claims_hold(made, name):
    record, claim, weights = made[name]
    assert refusal(json.loads(json.dumps(claim)), weights) is None
    assert refusal(*remade(claim, weights)) is None
    error = claim["error"] if isinstance(claim["error"], str) else claim["error"][0]
    assert float(Fraction(error)) == pytest.approx(record["error"], rel=1e-12)
    low, high = map(Fraction, claim["floor"])
    assert low <= high
    assert float(low) == pytest.approx(record["floor"], abs=1e-12)
    assert Fraction(claim["excess"][0]) > 0


def test_floors_that_are_0_are_exactly_0(made):
    _, claim, _ = made["dependent"]
    assert claim["capacity"] == 1
    assert claim["tail"][-2:] == [("0", "0")] * 2
    _, claim, _ = made["symmetric"]
    assert (claim["tail"], claim["floor"], claim["ratio"]) == ([], ("0", "0"), None)


def swap_keys(tensors):
    tensors["layer.q_proj.weight"], tensors["layer.k_proj.weight"] = (
        tensors["layer.k_proj.weight"],
        tensors["layer.q_proj.weight"],
    )


def drop_head(tensors):
    tensors["layer.v_proj.weight"][: len(tensors["layer.v_proj.weight"]) // 2] = 0


def flip_bit(tensors):
    tensors["layer.k_proj.weight"].view(np.uint32)[0, 0] ^= 1


def transposed(name):
    def change(tensors):
        tensors[name] = np.swapaxes(tensors[name], 0, 1).copy()

    return change


def negated(name):
    def change(tensors):
        tensors[name].flat[0] *= -1

    return change


@pytest.mark.parametrize(
    "change", [flip_bit, swap_keys, drop_head, *map(negated, ("layer.out_proj.weight", "layer.q_proj.weight"))]
)
@pytest.mark.parametrize("name", ["mha", "iha", "softmax"])
def test_other_weights_fail(made, name, change):
    _, claim, weights = made[name]
    other, changed = remade(claim, weights, change)
    assert refusal(other, changed).startswith("the error is")
    assert "SHA-256" in refusal(claim, changed)


@pytest.mark.parametrize("name", ["alpha_q", "alpha_k", "alpha_v", "collapse"])
def test_other_mixing_fails(made, name):
    for layer in ("iha", "softmax"):
        _, claim, weights = made[layer]
        for change in (transposed(f"layer.{name}"), negated(f"layer.{name}")):
            assert refusal(*remade(claim, weights, change)).startswith("the error is")


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("mha", {"graph": "cycle:4"}, "another graph"),
        ("mha", {"graph": "orthogonal:4:1"}, "another graph"),
        ("mha", {"graph": "orthogonal:5"}, "another graph"),
        ("mha", {"graph": "gone.csv"}, "no such file"),
        ("mha", {"terms": 4}, "shapes"),
        ("mha", {"width": 2}, "shapes"),
        ("mha", {"heads": 4}, "the capacity|shapes"),
        ("mha", {"attention": "iha", "pseudo_heads": 1, "collapse": "global"}, "shapes"),
        ("mha", {"attention": "gqa"}, "known are mha and iha"),
        ("mha", {"unit_norm": True, "graph": "orthogonal:4"}, "the error is|floor"),
        ("iha", {"unit_norm": False}, "the error is|share"),
        ("iha", {"pseudo_heads": 1}, "shapes"),
        ("iha", {"collapse": "per_head"}, "shapes"),
        ("wide", {"normalise": "none"}, "another normalisation"),
        ("wide", {"normalise": "symmetric"}, "another normalisation"),
        ("symmetric", {"normalise": "row"}, "another normalisation"),
        ("mha", {"mode": "content"}, "position-only"),
        ("mha", {"task": "workspace"}, "cannot be read"),
        ("mha", {"task": "workspace", "tokens": 4}, "another graph"),
        ("mha", {"task": "cpm3"}, "known are"),
        ("softmax", {"tokens": 6}, "another graph"),
        (
            "softmax",
            {"task": "polynomial", "graph": "cycle:5", "terms": 5, "normalise": "none", "mode": "position-only"},
            "cannot be read",
        ),
        ("random", {"task": "polynomial", "graph": "star:4", "normalise": "none"}, "another graph"),
        ("random", {"tokens": 5}, "another graph"),
    ],
)
def test_other_options_fail(made, name, options, word):
    _, claim, weights = made[name]
    changed, own = remade(claim, weights, **options)
    assert re.search(word, refusal(changed, own) or ""), refusal(changed, own)
    changed = copy.deepcopy(claim)
    changed["config"] |= options
    assert "other options" in refusal(changed, weights)


def nudged(text, by):
    return f"{Fraction(text) + Fraction(by)}"


CHANGES = {
    "error": lambda claim: claim.update(error=nudged(claim["error"], "1e-300")),
    "capacity": lambda claim: claim.update(capacity=claim["capacity"] + 1),
    "larger tail": lambda claim: claim.update(tail=[[nudged(x, "1e-25") for x in ends] for ends in claim["tail"]]),
    "smaller tail": lambda claim: claim.update(tail=[[nudged(x, "-1e-25") for x in ends] for ends in claim["tail"]]),
    "shorter tail": lambda claim: claim.update(tail=claim["tail"][1:]),
    "ends the wrong way": lambda claim: claim.update(tail=[ends[::-1] for ends in claim["tail"]]),
    "floor": lambda claim: claim.update(floor=[nudged(x, "1e-25") for x in claim["floor"]]),
    "loose floor": lambda claim: claim.update(floor=["0", "1"]),
    "excess": lambda claim: claim.update(excess=[nudged(x, "-1e-25") for x in claim["excess"]]),
    "ratio": lambda claim: claim.update(ratio=["1", "1.000000001"]),
    "no ratio": lambda claim: claim.update(ratio=None),
    "matrices": lambda claim: claim["matrices"][0][0].__setitem__(0, claim["matrices"][0][0][0] + 1e-13),
    "a row less": lambda claim: claim["matrices"][0].pop(),
    "weights": lambda claim: claim.update(sha256="0" * 64),
    "schema": lambda claim: claim.update(schema="iha-theory/run/1"),
    "no floor": lambda claim: claim.pop("floor"),
    "text": lambda claim: claim.update(error="small"),
    "nothing": lambda claim: claim.update(error="1/0"),
    "a list": lambda claim: claim.update(config=[]),
}


WORDS = {
    "error": "the error is",
    "capacity": "the capacity is 2, not 3",
    "larger tail": "share 3",
    "smaller tail": "share 3",
    "shorter tail": "leave 1",
    "ends the wrong way": "share 3",
    "floor": "the floor is",
    "loose floor": "the ends of the floor differ",
    "excess": "the excess is",
    "ratio": "the ratio is",
    "matrices": "the error is",
    "a row less": "another graph",
    "a list": "other options",
    "weights": "SHA-256",
    "schema": "it is no claim",
    "no floor": "floor is missing",
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_claims_fail(made, name):
    _, claim, weights = made["mha"]
    claim = json.loads(json.dumps(claim))
    assert refusal(claim, weights) is None
    CHANGES[name](claim)
    assert WORDS.get(name, "cannot be read") in (refusal(claim, weights) or "")


def test_a_ratio_to_a_floor_of_0_fails(made):
    _, claim, weights = made["symmetric"]
    assert "ratio" in refusal(claim | {"ratio": ["1", "1"]}, weights)


@pytest.mark.parametrize("name", ["mha", "iha"])
@pytest.mark.parametrize("damage", ["transposed operator", "another power", "a power less", "a head less", "spectrum"])
def test_what_a_damaged_maker_claims_fails(made, monkeypatch, name, damage):
    record, _, weights = made[name]
    columns, shares, exact = maker.columns, maker.shares, TrainConfig.for_task(*RUNS[name]).problem.exact()
    kind = type(TrainConfig.for_task(*RUNS[name]).problem)
    if damage == "transposed operator":
        monkeypatch.setattr(maker, "columns", lambda w: [[m and m.transpose() for m in c] for c in columns(w)])
    elif damage == "another power":
        monkeypatch.setattr(kind, "exact", lambda self: exact._replace(bank=exact.bank[::-1]))
    elif damage == "a power less":
        monkeypatch.setattr(kind, "exact", lambda self: exact._replace(bank=exact.bank[:-1] + exact.bank[:1]))
    elif damage == "a head less":
        monkeypatch.setattr(TrainConfig, "capacity", 1)
    else:
        monkeypatch.setattr(maker, "shares", lambda bank: [(a + Fraction(1, 10**9), b) for a, b in shares(bank)][::-1])
    assert refusal(maker.certify(made[""], record), weights) is not None


@pytest.mark.parametrize("damage", ["a softmax a block", "transposed maps", "linear"])
def test_what_a_damaged_softmax_claims_fails(made, monkeypatch, damage):
    record, _, weights = made["softmax"]
    whole = softmax._softmax
    other = {
        "a softmax a block": lambda query, keys, tokens: [whole(query, [key], tokens)[0] for key in keys],
        "transposed maps": lambda *given: [block.transpose() for block in whole(*given)],
        "linear": lambda query, keys, tokens: [softmax._balls(query * key.transpose()) for key in keys],
    }
    monkeypatch.setattr(softmax, "_softmax", other[damage])
    assert refusal(maker.certify(made[""], record), weights).startswith("the error is")


@pytest.mark.parametrize("ends", [["0", "2"], ["2", "0"], "1/2", ["0"], None])
def test_other_ends_of_an_error_fail(made, ends):
    _, claim, weights = made["softmax"]
    assert refusal(claim | {"error": ends}, weights) is not None


def test_a_run_below_its_floor_fails(made, monkeypatch, tmp_path):
    """Weights that are [X, AX] of the cycle exactly, with two heads, where one is said to be the most they can do."""
    cycle = np.roll(np.eye(3), 1, axis=1)

    def exact_weights(tensors):
        tensors["layer.q_proj.weight"][:] = np.concatenate((np.eye(3), cycle.T))
        tensors["layer.k_proj.weight"][:] = np.concatenate((np.eye(3), np.eye(3)))
        tensors["layer.v_proj.weight"][:] = 1
        tensors["layer.out_proj.weight"][:] = np.eye(2)

    record, claim, weights = made["cycle"]
    (tmp_path / "weights").mkdir()
    (tmp_path / "runs.jsonl").write_text(json.dumps(record) + "\n")
    _, weights = remade(claim, weights, exact_weights)
    maker.weights_file(tmp_path, record["id"]).write_bytes(weights)
    claim = maker.certify(tmp_path, record)
    assert (claim["error"], claim["floor"], refusal(claim, weights)) == ("0/1", ("0", "0"), None)
    assert "floor is 0" in maker.describe(claim)
    assert not maker.below(claim)
    monkeypatch.setattr(TrainConfig, "capacity", 1)
    claim = maker.certify(tmp_path, record)
    assert maker.below(claim)
    assert "BELOW the floor 0.5" in maker.describe(claim)
    assert "the capacity is 2" in refusal(claim, weights)
    monkeypatch.setattr(check, "_capacity", lambda sizes: 1)
    assert "below the floor 0.5" in refusal(claim, weights)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_inertia_counts_the_signs_of_eigenvalues(size):
    generator = np.random.default_rng(size)
    for _ in range(40):
        half = generator.integers(-2, 3, (size, size)) * (generator.random((size, size)) < 0.6)
        m = half + half.T
        if generator.random() < 0.5:
            np.fill_diagonal(m, 0)
        values = np.linalg.eigvalsh(m.astype(float))
        counted = (values > 1e-9).sum(), (values < -1e-9).sum(), (abs(values) <= 1e-9).sum()
        assert inertia(m.tolist()) == counted, m


def test_inertia_of_matrices_that_need_care():
    assert inertia([[0, 1], [1, 0]]) == (1, 1, 0)
    assert inertia([[0, 0], [0, 0]]) == (0, 0, 2)
    assert inertia([[0, 0, 3], [0, -1, 0], [3, 0, 0]]) == (1, 2, 0)


def test_shares_of_matrices_that_hang_together_are_told_to_their_ends():
    """G of rank 3 whose first rows are dependent: what is between its ends holds, and what is beside does not."""
    rows = np.array([[1, 2, 0], [2, 4, 0], [0, 1, 1], [1, 0, 3], [3, 3, 0]], dtype=object)
    gram = [[Fraction(int(x)) for x in row] for row in rows @ rows.T]
    values = np.linalg.eigvalsh((rows @ rows.T).astype(float))[::-1] / float((rows * rows).sum())
    near = [(max(Fraction(0), Fraction(x) - Fraction(1, 10**9)), Fraction(x) + Fraction(1, 10**9)) for x in values]
    near[3:] = [(Fraction(0), Fraction(0))] * 2
    for capacity in (0, 2, 3, 5):
        assert check._proved(gram, capacity, near[capacity:]) == near[capacity:]
    tiny = Fraction(1, 10**6)
    for i, (low, high) in enumerate(near):
        for ends in ((low + tiny, high + tiny), (low - tiny, high - tiny)):
            with pytest.raises(check.Refused, match=f"share {i + 1} "):
                check._proved(gram, 0, [*near[:i], ends, *near[i + 1 :]])


@pytest.mark.parametrize(
    "square",
    [
        *(Fraction(23499, 21874), Fraction(1), Fraction(1, 3), Fraction(165, 100) ** 10),
        Fraction(409273636871050340414314507084104197010340811613434554342923),
        *(Fraction(7) ** 720, Fraction(1, 7**720), Fraction(10**600), Fraction(1, 10**600)),
    ],
)
def test_the_factor_of_norm_1_is_the_nearest_float_at_any_size(square):
    found = check._inverse_root(square)
    with localcontext(prec=60):
        root = (Decimal(square.denominator) / Decimal(square.numerator)).sqrt()
    assert found == Fraction(float(root))


@pytest.mark.parametrize("square", [Fraction(10) ** 700, Fraction(1, 10**700)])
def test_norms_without_a_float_are_refused(square):
    with pytest.raises(check.Refused, match="out of the range"):
        check._inverse_root(square)
