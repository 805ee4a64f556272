"""Trained layers beside the construction: the measures ignore what leaves the function unchanged, and nothing else."""

import itertools

import flint
import numpy as np
import pytest
import torch

from constructions.filter_bank.layers import bank
from constructions.filter_bank.paper import powers
from constructions.learned.structure import base_products, commutator, degrees, fit, gap, structure
from iha_theory.capacity import capacity_bound
from synthetic.tasks.polynomial import Polynomial
from synthetic.training import data, model
from synthetic.training.config import TrainConfig
from synthetic.training.loop import train

COMMON = {"graph": "orthogonal:8", "terms": 4, "dtype": "float64", "batch": 8, "eval_size": 16}


def model_of(config, weights=None):
    """The problem and the model of a run, with trained or initial weights."""
    problem = config.build()
    own = model.build(config, problem)
    model.initialise(own, config, problem, data.load(problem, config).initial)
    if weights is not None:
        own.load_state_dict(weights)
    return problem, own.layer


@pytest.fixture(scope="module", params=[("iha", 2), ("mha", 4), ("mha", 2)], ids=str)
def trained(request):
    """Config, problem and trained model."""
    attention, heads = request.param
    config = TrainConfig.for_task(
        "polynomial", COMMON | {"attention": attention, "heads": heads, "steps": 700, "seed": 1}
    )
    (run,) = train([config])
    assert run.outcome == "finished"
    return config, *model_of(config, run.weights)


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_training_finds_the_span_and_polynomials_of_a(trained):
    config, problem, layer = trained
    found = structure(layer, problem, config)
    assert found.gap.angle <= found.gap.allowed + 1e-4
    assert found.gap.angle < 5
    assert found.commutator < 0.01
    if config.attention == "iha":
        assert found.degrees in ((1, 2), (2, 1))
        assert found.fit > 0.05, "another factorisation than the paper's"
        values, vectors = np.linalg.eig(problem.matrices[1])  # Theorem 2: f(lambda) has rank one at every eigenvalue
        products = base_products(layer, torch.eye(problem.tokens)).numpy()
        at_eigenvalues = np.einsum("ia,pab,bi->ip", np.linalg.inv(vectors), products, vectors).reshape(-1, 2, 2)
        singular = np.linalg.svd(at_eigenvalues, compute_uv=False)
        assert len(set(values.round(6))) == problem.tokens
        assert (singular[:, 1] < 1e-3 * singular[:, 0]).all()
    else:
        assert (found.fit, found.degrees) == (None, None)


def test_initial_weights_and_other_matrices_are_far(trained):
    config, problem, layer = trained
    start = structure(model_of(config)[1], problem, config)
    other_problem = config.but(graph="orthogonal:8:1").build()
    other = structure(layer, other_problem, config)
    for far in (start, other):
        assert far.gap.angle > 30
        assert far.gap.angle <= far.gap.allowed + 1e-4
        assert far.commutator > 0.5
        assert far.degrees is None


@torch.no_grad()
def test_symmetries_change_no_output_and_no_measure(trained):
    config, problem, layer = trained
    before, positions = structure(layer, problem, config), torch.eye(problem.tokens, dtype=torch.float64)[None]
    X = normal(3, problem.tokens, problem.width)
    out = layer(positions, positions, X)
    heads, width = config.heads, layer.q_proj.out_features // config.heads
    for projection in (layer.q_proj, layer.k_proj):
        assert projection.weight.shape == (heads * width, problem.tokens)
    if config.attention == "iha":  # one W for all heads, and one matrix over the heads of queries, of keys
        mixes = [
            (layer.q_proj, layer.alpha_q, normal(2, 2, seed=1)),
            (layer.k_proj, layer.alpha_k, normal(2, 2, seed=2)),
        ]
        ws = normal(width, width, seed=3).expand(heads, -1, -1)
    else:  # one W a head, and S_h -> S_h c_h, 1 / c_h in the output projection
        mixes, ws = [], normal(heads, width, width, seed=3)
        layer.q_proj.weight.copy_((2.0 * layer.q_proj.weight.unflatten(0, (heads, -1))).flatten(0, 1))
        layer.out_proj.weight.div_(2.0)
    for projection, alpha, p in mixes:
        heads_first = projection.weight.unflatten(0, (heads, -1))
        projection.weight.copy_(torch.einsum("mi,ixn->mxn", p, heads_first).flatten(0, 1))
        alpha.copy_(torch.einsum("mi,mhj->ihj", torch.linalg.inv(p), alpha).clone())
    q, k = (x.weight.unflatten(0, (heads, -1)) for x in (layer.q_proj, layer.k_proj))  # weight: (head, d_k, N)
    layer.q_proj.weight.copy_((ws.transpose(1, 2) @ q).flatten(0, 1))
    layer.k_proj.weight.copy_((torch.linalg.inv(ws) @ k).flatten(0, 1))
    assert torch.allclose(layer(positions, positions, X), out, atol=1e-8)
    after = structure(layer, problem, config)
    for x, y in (
        (before.gap.angle, after.gap.angle),
        (before.commutator, after.commutator),
        (before.fit or 0.0, after.fit or 0.0),
    ):
        assert x == pytest.approx(y, abs=1e-4)
    assert before.degrees == after.degrees


