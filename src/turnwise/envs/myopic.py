"""The score of the player that takes the action whose own step pays most.

Provides `score_myopic`. Where siblings of a turn are compared by what their own steps earn, as in
AT-GRPO (arXiv:2510.11062), training leads to this play. If it scores low, the rewards pay steps
that lead away from a good score, and no number of iterations helps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from turnwise.envs.base import Env
from turnwise.envs.baselines import BaselineScore, score_baselines
from turnwise.errors import IllegalActionError
from turnwise.types import Task
from turnwise.utils.rewards import mix_rewards

NAME, OPTIMAL = "myopic", "optimal"
MOST_TRIED = 32
"""The most legal actions that are tried in a state; of more, so many at random."""
DRAWN = 8
"""The random actions that are tried in a state without a list of legal ones."""
DIGITS = 9
"""The decimals in which payments that are equal agree."""
FIRST = 10
"""The tasks that are always played. They tell how many steps a task takes."""
MOST_STEPS = 50_000
"""About the most steps that are tried."""


class MyopicPlayer:
    """Tries actions in the env, and takes one whose own step pays most.

    All actions of a state meet the same draws of the env. Of equal ones a random one is taken. The
    action of the baseline `optimal` is always tried, so that others are taken in its place only
    where they pay as much.

    Args:
        env: an env with `branching = "pure"`, any state of which can be stepped again.
        weights: the weights of the reward components.
    """

    def __init__(self, env: Env[Any], weights: Mapping[str, float]) -> None:
        self.steps = 0
        """The steps that were tried."""
        self.guesses = False
        """Whether it may have missed the action that a best player takes."""
        self._env, self._weights = env, weights
        self._optimal = env.baselines().get(OPTIMAL)

    def __call__(self, state: Any, rng: np.random.Generator) -> str:
        """Return the action of the seat that acts in `state`."""
        seat, seed = self._env.acting(state)[0], int(rng.integers(2**32))
        actions = self._tried(state, seat, rng)
        return max(actions, key=lambda action: self._paid(state, seat, action, seed))

    def _tried(self, state: Any, seat: str, rng: np.random.Generator) -> list[str]:
        """Return the actions to try in a state, in random order."""
        legal = self._env.observe(state, seat).legal_actions
        if 0 < len(legal) <= MOST_TRIED:
            return rng.permutation(legal).tolist()
        if legal:
            tried = rng.permutation(legal)[:MOST_TRIED].tolist()
        else:
            tried = [self._env.random_action(state, seat, rng) for _ in range(DRAWN)]
        if self._optimal is None:
            self.guesses = True
            return tried
        return rng.permutation([*tried, self._optimal(state, rng)]).tolist()

    def _paid(self, state: Any, seat: str, action: str, seed: int) -> float:
        """Return what the step of an action earns; nothing is less than a refused one."""
        self.steps += 1
        try:
            step = self._env.step(state, seat, action, np.random.default_rng(seed))
        except IllegalActionError:
            return -inf
        return round(mix_rewards(step.rewards, self._weights), DIGITS)


def score_myopic(
    env: Env[Any], tasks: Sequence[Task], seed: int, weights: Mapping[str, float]
) -> BaselineScore | None:
    """Return the score of `MyopicPlayer` on the first of `tasks`, as many as are soon played.

    It is None if the player could not try all actions of a state, and the env has no baseline
    `optimal`: a low score would then tell nothing of the rewards.

    Args:
        env: an env with `branching = "pure"`.
        tasks: the tasks. At least `FIRST` are played, and of more about so many that `MOST_STEPS`
            steps are tried, a number that does not depend on the clock.
        seed: the seed of all draws.
        weights: the weights of the reward components.
    """
    player = MyopicPlayer(env, weights)

    def scored(count: int) -> BaselineScore:
        (found,) = score_baselines(
            env, tasks[:count], seed, names=[NAME], weights=weights, others={NAME: player}
        ).values()
        return found

    first = scored(FIRST)
    if player.guesses:
        return None
    count = FIRST * MOST_STEPS // max(player.steps, 1)
    return first if count <= FIRST or len(tasks) <= FIRST else scored(count)
