"""Measured capacities."""


def test_capacities(judged):
    ranks = {tuple(case.values()): finding.values["ranks"] for case, finding in judged("T1").evidence[0].findings}
    assert set(ranks["mha", 4]) == {4}
    assert ranks["iha, P = 2", 3] == [9, 9, 6, 6]  # global, then per-head collapse; softmax and linear each
    assert ranks["iha, P = 1", 4] == [4] * 4
    assert set(ranks["two-layer", 3]) == {9}
    assert set(ranks["gqa", 4]) == {4}
