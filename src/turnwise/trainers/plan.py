"""The settings of the policy-gradient loop: its own and those of the packages it calls."""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.credit import CreditConfig
from turnwise.losses import LossConfig
from turnwise.policies import OptimizerConfig
from turnwise.trainers.config import GrpoConfig, SftMixConfig
from turnwise.trainers.validation import DecodingRule


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The settings of one loop."""

    trainer: GrpoConfig
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
