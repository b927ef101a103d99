"""The arguments of reward functions, and the check that the rows have them.

Provides `arguments_of`, `check_columns` and `check_names`. A function with `**kwargs` gets all
offered arguments, as in TRL; any other function gets those in its signature.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from turnwise.errors import ConfigError

OFFERED = (
    "prompts",
    "completions",
    "completion_ids",
    "trainer_state",
    "log_extra",
    "log_metric",
)
"""Arguments that are offered whatever columns the rows have."""
NEEDS = "turnwise_columns"
"""The attribute of a reward function that names required columns which have a default."""
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def arguments_of(
    function: Callable[..., Any], offered: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments of a function among those offered.

    Only positional-only parameters are passed by position. A function without a known signature, as
    some functions written in C, gets all arguments by name.

    Example:
        >>> arguments_of(lambda completions: 0, {"completions": ["a"], "prompts": ["b"]})
        ([], {'completions': ['a']})
    """
    parameters = _parameters(function)
    if parameters is None:
        return [], dict(offered)
    positional: list[Any] = []
    for parameter in parameters:
        if parameter.kind is not parameter.POSITIONAL_ONLY or parameter.name not in offered:
            break
        positional.append(offered[parameter.name])
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        used = {parameter.name for parameter in parameters[: len(positional)]}
        left_out = used | {_first_of_method(function)}
        return positional, {k: v for k, v in offered.items() if k not in left_out}
    names = {parameter.name for parameter in parameters if parameter.kind in _NAMED}
    return positional, {name: value for name, value in offered.items() if name in names}


def check_columns(
    name: str, function: Callable[..., Any], columns: Collection[str], what: str = "the rows"
) -> None:
    """Refuse a function that needs an argument which the rows do not have.

    Args:
        name: the function's, for the message.
        function: a reward function.
        columns: the columns that reward functions are given.
        what: which rows, for the message.

    Raises:
        ConfigError: with the argument, and the columns that there are.

    Example:
        >>> check_columns("exact", lambda completions, answer: [], ["question"])
        Traceback (most recent call last):
            ...
        turnwise.errors.ConfigError: reward function 'exact' needs the argument 'answer', and the \
rows have no such column (columns: question): add the column, or give the argument a default
    """
    known = [*OFFERED, *columns]
    own = inner(function)
    needed = list(vars(own).get(NEEDS, ())) if hasattr(own, "__dict__") else []
    for parameter in _parameters(function) or ():
        variable = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if parameter.default is parameter.empty and not variable:
            needed.append(parameter.name)
    missing = [each for each in needed if each not in known]
    if not missing:
        return
    near = difflib.get_close_matches(missing[0], known, n=1)
    cure = (
        f"did you mean {near[0]!r}?" if near else "add the column, or give the argument a default"
    )
    raise ConfigError(
        f"reward function {name!r} needs the argument {missing[0]!r}, and {what} have no such "
        f"column (columns: {', '.join(columns) or 'none beside the prompt'}): {cure}"
    )


def check_names(columns: Collection[str], what: str = "the rows") -> None:
    """Refuse columns with the name of an offered argument.

    Raises:
        ConfigError: with the column.
    """
    taken = [name for name in columns if name in OFFERED]
    if taken:
        raise ConfigError(
            f"{what} have a column {taken[0]!r}, the name of an argument that every reward "
            "function is given: rename the column"
        )


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside a `functools.partial`; any other function unchanged.

    Example:
        >>> inner(functools.partial(print, end=""))
        <built-in function print>
    """
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _parameters(function: Callable[..., Any]) -> Sequence[inspect.Parameter] | None:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature
        return None


def _first_of_method(function: Callable[..., Any]) -> str:
    """Return the name of a method's first parameter, "" for a function.

    A column of that name cannot be passed beside the object.
    """
    called: Any = function if inspect.isroutine(function) else type(function).__call__
    if inspect.ismethod(called):
        called = called.__func__
    elif inspect.isroutine(function):
        return ""
    try:
        return next(iter(inspect.signature(called).parameters), "")
    except (TypeError, ValueError):
        return ""
