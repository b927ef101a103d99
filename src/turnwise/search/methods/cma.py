"""CMA-ES, by the package `cma` (Hansen and Ostermeier 2001).

A linear map is searched in its weights. A table is searched in one score for each action of each
state, of which the largest chooses.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.errors import MissingDependencyError
from turnwise.search.history import HistoryLog
from turnwise.search.methods.base import searched, unknown_draw
from turnwise.search.methods.hill import changed
from turnwise.search.problem import Problem
from turnwise.search.space import Params
from turnwise.seeding import generator

SPREAD = 2.0
"""The first standard deviation of weights; 1 of the scores of actions."""


class CovarianceAdaptation:
    """Asks the package for generations, and tells it the means of each.

    Raises:
        MissingDependencyError: if `cma` is not installed.
    """

    warms_up = False

    def __init__(self, problem: Problem, seed: int) -> None:
        self._space, self._seed = problem.space, seed
        self._strategy: Any = None
        self._told = 0
        self._asked: list[NDArray[np.float64]] = []
        _package()

    def propose(self, log: HistoryLog, slot: int) -> Params:
        """Return the next policy of the present generation."""
        tries = searched(log.history)
        strategy = self._strategy
        if strategy is None or self._told > len(tries):
            strategy = self._begun()
        while len(tries) - self._told >= len(self._asked):
            end = self._told + len(self._asked)
            # After a kill, too, those means that were known before the next generation began.
            began = tries[end].slot if end < len(tries) else slot
            scores = [-each.mean_before(began) for each in tries[self._told : end]]
            self._told = end
            strategy.tell(self._asked, scores)
            self._asked = strategy.ask()
        rng = generator(self._seed, "cma", slot)
        params = self._rounded(self._asked[len(tries) - self._told])
        if not log.history.knows(params):
            return params
        return unknown_draw(
            log.history, self._space, rng, lambda: changed(params, self._space, rng)
        )

    def _begun(self) -> Any:
        """Return a strategy with its first generation; the draws are those of the seed."""
        rng = generator(self._seed, "cma strategy")
        options: dict[str, Any] = {
            "verbose": -9, "seed": math.nan, "randn": lambda *shape: rng.standard_normal(shape),
        }  # fmt: skip
        space, spread = self._space, 1.0
        dimensions = space.count * space.size if space.choices else space.count
        if not space.choices:
            limit = space.high * space.step
            spread, options["bounds"] = SPREAD, [-limit, limit]
        self._strategy = _package().CMAEvolutionStrategy(dimensions * [0.0], spread, options)
        self._told, self._asked = 0, self._strategy.ask()
        return self._strategy

    def _rounded(self, point: NDArray[np.float64]) -> Params:
        """Return the policy of a point."""
        space = self._space
        if not space.choices:
            return space.fitted(np.asarray(point))
        chosen = np.asarray(point).reshape(space.count, space.size).argmax(axis=1)
        return tuple(int(v) for v in chosen + space.low)


def _package() -> Any:
    try:
        return importlib.import_module("cma")
    except ImportError as error:
        raise MissingDependencyError(
            "the method 'cma-es' needs cma: pip install 'turnwise[search]'"
        ) from error
