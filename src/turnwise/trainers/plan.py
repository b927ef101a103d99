"""The settings of the policy-gradient loop: its own and those of the packages it calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from turnwise.credit import CreditConfig
from turnwise.losses import LossConfig
from turnwise.policies import OptimizerConfig
from turnwise.trainers.config import LoopConfig, SftMixConfig
from turnwise.trainers.validation import DecodingRule

C = TypeVar("C", bound=LoopConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan(Generic[C]):
    """The settings of one loop; `C` is the class of the trainer's own."""

    trainer: C
    optimizer: OptimizerConfig
    credit: CreditConfig
    loss: LossConfig
    sft_mix: SftMixConfig | None
    sft_mix_first: int
    validate_every: int
    validation_tasks: int
    exact: bool
    decoding: DecodingRule
    validate_start: bool
    target: float | None
    stop_if_failed: float | None = None
