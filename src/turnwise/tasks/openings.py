"""The moves to the state in which an episode begins, as JSON and as a state.

Provides `opening_as_json`, `opening_from_json`, `length_of` and `replayed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from turnwise.envs.base import Env
from turnwise.errors import EnvError, IllegalActionError
from turnwise.types import EpisodeId, Moves, Opening, Task

WorldDraws = Callable[[EpisodeId, int], np.random.Generator]
"""From an episode and the number of one of its env steps to the generator of that step."""


def opening_as_json(opening: Opening) -> list[Any]:
    """Return an opening as JSON-able values.

    Example:
        >>> episode = EpisodeId(iteration=1, visit=0, task="t", member=2)
        >>> opening_as_json((Moves(episode=episode, actions=(("player", "UP"),)),))
        [[1, 0, 2, [['player', 'UP']]]]
    """
    return [
        [m.episode.iteration, m.episode.visit, m.episode.member, [list(a) for a in m.actions]]
        for m in opening
    ]


def opening_from_json(value: Sequence[Any], task: str) -> Opening:
    """Return the opening that `opening_as_json` wrote, of a task with the id `task`."""
    return tuple(
        Moves(
            episode=EpisodeId(iteration=iteration, visit=visit, task=task, member=member),
            actions=tuple((seat, action) for seat, action in actions),
        )
        for iteration, visit, member, actions in value
    )


def length_of(opening: Opening) -> int:
    """Return the number of env steps of an opening."""
    return sum(len(moves.actions) for moves in opening)


def replayed(
    env: Env[Any],
    task: Task,
    opening: Opening,
    draws: WorldDraws,
    watch: Callable[[Any, str, str], None] = lambda state, seat, action: None,
) -> Any:
    """Return the state in which an episode of `task` begins: the first one, or after `opening`.

    `watch` is called with the state, the seat and the action of each move, before it is made.

    Raises:
        EnvError: if the moves end the episode or are refused, which they were not before.
    """
    state = env.reset(task)
    for moves in opening:
        for number, (seat, action) in enumerate(moves.actions):
            watch(state, seat, action)
            try:
                step = env.step(state, seat, action, draws(moves.episode, number))
            except IllegalActionError as refusal:
                raise EnvError(_differs(env, action, str(refusal))) from refusal
            if step.terminated or step.truncated:
                raise EnvError(_differs(env, action, "it ended the episode"))
            state = step.state
    return state


def _differs(env: Env[Any], action: str, what: str) -> str:
    return (
        f"{env.name}: the action {action!r} was played before from the same state with the same "
        f"noise, and now {what}: let `step` depend on its arguments only, or set "
        "curriculum.kind = 'uniform'"
    )
