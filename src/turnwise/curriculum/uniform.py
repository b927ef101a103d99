"""The plainest curriculum: every iteration gets fresh tasks of the training split.

Owns which task is visited when. Knows nothing of policies or rewards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

REFILLS_FROM = 2**40
"""Where refills are numbered from, if iterations leave no gaps for them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """One occurrence of a task in one iteration. Two visits of one task are two groups.

    Example:
        >>> task = Task(id="t", env="e", seed=0, data={})
        >>> Visit(iteration=3, number=0, task=task).number
        0
    """

    iteration: int
    number: int
    task: Task


class UniformCurriculum:
    """Fresh tasks in the order of a generated source; none is repeated on purpose.

    Tasks are numbered by (iteration, visit), so a resumed run meets the same ones, and a refill of
    an iteration (dynamic sampling) meets others. With `passes` iterations take tasks without gaps,
    as a list is gone through; refills then come from far behind.
    """

    def __init__(
        self, draw: Callable[[int], Task], per_iteration: int, *, passes: bool = False
    ) -> None:
        self._draw, self._passes = draw, passes
        self._stride = 64 * per_iteration
        self.per_iteration = per_iteration

    @classmethod
    def of(cls, tasks: GeneratedTasks, per_iteration: int) -> UniformCurriculum:
        """Return the curriculum over a source: in passes where its tasks are a list."""
        return cls(tasks.task, per_iteration, passes=tasks.count is not None)

    def visits(self, iteration: int, *, first: int = 0, count: int | None = None) -> list[Visit]:
        """Return `count` visits (default: one iteration's worth), numbered from `first`.

        Raises:
            ValueError: if more visits are asked for than an iteration may ever have (64 fillings).
        """
        count = self.per_iteration if count is None else count
        if first + count > self._stride:
            raise ValueError(f"an iteration has at most {self._stride} visits, got {first + count}")
        numbers = range(first, first + count)
        return [
            Visit(iteration=iteration, number=n, task=self._draw(self._index(iteration, n)))
            for n in numbers
        ]

    def _index(self, iteration: int, number: int) -> int:
        if self._passes and number < self.per_iteration:
            return iteration * self.per_iteration + number
        return (REFILLS_FROM if self._passes else 0) + iteration * self._stride + number
