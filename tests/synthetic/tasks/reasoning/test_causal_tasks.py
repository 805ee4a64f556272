"""The hybrid schedule, its FLOPs, rotary positions and longer tests, each with damaged models that must not pass."""

from typing import Any

import numpy as np
import pytest
import torch

from iha_theory.attention import KINDS
from iha_theory.attention.fused import operation
from iha_theory.costs.formulas import AttentionSizes
from iha_theory.costs.schedule import hybrid
from synthetic.tasks.reasoning.causal import matched_window
from synthetic.tasks.reasoning.retrieval import Retrieval
from synthetic.training import data, model, records, report, sweep
from synthetic.training.config import TrainConfig
from synthetic.training.loop import train

SMALL: dict[str, Any] = {"length": 24, "keys": 3, "key_symbols": 5, "value_symbols": 4, "distractors": 3}
SMALL |= {"width": 8, "mlp": 8, "heads": 2, "batch": 4, "eval_size": 24, "steps": 2, "eval_every": 2}
HYBRID: dict[str, Any] = {"layers": 5, "window": 3, "positions": "rotary"}
SKIPPING = [name for name, kind in KINDS.items() if kind.skips]


def config(**options: Any) -> Any:
    return TrainConfig.for_task("retrieval", SMALL | {"attention": "mha", "dtype": "float64"} | options)


def made(run) -> Any:
    problem = run.build()
    own = model.build(run, problem)
    model.initialise(own, run, problem, torch.Generator().manual_seed(0))
    return own.eval()


def inputs(run, count=3):
    return torch.from_numpy(run.problem.examples(np.random.default_rng(0), count)[0])


def reach(own, x):
    """How far back the last token's output sees, by changing one symbol at a time: the own token counts as one."""
    plain, last = own(x)[:, -1], x.shape[1] - 1
    changed = x.clone()
    for at in range(x.shape[1]):
        changed[:, at, 0] = (x[:, at, 0] + 1) % 5
        if not torch.equal(own(changed)[:, -1], plain):
            return last - at + 1
        changed[:, at] = x[:, at]
    return 0


@pytest.mark.parametrize("attention", SKIPPING)
def test_windows_add_up_and_one_layer_sees_all(attention):
    """Layers of W tokens reach 1 + L (W - 1) tokens; a global one, all."""
    local = config(attention=attention, layers=4, window=3, global_every=0)
    assert reach(made(local), inputs(local)) == 1 + 4 * 2
    run = config(attention=attention, **HYBRID)
    assert [layer.window for layer in made(run).layer] == [3, 3, 3, 3, None]
    assert reach(made(run), inputs(run)) == 24


@pytest.mark.parametrize("window", [2, 4, None])
def test_other_windows_reach_another_number_of_tokens(window):
    run = config(layers=4, window=3, global_every=0)
    own = made(run)
    own.layer[0].window = window
    assert reach(own, inputs(run)) != 1 + 4 * 2


def test_the_schedule():
    def windows(**own):
        return config(window=3, **own).problem.windows

    assert windows(layers=10) == (3, 3, 3, 3, None) * 2
    assert windows(layers=3, global_every=2) == (3, None, 3)
    assert windows(layers=2, global_every=1) == (None, None)
    assert config(layers=3).problem.windows == (None, None, None)
    assert [matched_window(n, p) for n, p in ((64, 1), (64, 2), (64, 4), (9, 2))] == [32, 8, 2, 1]
    with pytest.raises(ValueError, match="7 tokens are too few for P = 2: at least 8"):
        matched_window(7, 2)


def test_global_layers_of_mha():
    run = config(attention="iha", pseudo_heads=2, global_attention="mha", **HYBRID)
    kinds = [type(layer).__name__ for layer in made(run).layer]
    assert kinds == ["InterleavedHeadAttention"] * 4 + ["MultiHeadAttention"]


