"""The options of the `gymnasium` env."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from turnwise.envs.base import RewardTiming
from turnwise.errors import ConfigError
from turnwise.settings import Settings


class GymnasiumConfig(Settings):
    """The gymnasium env, its text form and its scores."""

    id: str = "FrozenLake-v1"
    """Gymnasium's id, with a package to import first ("package:Maze-v0") if need be; without a
    version ("Taxi") the newest; or "file.py:Class" for a gymnasium.Env of one's own."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of `gymnasium.make`."""
    actions: tuple[str, ...] = ()
    """Words for the discrete actions, in gymnasium's order; empty: known ones, or the numbers."""
    renderer: str | None = None
    """The text of an observation: "plain" (by its space), taxi, cliff-walking, blackjack, or
    "file.py:function", from the observation to the text or to (text, description). None is the
    renderer made for the env, or "plain"."""
    decimals: int | tuple[int, ...] | None = None
    """Decimals of observed numbers, one for all or one each, for `renderer = "plain"` and a Box;
    None is the number that resolves a hundredth of each range."""
    action_decimals: int = Field(default=1, ge=0, le=6)
    """Decimals of random and constant continuous actions; a model may write any in bounds."""
    steps: int | None = Field(default=None, ge=1)
    """The largest number of env steps in an episode; None is gymnasium's limit."""
    repeat: int = Field(default=1, ge=1)
    """The number of env steps for which an action is repeated."""
    worst: float | None = Field(default=None, allow_inf_nan=False)
    """The return that scores 0; None uses the known value of the env."""
    best: float | None = Field(default=None, allow_inf_nan=False)
    """The return that scores 1; None uses the known value of the env."""
    bonus: float = Field(default=0.0, allow_inf_nan=False)
    """Added to `gain`, or if negative to `cost`, by the step that terminates an episode, for envs
    whose reward does not distinguish success or failure at the end. Scores do not count it."""
    start: Literal["reset", "anywhere", "graded"] = "reset"
    """The start of episodes. "reset": that of gymnasium's reset. For envs with a table, "anywhere":
    a uniformly drawn reachable state; "graded": uniform over the optimal values of such states, so
    that the few states near the end are drawn as often as the many far from it. Scores are
    comparable for "reset"."""
    resets: float = Field(default=0.0, ge=0, le=1)
    """The share of episodes that start at the reset although `start` is not "reset"."""
    wander: int = Field(default=0, ge=0)
    """The largest number of uniformly random actions before an episode starts, for envs without a
    table."""
    clock: bool = True
    """Whether a state's key includes the steps left. Without it states are compared at different
    times, which suits episodes far from their limit."""
    reward_timing: RewardTiming | None = None
    """Whether rewards come at every step (`dense`) or at the end (`terminal`); None uses the known
    value of the env, else dense."""
    branching: Literal["copy", "replay"] | None = None
    """The way back to an earlier state: a copy stored with every state, or a replay of its episode;
    None is a copy if a measurement shows it to be correct."""

    @model_validator(mode="after")
    def _check(self) -> GymnasiumConfig:
        given = self.decimals if isinstance(self.decimals, tuple) else (self.decimals or 0,)
        if not all(0 <= number <= 6 for number in given):
            raise ConfigError(f"decimals = {self.decimals}: give numbers from 0 to 6")
        if self.worst is not None and self.best is not None and self.worst >= self.best:
            raise ConfigError(
                f"worst = {self.worst} must be below best = {self.best}: they score 0 and 1"
            )
        if self.resets and self.start == "reset":
            raise ConfigError(
                f"resets = {self.resets} with start = 'reset', where every episode begins with "
                "one: leave it out, or use start = 'anywhere' or 'graded'"
            )
        if self.start != "reset" and self.wander:
            raise ConfigError(f"start = {self.start!r} leaves nothing for `wander` to do: drop one")
        return self
