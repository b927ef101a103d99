"""A maze of 3x3 cells, by the rules of the common 3x3 maze: each step costs a little.

Task: reach the bottom right cell from the top left one.
Observation: the number of the cell, row by row, 0 to 8.
Actions: 0 up, 1 right, 2 down, 3 left. A step into a wall leaves the walker where it is.
Rewards: -0.1 / 9 for each step, and 1 in place of that for the step to the goal.
End: at the goal. The best score is 1 - 3 * 0.1 / 9 = 0.967.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SIDE = 3
CELLS = SIDE * SIDE
GOAL = CELLS - 1
STEP_REWARD, GOAL_REWARD = -0.1 / CELLS, 1.0
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
PASSAGES = frozenset({(0, 1), (1, 2), (1, 4), (3, 4), (4, 7), (3, 6), (7, 8), (2, 5)})
"""The pairs of neighbours between which there is no wall."""
Outcome = tuple[float, int, float, bool]
"""Probability, next state, reward, end: the form of Gymnasium's own tables."""


def after(cell: int, action: int) -> int:
    """Return the cell after a move.

    Example:
        >>> after(0, 1), after(0, 2)  # a passage, and a wall
        (1, 0)
    """
    row, column = cell // SIDE + MOVES[action][0], cell % SIDE + MOVES[action][1]
    target = row * SIDE + column
    inside = 0 <= row < SIDE and 0 <= column < SIDE
    return target if inside and (min(cell, target), max(cell, target)) in PASSAGES else cell


def outcome(cell: int, action: int) -> Outcome:
    """Return what a move leads to."""
    target = after(cell, action)
    done = target == GOAL
    return (1.0, target, GOAL_REWARD if done else STEP_REWARD, done)


class Maze(gymnasium.Env[Any, Any]):
    """The maze; its dynamics are in `P`, as in Gymnasium's own small envs."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Discrete(CELLS), spaces.Discrete(4)
        self.P = {
            cell: {a: [outcome(cell, a) if cell != GOAL else (1.0, cell, 0.0, True)]
                   for a in range(len(MOVES))}
            for cell in range(CELLS)
        }  # fmt: skip
        self.initial_state_distrib = np.eye(CELLS)[0]
        self.s = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Begin in the top left cell."""
        super().reset(seed=seed)
        self.s = 0
        return self.s, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Move."""
        _, self.s, reward, done = outcome(self.s, int(action))
        return self.s, reward, done, False, {}
