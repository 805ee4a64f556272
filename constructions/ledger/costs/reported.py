"""The paper's reported numbers, as far as they can be compared with each other: E13. Nothing of it can be run here."""

from constructions.ledger.statement import Claim, Finding, Place, Statement


def within_abstract(tokens: int, gain: int, *, most: int = 20) -> Finding:
    """Whether a relative gain of Sec. 5.2, in percent, is within the abstract's 10 to 20%."""
    what = f"multi-key RULER at {tokens} tokens: +{gain}% in Sec. 5.2, 10 to {most}% in the abstract"
    return Finding(10 <= gain <= most, what, {"gain": gain})


def points_fit(tokens: int, gain: int, *, factor: int = 1) -> Finding:
    """Whether 10 to 20 points on some baseline (in percent) are the relative gain: points / gain, and both <= 100.

    factor: multiplies the points.
    """
    least, most = 100 * 10 * factor / gain, min(100 * 20 * factor / gain, 100 / (1 + gain / 100))
    points = f"{10 * factor} to {20 * factor} points"
    what = f"{tokens} tokens: +{gain}% is {points} on a baseline of {least:.3g} to {most:.3g}%"
    return Finding(least <= most, what, {"least": least, "most": most})


RULER = {4096: 27, 8192: 32, 16384: 112}

STATEMENTS = (
    Statement(
        id="E13",
        source="Abstract, Sec. 5.2 (context)",
        place=Place("exact", (), "constructions.ledger.costs.reported"),
        claim=Claim(
            text="the gains on multi-key RULER, 27, 32 and 112%, are the 10 to 20% of the abstract",
            test=within_abstract,
            cases={"tokens": tuple(RULER), "gain": tuple(RULER.values())},
            given=lambda tokens, gain: RULER[tokens] == gain,
            mends={"10 to 112%": {"most": 112}},
        ),
        repaired=Claim(
            text="the numbers can agree only if the abstract means points, on some baseline accuracy of at most 100%",
            test=points_fit,
            cases={"tokens": tuple(RULER), "gain": tuple(RULER.values())},
            given=lambda tokens, gain: RULER[tokens] == gain,
            mutants={"ten times the points": {"factor": 10}},
        ),
        note="Arithmetic only: nothing of Sec. 5.2 can be run here. As percentages no average of the three gains is "
        "below 27%. GSM8K's 54.2 against 48.4 is 5.8 points and 12%, so which is meant makes a difference.",
    ),
)
