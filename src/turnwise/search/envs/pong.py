"""Pong against a paddle that follows the ball, with numbers in place of pixels.

Task: win points. The field is 1 wide and 1 high; ours is the right paddle.
Observation: the ball's place x and y, its speed in x and y (times 20), our paddle's y and the
other's; float32 [6].
Actions: 0 stays, 1 moves up by 0.04, 2 down.
Rewards: 1 for a point, -1 for a point of the other side.
End: when one side has 3 points, so that the best score is 3. The other paddle moves by at most
0.012, slower than fast balls are.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

POINTS = 3
HALF = 0.1
"""Half the height of a paddle."""
OUR_SPEED, OTHER_SPEED, BALL_SPEED = 0.04, 0.012, 0.03
SPIN = 0.035
"""The vertical speed of a ball that a paddle's edge hit."""
SCATTER = 0.015
"""The most that chance adds to the vertical speed of a ball that a paddle hit."""
SHOWN = 20.0
Seen = NDArray[np.float32]


class Pong(gymnasium.Env[Any, Any]):
    """The game."""

    def __init__(self) -> None:
        low = np.array([0, 0, -1, -1, 0, 0], dtype=np.float32)
        self.observation_space = spaces.Box(low, np.ones(6, np.float32))
        self.action_space = spaces.Discrete(3)
        self._ours = self._theirs = 0.5
        self._won = self._lost = 0
        self._ball = np.zeros(4)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Begin with both paddles in the middle."""
        super().reset(seed=seed)
        self._ours = self._theirs = 0.5
        self._won = self._lost = 0
        self._serve()
        return self._seen(), {}

    def step(self, action: int) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Move the paddles and the ball."""
        ours = self._ours + (0.0, OUR_SPEED, -OUR_SPEED)[action]
        self._ours = float(np.clip(ours, HALF, 1 - HALF))
        aim = np.clip(self._ball[1] - self._theirs, -OTHER_SPEED, OTHER_SPEED)
        self._theirs = float(np.clip(self._theirs + aim, HALF, 1 - HALF))
        x, y, across, up = self._ball
        x, y = x + across, y + up
        if not 0 <= y <= 1:
            y, up = float(np.clip(-y if y < 0 else 2 - y, 0, 1)), -up
        reward = 0.0
        if not 0 < x < 1:
            paddle = self._ours if x >= 1 else self._theirs
            offset = (y - paddle) / HALF
            if abs(offset) <= 1:
                x, across, up = float(np.clip(x, 0, 1)), -across, SPIN * offset
                up += float(self.np_random.uniform(-SCATTER, SCATTER))
            else:
                reward = -1.0 if x >= 1 else 1.0
        self._ball[:] = x, y, across, up
        if reward:
            self._won, self._lost = self._won + (reward > 0), self._lost + (reward < 0)
            self._serve()
        return self._seen(), reward, max(self._won, self._lost) >= POINTS, False, {}

    def _serve(self) -> None:
        """Put the ball into the middle, with a random direction."""
        side = 1.0 if self.np_random.random() < 0.5 else -1.0
        self._ball[:] = 0.5, 0.5, side * BALL_SPEED, self.np_random.uniform(-SPIN, SPIN)

    def _seen(self) -> Seen:
        x, y, across, up = self._ball
        seen = [np.clip(x, 0, 1), y, SHOWN * across, SHOWN * up, self._ours, self._theirs]
        return np.array(seen, dtype=np.float32)
