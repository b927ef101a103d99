"""The options of the `gymnasium` env, checked when they are parsed. Makes no env."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from turnwise.envs.base import RewardTiming
from turnwise.errors import ConfigError
from turnwise.settings import Settings


class GymnasiumConfig(Settings):
    """Which gymnasium env, and how it is told and judged."""

    id: str = "FrozenLake-v1"
    """Gymnasium's id, with a package to import first ("package:Maze-v0") if need be; without a
    version ("Taxi") the newest; or "file.py:Class" for a gymnasium.Env of one's own."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """What the env is made with, as in `gymnasium.make`."""
    actions: tuple[str, ...] = ()
    """Words for the discrete actions, in gymnasium's order; empty: known ones, or the numbers."""
    renderer: str | None = None
    """What writes an observation: "plain" (by its space), taxi, cliff-walking, blackjack, or
    "file.py:function", from the observation to the text or to (text, description); None is the one
    made for the env, or "plain"."""
    decimals: int | tuple[int, ...] | None = None
    """Decimals of observed numbers, one for all or one each, for `renderer = "plain"` and a Box;
    None tells a hundredth of each range apart."""
    action_decimals: int = Field(default=1, ge=0, le=6)
    """Decimals of random and constant continuous actions; any number in bounds is an answer."""
    steps: int | None = Field(default=None, ge=1)
    """The most steps of the env in an episode; None is gymnasium's limit."""
    repeat: int = Field(default=1, ge=1)
    """Steps of the env that one action is taken for."""
    worst: float | None = Field(default=None, allow_inf_nan=False)
    """The return that scores 0; None where it is known for the env."""
    best: float | None = Field(default=None, allow_inf_nan=False)
    """The return that scores 1; None where it is known for the env."""
    bonus: float = Field(default=0.0, allow_inf_nan=False)
    """Added to `gain`, or if negative to `cost`, by the step that terminates an episode: for
    training where arriving pays nothing, or falling costs nothing. Scores do not count it."""
    start: Literal["reset", "anywhere", "graded"] = "reset"
    """Where episodes begin. "reset": where gymnasium's reset puts them. For envs with a table,
    "anywhere": in any state that play can reach, evenly; "graded": evenly over what such states are
    worth to the best player, so that those near the end are met as often as the many far from it.
    Scores are comparable from the reset."""
    resets: float = Field(default=0.0, ge=0, le=1)
    """Without `start = "reset"`: the share of episodes that begin there all the same."""
    wander: int = Field(default=0, ge=0)
    """Episodes begin after up to so many uniformly random actions, for envs without a table."""
    clock: bool = True
    """Whether a state's key holds the steps left. Without it states compare over time, which is
    right where the limit is far."""
    reward_timing: RewardTiming | None = None
    """Whether rewards come along the way (`dense`) or with the end (`terminal`); None where it is
    known for the env, else dense."""
    branching: Literal["copy", "replay"] | None = None
    """How an old state is come back to: by a copy kept with every state, or by playing its episode
    again; None is a copy where that is true, measured when the env is made."""

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
