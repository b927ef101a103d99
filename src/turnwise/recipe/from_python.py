"""Models, envs, functions and rows of a Python user as the plain values of a recipe.

Provides the names by which a run folder finds them again, and the checks of rows. An object that
another process cannot import is kept for this process (`user_code.hand_over`).
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from turnwise.envs import ENVS, Env
from turnwise.envs.checks.declarations import check_names
from turnwise.envs.gymnasium.registry import gymnasium_cure
from turnwise.envs.pettingzoo.registry import pettingzoo_cure
from turnwise.envs.rows.reward_functions import check_function, name_of
from turnwise.envs.rows.table import Row, check_row, read_rows
from turnwise.envs.rows.values import encode_row
from turnwise.errors import ConfigError, DataError
from turnwise.policies import PolicyConfig
from turnwise.settings import Settings
from turnwise.utils.user_code import SESSION, hand_over, import_name

Reward: TypeAlias = Callable[..., Any] | str
Table: TypeAlias = Iterable[Mapping[str, Any]] | str | Path
Data = dict[str, Any]


def policy_section(model: PolicyConfig | str | Path) -> Data:
    """Return the policy's section."""
    if isinstance(model, PolicyConfig):
        return model.model_dump(mode="json", exclude_none=True)
    if not isinstance(model, str | Path):
        raise ConfigError(
            f"model is {type(model).__name__}: expected a directory, a hub name, 'nano' or a "
            "PolicyConfig; a model in memory goes to a directory with save_pretrained"
        )
    local = Path(model).expanduser()
    return {"model": str(local.resolve()) if local.is_dir() else str(model)}


def env_section(env: type[Env[Any]] | Env[Any] | str) -> Data:
    """Return the env's section; an instance goes by its class and options where they make it."""
    if isinstance(env, str):
        return {"name": env}
    if isinstance(env, Env):
        env = env.unwrapped
        kind = type(env)
        taken = list(inspect.signature(kind).parameters)
        if len(taken) != 1 or (kind.config_class is Settings and taken != ["config"]):
            # its options do not make it again
            return {"name": hand_over(env, kind.__name__)}
        if not isinstance(env.config, kind.config_class):
            return env_section(kind)
        options = env.config.model_dump(mode="json", exclude_none=True)
        return {**env_section(kind), "options": options}
    if cure := gymnasium_cure(env) or pettingzoo_cure(env):
        raise ConfigError(cure)
    if not (isinstance(env, type) and issubclass(env, Env)):
        raise ConfigError(
            f"env = {env!r} is not an env: expected a class derived from turnwise.Env"
        )
    check_names(env)
    if ENVS.get(env.name) is env:
        return {"name": env.name}
    return {"name": import_name(env) or hand_over(env, env.__name__)}


def reward_names(functions: Sequence[Reward]) -> list[str]:
    """Return a name for each function under which a recipe finds it, in this process at least."""
    names: list[str] = []
    for function in functions:
        if isinstance(function, str):
            source, _, title = function.rpartition(":")
            local = source.endswith(".py")
            names.append(f"{Path(source).resolve()}:{title}" if local else function)
            continue
        check_function(function)
        plain = hasattr(function, "__qualname__") and hasattr(function, "__module__")
        name = import_name(function) if plain else None
        if name is None:
            title = re.sub(r"\W", "_", name_of(function))
            same = sum(known.startswith(f"{SESSION}:{title}") for known in names)
            name = hand_over(function, f"{title}_{same + 1}" if same else title)
        names.append(name)
    return names


def weights_of(
    names: Sequence[str], weights: Sequence[float] | Mapping[str, float] | None
) -> dict[str, float]:
    """Return the weight of every reward component."""
    if weights is None:
        return dict.fromkeys(names, 1.0)
    if isinstance(weights, Mapping):
        return {name: float(weight) for name, weight in weights.items()}
    if isinstance(weights, str) or not isinstance(weights, Sequence):
        raise ConfigError(
            f"reward_weights = {weights!r}: expected a list of numbers, one for each of "
            f"{', '.join(names)}, or a dict by name"
        )
    if len(weights) != len(names):
        raise ConfigError(
            f"reward_weights has {len(weights)} weights for {len(names)} rewards "
            f"({', '.join(names)}): give one for each, or by name"
        )
    return dict(zip(names, map(float, weights), strict=True))


def table_of(rows: Table, what: str) -> list[Row]:
    """Return rows as checked dicts of plain JSON, types that it has not written as by `encode`."""
    if isinstance(rows, str | Path):
        return list(read_rows(rows))
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise DataError(
            f"{what} is {type(rows).__name__}: expected a list of dicts with a column 'prompt', "
            "one split of a dataset, or the path of a .jsonl or .csv file"
        )
    found: list[Row] = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise DataError(f"{what}[{number}] is {type(row).__name__}: expected a dict")
        found.append(check_row(encode_row(row, f"{what}[{number}]"), f"{what}[{number}]"))
    if not found:
        raise DataError(f"{what} is empty: give one row or more with a column 'prompt'")
    return found


def as_text(rows: Sequence[Row]) -> str:
    """Return rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
