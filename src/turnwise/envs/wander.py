"""States as uniform play meets them: for demonstrations, and for measuring how well one sees."""

from __future__ import annotations

from typing import Any

import numpy as np

from turnwise.envs.base import Env
from turnwise.types import Task


def wander(env: Env[Any], task: Task, rng: np.random.Generator, most_steps: int) -> Any:
    """Return a state of `task` after 0 to `most_steps` uniformly random actions.

    A step that would end the episode is not taken. Several roles move in turn, in the env's order.
    """
    state = env.reset(task)
    for number in range(int(rng.integers(most_steps + 1))):
        role = env.roles[number % len(env.roles)]
        step = env.step(state, role, env.random_action(state, role, rng), rng)
        if not (step.terminated or step.truncated):
            state = step.state
    return state
