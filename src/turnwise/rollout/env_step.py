"""One step of an env: on a thread where the env waits for something outside.

Provides `step_env`. Knows nothing of agents.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from turnwise.envs import Env, GuardedEnv, Step
from turnwise.rollout.run_in_thread import run_in_thread


async def step_env(
    env: Env[Any], state: Any, role: str, action: str, noise: np.random.Generator
) -> Step[Any]:
    """Return `env.step(...)`, made on a thread if the env waits for something outside.

    There the time limit of an env under guard acts even in C code: the call is left to itself.

    Raises:
        BrokenEnvError: as an env under guard does.
    """
    if env.blocking:
        return await _step_on_thread(env, state, role, action, noise)
    return env.step(state, role, action, noise)


async def _step_on_thread(
    env: Env[Any], state: Any, role: str, action: str, noise: np.random.Generator
) -> Step[Any]:
    if not isinstance(env, GuardedEnv):
        return await run_in_thread(env.step, state, role, action, noise)
    try:
        return await run_in_thread(env.step, state, role, action, noise, timeout=env.timeout)
    except TimeoutError:  # not the env's own, which has become a sentence
        raise env.slow_step() from None
