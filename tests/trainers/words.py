"""Envs of words that are said in turn: a team of two roles with four outcomes, and one of three."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from turnwise.envs import Env, Observation, Step
from turnwise.errors import IllegalActionError
from turnwise.settings import Settings

WORDS = ("ay", "bo")
TEAM = {("ay", "ay"): 1.0, ("ay", "bo"): 0.0, ("bo", "ay"): 0.25, ("bo", "bo"): 2.0}
OWN = 0.5
"""The scout's own reward for saying `bo`."""


@dataclass(frozen=True)
class Said:
    """The words that have been said."""

    words: tuple[str, ...] = ()


class Words(Env[Said]):
    """The scout says a word; the digger hears it and answers with a word; one task."""

    name = "words"
    config_class = Settings
    roles: tuple[str, ...] = ("scout", "digger")
    components: ClassVar[Mapping[str, str]] = {"both": "team", "own": "agent"}
    most = max(TEAM.values())

    def generate(self, rng):
        return {"number": int(rng.integers(1000))}

    def reset(self, task):
        return Said()

    def acting(self, state):
        return (self.roles[len(state.words) % len(self.roles)],)

    def observe(self, state, role):
        heard = " ".join(("heard", *state.words)) if state.words else "begin"
        return Observation(text=f"{role} {heard}", legal_actions=WORDS, description=heard)

    def step(self, state, role, action, noise):
        if action not in WORDS:
            raise IllegalActionError(f"{action[:40]!r} is none of {', '.join(WORDS)}")
        words = (*state.words, action)
        rewards = {"own": OWN} if len(words) == 1 and action == "bo" else {}
        ended = len(words) == len(self.roles)
        if ended:
            rewards["both"] = self.team_reward(words)
        return Step(state=Said(words), rewards=rewards, terminated=ended, truncated=False)

    def team_reward(self, words):
        """Return what the team earns for all words of an episode."""
        return TEAM[words]

    def score(self, state):
        ended = len(state.words) == len(self.roles)
        return self.team_reward(state.words) / self.most if ended else 0.0

    def state_key(self, state, role):
        return " ".join(("said", *state.words))

    def vocabulary(self):
        return (*WORDS, *self.roles, "heard", "begin")


class ThreeWords(Words):
    """Three roles say a word each; the team earns the share of pairs that are equal."""

    name = "three-words"
    roles: tuple[str, ...] = ("a", "b", "c")
    most = 1.0

    def team_reward(self, words):
        return sum(one == other for one, other in pairwise(words)) / 2
