"""Faster implementations of decoder operations, for any decoder of transformers.

`use` gives a model one attention function. The function is SDPA unless the mask of a forward pass
carries an attention plan (`PlanMask`); the plan then computes only the pairs that it needs. On CPUs
`use` also keeps freed memory and, where PyTorch's own product is slow, replaces linear layers. No
number changes by more than rounding. The choice of implementation depends on the machine and never
on a measured time.
"""

from transformers import PreTrainedModel

from turnwise.kernels import linear
from turnwise.kernels.attention import ATTENTION, EAGER, PlanMask, set_attention
from turnwise.kernels.decode import DecodePlan
from turnwise.kernels.flex import FlexPlan
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
    "fix_rotary",
    "longest_sequence",
    "reachable_lengths",
    "use",
]


def use(model: PreTrainedModel) -> None:
    """Use these implementations in `model` where they apply. A second call changes nothing."""
    set_attention(model)
    if model.device.type != "cpu":
        return
    keep_freed_memory()
    if linear.prefers_onednn():
        for module in model.modules():
            linear.use(module)
