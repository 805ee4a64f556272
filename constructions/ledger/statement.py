"""What a statement of the ledger is, and how its verdict is computed: never stored, always from checks made now.

A statement makes a **claim** about cases (sizes, graphs, seeds, variants). Checking it runs the claim's test in every
case of a box, smallest first:

| found | verdict |
|---|---|
| no counterexample | "holds"; for a count of heads or sizes that is said to be needed, only with a lower bound that holds too, otherwise "construction-only" |
| counterexamples, all outside the stated assumption, and cases within it that hold | "holds-under-assumptions" |
| other counterexamples | "does-not-hold-as-printed"; then the repaired claim is checked in its own cases |

The counterexample reported is the first one, so the smallest in the order of the box. A claim names **mutants**: other
constants for its test (a wrong exponent, sign or number), each of which must be refused in some case of the box.
Otherwise the test could not fail. A claim that fails in every case names **mends** instead, constants that make it
right, each of which must hold in every case: otherwise the test could not say yes. Tests search a wider box with
hypothesis.
"""  # noqa: E501

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from constructions.checks.result import strict
from iha_theory.blueprint import Place

Verdict = Literal["holds", "holds-under-assumptions", "construction-only", "does-not-hold-as-printed"]
Case = dict[str, Any]
Box = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Finding:
    """What a claim's test found in one case.

    holds: whether the claim is true there. what: in words, with the numbers that matter; no digits of rounding errors,
    which differ between machines: see `size`. values: the numbers, as JSON, there to six digits.
    """

    holds: bool
    what: str
    values: Mapping[str, Any] = field(default_factory=dict)


def size(error: float, rounding: float = 1e-10) -> float:
    """An error to be shown, with two digits; 0 for one of rounding, whose digits differ between machines."""
    return 0.0 if error <= rounding else float(f"{error:.2g}")


@dataclass(frozen=True)
class Claim:
    """A claim about cases.

    text: in words. test: called with a case's values by name, and a mutant's constants. cases: name -> values, the
    smallest first; the box is gone through in the order of `itertools.product`. given: the claim's own hypothesis;
    cases without it are no cases. mutants: name -> constants that make the test a wrong claim; mends: a right one, for
    a claim that fails in every case. wider: the box that hypothesis searches in tests; default `cases`.
    """

    text: str
    test: Callable[..., Finding]
    cases: Box
    mutants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    mends: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    given: Callable[..., bool] = lambda **case: True
    wider: Box | None = None

    def __iter__(self) -> Iterator[Case]:
        """The cases, smallest first."""
        for values in product(*self.cases.values()):
            case = dict(zip(self.cases, values, strict=True))
            if self.given(**case):
                yield case


@dataclass(frozen=True)
class Assumption:
    """An assumption that the source does not make. text: in words. met: whether a case meets it."""

    text: str
    met: Callable[..., bool]


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, or one of ours.

    id: "E1", "T4", ...; "P..." for the paper's statements without an entry in the list of errors. source: where it is
    made. claim: as printed. assumption: under which it holds, if it does not without. least: for a statement that says
    that a number is needed, the lower bound: None if nobody has one. repaired: the mended claim. note: why, and where
    the proof is. place: in the graph of the theory; a test fails without.
    """

    id: str
    source: str
    claim: Claim
    assumption: Assumption | None = None
    needed: bool = False
    least: Claim | None = None
    repaired: Claim | None = None
    note: str = ""
    place: Place | None = None

    @property
    def ours(self) -> bool:
        """Whether the statement is this project's (docs/results.md), not the paper's."""
        return self.id.startswith("T")

    @property
    def claims(self) -> dict[str, Claim]:
        """The claims that are checked: "printed", and "least" and "repaired" where there are such."""
        named = {"printed": self.claim, "least": self.least, "repaired": self.repaired}
        return {name: claim for name, claim in named.items() if claim is not None}


@dataclass(frozen=True)
class Evidence:
    """A claim's findings. role: "printed", "least" or "repaired". failures: cases in which it does not hold."""

    role: str
    claim: Claim
    findings: tuple[tuple[Case, Finding], ...]

    @property
    def failures(self) -> tuple[tuple[Case, Finding], ...]:
        """The cases in which the claim does not hold, smallest first."""
        return tuple((case, finding) for case, finding in self.findings if not finding.holds)

    def to_json(self) -> dict[str, Any]:
        """role, claim, number of cases and of failures, some of the findings, the names of the mutants and mends."""
        return {
            "role": self.role,
            "claim": self.claim.text,
            "cases": len(self.findings),
            "failures": len(self.failures),
            "found": [_finding_json(case, finding) for case, finding in self.shown],
            "mutants": [*self.claim.mutants, *self.claim.mends],
        }

    @property
    def shown(self) -> tuple[tuple[Case, Finding], ...]:
        """The findings that a reader wants to see: the first, the first failure, and the last."""
        failure = next((i for i, (_, finding) in enumerate(self.findings) if not finding.holds), 0)
        return tuple(self.findings[i] for i in sorted({0, failure, len(self.findings) - 1}))


