"""Nim with one heap against a player who draws at random.

Task: take the last of 10 stones. The two players take 1 to 3 stones in turn; ours begins.
Observation: how many stones are left, 0 to 10.
Actions: 0, 1 and 2 take one, two and three stones; all that are left if these are fewer.
Rewards: 1 for taking the last stone, -1 if the other player takes it.
End: when no stone is left. Who leaves a multiple of 4 always wins, so the best score is 1.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

STONES, MOST = 10, 3
Outcome = tuple[float, int, float, bool]


def outcomes(stones: int, action: int) -> list[Outcome]:
    """Return what a move leads to, with the probabilities of the other player's answers.

    Example:
        >>> outcomes(2, 1)
        [(1.0, 0, 1.0, True)]
        >>> outcomes(3, 0)
        [(0.5, 1, 0.0, False), (0.5, 0, -1.0, True)]
    """
    left = stones - min(action + 1, stones)
    if not stones or not left:
        return [(1.0, 0, 1.0 if stones else 0.0, True)]
    answers = range(1, min(MOST, left) + 1)
    chance = 1 / len(answers)
    return [(chance, left - n, -1.0 if n == left else 0.0, n == left) for n in answers]


class Nim(gymnasium.Env[Any, Any]):
    """The game; its dynamics are in `P`, as in Gymnasium's own small envs."""

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(STONES + 1)
        self.action_space = spaces.Discrete(MOST)
        self.P = {
            stones: {action: outcomes(stones, action) for action in range(MOST)}
            for stones in range(STONES + 1)
        }
        self.initial_state_distrib = np.eye(STONES + 1)[STONES]
        self.s = STONES

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Begin with all stones."""
        super().reset(seed=seed)
        self.s = STONES
        return self.s, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take stones, and let the other player answer."""
        found = outcomes(self.s, int(action))
        _, self.s, reward, done = found[int(self.np_random.integers(len(found)))]
        return self.s, reward, done, False, {}
