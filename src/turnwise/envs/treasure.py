"""The `treasure` env: a question about the coins in closed chests, which a tool can open.

Task: chests hold different numbers of coins. With `question = "more"` a chest holds 0 to 9 coins,
    and the task asks which of two named chests holds more. With `question = "count"` n chests hold
    0 to n - 1 coins, and the task asks how many coins one named chest holds.
Sees: the question; after a look, also the result of the look.
Actions: the tool `look(chest)`, at most twice an episode, or an answer: a chest or a number.
Rewards: `right`, 1 for the right answer, which is also the score; `looked`, 1 for the first look
    into each chest of the question. A recipe may give `looked` a weight to reward exploration.
End: the answer terminates the episode; a third look truncates it.
Measures: `looks`, the calls made; `seen`, the share of the question's chests that a look has shown.
Baselines: random (half calls, half answers, both uniform), first (the first legal answer), one look
(for "more": looks into the first chest and answers it if it holds 5 coins or more), optimal (looks
into the chests of the question).
Exact scores, for any number of chests: "more": random 7/16 = 0.438, first 1/2, one look
7/9 = 0.778, optimal 1; a policy that looks into fewer than both chests scores at most 7/9. "count"
with n chests: random 7/8n, first 1/n, optimal 1; without a look into the chest at most 1/(n - 2).
Example: `make_env("treasure", chests=8)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from turnwise.envs.base import Baseline, Level, Observation, RewardTiming, Step
from turnwise.envs.tools.calls import call_text
from turnwise.envs.tools.env import ToolEnv, ToolResult, ToolState, tool
from turnwise.errors import EnvError, IllegalActionError
from turnwise.settings import Settings
from turnwise.types import Task

CHESTS = ("amber", "birch", "cedar", "denim", "ember", "flint", "grape", "hazel")
COINS = 10
LOOKS = 2


class TreasureConfig(Settings):
    """Options of the `treasure` env."""

    chests: int = Field(default=6, ge=2, le=len(CHESTS))
    """The number of chests."""
    question: Literal["more", "count"] = "more"
    """The question: `more` asks which of two chests holds more coins, `count` how many one has."""


@dataclass(frozen=True, kw_only=True)
class TreasureState(ToolState):
    """The coins of every chest, the chests of the question, and the answer (None before it)."""

    coins: Mapping[str, int]
    asked: tuple[str, ...]
    said: str | None = None


class Treasure(ToolEnv[TreasureState]):
    """A question about closed chests, with a tool that looks into one.

    Example:
        >>> env = Treasure()
        >>> coins = dict(zip(env.chests, range(6), strict=True))
        >>> data = {"coins": coins, "asked": ["birch", "flint"]}
        >>> state = env.reset(Task(id="t", env="treasure", seed=0, data=data))
        >>> rng = np.random.default_rng(0)
        >>> looked = env.step(state, "player", call_text("look", chest="flint"), rng).state
        >>> env.observe(looked, "player").messages[0].content
        'coins: flint 5'
        >>> env.score(env.step(looked, "player", "flint", rng).state)
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
        """Draw the coins and the chests of the question."""
        many = len(self.chests)
        most, count = (COINS, 2) if self.config.question == "more" else (many, 1)
        coins = rng.permutation(most)[:many].tolist()
        return {
            "coins": dict(zip(self.chests, coins, strict=True)),
            "asked": [self.chests[i] for i in rng.permutation(many)[:count]],
        }

    def reset(self, task: Task) -> TreasureState:
        """Return the initial state: all chests closed, no answer."""
        return TreasureState(coins=dict(task.data["coins"]), asked=tuple(task.data["asked"]))

    def ask(self, state: TreasureState, role: str) -> Observation:
        """Return the question.

        The description lists the results of the looks, the latest first, then the chests of the
        question.
        """
        shown = [f"{name} {coins}" for name, coins in _seen(state).items()]
        question = f"more coins: {' or '.join(state.asked)} ?"
        if self.config.question == "count":
            question = f"how many coins: {state.asked[0]} ?"
        return Observation(
            text=question,
            legal_actions=self._answers(state),
            description=" ".join([*reversed(shown), "?", *state.asked]),
        )

    def _answers(self, state: TreasureState) -> tuple[str, ...]:
        if self.config.question == "more":
            return state.asked
        return tuple(str(number) for number in range(len(self.chests)))

    def answer(
        self, state: TreasureState, role: str, action: str, noise: np.random.Generator
    ) -> Step[TreasureState]:
        """Record the answer and terminate the episode."""
        if state.said is not None:
            raise EnvError("treasure: the episode has ended with an answer: reset the env")
        after = replace(state, said=action)
        rewards = {"right": self.score(after)}
        return Step(state=after, rewards=rewards, terminated=True, truncated=False)

    def score(self, state: TreasureState) -> float:
        """Return 1 for the right answer, otherwise 0."""
        return float(state.said == self._right(state))

    def measures(self, state: TreasureState) -> dict[str, float]:
        """Return the calls made, and the share of the question's chests that a look has shown."""
        shown = sum(name in _seen(state) for name in state.asked)
        return {"looks": float(len(state.told)), "seen": shown / len(state.asked)}

    def _right(self, state: TreasureState) -> str:
        most = max(state.asked, key=lambda name: state.coins[name])
        return most if self.config.question == "more" else str(state.coins[most])

    def random_call(self, state: TreasureState, rng: np.random.Generator) -> str:
        """Return a call of `look` with a uniformly random chest."""
        return call_text("look", chest=self.chests[rng.integers(len(self.chests))])

    def baselines(self) -> Mapping[str, Baseline]:
        """Return the baselines of the module docstring; "one look" only for "more"."""
        found: dict[str, Baseline] = {
            **super().baselines(),
            "first": lambda state, rng: self._answers(state)[0],
            "optimal": self._optimal,
        }
        return found | ({"one look": _one_look} if self.config.question == "more" else {})

    def _optimal(self, state: TreasureState, rng: np.random.Generator) -> str:
        unknown = [name for name in state.asked if name not in _seen(state)]
        return call_text("look", chest=unknown[0]) if unknown else self._right(state)

    def vocabulary(self) -> tuple[str, ...]:
        """Return all possible calls of `look`."""
        return tuple(call_text("look", chest=chest) for chest in self.chests)


def _seen(state: TreasureState) -> dict[str, int]:
    """Return the coins of the chests that the player looked into, by chest."""
    shown = (told.result.split() for told in state.told if told.result.startswith("coins: "))
    return {name: int(coins) for _, name, coins in shown}


def _one_look(state: TreasureState, rng: np.random.Generator) -> str:
    first, second = state.asked
    if first not in _seen(state):
        return call_text("look", chest=first)
    return first if state.coins[first] >= COINS / 2 else second
