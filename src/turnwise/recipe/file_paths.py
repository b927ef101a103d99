"""The files that a recipe names: of data and of code, looked for beside the recipe first.

Provides `with_whole_paths`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnwise.envs import IMPORTING, find_env
from turnwise.utils.user_code import is_import_name


def with_whole_paths(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a recipe whose files of data and of code are looked for beside it first."""
    if folder.resolve() != Path.cwd():  # the names of a recipe in the working directory stay
        code = {"env", "workflow"} & data.keys()
        data = {**data, **{key: _find_code(data[key], folder) for key in code}}
    env = data.get("env")
    if not isinstance(env, dict) or not isinstance(env.get("name"), str):
        return data  # parsing says what is wrong
    timeout = env.get("timeout")
    if not isinstance(timeout, int | float) or timeout <= 0:
        timeout = IMPORTING  # a wrong one is refused when the recipe is parsed
    names = find_env(env["name"], timeout).files
    for section in ("options", "training", "warmup"):
        options = env.get(section)
        if not isinstance(options, dict):
            continue
        for name in names:
            given = options.get(name)
            if isinstance(given, str) and (folder / given).is_file():
                options[name] = str((folder / given).resolve())
    return data


def _find_code(given: Any, folder: Path) -> Any:
    """Return a value in which each "file.py:name" whose file is in `folder` has its whole path."""
    if isinstance(given, Mapping):
        return {key: _find_code(each, folder) for key, each in given.items()}
    if isinstance(given, list):
        return [_find_code(each, folder) for each in given]
    if not isinstance(given, str) or not is_import_name(given):
        return given
    source, _, name = given.rpartition(":")
    file = folder / source
    return f"{file.resolve()}:{name}" if source.endswith(".py") and file.is_file() else given
