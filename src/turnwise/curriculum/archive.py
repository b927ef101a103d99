"""States that episodes have reached, and the ways to them.

Provides `Archive`, which draws rarely visited states more often, and `Known`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.tasks import GeneratedTasks
from turnwise.tasks.openings import length_of, opening_as_json, opening_from_json
from turnwise.types import Opening, Task

Cell = tuple[str, str]
"""The seat that acts next, and a hash of what it sees (`Turn.seen`)."""


@dataclass(slots=True)
class Known:
    """A state: how one came there, and in how many episodes it was visited.

    `state` is the state itself where it is kept.
    """

    task: Task
    opening: Opening
    visits: int = 0
    state: Any = None


class Archive:
    """States that episodes have reached. Those with equal observations count as one.

    The way with the fewest steps is kept, of equal ones the latest. A state is drawn with a
    probability proportional to 1 / sqrt(n), where n is the number of episodes that visited it
    (Ecoffet et al. 2021, arXiv:2004.12919).
    """

    def __init__(self) -> None:
        self._known: dict[Cell, Known] = {}

    def __len__(self) -> int:
        """Return how many states are known."""
        return len(self._known)

    def visited(self, cell: Cell, task: Task, opening: Opening, state: Any = None) -> None:
        """Count the visit of an episode of `task` that came to a state by `opening`."""
        known = self._known.get(cell)
        if known is None or length_of(opening) <= length_of(known.opening):
            visits = 0 if known is None else known.visits
            known = Known(task=task, opening=opening, visits=visits, state=state)
            self._known[cell] = known
        known.visits += 1

    def drop(self, opening: Opening) -> None:
        """Forget the states that `opening` leads to."""
        gone = [cell for cell, known in self._known.items() if known.opening == opening]
        for cell in gone:
            del self._known[cell]

    def draw(self, rng: np.random.Generator) -> Known:
        """Return a known state; there must be one."""
        known = list(self._known.values())
        weights = np.array([each.visits for each in known], dtype=float) ** -0.5
        return known[int(rng.choice(len(known), p=weights / weights.sum()))]

    def forget(self, most: int) -> None:
        """Keep `most` states: the most visited go, of those visited equally often the oldest."""
        extra = len(self._known) - most
        if extra > 0:
            often = sorted(self._known, key=lambda cell: -self._known[cell].visits)
            for cell in often[:extra]:
                del self._known[cell]

    def as_json(self) -> list[Any]:
        """Return the archive as JSON-able values: tasks as their numbers."""
        return [
            [
                *cell,
                GeneratedTasks.number_of(each.task),
                opening_as_json(each.opening),
                each.visits,
            ]
            for cell, each in self._known.items()
        ]

    def restore(self, value: Sequence[Any], task_of: Callable[[int], Task]) -> None:
        """Go back to what `as_json` returned; `task_of` returns a task by its number."""
        self._known = {}
        for seat, seen, number, opening, visits in value:
            task = task_of(number)
            way = opening_from_json(opening, task.id)
            self._known[seat, seen] = Known(task=task, opening=way, visits=visits)
