"""Closed forms of `iha_theory.costs.layers` against what torch counts, for every kind of layer."""

import pytest

from constructions.construction import count
from iha_theory import attention
from iha_theory.attention import KINDS
from iha_theory.costs.counted import flops as counted
from iha_theory.costs.layers import COSTS, Sizes, flops, parameters

OWN = {
    "mqa": lambda s: {"num_kv_heads": 1},
    "gqa": lambda s: {"num_kv_heads": s.kv_heads},
    "mla": lambda s: {"latent_dim": s.latent},
    "tensor-product": lambda s: dict(zip(("query_rank", "key_rank", "value_rank"), s.ranks, strict=True)),
    "composable": lambda s: {"rank": s.composition[0], "hidden_dim": s.composition[1]},
    "multi-token": lambda s: {"query_window": s.windows[0], "key_window": s.windows[1], "head_group": s.group},
    "iha": lambda s: {"num_pseudo_heads": s.pseudo_heads, "num_kv_heads": s.base_heads},
    "gated-headwise": lambda s: {"gate": "headwise"},
    "gated-linear": lambda s: {"pattern": "linear"},
}
SIZES = [
    Sizes(5, 6, 2, 3, 4),
    Sizes(7, 8, 4, 2, 3, 3, latent=5, ranks=(1, 2, 3), composition=(1, 3), windows=(2, 3), group=4, base_heads=2),
]


def layer(kind, s):
    options = OWN.get(kind, lambda s: {})(s)
    widths = {"head_dim": s.head_dim, "value_head_dim": s.value_head_dim}
    if kind == "two-layer":
        widths |= {"first": {"value_head_dim": s.value_head_dim}}
    return getattr(attention, KINDS[kind].layer)(s.width, s.heads, **widths, **options, device="meta")


@pytest.mark.parametrize("sizes", SIZES, ids=["small", "other"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_closed_forms_are_what_torch_counts(kind, sizes):
    one = layer(kind, sizes)
    assert parameters(kind, sizes) == count(one)
    assert flops(kind, sizes) == counted(one, *[(1, sizes.tokens, sizes.width)] * 3)


def test_every_kind_has_its_costs():
    assert set(COSTS) == set(KINDS)
    with pytest.raises(ValueError, match="unknown kind 'mhla': accepted are mha, mqa"):
        flops("mhla", SIZES[0])
