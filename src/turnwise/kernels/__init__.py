"""Faster implementations of decoder operations, for any decoder of transformers.

`use` gives a model one attention function. The function is SDPA unless the mask of a forward pass
carries an attention plan (`PlanMask`); the plan then computes only the pairs that it needs. On CPUs
`use` also replaces linear layers, adapters and norms by faster ones, and keeps freed memory.
`use_fused_layers` replaces decoder layers by layers that decode one token per row in fewer
operations, from copies of their weights. No number changes by more than rounding. The choice of
implementation depends on the machine and never on a measured time.
"""

from transformers import PreTrainedModel

from turnwise.kernels import linear, lora, norm
from turnwise.kernels.attention import ATTENTION, EAGER, PlanMask, set_attention
from turnwise.kernels.decode import DecodePlan
from turnwise.kernels.flex import FlexPlan
from turnwise.kernels.layers import drop_copies, undo_fused_layers, use_fused_layers
from turnwise.kernels.memory import keep_freed_memory
from turnwise.kernels.positions import (
    check_rotary,
    fix_rotary,
    longest_sequence,
    reachable_lengths,
)
from turnwise.kernels.ties import check_ties
from turnwise.kernels.tree import TreePlan

__all__ = [
    "ATTENTION",
    "EAGER",
    "DecodePlan",
    "FlexPlan",
    "PlanMask",
    "TreePlan",
    "check_rotary",
    "check_ties",
    "drop_copies",
    "fix_rotary",
    "longest_sequence",
    "reachable_lengths",
    "undo_fused_layers",
    "use",
    "use_fused_layers",
]


def use(model: PreTrainedModel) -> None:
    """Use these implementations in `model` where they apply. A second call changes nothing."""
    set_attention(model)
    if model.device.type != "cpu":
        return
    keep_freed_memory()
    for module in model.modules():
        norm.use(module)
        lora.use(module)
        if linear.prefers_onednn():
            linear.use(module)
