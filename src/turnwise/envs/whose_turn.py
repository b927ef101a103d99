"""The check of whose turn it is, for envs in which seats act one after another.

Provides `check_turn`.
"""

from __future__ import annotations

from turnwise.envs.base import Env, S
from turnwise.errors import EnvError


def check_turn(env: Env[S], state: S, seat: str, *, ended: bool) -> None:
    """Refuse a step after the end, or of a seat whose turn it is not.

    Raises:
        EnvError: if the episode has ended, or another seat acts in `state`.
    """
    if ended:
        raise EnvError(f"{env.name}: the episode is over, so it takes no step: reset a task")
    if env.acting(state) != (seat,):
        raise EnvError(
            f"{env.name}: {seat!r} acts and it is the turn of {env.acting(state)[0]!r}: ask "
            "acting(state) for the seat"
        )
