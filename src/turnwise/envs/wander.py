"""States as uniform play meets them: for demonstrations, and for measuring how well one sees."""

from __future__ import annotations

from typing import Any

import numpy as np

from turnwise.envs.base import Env
from turnwise.errors import IllegalActionError
from turnwise.types import Task


def wander(env: Env[Any], task: Task, rng: np.random.Generator, most_steps: int) -> Any:
    """Return a state of `task` after 0 to `most_steps` uniformly random actions.

    A step that would end the episode is not taken, nor one that the env refuses. Several roles move
    in turn, in the env's order.
    """
    state = env.reset(task)
    for number in range(int(rng.integers(most_steps + 1))):
        role = env.roles[number % len(env.roles)]
        action = env.random_action(state, role, rng)
        try:
            step = env.step(state, role, action, rng)
        except IllegalActionError:  # would end the episode too
            continue
        if not (step.terminated or step.truncated):
            state = step.state
    return state
