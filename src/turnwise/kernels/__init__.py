"""Faster ways to compute what decoders compute, for any decoder of transformers.

`use` gives a model one attention function, which does what SDPA does until a pass comes with a mask
that is a plan (`Planned`): then the plan attends, and computes what is needed and nothing else. On
CPUs it also exchanges linear layers, adapters and norms for ones that are faster there, and keeps
freed memory. `use_steps` exchanges decoder layers for ones that take steps of sampling in fewer
operations, from copies of their weights. Nothing changes a number by more than rounding; which of
them act depends on the machine, never on a clock.
"""

from transformers import PreTrainedModel

from turnwise.kernels import linear, lora, norm
from turnwise.kernels.attention import ATTENTION, BY_HAND, Planned, set_attention
from turnwise.kernels.decode import DecodePlan
from turnwise.kernels.flex import FlexPlan
from turnwise.kernels.layers import drop_copies
from turnwise.kernels.layers import undo as undo_steps
from turnwise.kernels.layers import use as use_steps
from turnwise.kernels.memory import keep_freed_memory
from turnwise.kernels.positions import (
    check_rotary,
    fix_rotary,
    lengths_that_matter,
    longest_sequence,
)
from turnwise.kernels.ties import check_ties
from turnwise.kernels.tree import TreePlan

__all__ = [
    "ATTENTION",
    "BY_HAND",
    "DecodePlan",
    "FlexPlan",
    "Planned",
    "TreePlan",
    "check_rotary",
    "check_ties",
    "drop_copies",
    "fix_rotary",
    "lengths_that_matter",
    "longest_sequence",
    "undo_steps",
    "use",
    "use_steps",
]


def use(model: PreTrainedModel) -> None:
    """Give `model` these ways to compute, where they apply. To do it again changes nothing."""
    set_attention(model)
    if model.device.type != "cpu":
        return
    keep_freed_memory()
    for module in model.modules():
        norm.use(module)
        lora.use(module)
        if linear.worth_it():
            linear.use(module)
