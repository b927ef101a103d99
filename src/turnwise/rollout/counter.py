"""The counts of one episode: its model calls, turns, env steps and rounds.

Provides `EpisodeCounter`, which the agents of an episode share.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

from turnwise.envs.base import Env, Step


class RoundOver(Exception):
    """A new round would begin, and the trial ends with the present one."""


class EpisodeCounter:
    """Counts an episode's model calls, turns, env steps and rounds, over all of its seats.

    Turns are the calls that act; a turn with an invalid reply makes no env step.

    Attributes:
        left: whether the episode was left after `most_turns` turns, before its end.
        capped: whether it was cut at the env's cap on turns.
    """

    def __init__(self, most_turns: int | None = None, before: int = 0) -> None:
        """Begin to count.

        Args:
            most_turns: the turns after which the episode is left; None is no limit.
            before: the turns that led to where it begins, which count against the env's cap.
        """
        self.calls = self.turns = self.steps = self.round = self.asked = 0
        self.left = self.capped = False
        self._most_turns, self._before = most_turns, before
        self._acted: set[str] = set()
        self._cap: int | None = None
        self._ends_with_round = False

    def forked(self, *, ends_with_round: bool) -> EpisodeCounter:
        """Return a counter that goes on from here by itself, perhaps to the end of the round."""
        other = copy(self)
        other._acted, other._ends_with_round = set(self._acted), ends_with_round
        return other

    def limit(self, env: Env[Any]) -> int:
        """Return after how many turns the episode is cut: the env's cap, or `most_turns`."""
        cap = self._cap_of(env)
        return cap if self._most_turns is None else min(cap, self._most_turns)

    def is_cut(self, env: Env[Any], turn: int) -> bool:
        """Whether the episode is cut after turn number `turn`; notes which limit does it."""
        if turn < self.limit(env):
            return False
        self.capped = turn >= self._cap_of(env)
        self.left = not self.capped
        return True

    def room(self, env: Env[Any]) -> int:
        """Return how many turns there may still be."""
        return self.limit(env) - self.turns

    def cut(self, env: Env[Any], step: Step[Any], turn: int) -> Step[Any]:
        """Return the step of turn number `turn`, truncated if the episode is cut there."""
        if step.terminated or step.truncated or not self.is_cut(env, turn):
            return step
        return replace(step, truncated=True)

    def _cap_of(self, env: Env[Any]) -> int:
        """Return the env's cap on turns, asked for once an episode."""
        if self._cap is None:
            self._cap = max(1, env.turn_cap() - self._before)
        return self._cap

    def next_call(self) -> int:
        """Return the number of the next model call."""
        self.calls += 1
        return self.calls - 1

    def take_turn(self) -> None:
        """Count a turn: its call, and the env step that its action makes."""
        self.calls += 1
        self.turns += 1
        self.steps += 1
        self.asked = 0

    def refuse_step(self) -> None:
        """Take back the number of an env step that was not made: the next one has its noise."""
        self.steps -= 1

    def begin_act(self, seat: str) -> None:
        """Begin a new round if `seat` has acted in the present one.

        Raises:
            RoundOver: if the trial ends before that.
        """
        if seat in self._acted:
            if self._ends_with_round:
                raise RoundOver
            self.round += 1
            self._acted.clear()
        self._acted.add(seat)
