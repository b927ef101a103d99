"""States that episodes have reached, and the ways to them.

Provides `Archive`, which draws rarely visited and promising states more often, and `Known`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.tasks import GeneratedTasks
from turnwise.tasks.openings import length_of, opening_as_json, opening_from_json
from turnwise.types import Opening, Task

Floats = NDArray[np.float64]
Cell = tuple[str, str]
"""The seat that acts next, and a hash of what it sees (`Turn.seen`)."""


RANKED = 0.5
"""The share of draws that go by rank, where some advantage is known."""
KEPT = 0.5
"""The share of its largest advantage that a state keeps when it is visited again."""


@dataclass(slots=True)
class Known:
    """A state: how one came there, and in how many episodes it was visited.

    `gain` is the largest advantage of late that a turn in it had, at least 0. `state` is the state
    itself where it is kept.
    """

    task: Task
    opening: Opening
    visits: int = 0
    gain: float = 0.0
    state: Any = None


class Archive:
    """States that episodes have reached. Those with equal observations count as one.

    The way with the fewest steps is kept, of equal ones the latest. Half of the draws have a
    probability proportional to 1 / sqrt(n), where n is the number of episodes that visited a state
    (Ecoffet et al. 2021, arXiv:2004.12919). The other half is proportional to 1 / rank, where the
    state with the largest `gain` has the rank 1: there some action was better than the state's
    value (prioritised level replay, Jiang et al. 2021, arXiv:2010.03934). Where no gain is
    known, all draws are of the first kind.
    """

    def __init__(self) -> None:
        self._known: dict[Cell, Known] = {}

    def __len__(self) -> int:
        """Return how many states are known."""
        return len(self._known)

    def visited(self, cell: Cell, task: Task, opening: Opening, state: Any = None) -> None:
        """Count the visit of an episode of `task` that came to a state by `opening`."""
        known = self._known.get(cell)
        if known is None:
            known = self._known[cell] = Known(task=task, opening=opening, state=state)
        elif length_of(opening) <= length_of(known.opening):
            known.task, known.opening, known.state = task, opening, state
        known.visits += 1

    def gained(self, gains: Mapping[Cell, float]) -> None:
        """Learn the largest advantage of an iteration's turns in each state that they were in."""
        for cell, gain in gains.items():
            if cell in self._known:
                known = self._known[cell]
                known.gain = max(gain, KEPT * known.gain, 0.0)

    def copy(self) -> Archive:
        """Return an archive that learns for itself."""
        other = Archive()
        other._known = {cell: replace(known) for cell, known in self._known.items()}
        return other

    def drop(self, opening: Opening) -> None:
        """Forget the states that `opening` leads to."""
        gone = [cell for cell, known in self._known.items() if known.opening == opening]
        for cell in gone:
            del self._known[cell]

    def draw(self, rng: np.random.Generator) -> Known:
        """Return a known state; there must be one."""
        known = list(self._known.values())
        return known[int(rng.choice(len(known), p=self.probabilities()))]

    def probabilities(self) -> Floats:
        """Return the probability of each state to be drawn, in their order, [states]."""
        visits, gains = (
            np.array([getattr(each, name) for each in self._known.values()], dtype=float)
            for name in ("visits", "gain")
        )
        rare = visits**-0.5 / (visits**-0.5).sum()
        order = np.argsort(-gains, kind="stable")[: np.count_nonzero(gains)]
        if not len(order):
            return rare
        ranked = np.zeros(len(gains))
        ranked[order] = 1 / np.arange(1, len(order) + 1)
        return (1 - RANKED) * rare + RANKED * ranked / ranked.sum()

    def forget(self, most: int) -> None:
        """Keep `most` states: the least probable go, of equally probable ones the oldest."""
        extra = len(self._known) - most
        if extra > 0:
            cells = list(self._known)
            for place in np.argsort(self.probabilities(), kind="stable")[:extra]:
                del self._known[cells[place]]

    def as_json(self) -> list[Any]:
        """Return the archive as JSON-able values: tasks as their numbers."""
        return [
            [
                *cell,
                GeneratedTasks.number_of(each.task),
                opening_as_json(each.opening),
                each.visits,
                each.gain,
            ]
            for cell, each in self._known.items()
        ]

    def restore(self, value: Sequence[Any], task_of: Callable[[int], Task]) -> None:
        """Go back to what `as_json` returned; `task_of` returns a task by its number."""
        self._known = {}
        task_of = functools.cache(task_of)
        for seat, seen, number, opening, visits, gain in value:
            task = task_of(number)
            way = opening_from_json(opening, task.id)
            self._known[seat, seen] = Known(task=task, opening=way, visits=visits, gain=gain)
