"""States that episodes have reached, and the actions that lead to them.

Provides `Archive`, which draws rarely visited states and states with large gains more often, and
`Known`.
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
"""The probability of a draw by rank, where some state has a positive gain."""
KEPT = 0.5
"""The share of its former gain that a state keeps at least when it is visited again."""


@dataclass(slots=True)
class Known:
    """A state that was reached.

    Attributes:
        task: its task.
        opening: the actions that lead to it from the first state of the task.
        visits: the number of episodes that visited it.
        gain: after each iteration that visits it, the maximum of 0, half of the former gain and the
            advantages of its turns in this state.
        state: the env's state itself, where it is kept.
    """

    task: Task
    opening: Opening
    visits: int = 0
    gain: float = 0.0
    state: Any = None


class Archive:
    """States that episodes have reached. Those with equal observations count as one.

    The shortest sequence of actions is kept; of equally short ones the latest. With probability 1/2
    a state is drawn in proportion to 1 / sqrt(n), where n is the number of episodes that visited it
    (Go-Explore, Ecoffet et al. 2021, arXiv:2004.12919), and with probability 1/2 in proportion to
    1 / rank among the states with a positive gain, where the largest `gain` has rank 1 (prioritised
    level replay, Jiang et al. 2021, arXiv:2010.03934). While no state has a positive gain, all
    draws are of the first kind.
    """

    def __init__(self) -> None:
        self._known: dict[Cell, Known] = {}

    def __len__(self) -> int:
        """Return how many states are known."""
        return len(self._known)

    def visited(self, cell: Cell, task: Task, opening: Opening, state: Any = None) -> None:
        """Count the visit of an episode of `task` that reached a state by `opening`."""
        known = self._known.get(cell)
        if known is None:
            known = self._known[cell] = Known(task=task, opening=opening, state=state)
        elif length_of(opening) <= length_of(known.opening):
            known.task, known.opening, known.state = task, opening, state
        known.visits += 1

    def gained(self, gains: Mapping[Cell, float]) -> None:
        """Update the gains from the largest advantage of an iteration's turns in each state."""
        for cell, gain in gains.items():
            if cell in self._known:
                known = self._known[cell]
                known.gain = max(gain, KEPT * known.gain, 0.0)

    def copy(self) -> Archive:
        """Return a copy that changes independently of this archive."""
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
        """Keep `most` states: drop the least probable, of equally probable ones the oldest."""
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
            self._known[seat, seen] = Known(
                task=task, opening=opening_from_json(opening, task.id), visits=visits, gain=gain
            )
