"""Curricula: the choice of the tasks of each iteration.

Provides the table `CURRICULA` and `AnyCurriculum`, the `[curriculum]` section of a recipe. To add a
curriculum, write a file with its config class and its class, and add a line here and a test.
"""

from typing import TYPE_CHECKING

from turnwise.curriculum.uniform import UniformConfig, UniformCurriculum
from turnwise.settings import one_of
from turnwise.tasks import GeneratedTasks

CURRICULA = {"uniform": (UniformConfig, UniformCurriculum)}
"""Name -> config class and curriculum class."""
if TYPE_CHECKING:
    AnyCurriculum = UniformConfig
else:
    AnyCurriculum = one_of({n: config for n, (config, _) in CURRICULA.items()}, default="uniform")
    """The `[curriculum]` section of a recipe."""


def make_curriculum(
    config: UniformConfig, tasks: GeneratedTasks, per_iteration: int
) -> UniformCurriculum:
    """Return the curriculum that a recipe asks for, over a source of tasks.

    Args:
        config: its options; `kind` chooses it.
        tasks: the source.
        per_iteration: task visits of one iteration.
    """
    _, curriculum = CURRICULA[config.kind]
    return curriculum.of(tasks, per_iteration)


__all__ = [
    "CURRICULA",
    "AnyCurriculum",
    "UniformConfig",
    "UniformCurriculum",
    "make_curriculum",
]
