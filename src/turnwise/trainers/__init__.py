"""The loops: grpo, sft."""

from typing import TYPE_CHECKING

from turnwise.lazy import lazy_names

if TYPE_CHECKING:
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "START": "turnwise.trainers.session",
        "GrpoConfig": "turnwise.trainers.config",
        "Plan": "turnwise.trainers.grpo",
        "Progress": "turnwise.trainers.progress",
        "Resumed": "turnwise.trainers.session",
        "Session": "turnwise.trainers.session",
        "SftConfig": "turnwise.trainers.config",
        "Silent": "turnwise.trainers.progress",
        "exact_measures": "turnwise.trainers.exact",
        "exact_of": "turnwise.trainers.exact",
        "resume": "turnwise.trainers.session",
        "train_grpo": "turnwise.trainers.grpo",
        "warm_up": "turnwise.trainers.sft",
    },
)
