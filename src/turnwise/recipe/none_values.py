"""The value `none` of an override: no value, or the value of an option that is called "none".

Provides `named_none` and `env_config`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import BaseModel

from turnwise.envs import find_env
from turnwise.errors import TurnwiseError
from turnwise.option_paths import is_unknown, may_be
from turnwise.recipe.fit import PHASES, Data, merge, nest, value_at


def named_none(
    settings: Sequence[tuple[str, Any]], model: type[BaseModel], data: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Return settings in which None is "none" where an option has a value of that name.

    None is "none" also where neither `data` nor `model` has the key, so that the key is refused.

    Args:
        settings: ("section.key", value) in order, as `parse_override` returns them.
        model: the recipe's class.
        data: the recipe's own values.
    """
    merged: Data = dict(data)
    for key, value in settings:
        merged = merge(merged, nest(key, value))
    read: list[tuple[str, Any]] = []
    for key, value in settings:
        of, path = model, key.split(".")
        of_env = len(path) == 3 and path[0] == "env" and path[1] in PHASES
        env = env_config(merged) if of_env else None
        if env is not None:
            of, path = env, path[2:]
        named = may_be(of, path, merged, "none") or (
            is_unknown(of, path) and value_at(data, key) is None
        )
        read.append((key, "none" if value is None and named else value))
    return read


def env_config(data: Mapping[str, Any]) -> type[BaseModel] | None:
    """Return the class of the env's options, if a recipe's values name an env that is known."""
    name = value_at(data, "env.name")
    if isinstance(name, str):
        with suppress(TurnwiseError):
            return find_env(name).config_class
    return None
