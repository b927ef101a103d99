"""The table of trainers: name -> options and loop.

Provides `TRAINERS` and `AnyTrainer`, the `[trainer]` section of a recipe. To add a trainer, write a
file with its loop, its config class in `trainers/config.py`, and add a line here and a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwise.settings import one_of
from turnwise.trainers.config import GrpoConfig, HindsightConfig, LoopConfig

if TYPE_CHECKING:
    from turnwise.trainers.plan import Plan
    from turnwise.trainers.session import Resumed, Session

    Loop = Callable[[Session, Plan, Resumed | None], bool]
    """From the parts of a run, the settings and the checkpoint to go on from to whether the loop
    came to its end; False if the run was asked to stop before that."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """A trainer: the class of its options, and a function that imports its loop, and torch."""

    config: type[LoopConfig]
    load: Callable[[], Loop]


def _grpo() -> Loop:
    from turnwise.trainers.grpo import train_grpo

    return train_grpo


def _hindsight() -> Loop:
    from turnwise.trainers.hindsight import train_hindsight

    return train_hindsight


TRAINERS: dict[str, Trainer] = {
    "grpo": Trainer(GrpoConfig, _grpo),
    "hindsight": Trainer(HindsightConfig, _hindsight),
}
if TYPE_CHECKING:
    AnyTrainer = GrpoConfig | HindsightConfig
else:
    AnyTrainer = one_of({n: each.config for n, each in TRAINERS.items()}, default="grpo")
    """The `[trainer]` section of a recipe."""
