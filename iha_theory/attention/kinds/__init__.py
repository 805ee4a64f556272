"""The layers as entries: by the names of `iha_theory.capacity.Kind`, each with its own options. Imports no torch.

- `base`: `LayerOptions`, what every entry has, and MHA's.
- `projections`, `mixing`, `higher_order`, `gates`, `two_layer`: the others, as the layers stand in their folders.

To add a layer: its class in a folder beside this one, its bounds in `iha_theory.capacity.capacity_bound` and
`iha_theory.bounds.parity.parity_bits`, an entry here.
"""

from iha_theory.attention.kinds.base import LayerOptions
from iha_theory.attention.kinds.gates import Forgetting, Gated, GatedHeadwise, GatedLinear
from iha_theory.attention.kinds.higher_order import Simplicial, Strassen
from iha_theory.attention.kinds.mixing import IHA, Composable, Differential, MultiToken, TalkingHeads
from iha_theory.attention.kinds.projections import GQA, MLA, MQA, TensorProduct
from iha_theory.attention.kinds.two_layer import TwoLayer

__all__ = ["IHA", "KINDS", "LayerOptions"]

KINDS: dict[str, type[LayerOptions]] = {
    "mha": LayerOptions,
    "mqa": MQA,
    "gqa": GQA,
    "mla": MLA,
    "tensor-product": TensorProduct,
    "talking-heads": TalkingHeads,
    "composable": Composable,
    "multi-token": MultiToken,
    "differential": Differential,
    "iha": IHA,
    "two-layer": TwoLayer,
    "simplicial": Simplicial,
    "strassen": Strassen,
    "gated": Gated,
    "gated-headwise": GatedHeadwise,
    "gated-linear": GatedLinear,
    "forgetting": Forgetting,
}
"""The options of each layer, by its name."""
