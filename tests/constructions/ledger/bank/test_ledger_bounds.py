"""Measured capacities, and heads at a tolerance."""


def test_capacities(judged):
    ranks = {tuple(case.values()): finding.values["ranks"] for case, finding in judged("T1").evidence[0].findings}
    assert set(ranks["mha", 4]) == {4}
    assert ranks["iha, P = 2", 3] == [9, 9, 6, 6]  # global, then per-head collapse; softmax and linear each
    assert ranks["iha, P = 1", 4] == [4] * 4
    assert set(ranks["two-layer", 3]) == {9}
    assert set(ranks["gqa", 4]) == {4}


def test_both_layers_run_at_each_tolerance(judged):
    """MHA and wide IHA, les miserables' 77 nodes included; the IHA has at least the square root of MHA's heads."""
    findings = judged("T4").evidence[0].findings
    assert {case["graph"] for case, _ in findings} == {"karate", "les_miserables", "petersen", "cycle:16"}
    for case, finding in findings:
        mha, iha = finding.values["errors"]
        assert max(mha, iha) <= case["tolerance"]
        assert "wide IHA heads" in finding.what
