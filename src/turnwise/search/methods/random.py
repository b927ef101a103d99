"""Random search: each policy is drawn like those of a warm-up, whatever came before."""

from __future__ import annotations

from turnwise.search.history import HistoryLog
from turnwise.search.methods.base import unknown_draw
from turnwise.search.problem import Problem
from turnwise.search.space import Params
from turnwise.seeding import generator


class RandomSearch:
    """Draws actions uniformly, and weights from N(0, 3)."""

    warms_up = False

    def __init__(self, problem: Problem, seed: int) -> None:
        self._space, self._seed = problem.space, seed

    def propose(self, log: HistoryLog, slot: int) -> Params:
        """Return a random policy."""
        rng = generator(self._seed, "random search", slot)
        return unknown_draw(log.history, self._space, rng, lambda: self._space.drawn(rng))
