"""Statements as text: a page for each, the table of docs/ledger.md, and the README's digest of it."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from constructions.ledger.statement import Case, Evidence, Judgement, Verdict

TELLING = ("E5", "E12", "P-cpm3-separation")
"""The statements that the digest shows."""

VERDICTS: dict[Verdict, str] = {
    "holds": "holds",
    "holds-under-assumptions": "holds under assumptions",
    "construction-only": "construction only",
    "does-not-hold-as-printed": "does not hold as printed",
}


def page(judgement: Judgement) -> str:
    """What there is to say of a statement, in a few lines."""
    statement = judgement.statement
    lines = [
        f"{statement.id}  {VERDICTS[judgement.verdict].upper()}",
        statement.claim.text,
        f"source: {statement.source}",
    ]
    if statement.assumption is not None:
        lines.append(f"assuming: {statement.assumption.text}")
    counterexample = judgement.counterexample
    if counterexample is not None:
        case, finding = counterexample
        lines.append(f"smallest counterexample: {_case(case)}: {finding.what}")
    if statement.repaired is not None:
        lines.append(f"repaired: {statement.repaired.text}")
    for evidence in judgement.evidence:
        lines += _evidence(evidence)
    if statement.note:
        lines.append(f"note: {statement.note}")
    if not judgement.sound:
        lines.append("NOT SOUND: a lower bound or a repaired claim fails, or a claim of this project does not hold")
    return "\n  ".join(lines)


def _evidence(evidence: Evidence) -> list[str]:
    failures = len(evidence.failures)
    head = f"{evidence.role} claim, checked now in {len(evidence.findings)} cases: "
    head += f"{failures} do not hold" if failures else "all hold"
    if evidence.role == "least":
        head += f" ({evidence.claim.text})"
    return [head, *(f"  {_case(case)}: {finding.what}" for case, finding in evidence.shown)]


def _case(case: Case) -> str:
    return ", ".join(f"{name} = {value}" for name, value in case.items())


def counts(judgements: Sequence[Judgement]) -> str:
    """How many statements have each verdict, in words."""
    found = [(text, sum(j.verdict == verdict for j in judgements)) for verdict, text in VERDICTS.items()]
    return ", ".join(f"{n} {text}" for text, n in found if n)


def digest(judgements: Sequence[Judgement]) -> str:
    """The counts by verdict, and the rows of `TELLING`, as Markdown."""
    telling = [j for j in judgements if j.statement.id in TELLING]
    return f"{len(judgements)} statements: {counts(judgements)}.\n\n{table(telling)}"


def table(judgements: Sequence[Judgement]) -> str:
    """The statements as a Markdown table."""
    rows = ["| | statement | verdict | |", "|---|---|---|---|"]
    for judgement in judgements:
        statement = judgement.statement
        cells = (statement.id, statement.claim.text, VERDICTS[judgement.verdict], remark(judgement))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def remark(judgement: Judgement) -> str:
    """What the verdict needs beside it: the assumption, or the counterexample and the repaired claim."""
    statement = judgement.statement
    if judgement.verdict == "holds-under-assumptions" and statement.assumption is not None:
        return f"if {statement.assumption.text}"
    if judgement.verdict == "does-not-hold-as-printed" and judgement.counterexample and statement.repaired:
        return f"{judgement.counterexample[1].what}. Repaired: {statement.repaired.text}"
    return ""


PARTS: dict[str, Callable[[Sequence[Judgement]], str]] = {"table": table, "digest": digest}
"""What a file may hold: <!-- claims, table: ... -->, the text that is made, <!-- end of claims -->."""


def updated(text: str, judgements: Sequence[Judgement]) -> str:
    """A text with the parts between their marks made anew.

    Raises:
        ValueError: no marks in the text, or a part that is not known.
    """
    marked = re.compile("(<!-- claims, ([a-z]+): .*? -->\n).*?(<!-- end of claims -->)", re.DOTALL)
    found = {match[2] for match in marked.finditer(text)}
    if not found or not found <= PARTS.keys():
        names = " or ".join(f"<!-- claims, {name}: ... -->" for name in PARTS)
        raise ValueError(f"expected {names}, and <!-- end of claims --> after it, each in a line of its own")
    return marked.sub(lambda match: f"{match[1]}{PARTS[match[2]](judgements)}\n{match[3]}", text)


def update(path: Path, judgements: Sequence[Judgement]) -> bool:
    """Makes the parts of a file anew; says whether they were stale.

    Raises:
        ValueError: as `updated`.
    """
    old = path.read_text(encoding="utf-8")
    new = updated(old, judgements)
    if new != old:
        path.write_text(new, encoding="utf-8")
    return new != old
