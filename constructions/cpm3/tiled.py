"""The workspace of CPM-3 by tiles, with about sqrt(H) pseudo-heads; proof in `constructions.filter_bank.tiled`."""

from constructions.construction import Block, Construction
from constructions.cpm3.workspace import shift
from constructions.filter_bank.paper import selectors, transpose
from constructions.filter_bank.tiled import mixing, tiling
from iha_theory.operators.weights import PositionWeights, to_layer
from iha_theory.rounding import ceil_sqrt, require_count


def workspace_weights(tokens: int, width: int) -> PositionWeights:
    """The workspace: ceil(sqrt N) heads of hard attention, tiled."""
    heads = ceil_sqrt(tokens)
    return PositionWeights(
        query=tuple(shift(tokens, m * heads) for m in range(heads)),
        key=tuple(transpose(shift(tokens, m)) for m in range(heads)),
        value=selectors(width, heads),
        pattern="hard",
        mixing=mixing(tiling(-(-tokens // heads), heads, heads), heads, average=True),
    )


def workspace(tokens: int, width: int = 1) -> Construction:
    """[X, P X, ..., P^{N-1} X] by IHA with H = ceil(sqrt N) heads of hard attention, about sqrt(H) pseudo-heads.

    Args and errors: `constructions.cpm3.workspace.workspace`.
    """
    require_count("tokens", tokens)
    require_count("width", width)
    readout = tuple(Block(f"P^{t} X", t * width, width) for t in range(tokens))
    layer = to_layer(workspace_weights(tokens, width))
    return Construction("workspace/iha-tiled", "docs/results.md T6", layer, readout, width)
