"""States of uniformly random play, for demonstrations and for measurements of perception."""

from __future__ import annotations

from typing import Any

import numpy as np

from turnwise.envs.base import Env
from turnwise.errors import EnvError, IllegalActionError
from turnwise.types import Task

ATTEMPTS = 32
"""Attempts at a random game in which a role gets a turn."""


def random_walk(env: Env[Any], task: Task, rng: np.random.Generator, most_steps: int) -> Any:
    """Return a state of `task` after 0 to `most_steps` uniformly random actions.

    A step that would end the episode is not taken, nor one that the env refuses. Seats move as
    `Env.acting` says.
    """
    state = env.reset(task)
    for _ in range(int(rng.integers(most_steps + 1))):
        role = env.acting(state)[0]
        action = env.random_action(state, role, rng)
        try:
            step = env.step(state, role, action, rng)
        except IllegalActionError:  # would end the episode too
            continue
        if not (step.terminated or step.truncated):
            state = step.state
    return state


def first_turn(env: Env[Any], task: Task, role: str, rng: np.random.Generator) -> tuple[Any, str]:
    """Return a state of `task` in which a seat of `role` acts next, and that seat.

    Where the role has several seats, one is drawn, as they may see different things. All seats play
    uniformly random actions until its turn. Where such a game ends first, it is played again, at
    most `ATTEMPTS` times. If none of the drawn seats had a turn, it is the last turn of another
    seat of the role.

    Raises:
        EnvError: if `role` never had a turn.
    """
    met: tuple[Any, str] | None = None
    own = [seat for seat, its_role in env.seats.items() if its_role == role]
    for _ in range(ATTEMPTS):
        mine = own[rng.integers(len(own))] if len(own) > 1 else "".join(own)
        state = env.reset(task)
        for _ in range(env.turn_cap()):
            seat = env.acting(state)[0]
            if seat == mine:
                return state, seat
            met = (state, seat) if seat in own else met
            try:
                step = env.step(state, seat, env.random_action(state, seat, rng), rng)
            except IllegalActionError:
                break
            if step.terminated or step.truncated:
                break
            state = step.state
    if met is not None:
        return met
    raise EnvError(
        f"{env.name}: role {role!r} had no turn in {ATTEMPTS} games of random actions: see that "
        "acting(state) returns its seats; if random play hardly ever reaches its turn, let some "
        "tasks begin there"
    )
