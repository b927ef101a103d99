"""Treasure: chests that only a tool can look into, and a question about two of them.

Task: chests hold different numbers of coins, 0 to 9; two of them are named.
Sees: which two are compared, and after a look what it showed.
Actions: the tool `look(chest)`, twice an episode at most, or one of the two names as the answer.
Rewards: `right`, 1 for the chest of the two that holds more. Looking is free.
End: with the answer; a third look truncates.
Baselines: random (half calls, half answers, both uniform), first (answers the first of the two),
one look (looks into the first, and answers it if it holds 5 or more), optimal (looks into both).
Exact, with any number of chests: random 7/16 = 0.438, first 1/2, one look 7/9 = 0.778, optimal 1.
No policy that looks into fewer than both is worth more than 7/9.
Example: `make_env("treasure", chests=8)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from turnwise.envs.base import Baseline, Level, Observation, RewardTiming, Step
from turnwise.envs.tool_calls import call_text
from turnwise.envs.tools import ToolEnv, ToolState, tool
from turnwise.errors import EnvError, IllegalActionError
from turnwise.settings import Settings
from turnwise.types import Task

CHESTS = ("amber", "birch", "cedar", "denim", "ember", "flint", "grape", "hazel")
COINS = 10
LOOKS = 2


class TreasureConfig(Settings):
    """Options of the treasure."""

    chests: int = Field(default=6, ge=2, le=len(CHESTS))
    """How many chests there are."""


@dataclass(frozen=True, kw_only=True)
class TreasureState(ToolState):
    """The coins of every chest, the two asked about, and the answer; None before."""

    coins: Mapping[str, int]
    pair: tuple[str, str]
    said: str | None = None


class Treasure(ToolEnv[TreasureState]):
    """Which of two closed chests holds more?

    Example:
        >>> env = Treasure()
        >>> coins = dict(zip(env.chests, range(6), strict=True))
        >>> data = {"coins": coins, "pair": ["birch", "flint"]}
        >>> state = env.reset(Task(id="t", env="treasure", seed=0, data=data))
        >>> chance = np.random.default_rng(0)
        >>> looked = env.step(state, "player", call_text("look", chest="flint"), chance).state
        >>> env.observe(looked, "player").messages[0].content
        'coins: flint 5'
        >>> env.score(env.step(looked, "player", "flint", chance).state)
        1.0
    """

    name = "treasure"
    config_class = TreasureConfig
    components: ClassVar[Mapping[str, Level]] = {"right": "agent"}
    reward_timing: RewardTiming = "terminal"
    most_calls = LOOKS

    def __init__(self, config: TreasureConfig | None = None) -> None:
        super().__init__(config or TreasureConfig())
        self.chests = CHESTS[: self.config.chests]

    @tool
    def look(self, state: TreasureState, chest: str) -> str:
        """Look into a chest.

        Args:
            state: Where the coins are.
            chest: The name of the chest.

        Returns:
            Its name and how many coins it holds.
        """
        if chest not in state.coins:
            raise IllegalActionError(f"no chest {chest[:40]!r}")
        return f"coins: {chest} {state.coins[chest]}"

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw the coins and the two chests that are compared."""
        coins = rng.permutation(COINS)[: len(self.chests)].tolist()
        pair = rng.permutation(len(self.chests))[:2]
        return {
            "coins": dict(zip(self.chests, coins, strict=True)),
            "pair": [self.chests[i] for i in pair],
        }

    def reset(self, task: Task) -> TreasureState:
        """Return the task's chests, all closed."""
        first, second = task.data["pair"]
        return TreasureState(coins=dict(task.data["coins"]), pair=(first, second))

    def ask(self, state: TreasureState, role: str) -> Observation:
        """Ask which of the two holds more; described by the looks, the last first, and the two."""
        first, second = state.pair
        shown = [f"{name} {coins}" for name, coins in _seen(state).items()]
        return Observation(
            text=f"more coins: {first} or {second} ?",
            legal=state.pair,
            description=" ".join([*reversed(shown), "?", *state.pair]),
        )

    def answer(
        self, state: TreasureState, role: str, action: str, noise: np.random.Generator
    ) -> Step[TreasureState]:
        """Take the answer; the episode ends."""
        if state.said is not None:
            raise EnvError("treasure: the question is answered: an episode is one answer")
        after = replace(state, said=action)
        rewards = {"right": self.score(after)}
        return Step(state=after, rewards=rewards, terminated=True, truncated=False)

    def score(self, state: TreasureState) -> float:
        """Return 1 for the chest that holds more."""
        return float(state.said == max(state.pair, key=lambda name: state.coins[name]))

    def random_call(self, state: TreasureState, rng: np.random.Generator) -> str:
        """Return a look into a uniformly random chest."""
        return call_text("look", chest=self.chests[rng.integers(len(self.chests))])

    def baselines(self) -> Mapping[str, Baseline]:
        """Return those of the head of this file."""
        return {
            **super().baselines(),
            "first": lambda state, rng: state.pair[0],
            "one look": _one_look,
            "optimal": _optimal,
        }

    def words(self) -> tuple[str, ...]:
        """Return all looks."""
        return tuple(call_text("look", chest=chest) for chest in self.chests)


def _seen(state: TreasureState) -> dict[str, int]:
    """Return the coins of the chests that were looked into."""
    shown = (told.result.split() for told in state.told if told.result.startswith("coins: "))
    return {name: int(coins) for _, name, coins in shown}


def _one_look(state: TreasureState, rng: np.random.Generator) -> str:
    first, second = state.pair
    if first not in _seen(state):
        return call_text("look", chest=first)
    return first if state.coins[first] >= COINS / 2 else second


def _optimal(state: TreasureState, rng: np.random.Generator) -> str:
    unknown = [name for name in state.pair if name not in _seen(state)]
    if unknown:
        return call_text("look", chest=unknown[0])
    return max(state.pair, key=lambda name: state.coins[name])
