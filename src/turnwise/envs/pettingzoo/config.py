"""The options of the `pettingzoo` env."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from turnwise.envs.base import RewardTiming
from turnwise.errors import ConfigError
from turnwise.settings import Settings

Api = Literal["aec", "parallel"]
Way = Literal["copy", "replay", "none"]
RoleRule = Literal["prefix", "agent", "one"]


class PettingZooConfig(Settings):
    """The PettingZoo env, its roles, its text form and its scores."""

    id: str = "classic/tictactoe_v3"
    """A module of PettingZoo ("classic/tictactoe_v3", or "tictactoe_v3"), of another package
    ("mpe2/simple_spread_v3"), or "file.py:function", a function or class that returns an env."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments with which the env is made."""
    api: Api | None = None
    """Whether the env of a module is made with its function `env` (`aec`, agents step one after
    another) or `parallel_env` (`parallel`, agents move at the same time); None is `parallel` where
    the module has it. A function of one's own decides by what it returns."""
    roles: RoleRule = "prefix"
    """The role of an agent. `prefix`: its name without a number at the end, so that player_0 and
    player_1 have the role `player`; `agent`: a role of its own name; `one`: the role `player`."""
    actions: tuple[str, ...] | dict[str, tuple[str, ...]] = ()
    """Words for discrete actions, in the env's order, for all agents or by role; empty: known ones,
    or the numbers."""
    renderer: str | None = None
    """The text of an observation: "plain" (by its space), tictactoe, connect_four, rps, or
    "file.py:function", from the observation to the text or to (text, description). None is the
    renderer made for the env, or "plain"."""
    decimals: int | None = Field(default=None, ge=0, le=6)
    """Decimals of observed numbers with `renderer = "plain"`; None is the number that resolves a
    hundredth of each range."""
    action_decimals: int = Field(default=1, ge=0, le=6)
    """Decimals of random and constant continuous actions; a model may write any in bounds."""
    steps: int | None = Field(default=None, ge=1)
    """The most turns of an episode, all agents' together; None is the known number, or 100."""
    worst: float | None = Field(default=None, allow_inf_nan=False)
    """An agent's return that scores 0; None uses the known value of the env."""
    best: float | None = Field(default=None, allow_inf_nan=False)
    """An agent's return that scores 1; None uses the known value of the env."""
    opponents: tuple[str, ...] | None = None
    """Where agents compete, the baselines that a policy is scored against; the first one decides
    its score. None uses the known value of the env, which is empty for an unknown one."""
    reward_timing: RewardTiming | None = None
    """Whether rewards come at every step (`dense`) or at the end (`terminal`); None uses the known
    value of the env, else dense."""
    branching: Way | None = None
    """The way back to an earlier state: a copy stored with every state, a replay of its episode, or
    none; None is the first of them that a measurement shows to be correct."""

    @model_validator(mode="after")
    def _check(self) -> PettingZooConfig:
        if self.worst is not None and self.best is not None and self.worst >= self.best:
            raise ConfigError(
                f"worst = {self.worst} must be below best = {self.best}: they score 0 and 1"
            )
        return self
