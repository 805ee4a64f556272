"""Statements as text: a page for each, and the README's table."""

import re
from collections.abc import Sequence
from pathlib import Path

from constructions.ledger.statement import Evidence, Judgement, Verdict

BEGIN, END = "<!-- claims: made by `iha-theory claims --update README.md` -->", "<!-- end of claims -->"

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


def _case(case: dict) -> str:
    return ", ".join(f"{name} = {value}" for name, value in case.items())


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


def updated(text: str, judgements: Sequence[Judgement]) -> str:
    """A text with the table between its two marks made anew.

    Raises:
        ValueError: the marks are not in the text, each once.
    """
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"expected one table between the lines {BEGIN!r} and {END!r}")
    return pattern.sub(lambda _: f"{BEGIN}\n{table(judgements)}\n{END}", text)


def update(path: Path, judgements: Sequence[Judgement]) -> bool:
    """Makes the table in a file anew; says whether it was stale.

    Raises:
        ValueError: as `updated`.
    """
    old = path.read_text(encoding="utf-8")
    new = updated(old, judgements)
    if new != old:
        path.write_text(new, encoding="utf-8")
    return new != old
