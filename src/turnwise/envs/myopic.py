"""The player that takes the action whose own step pays most.

Provides `myopic_player`. Where siblings of a turn are compared by what their own steps earn, as in
AT-GRPO (arXiv:2510.11062), training leads to this play. If it scores low, the rewards pay steps
that lead away from a good score, and no number of iterations helps.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

from turnwise.envs.base import Baseline, Env
from turnwise.errors import IllegalActionError
from turnwise.utils.rewards import mix_rewards

MYOPIC = "myopic"
"""Its name among the baselines."""
MOST_TRIED = 32
"""The most legal actions that are tried in a state; of more, so many at random."""
DIGITS = 9
"""The decimals in which payments that are equal agree."""
DRAWN = 8
"""The random actions that are tried in a state without a list of legal ones."""


def myopic_player(env: Env[Any], weights: Mapping[str, float]) -> Baseline:
    """Return the player that tries actions in the env, and takes one whose own step pays most.

    All actions of a state meet the same draws of the env. Of equal ones a random one is taken.

    Args:
        env: an env with `branching = "pure"`, any state of which can be stepped again.
        weights: the weights of the reward components.
    """

    def play(state: Any, rng: np.random.Generator) -> str:
        seat = env.acting(state)[0]
        seed = int(rng.integers(2**32))

        def paid(action: str) -> float:
            try:
                step = env.step(state, seat, action, np.random.default_rng(seed))
            except IllegalActionError:
                return -inf
            return round(mix_rewards(step.rewards, weights), DIGITS)

        actions = _tried(env, state, seat, rng)
        return max(actions, key=paid)

    return play


def _tried(env: Env[Any], state: Any, seat: str, rng: np.random.Generator) -> list[str]:
    """Return the actions to try in a state, in random order."""
    legal = env.observe(state, seat).legal_actions
    if not legal:
        return [env.random_action(state, seat, rng) for _ in range(DRAWN)]
    return [legal[number] for number in rng.permutation(len(legal))[:MOST_TRIED].tolist()]