def shifted(own, x, by):
    """Whether the last token's output stays when the first tokens, out of reach, are cut off."""
    return torch.allclose(own(x)[:, -1], own(x[:, by:])[:, -1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("attention", ["mha", "iha", "mla"])
def test_rotary_positions_are_relative(attention):
    own: dict[str, Any] = {"layers": 2, "window": 4, "global_every": 0, "attention": attention}
    run = config(**own, positions="rotary")
    x = inputs(run)
    rotary = made(run)
    assert shifted(rotary, x, 17)  # 1 + 2 * 3 tokens are left
    assert not shifted(rotary, x, 18)
    assert not any(embedding.num_embeddings == 24 for embedding in rotary.embeddings)
    learned = made(config(**own))
    moved = x.clone()
    moved[:, 17:, 1] -= 17  # positions shifted
    assert not torch.allclose(learned(x)[:, -1], learned(moved[:, 17:])[:, -1], rtol=1e-10, atol=1e-12)
    swapped = x.clone()
    swapped[:, [20, 21]] = x[:, [21, 20]]
    assert not torch.allclose(rotary(x)[:, -1], rotary(swapped)[:, -1], rtol=1e-6)  # the order counts


@pytest.mark.parametrize("attention", [name for name in KINDS if name != "simplicial"])
def test_layers_rotate(attention):
    own = made(config(attention=attention, positions="rotary", layers=1))
    blind = made(config(attention=attention, layers=1))
    with torch.no_grad():
        blind.embeddings[1].weight.zero_()
    if attention != "mla":  # whose rotary part has weights of its own
        blind.load_state_dict(own.state_dict(), strict=False)
    x = inputs(config())
    swapped = x[:, [1, 0, *range(2, 24)]]
    if attention not in (
        "two-layer",
        "multi-token",
        "gated-linear",
        "forgetting",
    ):  # which know the order by themselves
        assert torch.allclose(blind(x)[:, -1], blind(swapped)[:, -1])
    assert not torch.allclose(own(x)[:, -1], own(swapped)[:, -1], rtol=1e-6)


def test_a_layer_that_cannot_rotate_says_so():
    with pytest.raises(ValueError, match="rotary 'token': accepted is None"):
        made(config(attention="simplicial", positions="rotary"))


@pytest.mark.parametrize("attention", KINDS)
def test_only_layers_that_skip_take_a_window(attention, monkeypatch):
    """With more pairs than are written out, what has a window goes to the kernel that skips, and nothing else does."""
    called = []
    real = operation.attention
    monkeypatch.setattr(operation, "attention", lambda *given: called.append(1) or real(*given))
    run = config(attention=attention, layers=5, window=4)
    skips = attention != "two-layer"  # it would, but two windows are not one
    if skips:
        sizes: dict[str, Any] = {"content": None, "tokens": 130, "pattern": "softmax", "out": 8}
        x = torch.randn(1, 130, 8, generator=torch.Generator().manual_seed(0))
        run.layer.make(8, 8, 8, **sizes, window=4)(x, x, x, is_causal=True)
        skips = bool(called)
    assert skips == KINDS[attention].skips
    if skips:
        run.build()
    else:
        with pytest.raises(ValueError, match=f"{attention} spares nothing outside a window: layers that do are mha, "):
            run.build()


def frame_flops(run) -> int:
    """FLOPs of MLPs and the readout."""
    task = run.problem
    return 2 * task.tokens * (task.layers * 2 * task.width * task.mlp + task.width * task.classes)


@pytest.mark.parametrize("window", [0, 1, 3, 100])
@pytest.mark.parametrize("pseudo", [None, 2])
def test_flops_in_records_are_those_of_the_formula(pseudo, window):
    own: dict[str, Any] = {"attention": "mha"} if pseudo is None else {"attention": "iha", "pseudo_heads": pseudo}
    run = config(
        **own, layers=3, **({"global_every": 3, "window": window, "global_attention": "mha"} if window else {})
    )
    sizes: dict[str, Any] = {"pseudo_heads": pseudo, "global_pseudo_heads": None if window else pseudo}
    found = run.build()._flops(made(run)) - frame_flops(run)

    def formula(window, every=3):
        return sum(layer.flops for layer in hybrid(24, 8, 2, 3, window=window, global_every=every, **sizes))

    assert found == formula(window or None)
    if window == 3:
        assert found not in (formula(2), formula(4), formula(3, every=0), formula(3, every=1))


def test_a_window_of_all_tokens_counts_half_of_what_a_global_layer_does():
    """The same function: N (N + 1) / 2 pairs are allowed, and a global layer counts N^2."""
    for window in (24, 30):
        run = config(layers=1, window=window, global_every=0)
        wide, full = (hybrid(24, 8, 2, 1, window=w, global_every=0) for w in (window, None))
        assert run.build()._flops(made(run)) - frame_flops(run) == sum(layer.flops for layer in wide)
        assert sum(layer.map_flops for layer in wide) * 2 * 24 == sum(layer.map_flops for layer in full) * 25


@pytest.mark.parametrize("attention", SKIPPING)
def test_a_window_spares_every_layer_the_pairs_outside_it(attention):
    """What one pair costs: half of the second difference of the FLOPs of models without a window, of three lengths."""
    run = config(attention=attention, layers=1, window=3, global_every=0)
    full = [config(attention=attention, layers=1, length=length) for length in (23, 24, 25)]
    counts = [own.build()._flops(made(own)) for own in full]
    pair = (counts[2] - 2 * counts[1] + counts[0]) // 2
    outside = 24**2 - sum(min(i + 1, 3) for i in range(24))
    assert pair > 0
    assert run.build()._flops(made(run)) == counts[1] - pair * outside


@pytest.mark.parametrize("pseudo", [1, 2, 4])
def test_app_c_in_counted_flops(pseudo):
    """The maps' FLOPs, from records of models that differ in their windows, against five global layers of MHA."""
    n = 32
    run = config(attention="iha", pseudo_heads=pseudo, layers=5, length=n, window=matched_window(n, pseudo))
    run = run.but(global_attention="mha")
    linear = [sizes.flops - sizes.map_flops for sizes in hybrid(n, 8, 2, 5, window=1, pseudo_heads=pseudo)]
    maps = run.build()._flops(made(run)) - frame_flops(run) - sum(linear)
    mha = AttentionSizes(n, 8, 2, 4, 4, out_width=8)
    assert maps / (5 * mha.map_flops) == pytest.approx(3 / 5 - 1 / (10 * pseudo**2) + 1 / (5 * n), abs=1e-12)


def longer(task, x, y, length=41):
    return task.lengthened(x, y, length, np.random.default_rng(1))


def right(task, x, y) -> bool:
    """Whether pairs and queries are those of the task, by search: each query's value stands behind its only key."""
    for row, labels in zip(x[..., 0].tolist(), y.tolist(), strict=True):
        context, asked = row[: -task.queries], row[-task.queries :]
        pairs = {a: b - task.key_symbols for a, b in zip(context[::2], context[1::2], strict=False) if a < 5}
        if labels[: -task.queries] != [-1] * len(context) or labels[-task.queries :] != [pairs.get(k) for k in asked]:
            return False
        if sum(symbol >= 9 for symbol in context) != len(context) - 2 * task.keys:
            return False
    return True


@pytest.mark.parametrize("length", [24, 23])
def test_longer_samples_have_the_same_pairs_among_more_distractors(length):
    names = Retrieval.names()
    task = Retrieval.of({n: v for n, v in (SMALL | {"length": length}).items() if n in names})
    x, y = task.examples(np.random.default_rng(0), 400)
    own, labels = longer(task, x, y)
    assert own.shape == (400, 41, 2)
    assert right(task, x, y)
    assert right(task, own, labels)
    for change in (
        lambda z: np.roll(z, 1, axis=1),
        lambda z: np.concatenate((z[:, 2:], z[:, :2]), axis=1),
        lambda z: z[:, ::-1],
    ):
        assert not right(task, change(own), labels)
    assert not right(task, own, np.roll(labels, 1, axis=1))
    first = (own[..., 0] < 5).argmax(1) // 2  # where the first key stands: as in fresh samples
    fresh, _ = Retrieval.of({**task.values(), "length": 41}).examples(np.random.default_rng(2), 4000)
    assert first.mean() == pytest.approx(((fresh[..., 0] < 5).argmax(1) // 2).mean(), abs=0.8)


def test_longer_tests_are_in_the_record(tmp_path):
    own: dict[str, Any] = {"attention": "iha", "pseudo_heads": 2, "global_attention": "mha", "test_lengths": [40, 64]}
    own |= {"layers": 2, "window": 3, "global_every": 2, "positions": "rotary"}
    runs = [config(**own, seed=seed) for seed in (0, 1)]
    found = train(runs)
    records.write(tmp_path, [records.result(run, 2) for run in found])
    read = records.read(tmp_path)
    assert [list(record["parts"]) for record in read] == [["N=24", "N=40", "N=64"]] * 2
    assert all(record["parts"]["N=24"] == record["accuracy"] for record in read)
    assert read[0]["config"]["test_lengths"] == [40, 64]
    again = model.load_model(tmp_path, read[0]["id"])
    test = data.load(runs[0].build(), runs[0]).test
    for name, x, y in runs[0].problem.longer(*test):
        assert read[0]["parts"][name] == (again(torch.from_numpy(x)).argmax(-1).numpy() == y)[y >= 0].mean()
    assert len(report.unique(read)) == 2
    assert f"N=64: {read[0]['parts']['N=64']:.5g}" in report.describe(read[0])


def test_ids_of_older_runs_are_what_they_were():
    old = {"retrieval": ("3739c91a34227203", "21dcd20b872271a8"), "hops": ("c85260038258515f", "4aa190aa7f3f0bb6")}
    for name, (first, last) in old.items():
        runs = sweep.configs(name, seeds=[0])
        assert (runs[0].identity, runs[-1].identity) == (first, last)
        assert "window" not in runs[0].to_json()
        assert runs[0].whole()["window"] == 0
    assert config(window=3, layers=5).identity != config(layers=5).identity
    run = config(**HYBRID, test_lengths=[32])
    assert TrainConfig.from_json(run.to_json()) == run


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": 3}, "makes none of 2 layers global: give layers 5 or more, or global_every 1 to 2, or 0 for none"),
        ({"window": 3, "global_every": 0, "global_attention": "mha"}, "mha with global_every 0 is of no layer"),
        ({"global_every": 1}, "global_every 1 is for models with a window: give one"),
        ({"global_attention": "mha"}, "global_attention mha is for models with a window"),
        ({"test_lengths": [32]}, "test_lengths are for positions of any length: give positions rotary"),
        ({"positions": "rotary", "test_lengths": [24]}, "test_lengths must be above the length 24, got 24"),
        ({"positions": "rotary", "test_lengths": [64, 2]}, "test_lengths must be at least 3, got"),
        ({"test_lengths": 32}, "test_lengths must be integers, got 32"),
        ({"test_lengths": [32.5]}, "test_lengths must be integers, got"),
        ({"window": -1}, "window must be at least 0, got -1"),
        ({"positions": "none"}, "positions must be one of learned, rotary, got 'none'"),
    ],
)
def test_what_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        config(layers=2, **options)


def test_layers_of_the_users_have_neither(refused):
    own = "torch.nn:MultiheadAttention"
    with pytest.raises(ValueError, match="spares nothing outside a window"):
        config(attention=own, layers=5, window=3).build()
    with pytest.raises(ValueError, match="rotary positions are for layers of ours"):
        config(attention=own, positions="rotary").build()


def test_on_the_command_line(call, refused):
    sizes = ["--length", "16", "--keys", "3", "--eval-size", "16", "--steps", "1", "--width", "8", "--heads", "2"]
    longer = ["--positions", "rotary", "--test-lengths", "24", "32", "--layers", "2", "--window", "2"]
    code, _, err = call("train", "retrieval", *sizes, *longer, "--global-every", "2", "--attention", "mha")
    assert code == 0, err
    assert "window is an option of retrieval, hops; relations has" in refused("train", "relations", "--window", "3")
    assert "give positions rotary" in refused("train", "retrieval", "--test-lengths", "64")