@pytest.mark.parametrize("heads", [2, 3])
@pytest.mark.parametrize("mirrored", [False, True])
def test_the_papers_weights_fit_in_every_disguise(heads, mirrored):
    """The paper's layer, its heads mixed by random matrices; and with queries and keys exchanged."""
    a = torch.from_numpy(Polynomial(graph="orthogonal:20").matrices()[1].copy())
    terms = heads**2
    layer = bank("iha", powers(a), terms, 1).layer
    positions = torch.cat((torch.zeros(20, 1), torch.eye(20)), dim=1)
    products = base_products(layer, positions).unflatten(0, (heads, heads))
    p, r = normal(heads, heads, seed=1), normal(heads, heads, seed=2)
    disguised = torch.einsum("am,bn,mnij->abij", p, r, products)
    if mirrored:
        disguised = disguised.transpose(0, 1)
    targets = torch.stack([torch.linalg.matrix_power(a, t) for t in range(terms)])
    flat = disguised.flatten(0, 1)
    assert fit(flat, targets) < 1e-6
    assert commutator(flat, a) < 1e-10
    outer = (terms - heads, heads - 1)
    assert degrees(flat, targets) == (outer[::-1] if mirrored else outer)
    damaged = flat + 0.1 * flat.std() * normal(*flat.shape, seed=3)
    assert fit(damaged, targets) > 0.02
    assert commutator(damaged, a) > 0.02
    mixed = flat + 0.3 * torch.einsum("st,tij->sij", normal(terms, terms, seed=4), targets)  # still polynomials of A
    assert commutator(mixed, a) < 1e-10
    assert fit(mixed, targets) > 0.02
    assert degrees(mixed, targets) is None


def test_another_factorisation_of_the_same_bank_is_told_apart():
    """{1, x} times {1, x + x^2} spans {1, x, x^2, x^3} as well (Theorem 3)."""
    a = torch.from_numpy(Polynomial(graph="orthogonal:8").matrices()[1].copy())
    targets = torch.stack([torch.linalg.matrix_power(a, t) for t in range(4)])
    queries, keys = (targets[0], targets[1]), (targets[0], targets[1] + targets[2])
    products = torch.stack([u @ v for u, v in itertools.product(queries, keys)])
    assert torch.linalg.matrix_rank(torch.cat((products, targets)).flatten(1)) == 4
    assert commutator(products, a) < 1e-12
    assert degrees(products, targets) == (1, 2)
    assert fit(products, targets) > 0.1


@pytest.mark.parametrize("heads", [2, 3, 4])
def test_factorisations_of_every_pair_of_degrees(heads):
    """Theorem 3: for a + b = H^2 - 1, a and b at least H - 1, some U in P_a and V in P_b have U V = P_(H^2-1).

    A determinant that is not 0 modulo a prime is not 0; then it is not 0 on an open set.
    """
    terms, generator = heads**2, np.random.default_rng(0)
    for a in range(heads - 1, terms - heads + 1):
        u = generator.integers(0, 1000, (heads, a + 1))
        v = generator.integers(0, 1000, (heads, terms - a))
        rows = [np.convolve(x, y).tolist() for x in u for y in v]
        assert flint.fmpz_mat(rows).det() != 0, (heads, a)


