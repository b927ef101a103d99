"""Checks of an env's class attributes and of its required methods, without playing it.

Provides `check_declarations`, `properties_of` and `fail`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NoReturn, get_args

from turnwise.envs.base import Branching, Env, Level, RewardTiming, ScoredBy, scores_batches
from turnwise.envs.gymnasium.registry import gymnasium_cure
from turnwise.envs.pettingzoo.registry import pettingzoo_cure
from turnwise.envs.unicode import UNICODE, is_unicode
from turnwise.envs.user_calls import call_env, short
from turnwise.errors import EnvError
from turnwise.formats import REPLY_COMPONENTS
from turnwise.settings import Settings

METHODS: Mapping[str, tuple[str, ...]] = {
    "reset": ("task",),
    "observe": ("state", "role"),
    "step": ("state", "role", "action", "noise"),
    "score": ("state",),
    "seat_score": ("state", "seat"),
    "measures": ("state",),
    "generate": ("rng",),
    "canonical": ("data",),
    "state_key": ("state", "role"),
    "random_action": ("state", "role", "rng"),
    "baselines": (),
    "vocabulary": (),
    "render": ("state",),
    "tasks": ("split",),
    "exact": ("task",),
    "acting": ("state",),
}
"""Method -> arguments that it is called with."""
WRITTEN = ("reset", "observe", "step", "score")
ATTRIBUTES = (
    "name",
    "roles",
    "components",
    "config_class",
    "reward_timing",
    "branching",
    "scored_by",
    "files",
    "blocking",
    "runs_programs",
    "max_turns",
    "opponents",
    "config",
    "single_task",
    "seats",
)
"""The declared attributes of an env; each may be a property."""


def fail(env: Any, what: str, cure: str, at: str = "") -> NoReturn:
    """Raise an error for an env, an instance or a class, that does not conform.

    Args:
        env: the env.
        what: the given value.
        cure: the expected value.
        at: the method at fault, whose file and line are added if they are known.
    """
    kind = env if isinstance(env, type) else type(env)
    place = place_of_method(kind, at) if at else ""
    raise EnvError(f"{kind.__name__}: {what}: {cure}" + (f" ({at}: {place})" if place else ""))


def place_of_method(kind: type[Any], name: str) -> str:
    """Return the file and line where an env's class or one of its bases defines a method.

    The result is "" if only `Env` defines it, or if the source is not Python.
    """
    for each in kind.__mro__:
        if each is Env:
            return ""
        found = vars(each).get(name)
        found = found.fget if isinstance(found, property) else found
        if isinstance(found, staticmethod | classmethod):
            found = found.__func__
        code = inspect.unwrap(found).__code__ if inspect.isfunction(found) else None
        if code is not None:
            return f"{short(code.co_filename)}:{code.co_firstlineno}"
    return ""


def check_is_env(env: Any) -> None:
    """Raise unless `env` is an instance of a class derived from `Env`."""
    foreign = gymnasium_cure(env) or pettingzoo_cure(env)
    if foreign:
        raise EnvError(foreign)
    if isinstance(env, type) and issubclass(env, Env):
        missing = sorted(env.__abstractmethods__)
        if missing:
            raise EnvError(f"{env.__name__} does not define {', '.join(missing)}: write it")
        raise EnvError(f"{env.__name__} is a class: give an instance, such as {env.__name__}()")
    if not isinstance(env, Env):
        given = env.__name__ if isinstance(env, type) else f"{env!r:.80}"
        raise EnvError(
            f"{given} is not an env: give an instance of a class derived from turnwise.Env"
        )


def properties_of(kind: type) -> dict[str, property]:
    """Return the declared attributes that are properties: their code may not return."""
    found = {name: inspect.getattr_static(kind, name, None) for name in ATTRIBUTES}
    return {name: value for name, value in found.items() if isinstance(value, property)}


def check_declarations(env: Env[Any], timeout: float) -> None:
    """Raise at the first class attribute or method that does not conform to `envs.base`.

    Args:
        env: the env.
        timeout: seconds that the reading of a property may take.
    """
    check_is_env(env)
    for name, read in properties_of(type(env)).items():
        if read is not Env.seats:  # the default follows from the roles, which are checked first
            call_env(env, name, timeout, getattr, env, name)
    check_names(env)
    _check_values(env)
    for name, arguments in METHODS.items():
        _check_method(env, name, arguments)


def check_names(env: Env[Any] | type[Env[Any]]) -> None:
    """Raise unless the names that an env or its class declares exist and are text."""
    wanted = ("name", "roles", "components")
    missing = [name for name in wanted if not hasattr(env, name)]
    if missing:
        fail(env, f"has no class attribute {missing[0]!r}", f"declare {', '.join(wanted)}")
    if not isinstance(env.name, str) or not env.name.strip():
        fail(env, f"name = {env.name!r}", "give it a short name such as 'frozen-lake'")
    roles = env.roles
    names = isinstance(roles, tuple) and all(_is_name(role) for role in roles)
    if not names or not roles or len(set(roles)) != len(roles):
        cure = "give a tuple of different role names on one line, as in ('player',)"
        fail(env, f"roles = {roles!r:.80}", cure)
    _check_seats(env)
    _check_components(env)


def _is_name(given: Any) -> bool:
    """Whether a role or a seat can be named so: in one line of a recipe and of a report."""
    return isinstance(given, str) and bool(given.strip()) and given.isprintable()


def _check_seats(env: Env[Any] | type[Env[Any]]) -> None:
    """Raise unless the seats of an env name its roles, and every role has one."""
    if isinstance(env, type):  # `seats` is a property of instances
        return
    seats: Any = env.seats
    cure = "give a dict of seat -> role in which every role occurs, as in {'ant-1': 'ant'}"
    named = isinstance(seats, Mapping) and all(_is_name(seat) for seat in seats)
    if not named or set(seats.values()) != set(env.roles):
        fail(env, f"seats = {seats!r:.80}", cure, "seats")


def check_constructor(kind: type[Env[Any]]) -> None:
    """Raise if the construction of a `kind` would pass options to an unrelated argument.

    A class without a `config_class` has no options. Its own required argument, such as `size`,
    would get an empty `Settings` without an error.
    """
    if kind.config_class is not Settings or kind.__init__ is Env.__init__:
        return
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [p for p in inspect.signature(kind).parameters.values() if p.kind in positional]
    if taken and taken[0].name != "config":
        name = taken[0].name
        cure = (
            f"declare a config_class with a field {name!r} and write __init__(self, config), or "
            f"train an instance: env={kind.__name__}(...)"
        )
        fail(kind, f"__init__ takes {name!r}, and the env declares no options", cure)


def _check_components(env: Env[Any] | type[Env[Any]]) -> None:
    components: Any = env.components
    if not isinstance(components, Mapping):
        cure = "give a dict of reward name and level, as in {'goal': 'agent'}"
        fail(env, f"components = {components!r}", cure)
    for component, level in components.items():
        if not isinstance(component, str) or not component.strip():
            fail(env, f"component {component!r} is no name", "give reward names as text")
        if component in REPLY_COMPONENTS:
            fail(env, f"component {component!r} is reserved", "give it another name")
        if level not in get_args(Level):
            levels = ", ".join(get_args(Level))
            fail(env, f"component {component!r} has level {level!r}", f"use one of {levels}")


def _check_values(env: Env[Any]) -> None:
    kinds_of = {"reward_timing": RewardTiming, "branching": Branching, "scored_by": ScoredBy}
    values: dict[str, Any] = {
        "reward_timing": env.reward_timing,
        "branching": env.branching,
        "scored_by": env.scored_by,
    }
    for name, kinds in kinds_of.items():
        if values[name] not in get_args(kinds):
            fail(env, f"{name} = {values[name]!r}", f"use one of {', '.join(get_args(kinds))}")
    for name, value in {"blocking": env.blocking, "runs_programs": env.runs_programs}.items():
        if type(value) is not bool:
            fail(env, f"{name} = {value!r}", "use True or False")
    cap: Any = env.max_turns
    if cap is not None and (type(cap) is not int or cap < 1):
        fail(env, f"max_turns = {cap!r}", "give a whole number from 1 on, or None for 100")
    kind: Any = env.config_class
    if not (isinstance(kind, type) and issubclass(kind, Settings)):
        cure = "derive a class from turnwise.settings.Settings, one field for each option"
        fail(env, f"config_class = {kind!r}", cure)
    files: Any = env.files
    if not isinstance(files, tuple) or not set(files) <= set(kind.model_fields):
        fail(env, f"files = {files!r}", "give a tuple of options that name a file")
    if kind is not Settings and env.config is None:
        cure = f"make it with make_env, or let __init__ use {kind.__name__}() for None"
        fail(env, "config is None", cure)


def _check_method(env: Env[Any], name: str, arguments: tuple[str, ...]) -> None:
    method = getattr(env, name)
    taken = ", ".join(("self", *arguments))
    if not callable(method):
        fail(env, f"{name} = {method!r} is no method", f"write def {name}({taken})")
    if name in WRITTEN and getattr(type(env), name) is getattr(Env, name):
        fail(env, f"does not define {name}", f"write def {name}({taken})")
    if (
        inspect.iscoroutinefunction(method)
        or inspect.isasyncgenfunction(method)
        or inspect.isgeneratorfunction(method)
    ):
        cure = f"write def {name}({taken}), which returns"
        if name == "step":
            cure += "; with blocking = True steps of several episodes wait side by side"
        fail(env, f"{name} is async, or yields", cure, name)
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # written in C, so the first call decides
        return
    try:
        signature.bind(*arguments)
    except TypeError as problem:
        given = f"{name}{signature}"
        fail(env, f"{given} cannot be called ({problem})", f"write def {name}({taken})", name)


def check_returned(env: Env[Any], vocabulary: Any, single_task: Any, baselines: Any) -> None:
    """Raise if a method without arguments returns a wrong type."""
    if not isinstance(vocabulary, tuple) or not all(isinstance(word, str) for word in vocabulary):
        fail(env, "vocabulary() returns something else", "return a tuple of strings", "vocabulary")
    if not is_unicode("".join(vocabulary)):
        fail(
            env,
            "vocabulary() returns words that cannot be encoded",
            f"return {UNICODE}",
            "vocabulary",
        )
    if type(single_task) is not bool:
        what = "a method" if callable(single_task) else repr(single_task)
        fail(env, f"single_task is {what}", "make it a property that returns a bool", "single_task")
    if not isinstance(baselines, Mapping):
        cure = "return a dict of name and function, from (state, rng) to an action"
        fail(env, f"baselines() returns {type(baselines).__name__}", cure, "baselines")
    for name, player in baselines.items():
        if not isinstance(name, str) or not callable(player):
            cure = "give a function from (state, rng) to an action"
            fail(env, f"baseline {name!r} is {player!r:.80}", cure, "baselines")
    strangers = [name for name in env.opponents if name not in baselines]
    if strangers:
        cure = f"name baselines of the env: {', '.join(baselines) or 'none'}"
        fail(env, f"opponents = {env.opponents!r:.80}", cure)
    if "random" not in baselines and not scores_batches(env):  # which needs a model's replies
        known = ", ".join(baselines) or "none"
        fail(
            env,
            f"has no baseline 'random' (has: {known})",
            "add one that draws a legal action",
            "baselines",
        )
