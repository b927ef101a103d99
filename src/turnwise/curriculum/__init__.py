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
from turnwise.envs import Env
from turnwise.settings import Settings, one_of
from turnwise.tasks import GeneratedTasks

Make = Callable[[GeneratedTasks, Env[Any], int, Any], Curriculum]
"""From training tasks, the env of evaluation, visits of an iteration and options."""
CURRICULA: dict[str, tuple[type[Settings], Make]] = {
    "uniform": (UniformConfig, lambda tasks, _, many, config: UniformCurriculum.of(tasks, many)),
    "restarts": (
        RestartsConfig,
        lambda tasks, _, many, config: RestartsCurriculum(tasks, many, config),
    ),
    "tiers": (TiersConfig, TiersCurriculum),
}
"""Name -> config class; what makes its curriculum."""
if TYPE_CHECKING:
    AnyCurriculum = UniformConfig | RestartsConfig | TiersConfig
else:
    AnyCurriculum = one_of({n: config for n, (config, _) in CURRICULA.items()}, default="uniform")
    """The `[curriculum]` section of a recipe."""


def make_curriculum(
    config: UniformConfig | RestartsConfig | TiersConfig,
    tasks: GeneratedTasks,
    judged: Env[Any],
    per_iteration: int,
) -> Curriculum:
    """Return the curriculum that a recipe asks for, over a source of tasks.

    Args:
        config: its options; `kind` chooses it.
        tasks: the source of training tasks.
        judged: the env by which runs are evaluated.
        per_iteration: task visits of one iteration.
    """
    _, make = CURRICULA[config.kind]
    return make(tasks, judged, per_iteration, config)


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