@pytest.mark.parametrize(("heads", "tokens"), [(2, 8), (3, 18)])
def test_the_papers_factorisation_lies_in_a_family_of_that_dimension(heads, tokens):
    """Its tangent space, without the symmetries, has dimension H (H-1)^2 (Theorem 3), for N >= 2 k - 1."""
    terms = heads**2
    points = np.exp(2j * np.pi * (np.arange(tokens) + 0.3) / tokens)  # eigenvalues of a unitary A
    p = np.stack([points ** (m * heads) for m in range(heads)])
    q = np.stack([points**n for n in range(heads)])
    inside = np.linalg.qr(np.vander(points, terms))[0]
    outside = np.eye(tokens) - inside @ inside.conj().T
    columns = []
    for m, i in itertools.product(range(heads), range(tokens)):
        for side in (0, 1):
            change = np.zeros((heads, heads, tokens), dtype=complex)
            if side == 0:
                change[m, :, i] = q[:, i]
            else:
                change[:, m, i] = p[:, i]
            columns.append((change @ outside.T).ravel())
    kernel = 2 * heads * tokens - np.linalg.matrix_rank(np.stack(columns), tol=1e-8)
    assert kernel - (tokens + 2 * heads**2 - 1) == heads * (heads - 1) ** 2


def test_narrow_queries_do_not_reach_the_bank_at_the_threshold():
    """Theorem 2: H^2 = r heads need d_k >= N. The same runs with d_k = N end far below."""
    errors = []
    for head_dim in (7, 8):
        config = TrainConfig.for_task(
            "polynomial", COMMON | {"heads": 2, "head_dim": head_dim, "steps": 700, "seed": 1}
        )
        (run,) = train([config])
        errors.append(run.measured.error)
    assert errors[1] < 1e-8
    assert errors[0] > 1e4 * errors[1]


def test_the_angle_is_that_of_the_theorem_below_the_threshold():
    """Equality for MHA that has a leading direction turned by a known angle into one that the bank lacks."""
    config = TrainConfig.for_task("polynomial", COMMON | {"attention": "mha", "heads": 2})
    problem, layer = model_of(config)
    targets = torch.from_numpy(problem.matrices.copy())
    left, values, right = torch.linalg.svd(targets.flatten(1).T, full_matrices=False)
    free = normal(64, 1, seed=4)
    free -= left @ (left.T @ free)
    turned = 0.8 * left[:, 1] + 0.6 * free[:, 0] / free.norm()
    maps = torch.stack((left[:, 0], turned)).unflatten(1, (8, 8))
    with torch.no_grad():
        layer.q_proj.weight.copy_(maps.transpose(1, 2).flatten(0, 1))
        layer.k_proj.weight.copy_(torch.eye(8).repeat(2, 1))
        layer.v_proj.weight.fill_(1.0)
        layer.out_proj.weight.copy_((torch.diag(values) @ right)[:2].T * torch.tensor([1.0, 0.8]))
    found = gap(layer, torch.eye(8), targets, capacity_bound("mha", 2), 1)
    assert found.angle == pytest.approx(np.degrees(np.arcsin(0.6)), abs=1e-6)
    assert found.allowed == pytest.approx(
        np.degrees(np.arcsin(min(1, (0.36 * values[1] ** 2 / (values[1] ** 2 - values[2] ** 2)) ** 0.5))), abs=1e-6
    )


def test_what_has_no_base_products_or_no_square_is_refused():
    config = TrainConfig.for_task("workspace", {"tokens": 4, "heads": 2})
    problem, layer = model_of(config)
    with pytest.raises(ValueError, match="linear attention"):
        base_products(layer, torch.eye(4))
    assert structure(layer, problem, config).commutator is None
    with pytest.raises(ValueError, match="square of the heads"):
        fit(normal(3, 4, 4), normal(3, 4, 4))
    with pytest.raises(ValueError, match="realigned shape"):
        gap(layer, torch.eye(4), normal(3, 4, 4), 2, 1)
