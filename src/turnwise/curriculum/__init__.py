"""Curricula: the choice of the tasks of each iteration.

Provides the table `CURRICULA` and `AnyCurriculum`, the `[curriculum]` section of a recipe. To add a
curriculum, write a file with its config class and its class, and add a line here and a test.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from turnwise.curriculum.base import Curriculum
from turnwise.curriculum.restarts import RestartsConfig, RestartsCurriculum
from turnwise.curriculum.tiers import TiersConfig, TiersCurriculum
from turnwise.curriculum.uniform import UniformConfig, UniformCurriculum
from turnwise.settings import Settings, one_of
from turnwise.tasks import GeneratedTasks

CURRICULA: dict[str, tuple[type[Settings], Callable[[GeneratedTasks, int, Any], Curriculum]]] = {
    "uniform": (UniformConfig, UniformCurriculum.of),
    "restarts": (RestartsConfig, RestartsCurriculum),
    "tiers": (TiersConfig, TiersCurriculum),
}
"""Name -> config class; what makes its curriculum of tasks, visits of an iteration and options."""
if TYPE_CHECKING:
    AnyCurriculum = UniformConfig | RestartsConfig | TiersConfig
else:
    AnyCurriculum = one_of({n: config for n, (config, _) in CURRICULA.items()}, default="uniform")
    """The `[curriculum]` section of a recipe."""


def make_curriculum(
    config: UniformConfig | RestartsConfig | TiersConfig, tasks: GeneratedTasks, per_iteration: int
) -> Curriculum:
    """Return the curriculum that a recipe asks for, over a source of tasks.

    Args:
        config: its options; `kind` chooses it.
        tasks: the source.
        per_iteration: task visits of one iteration.
    """
    _, make = CURRICULA[config.kind]
    return make(tasks, per_iteration, config)


__all__ = [
    "CURRICULA",
    "AnyCurriculum",
    "Curriculum",
    "RestartsConfig",
    "RestartsCurriculum",
    "TiersConfig",
    "TiersCurriculum",
    "UniformConfig",
    "UniformCurriculum",
    "make_curriculum",
]
