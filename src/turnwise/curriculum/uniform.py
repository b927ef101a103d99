"""The plainest curriculum: every iteration gets fresh tasks of the training split.

Owns which task is visited when. Knows nothing of policies or rewards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turnwise.types import Task


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
    an iteration (dynamic sampling) meets others.
    """

    def __init__(self, draw: Callable[[int], Task], per_iteration: int) -> None:
        self._draw = draw
        self._stride = 64 * per_iteration
        self.per_iteration = per_iteration

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
            Visit(iteration=iteration, number=n, task=self._draw(iteration * self._stride + n))
            for n in numbers
        ]