@dataclass(frozen=True)
class Judgement:
    """A statement with its verdict, computed from the evidence."""

    statement: Statement
    evidence: tuple[Evidence, ...]

    def _of(self, role: str) -> Evidence | None:
        return next((e for e in self.evidence if e.role == role), None)

    @property
    def verdict(self) -> Verdict:
        """See the module."""
        printed, least = self._of("printed"), self._of("least")
        assert printed is not None
        if not printed.failures:
            proven = least is not None and not least.failures
            return "holds" if proven or not self.statement.needed else "construction-only"
        assumption = self.statement.assumption
        if assumption is not None:
            within = [finding.holds for case, finding in printed.findings if assumption.met(**case)]
            if within and all(within):
                return "holds-under-assumptions"
        return "does-not-hold-as-printed"

    @property
    def counterexample(self) -> tuple[Case, Finding] | None:
        """The smallest case in which the claim as printed does not hold."""
        printed = self._of("printed")
        assert printed is not None
        return printed.failures[0] if printed.failures else None

    @property
    def sound(self) -> bool:
        """Whether all is as it should be: nothing of ours fails, and what fails of the paper's is mended.

        A repaired claim and a lower bound hold in all their cases. A statement that does not hold has a repaired claim.
        """
        if any(e.failures for e in self.evidence if e.role != "printed"):
            return False
        if self.verdict == "does-not-hold-as-printed":
            return not self.statement.ours and self.statement.repaired is not None
        return True

    def to_json(self) -> dict[str, Any]:
        """id, statement, source, assumptions, verdict, evidence, counterexample, repaired, note, sound."""
        assumption, repaired = self.statement.assumption, self.statement.repaired
        counterexample = self.counterexample
        return {
            "id": self.statement.id,
            "statement": self.statement.claim.text,
            "source": self.statement.source,
            "assumptions": [] if assumption is None else [assumption.text],
            "verdict": self.verdict,
            "evidence": [e.to_json() for e in self.evidence],
            "counterexample": None if counterexample is None else _finding_json(*counterexample),
            "repaired": None if repaired is None else repaired.text,
            "note": self.statement.note,
            "sound": self.sound,
        }


def _finding_json(case: Case, finding: Finding) -> dict[str, Any]:
    values = _significant(dict(finding.values))
    return strict({"case": case, "holds": finding.holds, "what": finding.what, "values": values})


def _significant(value: Any) -> Any:
    """Floats to six digits: the last ones differ between machines."""
    if isinstance(value, dict):
        return {key: _significant(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_significant(v) for v in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def judge(statement: Statement) -> Judgement:
    """Checks every claim of a statement, now.

    Raises:
        ValueError: a claim without a case.
    """
    return Judgement(statement, tuple(check(role, claim) for role, claim in statement.claims.items()))


def check(role: str, claim: Claim, **constants: Any) -> Evidence:
    """A claim's findings in all its cases; `constants` are a mutant's or a mend's.

    Raises:
        ValueError: no case.
    """
    findings = tuple((case, claim.test(**case, **constants)) for case in claim)
    if not findings:
        raise ValueError(f"no case of {claim.text!r}")
    return Evidence(role, claim, findings)


def refused(evidence: Evidence, mutant: str) -> Case | None:
    """The first case in which a mutant of the claim is refused though the claim itself holds; None if there is none."""
    claim = evidence.claim
    for case, finding in evidence.findings:
        if finding.holds and not claim.test(**case, **claim.mutants[mutant]).holds:
            return case
    return None
