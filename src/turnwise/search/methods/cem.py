"""The cross-entropy method: draws from a distribution that moves to the best of each generation.

A table has a probability for each action of each state; a linear map has a mean and a standard
deviation for each weight (de Boer et al. 2005; extra noise after Szita and Lorincz 2006).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.search.history import HistoryLog, Try
from turnwise.search.methods.base import searched, unknown_draw
from turnwise.search.problem import Problem
from turnwise.search.space import WARMUP_SPREAD, Params, ParamSpace
from turnwise.seeding import generator

POPULATION, ELITE = 20, 5
KEPT = 0.5
"""The weight of the old probabilities beside those of a full elite; a smaller one weighs less."""
NOISE, NOISE_GENERATIONS = 1.0, 10
"""The variance that is added to weights in the first generation, and when it has gone to 0."""


class CrossEntropy:
    """Proposes draws from the distribution that the finished generations give."""

    warms_up = False

    def __init__(self, problem: Problem, seed: int) -> None:
        self._space, self._seed = problem.space, seed

    def propose(self, log: HistoryLog, slot: int) -> Params:
        """Return a draw."""
        tries = searched(log.history)
        full = len(tries) // POPULATION
        generations = [tries[POPULATION * g : POPULATION * (g + 1)] for g in range(full)]
        rng = generator(self._seed, "cross entropy", slot)
        if self._space.choices:
            chances = probabilities(generations, self._space)

            def draw() -> Params:
                edges, at = chances.cumsum(axis=1), rng.random((self._space.count, 1))
                taken = np.minimum((at > edges).sum(axis=1), self._space.size - 1)
                return tuple(int(v) for v in taken + self._space.low)

        else:
            mean, spread = normal(generations, self._space)

            def draw() -> Params:
                return self._space.fitted(rng.normal(mean, spread))

        return unknown_draw(log.history, self._space, rng, draw)


def elite_of(generation: Sequence[Try]) -> list[tuple[Params, float]]:
    """Return the best policies of a generation, with what they are better by than its worst.

    Where most policies score alike, as 0 on a lake, those say nothing and are no elite.
    """
    worst = min(each.mean for each in generation)
    ranked = sorted(generation, key=lambda each: -each.mean)[:ELITE]
    leads = [(each.params, each.mean - worst) for each in ranked]
    return [(params, lead) for params, lead in leads if params is not None and lead > 0]


def probabilities(generations: Sequence[Sequence[Try]], space: ParamSpace) -> NDArray[np.float64]:
    """Return the probabilities of actions [count, size] after finished generations."""
    found = np.full((space.count, space.size), 1 / space.size)
    for generation in generations:
        elite = elite_of(generation)
        if not elite:
            continue
        chosen = np.asarray([params for params, _ in elite]) - space.low
        weights = np.asarray([lead for _, lead in elite])
        hits = chosen[:, :, None] == np.arange(space.size)
        shares = np.average(hits, axis=0, weights=weights)
        moved = (1 - KEPT) * len(elite) / ELITE
        found = (1 - moved) * found + moved * shares
    return found


def normal(
    generations: Sequence[Sequence[Try]], space: ParamSpace
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and the standard deviation of weights [count] after finished generations."""
    mean, spread = np.zeros(space.count), np.full(space.count, WARMUP_SPREAD)
    for number, generation in enumerate(generations):
        chosen = np.array([space.values(params) for params, _ in elite_of(generation)])
        if not len(chosen):
            continue
        noise = NOISE * max(0.0, 1 - number / NOISE_GENERATIONS)
        mean, spread = chosen.mean(axis=0), np.sqrt(chosen.var(axis=0) + noise)
    return mean, np.maximum(spread, space.step)
