"""PettingZoo envs by name.

Provides `maker`, from a name to a function that makes the env, and `pettingzoo_cure`. PettingZoo is
an extra: it is imported inside the functions that need it.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from turnwise.envs.pettingzoo.config import Api
from turnwise.errors import ConfigError, MissingDependencyError, unknown_name
from turnwise.utils.user_code import MISTAKES, is_import_name, load_object

FAMILIES = ("classic", "butterfly", "sisl", "atari")
"""The packages of PettingZoo, in the order in which they are searched."""
INSTALL = "pip install 'turnwise[pettingzoo]'"
MAKERS: Mapping[Api, str] = {"parallel": "parallel_env", "aec": "env"}
"""The function of a module that makes its env, the preferred one first."""
_NAME = re.compile(r"[A-Za-z_][\w./]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Maker:
    """Makes envs of one kind; `name` is the module's last part, equal `key`s make equal envs."""

    make: Callable[[], Any]
    name: str
    key: Hashable


def base_classes() -> tuple[type, type]:
    """Return PettingZoo's classes of AEC and of parallel envs.

    Raises:
        MissingDependencyError: if PettingZoo is not installed.
    """
    try:
        from pettingzoo import AECEnv, ParallelEnv
    except ImportError as cause:
        raise MissingDependencyError(
            f"the env 'pettingzoo' needs PettingZoo, which is not installed: {INSTALL}"
        ) from cause
    return AECEnv, ParallelEnv


def is_parallel(env: Any) -> bool:
    """Whether agents move at the same time in a live env."""
    return isinstance(env, base_classes()[1])


def maker(name: str, kwargs: Mapping[str, Any], api: Api | None) -> Maker:
    """Return the maker of the env called `name`.

    Raises:
        ConfigError: if there is no such env, or it does not take `kwargs`.
        MissingDependencyError: if PettingZoo or a package that the env needs is not installed.
    """
    base_classes()
    if is_import_name(name):
        if api is not None:
            raise ConfigError(
                f"api = {api!r} chooses a function of a module, but id = {name!r} names one: leave "
                "it out"
            )
        function = load_object(name)
        title = name.rpartition(":")[2]
    else:
        module = _module(name)
        function, title = _function(module, name, api), module.__name__.rpartition(".")[2]
    key = (function, repr(sorted(kwargs.items())))
    return Maker(make=lambda: _made(name, function, kwargs), name=title, key=key)


def _module(name: str) -> ModuleType:
    """Return the module of an env."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"id = {name!r} names no env: give a module such as 'classic/tictactoe_v3', or "
            "'file.py:function'"
        )
    path = name.replace("/", ".")
    first = path.partition(".")[0]
    if first == path:
        found = [family for family in FAMILIES if path in _modules(family)]
        if not found:
            known = [n for family in FAMILIES for n in _modules(family)]
            raise unknown_name("pettingzoo id", name, known, "'package/module' of another package")
        path = f"pettingzoo.{found[0]}.{path}"
    elif first in FAMILIES:
        family, _, title = path.partition(".")
        if title not in _modules(family):
            raise unknown_name(f"pettingzoo id of {family!r}", title, _modules(family))
        path = f"pettingzoo.{path}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer versions prefer a registry to modules
            return importlib.import_module(path)
    except ImportError as cause:
        raise MissingDependencyError(
            f"id = {name!r} needs a package that is not installed ({cause}): {_install(path)}"
        ) from cause
    except MISTAKES as cause:
        raise ConfigError(f"id = {name!r}: importing {path!r} raised {cause!r}") from cause


def _install(path: str) -> str:
    top, _, rest = path.partition(".")
    if top != "pettingzoo":
        return f"pip install {top}"
    return f"pip install 'pettingzoo[{rest.partition('.')[0]}]'"


def _modules(family: str) -> list[str]:
    """Return the names of the envs of one of PettingZoo's packages."""
    package = importlib.import_module(f"pettingzoo.{family}")
    return [m.name for m in pkgutil.iter_modules(package.__path__) if re.search(r"_v\d+$", m.name)]


def _function(module: ModuleType, name: str, api: Api | None) -> Callable[..., Any]:
    """Return the function of a module that makes its env."""
    held = vars(module)
    wanted = [title for kind, title in MAKERS.items() if api in (None, kind)]
    found = [held[title] for title in wanted if callable(held.get(title))]
    if not found:
        others = [kind for kind, title in MAKERS.items() if callable(held.get(title))]
        cure = f"set api = {others[0]!r}" if others else "name a module that has one"
        raise ConfigError(f"id = {name!r} has no function {' or '.join(wanted)}: {cure}")
    return found[0]


def _made(name: str, function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = function(**kwargs)
    except ImportError as cause:
        raise MissingDependencyError(
            f"id = {name!r} needs a package that is not installed: {cause}"
        ) from cause
    except MISTAKES as cause:
        raise ConfigError(f"id = {name!r} cannot be made: {cause}; mend `kwargs`") from cause
    if not isinstance(made, base_classes()):
        raise ConfigError(
            f"id = {name!r} returned {type(made).__name__}: return an AECEnv or a ParallelEnv of "
            "PettingZoo"
        )
    if not _has_agents(made):
        raise ConfigError(
            f"id = {name!r} has no possible_agents, the names of its agents: set it in __init__"
        )
    return made


def _has_agents(env: Any) -> bool:
    try:
        return len(env.possible_agents) > 0
    except AttributeError:
        return False


def pettingzoo_cure(thing: Any) -> str | None:
    """Return the cure for a PettingZoo env given as a turnwise env; None for other objects.

    Example:
        >>> pettingzoo_cure(3) is None
        True
    """
    if "pettingzoo" not in sys.modules:
        return None
    kind = thing if isinstance(thing, type) else type(thing)
    if not issubclass(kind, base_classes()):
        return None
    core = kind if isinstance(thing, type) else type(thing.unwrapped)
    module = core.__module__
    if module.startswith("pettingzoo."):
        found = vars(core).get("metadata", {}).get("name", "")
        name = f"{module.split('.')[1]}/{found}"
    else:
        place = sys.modules.get(module)
        file = vars(place).get("__file__") if place else None
        name = f"{file or 'file.py'}:{core.__name__}"
    return (
        f"{core.__name__} is a PettingZoo env, not a turnwise one: "
        f"use make_env('pettingzoo', id={name!r})"
    )
