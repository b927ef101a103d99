"""Environments: the table `ENVS`, `find_env`, `make_env`, `make_guarded`, and the public names.

Envs define states, legal actions and rewards. They never see models or tokens. To add a shipped
env, write its file, add a line to `ENVS`, and run `turnwise check NAME`. A user's env needs no
line: its name is "file.py:Class".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.envs.ant_colony.env import AntColony
from turnwise.envs.ant_colony.tiers import AntColonyConfig
from turnwise.envs.base import (
    ActionProbabilities,
    Baseline,
    BatchRewards,
    Env,
    Exact,
    Level,
    Observation,
    Relabelled,
    Step,
    score_span,
)
from turnwise.envs.baselines import BaselineScore, score_baselines
from turnwise.envs.board_games.connect_four import ConnectFour
from turnwise.envs.board_games.game import BoardGameConfig
from turnwise.envs.board_games.tic_tac_toe import TicTacToe
from turnwise.envs.checks.check import EnvReport, check_env
from turnwise.envs.checks.declarations import check_constructor, check_declarations
from turnwise.envs.drawing.env import ArcDraw, ArcDrawConfig
from turnwise.envs.frozen_lake.config import FrozenLakeConfig
from turnwise.envs.frozen_lake.env import FrozenLake
from turnwise.envs.frozen_lake.published import FrozenLakePublished, FrozenLakePublishedConfig
from turnwise.envs.guard import GuardedEnv, guarded
from turnwise.envs.gymnasium.env import GymnasiumConfig, GymnasiumEnv
from turnwise.envs.gymnasium.registry import gymnasium_cure
from turnwise.envs.measures import Measure, expected_measures, mean_measures
from turnwise.envs.pettingzoo.config import PettingZooConfig
from turnwise.envs.pettingzoo.env import PettingZooEnv
from turnwise.envs.pettingzoo.registry import pettingzoo_cure
from turnwise.envs.planning.blocksworld import Blocksworld, BlocksworldConfig
from turnwise.envs.planning.plan_path import PlanPath, PlanPathConfig
from turnwise.envs.planning.queens import Queens, QueensConfig
from turnwise.envs.planning.sokoban import Sokoban, SokobanConfig
from turnwise.envs.planning.sudoku import Sudoku, SudokuConfig
from turnwise.envs.policy_search.env import PolicySearch, PolicySearchConfig
from turnwise.envs.random_play import first_turn, random_walk
from turnwise.envs.relay import Relay, RelayConfig
from turnwise.envs.rows.env import Rows, RowsConfig
from turnwise.envs.standard_errors import ErrorUnit, clustered_stderr, error_unit, standard_error
from turnwise.envs.tools.calls import ToolCall, call_text
from turnwise.envs.tools.env import ToolEnv, ToolResult, ToolState, tool
from turnwise.envs.treasure import Treasure, TreasureConfig
from turnwise.envs.user_calls import call_env
from turnwise.errors import ConfigError, unknown_name
from turnwise.settings import parse
from turnwise.utils.user_code import is_import_name, load_object, names_in

ENVS: dict[str, type[Env[Any]]] = {
    AntColony.name: AntColony,
    ArcDraw.name: ArcDraw,
    Blocksworld.name: Blocksworld,
    ConnectFour.name: ConnectFour,
    FrozenLake.name: FrozenLake,
    FrozenLakePublished.name: FrozenLakePublished,
    GymnasiumEnv.name: GymnasiumEnv,
    PettingZooEnv.name: PettingZooEnv,
    PlanPath.name: PlanPath,
    PolicySearch.name: PolicySearch,
    Queens.name: Queens,
    Relay.name: Relay,
    Rows.name: Rows,
    Sokoban.name: Sokoban,
    Sudoku.name: Sudoku,
    TicTacToe.name: TicTacToe,
    Treasure.name: Treasure,
}


IMPORTING = 60.0
"""The default time limit for importing an env's file, in seconds."""


