"""The loops: grpo, sft."""

from typing import TYPE_CHECKING

from turnwise.utils.lazy_imports import lazy_names

if TYPE_CHECKING:
    from turnwise.trainers.config import GrpoConfig, SftConfig
    from turnwise.trainers.grpo import train_grpo
    from turnwise.trainers.plan import Plan
    from turnwise.trainers.progress import Progress, Silent
    from turnwise.trainers.session import Resumed, Session, resume
    from turnwise.trainers.sft import warm_up
    from turnwise.trainers.trained_policy import TrainedPolicy

__all__ = [
    "GrpoConfig",
    "Plan",
    "Progress",
    "Resumed",
    "Session",
    "SftConfig",
    "Silent",
    "TrainedPolicy",
    "resume",
    "train_grpo",
    "warm_up",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "GrpoConfig": "turnwise.trainers.config",
        "Plan": "turnwise.trainers.plan",
        "Progress": "turnwise.trainers.progress",
        "Resumed": "turnwise.trainers.session",
        "Session": "turnwise.trainers.session",
        "SftConfig": "turnwise.trainers.config",
        "Silent": "turnwise.trainers.progress",
        "TrainedPolicy": "turnwise.trainers.trained_policy",
        "resume": "turnwise.trainers.session",
        "train_grpo": "turnwise.trainers.grpo",
        "warm_up": "turnwise.trainers.sft",
    },
)
