"""Worlds: states, legal moves, rewards. One file each; they know nothing of models or tokens.

To add one: write its file, add a line to `ENVS`, and run `turnwise check NAME`.
"""

from __future__ import annotations

from typing import Any

from turnwise.envs.base import Baseline, Env, Level, Observation, Step
from turnwise.envs.baselines import BaselineScore, clustered_stderr, score_baselines
from turnwise.envs.check import EnvReport, check_env
from turnwise.envs.frozen_lake import FrozenLake, FrozenLakeConfig
from turnwise.envs.wander import wander
from turnwise.errors import unknown_name
from turnwise.settings import Settings, parse

ENVS: dict[str, tuple[type[Settings], type[Env[Any]]]] = {
    FrozenLake.name: (FrozenLakeConfig, FrozenLake),
}


def make_env(name: str, **options: Any) -> Env[Any]:
    """Return the env called `name` with the given options.

    Raises:
        UnknownNameError: if there is no such env.
        ConfigError: if an option is unknown or wrong.

    Example:
        >>> make_env("frozen-lake", size=8).roles
        ('player',)
    """
    if name not in ENVS:
        raise unknown_name("env", name, ENVS)
    config, env = ENVS[name]
    return env(parse(config, options, f"env {name!r}"))


__all__ = [
    "ENVS",
    "Baseline",
    "BaselineScore",
    "Env",
    "EnvReport",
    "FrozenLake",
    "FrozenLakeConfig",
    "Level",
    "Observation",
    "Step",
    "check_env",
    "clustered_stderr",
    "make_env",
    "score_baselines",
    "wander",
]
