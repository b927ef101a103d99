"""A robot that drives around a ring-shaped corridor by its range sensors.

Task: drive as long as possible without touching a wall. The corridor lies between a square of side
10 and one of side 5 with the same middle.
Observation: the distances to the wall at -90, -45, 0, 45 and 90 degrees from the heading, at most
5; float32 [5].
Actions: 0 drives 0.2 ahead; 1 and 2 turn by 15 degrees to the left and to the right and drive 0.05.
Rewards: 5 for driving ahead, -0.5 for a turn, -200 for touching a wall.
End: at a wall.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

OUTER, INNER = 5.0, 2.5
"""Half the sides of the two squares."""
RANGE = 5.0
ANGLES = np.deg2rad([-90.0, -45.0, 0.0, 45.0, 90.0])
AHEAD, SLOW, TURN = 0.2, 0.05, math.radians(15.0)
AHEAD_REWARD, TURN_REWARD, CRASH_REWARD = 5.0, -0.5, -200.0
MARGIN = 0.1
"""A robot nearer than this to a wall touches it."""
Seen = NDArray[np.float32]


class Navigation(gymnasium.Env[Any, Any]):
    """The robot in its corridor."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, RANGE, (len(ANGLES),), np.float32)
        self.action_space = spaces.Discrete(3)
        self._x = self._y = self._heading = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Begin at the bottom of the corridor, heading about to the right."""
        super().reset(seed=seed)
        middle = (OUTER + INNER) / 2
        self._x, self._y = float(self.np_random.uniform(-1, 1)), -middle
        self._heading = float(self.np_random.uniform(-0.2, 0.2))
        return self._seen(), {}

    def step(self, action: int) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Turn, and drive."""
        self._heading += (0.0, TURN, -TURN)[action]
        length = AHEAD if action == 0 else SLOW
        self._x += length * math.cos(self._heading)
        self._y += length * math.sin(self._heading)
        farthest = max(abs(self._x), abs(self._y))
        crashed = not INNER + MARGIN < farthest < OUTER - MARGIN
        reward = CRASH_REWARD if crashed else AHEAD_REWARD if action == 0 else TURN_REWARD
        return self._seen(), reward, crashed, False, {}

    def _seen(self) -> Seen:
        """Return the distances to the nearest wall in each direction."""
        angles = self._heading + ANGLES
        ahead = np.stack([np.cos(angles), np.sin(angles)])
        place = np.array([[self._x], [self._y]])
        found = np.full(len(ANGLES), RANGE)
        with np.errstate(divide="ignore", invalid="ignore"):
            for half in (OUTER, INNER):
                for side in (-half, half):
                    times = (side - place) / ahead  # [axis, angle], to the line of a side
                    across = place[::-1] + times * ahead[::-1]
                    hits = (times >= 0) & (np.abs(across) <= half)
                    found = np.minimum(found, np.where(hits, times, RANGE).min(axis=0))
        return found.astype(np.float32)
