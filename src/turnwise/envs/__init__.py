"""Worlds: states, legal moves, rewards. One file each; they know nothing of models or tokens.

To add one: write its file, add a line to `ENVS`, and run `turnwise check NAME`. One of the user's
own needs no line: its name is "file.py:Class".
"""

from __future__ import annotations

from typing import Any

from turnwise.envs.base import (
    Baseline,
    Chances,
    Env,
    Exact,
    Level,
    Observation,
    Settlement,
    Step,
    score_span,
)
from turnwise.envs.baselines import BaselineScore, score_baselines
from turnwise.envs.calls import call_env
from turnwise.envs.check import EnvReport, check_env
from turnwise.envs.check_declared import check_constructor
from turnwise.envs.frozen_lake import FrozenLake, FrozenLakeConfig
from turnwise.envs.gym_env import GymnasiumConfig, GymnasiumEnv
from turnwise.envs.gym_registry import gymnasium_cure
from turnwise.envs.lake_published import FrozenLakePublished, FrozenLakePublishedConfig
from turnwise.envs.rows import Rows, RowsConfig
from turnwise.envs.tool_calls import ToolCall, call_text
from turnwise.envs.tools import ToolEnv, ToolResult, ToolState, tool
from turnwise.envs.treasure import Treasure, TreasureConfig
from turnwise.envs.uncertainty import ErrorUnit, clustered_stderr, error_unit, standard_error
from turnwise.envs.wander import wander
from turnwise.errors import ConfigError, unknown_name
from turnwise.imports import is_import_name, load_object, names_in
from turnwise.settings import parse

ENVS: dict[str, type[Env[Any]]] = {
    FrozenLake.name: FrozenLake,
    FrozenLakePublished.name: FrozenLakePublished,
    GymnasiumEnv.name: GymnasiumEnv,
    Rows.name: Rows,
    Treasure.name: Treasure,
}


IMPORTING = 60.0
"""Seconds that the import of an env's file may take where no env.timeout is known."""


def find_env(name: str, timeout: float = IMPORTING) -> type[Env[Any]]:
    """Return the env class called `name`, in the table or by "file.py:Class".

    Args:
        name: the name.
        timeout: seconds that importing its file may take.

    Raises:
        UnknownNameError: if there is no such env.
        ConfigError: if what the name leads to is no env.
        SlowEnvError: if importing its file takes too long.
    """
    if not is_import_name(name):
        if name.endswith(".py"):
            raise ConfigError(_class_wanted(name))
        if name not in ENVS:
            raise unknown_name("env", name, ENVS)
        return ENVS[name]
    found = call_env(None, "__init__", timeout, load_object, name)
    cure = gymnasium_cure(found)
    if cure:
        raise ConfigError(cure)
    if isinstance(found, Env):  # made by its user, options and all: it can only be taken as it is
        return type(found)
    if not (isinstance(found, type) and issubclass(found, Env)):
        raise ConfigError(f"env {name!r} is no env: expected a class derived from turnwise.Env")
    missing = sorted(found.__abstractmethods__)
    if missing:
        raise ConfigError(f"env {name!r} does not define {', '.join(missing)}: write it")
    return found


def _class_wanted(file: str) -> str:
    """Return the sentence for a file that is given without a class."""
    found = names_in(file, Env)
    if not found:
        return f"{file!r} defines no class derived from turnwise.Env: write one, and name it too"
    return f"{file!r} is a file: name the class in it, {' or '.join(found)}"


def make_env(name: str, **options: Any) -> Env[Any]:
    """Return the env called `name` with the given options.

    Raises:
        UnknownNameError: if there is no such env.
        ConfigError: if an option is unknown or wrong.

    Example:
        >>> make_env("frozen-lake", size=8).roles
        ('player',)
    """
    given: object = name
    if not isinstance(given, str):
        cure = gymnasium_cure(given) or f"got {given!r:.80}: give an env's name, or 'file.py:Class'"
        raise ConfigError(cure)
    env = find_env(name)
    made = load_object(name) if is_import_name(name) else None
    if isinstance(made, Env):
        if options:
            raise ConfigError(f"env {name!r} was handed over ready-made: options cannot change it")
        return made
    check_constructor(env)
    return env(parse(env.config_class, options, f"env {name!r}"))


__all__ = [
    "ENVS",
    "IMPORTING",
    "Baseline",
    "BaselineScore",
    "Chances",
    "Env",
    "EnvReport",
    "ErrorUnit",
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
    "error_unit",
    "find_env",
    "make_env",
    "score_baselines",
    "score_span",
    "standard_error",
    "tool",
    "wander",
]
