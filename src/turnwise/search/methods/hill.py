"""Hill climbing: a change of the policy with the highest mean so far.

A table's change gives new actions to one or more states, one of them most often. A linear map's
change adds noise to all weights, with a standard deviation of 0.3, 1 or 3.
"""

from __future__ import annotations

import numpy as np

from turnwise.search.history import HistoryLog
from turnwise.search.methods.base import unknown_draw
from turnwise.search.problem import Problem
from turnwise.search.space import Params, ParamSpace
from turnwise.seeding import generator

SPREADS = (0.3, 1.0, 3.0)
MORE = 0.5
"""The probability that one more state gets a new action."""


class HillClimbing:
    """Keeps the policy with the highest mean, and tries changes of it."""

    warms_up = False

    def __init__(self, problem: Problem, seed: int) -> None:
        self._space, self._seed = problem.space, seed

    def propose(self, log: HistoryLog, slot: int) -> Params:
        """Return a change of the best policy; a random policy first."""
        rng = generator(self._seed, "hill climbing", slot)
        known = [each for each in log.history.tries if each.params is not None]
        if not known:
            return self._space.drawn(rng)
        best = max(known, key=lambda each: each.mean).params
        assert best is not None, "tries without parameters are left out"
        return unknown_draw(log.history, self._space, rng, lambda: changed(best, self._space, rng))


def changed(params: Params, space: ParamSpace, rng: np.random.Generator) -> Params:
    """Return a random change of parameters.

    Example:
        >>> space = ParamSpace(count=4, low=0, high=3, choices=True)
        >>> changed((0, 0, 0, 0), space, np.random.default_rng(0)) != (0, 0, 0, 0)
        True
    """
    if not space.choices:
        spread = float(rng.choice(SPREADS))
        return space.fitted(space.values(params) + rng.normal(0.0, spread, space.count))
    count = min(int(rng.geometric(1 - MORE)), space.count)
    values = list(params)
    for place in rng.choice(space.count, size=count, replace=False):
        others = int(rng.integers(space.size - 1)) if space.size > 1 else 0
        values[place] = space.low + (values[place] - space.low + 1 + others) % space.size
    return tuple(values)