def find_env(name: str, timeout: float = IMPORTING) -> type[Env[Any]]:
    """Return the env class with the given name.

    Args:
        name: a name in `ENVS`, or "file.py:Class".
        timeout: the time limit for importing the file, in seconds.

    Raises:
        UnknownNameError: if no env has this name.
        ConfigError: if the named object is not an env class.
        SlowEnvError: if importing the file takes longer than `timeout`.
    """
    if not is_import_name(name):
        if name.endswith(".py"):
            raise ConfigError(_missing_class_message(name))
        if name not in ENVS:
            raise unknown_name("env", name, ENVS, "file.py:Class for an env of your own")
        return ENVS[name]
    found = call_env(None, "__init__", timeout, load_object, name, _is_env)
    cure = gymnasium_cure(found) or pettingzoo_cure(found)
    if cure:
        raise ConfigError(cure)
    if isinstance(found, Env):  # an instance of the user's, made with its own options
        return type(found)
    if not (isinstance(found, type) and issubclass(found, Env)):
        raise ConfigError(f"env {name!r} is not an env: expected a class derived from turnwise.Env")
    missing = sorted(found.__abstractmethods__)
    if missing:
        raise ConfigError(f"env {name!r} does not define {', '.join(missing)}: write it")
    return found


def _is_env(thing: Any) -> bool:
    """Whether `thing` is an env class of the user's, or an instance of one."""
    return isinstance(thing, Env) or (
        isinstance(thing, type) and issubclass(thing, Env) and thing is not Env
    )


def _missing_class_message(file: str) -> str:
    """Return the error message for a file that is given without a class name."""
    found = names_in(file, Env)
    if not found:
        return f"{file!r} defines no class derived from turnwise.Env: write one and name it"
    return f"{file!r} is a file: name the class in it, {' or '.join(found)}"


def make_env(name: str, **options: Any) -> Env[Any]:
    """Return an instance of the env with the given name and options.

    Raises:
        UnknownNameError: if no env has this name.
        ConfigError: if an option is unknown or has a wrong value.

    Example:
        >>> make_env("frozen-lake", size=8).roles
        ('player',)
    """
    given: object = name
    if not isinstance(given, str):
        cure = gymnasium_cure(given) or pettingzoo_cure(given)
        raise ConfigError(cure or f"got {given!r:.80}: give an env's name, or 'file.py:Class'")
    env = find_env(name)
    made = load_object(name) if is_import_name(name) else None
    if isinstance(made, Env):
        if options:
            raise ConfigError(f"env {name!r} is an instance: its options cannot be changed")
        return made
    check_constructor(env)
    return env(parse(env.config_class, options, f"env {name!r}"))


def make_guarded(name: str, options: Mapping[str, Any], timeout: float) -> GuardedEnv:
    """Return the env called `name` under guard; importing and making it is guarded too.

    Args:
        name: as for `make_env`.
        options: its options.
        timeout: seconds that one call may take.

    Raises:
        ConfigError: as `make_env` does.
        BrokenEnvError: if its module or its `__init__` raises or takes too long.
    """
    made = call_env(None, "__init__", timeout, lambda: make_env(name, **options))
    check_declarations(made, timeout)
    return guarded(made, timeout)


__all__ = [
    "ENVS",
    "IMPORTING",
    "ActionProbabilities",
    "AntColony",
    "AntColonyConfig",
    "ArcDraw",
    "ArcDrawConfig",
    "Baseline",
    "BaselineScore",
    "BatchRewards",
    "Blocksworld",
    "BlocksworldConfig",
    "BoardGameConfig",
    "ConnectFour",
    "Env",
    "EnvReport",
    "ErrorUnit",
    "Exact",
    "FrozenLake",
    "FrozenLakeConfig",
    "FrozenLakePublished",
    "FrozenLakePublishedConfig",
    "GuardedEnv",
    "GymnasiumConfig",
    "GymnasiumEnv",
    "Level",
    "Measure",
    "Observation",
    "PettingZooConfig",
    "PettingZooEnv",
    "PlanPath",
    "PlanPathConfig",
    "PolicySearch",
    "PolicySearchConfig",
    "Queens",
    "QueensConfig",
    "Relabelled",
    "Relay",
    "RelayConfig",
    "Rows",
    "RowsConfig",
    "Sokoban",
    "SokobanConfig",
    "Step",
    "Sudoku",
    "SudokuConfig",
    "TicTacToe",
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
    "expected_measures",
    "find_env",
    "first_turn",
    "guarded",
    "make_env",
    "make_guarded",
    "mean_measures",
    "random_walk",
    "score_baselines",
    "score_span",
    "standard_error",
    "tool",
]
