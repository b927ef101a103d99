"""Treasure: chests that only a tool can look into, and a question about what they hold.

Task: chests hold different numbers of coins. `question = "more"`: 0 to 9 coins; two chests are
    named, and the question is which holds more. `question = "count"`: as many different numbers as
    chests, from 0; one chest is named, and the question is how many it holds.
Sees: the question, and after a look what it showed.
Actions: the tool `look(chest)`, twice an episode at most, or an answer, a chest or a number.
Rewards: `right`, 1 for the right answer, which is the score; `looked`, 1 for the first look into
    each chest that is asked about, which a run may weigh so that looking is known before its use.
End: with the answer; a third look truncates.
Baselines: random (half calls, half answers, both uniform), first (the first answer there is),
one look ("more": looks into the first, and answers it if it holds 5 or more), optimal (looks into
what was named).
Exact, with any number of chests: "more": random 7/16 = 0.438, first 1/2, one look 7/9 = 0.778,
optimal 1, and no policy that looks into fewer than both is worth more than 7/9. "count" with n
chests: random 7/8n, first 1/n, optimal 1, without a look into the chest itself 1/(n - 2) at most.
Example: `make_env("treasure", chests=8)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from turnwise.envs.base import Baseline, Level, Observation, RewardTiming, Step
from turnwise.envs.tool_calls import call_text
from turnwise.envs.tools import ToolEnv, ToolResult, ToolState, tool
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
    question: Literal["more", "count"] = "more"
    """What is asked: which of two chests holds more, or how many coins one holds."""


@dataclass(frozen=True, kw_only=True)
class TreasureState(ToolState):
    """The coins of every chest, those asked about, and the answer; None before."""

    coins: Mapping[str, int]
    asked: tuple[str, ...]
    said: str | None = None


class Treasure(ToolEnv[TreasureState]):
    """Which of two closed chests holds more? Or how much does one hold?

    Example:
        >>> env = Treasure()
        >>> coins = dict(zip(env.chests, range(6), strict=True))
        >>> data = {"coins": coins, "asked": ["birch", "flint"]}
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
    components: ClassVar[Mapping[str, Level]] = {"right": "agent", "looked": "process"}
    reward_timing: RewardTiming = "dense"
    most_calls = LOOKS

    def __init__(self, config: TreasureConfig | None = None) -> None:
        super().__init__(config or TreasureConfig())
        self.chests = CHESTS[: self.config.chests]

    @tool
    def look(self, state: TreasureState, chest: str) -> ToolResult:
        """Look into a chest.

        Args:
            state: Where the coins are.
            chest: The name of the chest.

        Returns:
            Its name and how many coins it holds.
        """
        if chest not in state.coins:
            raise IllegalActionError(f"no chest {chest[:40]!r}")
        new = chest in state.asked and chest not in _seen(state)
        told = f"coins: {chest} {state.coins[chest]}"
        return ToolResult(value=told, rewards={"looked": float(new)})

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw the coins and the chests that are asked about."""
        many = len(self.chests)
        most, count = (COINS, 2) if self.config.question == "more" else (many, 1)
        coins = rng.permutation(most)[:many].tolist()
        return {
            "coins": dict(zip(self.chests, coins, strict=True)),
            "asked": [self.chests[i] for i in rng.permutation(many)[:count]],
        }

    def reset(self, task: Task) -> TreasureState:
        """Return the task's chests, all closed."""
        return TreasureState(coins=dict(task.data["coins"]), asked=tuple(task.data["asked"]))

    def ask(self, state: TreasureState, role: str) -> Observation:
        """Ask; described by the looks, the last first, and the chests that are asked about."""
        shown = [f"{name} {coins}" for name, coins in _seen(state).items()]
        question = f"more coins: {' or '.join(state.asked)} ?"
        if self.config.question == "count":
            question = f"how many coins: {state.asked[0]} ?"
        return Observation(
            text=question,
            legal=self._answers(state),
            description=" ".join([*reversed(shown), "?", *state.asked]),
        )

    def _answers(self, state: TreasureState) -> tuple[str, ...]:
        if self.config.question == "more":
            return state.asked
        return tuple(str(number) for number in range(len(self.chests)))

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
        """Return 1 for the right answer."""
        return float(state.said == self._right(state))

    def _right(self, state: TreasureState) -> str:
        most = max(state.asked, key=lambda name: state.coins[name])
        return most if self.config.question == "more" else str(state.coins[most])

    def random_call(self, state: TreasureState, rng: np.random.Generator) -> str:
        """Return a look into a uniformly random chest."""
        return call_text("look", chest=self.chests[rng.integers(len(self.chests))])

    def baselines(self) -> Mapping[str, Baseline]:
        """Return those of the head of this file that the question has."""
        found: dict[str, Baseline] = {
            **super().baselines(),
            "first": lambda state, rng: self._answers(state)[0],
            "optimal": self._optimal,
        }
        return found | ({"one look": _one_look} if self.config.question == "more" else {})

    def _optimal(self, state: TreasureState, rng: np.random.Generator) -> str:
        unknown = [name for name in state.asked if name not in _seen(state)]
        return call_text("look", chest=unknown[0]) if unknown else self._right(state)

    def words(self) -> tuple[str, ...]:
        """Return all looks."""
        return tuple(call_text("look", chest=chest) for chest in self.chests)


def _seen(state: TreasureState) -> dict[str, int]:
    """Return the coins of the chests that were looked into."""
    shown = (told.result.split() for told in state.told if told.result.startswith("coins: "))
    return {name: int(coins) for _, name, coins in shown}


def _one_look(state: TreasureState, rng: np.random.Generator) -> str:
    first, second = state.asked
    if first not in _seen(state):
        return call_text("look", chest=first)
    return first if state.coins[first] >= COINS / 2 else second
