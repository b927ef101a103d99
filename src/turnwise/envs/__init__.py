"""Worlds: states, legal moves, rewards. One file each; they know nothing of models or tokens.

To add one: write its file, add a line to `ENVS`, and run `turnwise check NAME`. One of the user's
own needs no line: its name is "file.py:Class".
"""

from __future__ import annotations

from typing import Any

from turnwise.envs.base import Baseline, Chances, Env, Exact, Level, Observation, Settlement, Step
from turnwise.envs.baselines import BaselineScore, clustered_stderr, score_baselines
from turnwise.envs.check import EnvReport, check_env
from turnwise.envs.frozen_lake import FrozenLake, FrozenLakeConfig
from turnwise.envs.gym_env import GymnasiumConfig, GymnasiumEnv
from turnwise.envs.lake_published import FrozenLakePublished, FrozenLakePublishedConfig
from turnwise.envs.rows import Rows, RowsConfig
from turnwise.envs.tool_calls import ToolCall, call_text
from turnwise.envs.tools import ToolEnv, ToolResult, ToolState, tool
from turnwise.envs.treasure import Treasure, TreasureConfig
from turnwise.envs.wander import wander
from turnwise.errors import ConfigError, unknown_name
from turnwise.imports import is_import_name, load_object
from turnwise.settings import parse

ENVS: dict[str, type[Env[Any]]] = {
    FrozenLake.name: FrozenLake,
    FrozenLakePublished.name: FrozenLakePublished,
    GymnasiumEnv.name: GymnasiumEnv,
    Rows.name: Rows,
    Treasure.name: Treasure,
}


def find_env(name: str) -> type[Env[Any]]:
    """Return the env class called `name`, in the table or by "file.py:Class".

    Raises:
        UnknownNameError: if there is no such env.
        ConfigError: if what the name leads to is no env.
    """
    if not is_import_name(name):
        if name not in ENVS:
            raise unknown_name("env", name, ENVS)
        return ENVS[name]
    found = load_object(name)
    if isinstance(found, Env):  # made by its user, options and all: it can only be taken as it is
        return type(found)
    if not (isinstance(found, type) and issubclass(found, Env)):
        raise ConfigError(f"env {name!r} is no env: expected a class derived from turnwise.Env")
    missing = sorted(found.__abstractmethods__)
    if missing:
        raise ConfigError(f"env {name!r} does not define {', '.join(missing)}: write it")
    return found


def make_env(name: str, **options: Any) -> Env[Any]:
    """Return the env called `name` with the given options.

    Raises:
        UnknownNameError: if there is no such env.
        ConfigError: if an option is unknown or wrong.

    Example:
        >>> make_env("frozen-lake", size=8).roles
        ('player',)
    """
    env = find_env(name)
    made = load_object(name) if is_import_name(name) else None
    if isinstance(made, Env):
        if options:
            raise ConfigError(f"env {name!r} was handed over ready-made: options cannot change it")
        return made
    return env(parse(env.config_class, options, f"env {name!r}"))


__all__ = [
    "ENVS",
    "Baseline",
    "BaselineScore",
    "Chances",
    "Env",
    "EnvReport",
    "Exact",
    "FrozenLake",
    "FrozenLakeConfig",
    "FrozenLakePublished",
    "FrozenLakePublishedConfig",
    "GymnasiumConfig",
    "GymnasiumEnv",
    "Level",
    "Observation",
    "Rows",
    "RowsConfig",
    "Settlement",
    "Step",
    "ToolCall",
    "ToolEnv",
    "ToolResult",
    "ToolState",
    "Treasure",
    "TreasureConfig",
    "call_text",
    "check_env",
    "clustered_stderr",
    "find_env",
    "make_env",
    "score_baselines",
    "tool",
    "wander",
]
