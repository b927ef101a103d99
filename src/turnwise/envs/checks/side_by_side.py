"""Episodes of several tasks in random order, which must be the same as alone.

Provides `check_side_by_side`. It finds what an env keeps outside of the states of its episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.envs.base import Env
from turnwise.envs.checks.calls import Calls
from turnwise.envs.checks.declarations import fail
from turnwise.errors import IllegalActionError
from turnwise.seeding import generator
from turnwise.types import Task

SIDE_TURNS = 40
"""The largest number of turns of each task."""
Shown = list[tuple[str, Any]]
"""The observations and results of an episode, turn by turn, each with its name."""


def check_side_by_side(
    calls: Calls, tasks: Sequence[Task], seed: int, turns: int = SIDE_TURNS
) -> None:
    """Raise unless interleaved episodes, in random order, equal the same episodes alone."""
    alone = [_alone(calls, task, seed, turns) for task in tasks]
    order = generator(seed, "side by side")
    episodes = [_Episode(calls, task, seed, turns) for task in tasks]
    going = list(range(len(tasks)))
    while going:
        place = going[int(order.integers(len(going)))]
        if not episodes[place].turn():
            going.remove(place)
    calls.check_kept()
    again = {
        place: _alone(calls, tasks[place], seed, turns) for place in reversed(range(len(tasks)))
    }
    for place, task in enumerate(tasks):
        found = {
            "beside others": episodes[place].shown,
            "after others": again[place],
        }
        for how, shown in found.items():
            if shown != alone[place]:
                _fail_apart(calls.env, task, how, shown, alone[place])


def _alone(calls: Calls, task: Task, seed: int, turns: int) -> Shown:
    episode = _Episode(calls, task, seed, turns)
    while episode.turn():
        pass
    return episode.shown


def _fail_apart(env: Env[Any], task: Task, how: str, shown: Shown, alone: Shown) -> None:
    pairs = zip(shown, alone, strict=False)
    what, turn = next(
        ((mine[0], number // 4) for number, (mine, other) in enumerate(pairs) if mine != other),
        ("length", min(len(shown), len(alone)) // 4),
    )
    cure = (
        "keep all of an episode in its state, nothing on self, in class attributes, in globals or "
        "in a generator of your own"
    )
    said = f"the {what} of turn {turn} of task {task.id!r} differs"
    fail(env, f"an episode played {how} is not what it is alone ({said})", cure)


class _Episode:
    """A task in random play."""

    def __init__(self, calls: Calls, task: Task, seed: int, turns: int) -> None:
        self._calls, self._task, self._seed = calls, task, seed
        self._most = min(turns, calls("turn_cap"))
        self._state: Any = None
        self._number = 0
        self.shown: Shown = []

    def turn(self) -> bool:
        """Begin the episode or play a turn; return whether it continues."""
        calls = self._calls
        if not self.shown:
            self._state = calls.reset(self._task)
            self.shown += [("first state", calls.view(self._state))]
            return True
        self._number += 1
        place = (self._task.id, "side by side", self._number)
        role = calls.acting(self._state)
        rng = generator(self._seed, "check action", *place)
        action = calls("random_action", self._state, role, rng)
        try:
            step = calls.step(self._state, role, action, place)
        except IllegalActionError:  # possible only if refusals are allowed
            self.shown += [("action", action), ("rewards", {}), ("end", "refused"), ("score", 0.0)]
            return False
        self._state = step.state
        self.shown += [
            ("action", action),
            ("rewards", dict(step.rewards)),
            ("end", (step.terminated, step.truncated)),
            ("observation, key or score", calls.view(self._state)),
        ]
        return not (step.terminated or step.truncated) and self._number < self._most
