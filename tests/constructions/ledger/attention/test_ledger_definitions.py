"""Definition 3, by hand."""

import torch

from constructions.ledger.attention.definitions import definition
from iha_theory.attention import InterleavedHeadAttention


def test_definition_by_hand():
    """One token, one head, P = 2, linear: sum_{j,j'} R_j (Qt_j Kt_j') Vt_j', with Q = K = V = 1."""
    layer = InterleavedHeadAttention(1, 1, num_pseudo_heads=2, pattern="linear", out_proj=False, dtype=torch.float64)
    with torch.no_grad():
        for name, values in (("alpha_q", [1, 2]), ("alpha_k", [3, 4]), ("alpha_v", [5, 6]), ("collapse", [7, 8])):
            layer.get_parameter(name)[0, 0] = torch.tensor(values)
        for linear in (layer.q_proj, layer.k_proj, layer.v_proj):
            linear.weight.fill_(1)
        x = torch.ones(1, 1, 1, dtype=torch.float64)
        assert definition(layer, x, "none").item() == (7 * 1 + 8 * 2) * (3 * 5 + 4 * 6)
