"""The credit of episodes in an env: what counts as one state, and how well its value is known.

Provides `EnvCredit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from turnwise.envs.survey_groups import GROUP, Groups

T = TypeVar("T")
Data = dict[str, Any]
TURNS, TURNS_STD = "gae", "batch_advantages"
"""The credit scheme of episodes of several turns."""
LEAST_ADVANTAGE = -5.0
KEYS_DECIDE, KEYS_HIDE = 0.3, 0.9
"""How much a turn's advantage counts on what followed in its own episode, where the key of a state
says all that decides the future, and where it does not."""
HIDDEN = 0.01
"""The share of pairs of states with equal keys that may behave differently."""
DISCOUNT, LONGEST_DISCOUNT = 0.95, 0.99
"""The bounds of the discount factor, which is per turn of a seat."""
SEGMENT, KNOWN_SEGMENT, UNKNOWN_SEGMENT = 16, 8, 32
"""The turns after which a training episode is cut where games are long: many short episodes from
many states tell more than few long ones, and are sampled side by side. The value of the state in
which an episode is cut is estimated from other episodes in that state. The turns are fewer where
the observation tells the state, and more where too few episodes visit the same state."""
KNOWN = 0.25
"""How much of the values of states must come from other games in these states, in the mean."""
ALIASED = 0.1
"""The share of pairs of states with equal observations that may behave differently where
observations are the keys of states, because the env's keys are too fine to recur."""


class Because(Protocol):
    """Keeps the reason for a value of a dotted key, and returns the value."""

    def __call__(self, key: str, value: T, reason: str, /) -> T:
        """Return `value`."""
        ...


@dataclass(frozen=True, kw_only=True)
class EnvCredit:
    """How the turns of an env are compared, from random games in groups that share a task.

    `tools` says whether the env has tools, whose results the observation of a turn does not hold.
    """

    groups: Groups
    tools: bool

    @property
    def observation_is_state(self) -> bool:
        """Whether states with equal observations behave alike."""
        return self.groups.hidden == 0 and not self.tools

    @property
    def keyed_by_observation(self) -> bool:
        """Whether states with equal observations are one state to the credit."""
        groups = self.groups
        if self.tools or groups.hidden is None:
            return False
        coarser = groups.known > groups.known_by_key + KNOWN
        return groups.hidden == 0 or (groups.hidden < ALIASED and coarser)

    @property
    def segment(self) -> int:
        """The turns of each seat after which a training episode is cut."""
        groups = self.groups
        if (groups.known if self.keyed_by_observation else groups.known_by_key) < KNOWN:
            return UNKNOWN_SEGMENT
        return KNOWN_SEGMENT if self.observation_is_state else SEGMENT

    def settings(self, because: Because) -> Data:
        """Return the credit: by turns where states recur, by episodes where they are one turn."""
        groups = self.groups
        if groups.length <= 1:
            because("credit.scheme", "grpo", "an episode has one turn")
            return {"scheme": "grpo", "std": "batch_returns"}
        gamma = min(max(1 - 2 / groups.own_length, DISCOUNT), LONGEST_DISCOUNT)
        shared = f"{groups.recurring:.0%} of later states recur in a group of {GROUP}"
        because("credit.scheme", TURNS, f"turns are compared: {shared}")
        hidden = groups.hidden if self.keyed_by_observation else groups.hidden_by_key
        finer = self.keyed_by_observation or groups.finer_keys or groups.shows_past
        decides = hidden is not None and hidden < HIDDEN and finer
        says = "says" if decides else "may not say"
        reason = f"the key of a state {says} all that decides what follows"
        trust = KEYS_DECIDE if decides else KEYS_HIDE
        shown: Data = {}
        if self.keyed_by_observation:
            alike = "alike" if self.observation_is_state else "mostly alike, and recur"
            why = f"states with equal observations behave {alike}"
            shown = {"state_key": because("credit.state_key", "observation", why)}
        return {
            "scheme": TURNS,
            "least_advantage": LEAST_ADVANTAGE,
            **shown,
            "std": TURNS_STD,
            "gamma": because("credit.gamma", round(gamma, 3), "the length of random episodes"),
            "gae_lambda": because("credit.gae_lambda", trust, reason),
        }
