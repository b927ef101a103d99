"""Evolutionary search, plain and guided: what a searcher of one's own imitates in its warm-up.

Both see what such a searcher is shown, the best tries and the latest others as levels
(`turnwise.envs.policy_search`), and propose levels. So they tell how far imitation can lead.
"""

from __future__ import annotations

from collections.abc import Callable, Set

import numpy as np

from turnwise.envs.policy_search.estimates import Tries, open_tries
from turnwise.envs.policy_search.functions import Levels
from turnwise.envs.policy_search.optimisers import evolved
from turnwise.envs.policy_search.text import shown_of
from turnwise.search.history import HistoryLog
from turnwise.search.levels import LevelSpace
from turnwise.search.methods.base import unknown_draw
from turnwise.search.problem import Problem
from turnwise.search.space import Params
from turnwise.seeding import generator

SHOWN, COUNTED = 16, 48
"""The tries that `evolved` and `guided` are given, as in the recipe `policy-search`."""
Optimiser = Callable[[Tries, Set[Levels], int, int, bool, np.random.Generator], Levels]


class Evolution:
    """Changes the best try that is shown, as an optimiser says.

    Args:
        problem: the task.
        seed: of the draws.
        optimiser: changes tries into the next levels: `evolved` or `guided`.
        shown: how many tries it is given.
    """

    warms_up = True

    def __init__(
        self, problem: Problem, seed: int, optimiser: Optimiser = evolved, shown: int = SHOWN
    ) -> None:
        self._space, self._seed, self._optimiser = problem.space, seed, optimiser
        self._shown = shown
        self._levels = LevelSpace(space=problem.space)

    def propose(self, log: HistoryLog, slot: int) -> Params:
        """Return a change of the best policy that was not tried yet."""
        rng, levels = generator(self._seed, "evolution", slot), self._levels
        tries = levels.tries_of(log.history)
        known, ordered = frozenset(params for params, _ in tries), not self._space.choices
        some = shown_of(open_tries(tries, levels.levels, ordered, known), self._shown)
        told = self._space.count, levels.levels, ordered

        def draw() -> Params:
            return levels.params_of(self._optimiser(some, known, *told, rng))

        return unknown_draw(log.history, self._space, rng, draw)
