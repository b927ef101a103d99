"""Gymnasium specs and constructors by name."""

from __future__ import annotations

import copy
import importlib
import re
import sys
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from turnwise.errors import ConfigError, MissingDependencyError, unknown_name
from turnwise.utils.user_code import MISTAKES, is_import_name, load_object

Live = gymnasium.Env[Any, Any]
_VERSION = re.compile(r"-v(\d+)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Maker:
    """Makes envs of one kind, without a time limit.

    `spec` is gymnasium's, None for a class of the user's own; equal `key`s make equal envs.
    """

    make: Callable[[], Live]
    spec: EnvSpec | None
    key: Hashable


def find_spec(name: str) -> EnvSpec:
    """Return gymnasium's own spec of "Taxi-v3", "package:Maze-v0" or "Taxi", the newest version.

    Raises:
        ConfigError: if the package cannot be imported.
        UnknownNameError: if nothing is registered under the name.
    """
    module, _, title = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except MISTAKES as cause:
            lacks = isinstance(cause, ModuleNotFoundError) and module.startswith(cause.name or "-")
            cure = "run the command in its folder, or install it" if lacks else "mend it"
            raise ConfigError(
                f"id = {name!r}: importing {module!r} raised {cause!r}: {cure}"
            ) from cause
    if title in gymnasium.registry:
        return gymnasium.registry[title]
    if not _VERSION.search(title):
        versions = [n for n in gymnasium.registry if _VERSION.sub("", n) == title and n != title]
        if versions:
            return gymnasium.registry[max(versions, key=_version)]
    near = [n for n in gymnasium.registry if _bare(n) == _bare(title)]
    if near:
        raise ConfigError(f"unknown id {name!r}: did you mean {max(near, key=_version)!r}?")
    space = title.rpartition("/")[0]
    if space and space not in {spec.namespace for spec in gymnasium.registry.values()}:
        raise ConfigError(
            f"unknown id {name!r}: nothing that is imported registers {space!r} envs; name the "
            f"package that does, as in 'package:{title}'"
        )
    newest: dict[str, str] = {}
    for known in sorted((n for n in gymnasium.registry if "/" not in n), key=_version):
        newest[_bare(known)] = known
    raise unknown_name("gymnasium id", title, newest.values())


def _version(name: str) -> int:
    found = _VERSION.search(name)
    return int(found.group(1)) if found else -1


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", _VERSION.sub("", name).casefold())


def maker(name: str, kwargs: Mapping[str, Any]) -> Maker:
    """Return the maker of the env called `name`.

    Raises:
        ConfigError: if there is no such env, or it does not take `kwargs`.
        MissingDependencyError: if a package that the env needs is not installed.
    """
    if is_import_name(name) and not _VERSION.search(name):
        kind = load_object(name, _is_env_class)
        if not _is_env_class(kind):
            raise ConfigError(f"id = {name!r} is no class derived from gymnasium.Env: give one")
        return Maker(
            make=lambda: _made(name, lambda: kind(**kwargs)), spec=None, key=(kind, repr(kwargs))
        )
    spec = find_spec(name)
    bare = copy.deepcopy(spec)
    bare.max_episode_steps, bare.order_enforce, bare.disable_env_checker = None, False, True
    return Maker(
        make=lambda: _made(name, lambda: gymnasium.make(bare, **kwargs)),
        spec=spec,
        key=(spec.id, spec.entry_point, repr(spec), repr(kwargs)),
    )


def _is_env_class(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, gymnasium.Env)


def _made(name: str, make: Callable[[], Live]) -> Live:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make()
    except (gymnasium.error.DependencyNotInstalled, ImportError) as cause:
        raise MissingDependencyError(
            f"id = {name!r} needs a package that is not installed: {cause}"
        ) from cause
    except (*MISTAKES, gymnasium.error.Error) as cause:
        raise ConfigError(f"id = {name!r} cannot be made: {cause}; mend `kwargs`") from cause


def gymnasium_cure(thing: Any) -> str | None:
    """Return the cure for a gymnasium env given as a turnwise env; None for other objects.

    Example:
        >>> gymnasium_cure(3) is None
        True
        >>> gymnasium_cure(gymnasium.make("CartPole-v1")).partition(": ")[2]
        "use make_env('gymnasium', id='CartPole-v1')"
    """
    env = thing.unwrapped if isinstance(thing, gymnasium.Env) else None
    kind = thing if isinstance(thing, type) else type(env)
    if not issubclass(kind, gymnasium.Env):
        return None
    if env is not None and env.spec is not None:
        name = env.spec.id
    else:
        module = sys.modules.get(kind.__module__)
        file = vars(module).get("__file__") if module else None
        name = f"{file or 'file.py'}:{kind.__name__}"
    return (
        f"{kind.__name__} is a Gymnasium env, not a turnwise one: "
        f"use make_env('gymnasium', id={name!r})"
    )
