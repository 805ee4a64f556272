"""The matrices that a task's options stand for, and whether a claim's are these."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from constructions.certified.intervals import Refused, number
from synthetic.graphs import is_file
from synthetic.graphs import load as load_graph

SAME = Fraction(1e-12)
"""Floats that a machine computes may differ by so much between machines; a claim is about those of its own."""


def given(config: Mapping[str, Any], matrices: Any) -> list[list[list[Fraction]]]:
    """A claim's matrices, after a look at whether they are what the task's options say.

    Integers, fractions and the floats of a file are equal. What is computed in floating point may differ by `SAME`:
    `orthogonal:N`, by LAPACK, of its largest entry; of each entry what is divided by square roots (symmetric) or by
    sums of floats (row), and numpy's normal samples (unstructured).

    Raises:
        Refused: they are others.
    """
    found = [[[number(x) for x in row] for row in m] for m in matrices]
    named = _named(config)
    same = [[len(row) for row in m] for m in found] == [[len(row) for row in m] for m in named]
    if not same or not all(map(_near, _flat(found), _flat(named), _tolerances(config, named))):
        raise Refused("its matrices are not those of the task: another graph, or another normalisation")
    return found


def _flat(matrices: Sequence[Sequence[Sequence[Any]]]) -> list[Any]:
    return [x for m in matrices for row in m for x in row]


def _near(x: Fraction, y: Any, off: Fraction) -> bool:
    return abs(x - Fraction(y)) <= off


def _tolerances(config: Mapping[str, Any], named: list[list[list[Any]]]) -> Iterator[Fraction]:
    """By how much each entry may be another."""
    entries = _flat(named)
    computed = config["task"] == "unstructured" or config.get("normalise", "none") != "none"
    whole = config["task"] == "polynomial" and not computed and not is_file(config["graph"])
    largest = max((abs(y) for y in entries if isinstance(y, float)), default=0.0)
    for y in entries:
        if not isinstance(y, float) or not (computed or whole):
            yield Fraction(0)
        else:
            yield SAME * Fraction(largest if whole else max(abs(y), sys.float_info.min))


def _named(config: Mapping[str, Any]) -> list[list[list[Any]]]:
    """The matrices: integers, fractions, floats."""
    if config["task"] == "workspace":
        size = range(config["tokens"])
        return [[[int(j == (i + 1) % len(size)) for j in size] for i in size]]
    if config["mode"] != "position-only":
        raise Refused("only position-only runs have an exact error")
    if config["task"] == "unstructured":
        sizes = config["terms"], config["tokens"], config["tokens"]
        return np.random.default_rng(0).standard_normal(sizes).tolist()
    if config["task"] != "polynomial":
        raise Refused(f"task {config['task']!r}: known are polynomial, unstructured and workspace")
    rows = load_graph(config["graph"]).adjacency.tolist()
    if config["normalise"] == "none":
        return [rows]
    degrees = [sum(map(Fraction, row)) or Fraction(1) for row in rows]
    if config["normalise"] == "row":
        kind: Any = float if isinstance(rows[0][0], float) else Fraction
        return [[[kind(Fraction(x) / d) for x in row] for row, d in zip(rows, degrees, strict=True)]]
    roots = [math.sqrt(d) for d in degrees]
    return [[[float(x) / r / s for x, s in zip(row, roots, strict=True)] for row, r in zip(rows, roots, strict=True)]]
