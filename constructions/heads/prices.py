"""`iha-theory costs --heads`: what a capacity costs, formula and counted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from iha_theory.cli import output

if TYPE_CHECKING:  # torch takes seconds to import: only when counting
    from iha_theory.bounds.price import Priced

LARGEST = 2**53
"""Of each thing that is counted: torch lays out no more, be it without memory."""


def priced(heads: int, capacity: int, of: str, embed_dim: int, tokens: int) -> tuple[list[dict[str, Any]], Any]:
    """All rows for JSON, and the table.

    Raises:
        ValueError: as `iha_theory.bounds.price.prices`; a layer with more than 2^53 parameters, numbers of its cache or
            FLOPs of a token.
    """
    from iha_theory.bounds.price import prices

    _require_countable("mha", heads, "parameters", 4 * embed_dim**2)  # first: a divisor of so many heads takes long
    found = prices(heads, capacity, of, embed_dim=embed_dim)  # type: ignore[arg-type]
    for row in found:
        counts = {"parameters": row.parameters, "numbers in its cache": row.cache * tokens, "FLOPs": row.flops(tokens)}
        for what, count in counts.items():
            _require_countable(row.name, row.heads, what, count)
    rows = [_row(row, tokens) for row in found]
    return rows, _table(rows)


def _require_countable(name: str, heads: int, what: str, count: int) -> None:
    if count > LARGEST:
        accepted = "accepted are at most 2^53: give a smaller --heads, --capacity, --embed-dim or --tokens"
        raise ValueError(f"{name} with {heads} heads has {count:.3g} {what}, {accepted}")


def _row(row: "Priced", tokens: int) -> dict[str, Any]:
    parameters, flops, cache = row.counted(tokens)
    return {
        "layer": row.name,
        "heads": row.heads,
        "pseudo_heads": row.pseudo_heads,
        "collapse": row.collapse,
        "kv_heads": row.kv_heads,
        "head_dim": row.head_dim,
        "rank": row.rank,
        "rows": row.rows,
        "maps": row.maps,
        "parameters_formula": row.parameters,
        "parameters_counted": parameters,
        "token_flops_formula": row.flops(tokens),
        "token_flops_counted": flops,
        "cache_formula": row.cache,
        "cache_counted": cache,
        "flops_a_byte": row.intensity(),
        "agrees": (row.parameters, row.flops(tokens), row.cache) == (parameters, flops, cache),
    }


def _table(rows: Sequence[dict[str, Any]]) -> Any:
    lines = [
        (
            *(row["layer"], str(row["heads"]), str(row["pseudo_heads"] or ""), row["collapse"] or ""),
            *(str(row[name]) for name in ("head_dim", "rank", "rows", "maps")),
            *(str(row[f"{name}_formula"]) for name in ("parameters", "token_flops", "cache")),
            *(f"{row['cache_formula'] / row[name]:.4g}" for name in ("rank", "rows")),
            f"{row['flops_a_byte']:.3g}",
            "equal" if row["agrees"] else "DIFFERS",
        )
        for row in rows
    ]
    names = ("layer", "H", "P", "collapse", "d", "rank", "rows", "maps")
    names += ("parameters", "FLOPs", "cache", "/ rank", "/ row", "FLOPs / byte", "counted")
    return output.table([(name, i not in (0, 3, len(names) - 1)) for i, name in enumerate(names)], lines)
