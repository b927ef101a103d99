"""The loops: grpo, sft."""

from turnwise.trainers.config import GrpoConfig, SftConfig
from turnwise.trainers.exact import exact_measures, exact_of
from turnwise.trainers.grpo import Plan, train_grpo
from turnwise.trainers.progress import Progress, Silent
from turnwise.trainers.session import START, Resumed, Session, resume
from turnwise.trainers.sft import warm_up

__all__ = [
    "START",
    "GrpoConfig",
    "Plan",
    "Progress",
    "Resumed",
    "Session",
    "SftConfig",
    "Silent",
    "exact_measures",
    "exact_of",
    "resume",
    "train_grpo",
    "warm_up",
]
