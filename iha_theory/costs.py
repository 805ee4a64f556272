"""Parameters in closed form. N tokens, content width d, k terms, H = P = ceil(sqrt k), or ceil(sqrt N) for CPM-3.

Source: App. B.2 and B.3; for CPM-3, `mha` is mended as in ledger E2: the values are N (N + 1), not N^3.
"""

from math import isqrt


def ceil_sqrt(n: int) -> int:
    """The least H with H^2 >= n, for n >= 1."""
    return isqrt(n - 1) + 1


def mixing_parameters(heads: int, pseudo_heads: int) -> int:
    """3 H^2 P for the alphas and H (H P) for a global collapse: 4 H^2 P."""
    return 4 * heads**2 * pseudo_heads


def bank_parameters(layer: str, tokens: int, width: int, terms: int) -> int:
    """The filter bank on [X, I_N].

    "mha": 2 N (N + d) k + d (N + d) k.    "iha": 2 N (N + d) H + d (N + d) H^2 + 4 H^3.

    Raises:
        ValueError: another layer.
    """
    inputs = tokens + width
    if layer == "mha":
        return 2 * tokens * inputs * terms + width * inputs * terms
    if layer == "iha":
        heads = ceil_sqrt(terms)
        return 2 * tokens * inputs * heads + width * inputs * heads**2 + mixing_parameters(heads, heads)
    raise ValueError(f"unknown layer {layer!r}: accepted are mha and iha")


def workspace_parameters(layer: str, tokens: int) -> int:
    """CPM-3's attention on [x, I_N]: the filter bank's with d = 1 and k = N.

    "mha": 2 N^2 (N + 1) + N (N + 1).    "iha": 2 (N^2 + N) H + (N + 1) H^2 + 4 H^3.
    """
    return bank_parameters(layer, tokens, 1, tokens)


def pair_count_parameters(tokens: int, workspace_width: int) -> int:
    """The MLP: N^2 hidden units over the workspace, and their sum: N^2 W + N^2."""
    return tokens**2 * (workspace_width + 1)
