"""The uniform curriculum: every iteration visits new tasks of the training split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from turnwise.curriculum.base import GoesOn
from turnwise.settings import Settings
from turnwise.tasks import GeneratedTasks
from turnwise.tasks.openings import WorldDraws
from turnwise.types import Episode, Opening, Task, TaskVisit, TurnId

REFILLS_FROM = 2**40
"""The first number of refills if iterations leave no gaps for them."""


class UniformConfig(Settings):
    """Fresh tasks of the training split in every iteration."""

    kind: Literal["uniform"] = "uniform"
    """The curriculum."""


class UniformCurriculum:
    """New tasks in the order of a generated source; no task is repeated on purpose.

    Tasks are numbered by (iteration, visit), so a resumed run gets the same tasks, and a refill of
    an iteration (dynamic sampling) gets other tasks. With `passes`, iterations take consecutive
    tasks of a list, and refills take tasks far ahead.
    """

    def __init__(
        self, draw: Callable[[int], Task], per_iteration: int, *, passes: bool = False
    ) -> None:
        self._draw, self._passes = draw, passes
        self._stride = 64 * per_iteration
        self.per_iteration = per_iteration

    @classmethod
    def of(cls, tasks: GeneratedTasks, per_iteration: int) -> UniformCurriculum:
        """Return the curriculum of a source; a source with a list of tasks is used in passes."""
        return cls(tasks.task, per_iteration, passes=tasks.count is not None)

    def visits(
        self, iteration: int, *, first: int = 0, count: int | None = None
    ) -> list[TaskVisit]:
        """Return `count` visits (default: one iteration's worth), numbered from `first`.

        Raises:
            ValueError: if more visits are requested than an iteration may have (64 fillings).
        """
        count = self.per_iteration if count is None else count
        if first + count > self._stride:
            raise ValueError(
                f"an iteration has at most {self._stride} visits, got {first + count}: lower "
                "trainer.max_refills"
            )
        numbers = range(first, first + count)
        return [
            TaskVisit(iteration=iteration, visit=n, task=self._draw(self._index(iteration, n)))
            for n in numbers
        ]

    def beginning(self, rng: np.random.Generator) -> tuple[Task, Opening] | None:
        """Return nothing: games begin in the first states of tasks."""
        return None

    def explore(self, draws: WorldDraws, goes_on: GoesOn) -> Mapping[str, Any]:
        """Return nothing: there is nothing to find."""
        return {}

    def begin(self, found: Mapping[str, Any]) -> None:
        """Do nothing."""

    def learn(self, episodes: Sequence[Episode], advantages: Mapping[TurnId, float]) -> None:
        """Do nothing: the choice does not depend on play."""

    def exam(self, iteration: int) -> Sequence[Task]:
        """Return nothing: the choice needs no evaluation."""
        return ()

    def judge(self, episodes: Sequence[Episode]) -> None:
        """Do nothing."""

    def metrics(self) -> Mapping[str, float]:
        """Return nothing."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """Return nothing: there is nothing to remember."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""

    def _index(self, iteration: int, number: int) -> int:
        if self._passes and number < self.per_iteration:
            return iteration * self.per_iteration + number
        return (REFILLS_FROM if self._passes else 0) + iteration * self._stride + number
