"""The strict base model of every config, and the one sentence that a wrong config raises.

Owns `Settings` and `parse`. Unknown keys are errors with the nearest known key; nothing is coerced
silently or ignored.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from turnwise.errors import ConfigError

M = TypeVar("M", bound=BaseModel)


class Settings(BaseModel):
    """Base of every config class: unknown keys are refused, instances are frozen.

    Example:
        >>> class Lake(Settings):
        ...     size: int = 4
        >>> Lake(size=8).size
        8
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, protected_namespaces=()
    )


def parse(model: type[M], data: Mapping[str, Any], what: str) -> M:
    """Return `data` as a `model`, or raise one sentence a problem: given, expected, cure.

    Args:
        model: the config class.
        data: plain values, as read from TOML.
        what: what the data are, for the message ("recipe 'frozen-lake'").

    Raises:
        ConfigError: if a key is unknown, a type is wrong or a combination is refused.

    Example:
        >>> class Lake(Settings):
        ...     size: int = 4
        >>> parse(Lake, {"sise": 8}, "the lake")
        Traceback (most recent call last):
            ...
        turnwise.errors.ConfigError: the lake: unknown key 'sise', did you mean 'size'?
    """
    try:
        # TOML has JSON's types and dates: read as JSON, a list may be a tuple, but true is not 1.
        return model.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        sentences = [_sentence(model, problem) for problem in error.errors()]
        raise ConfigError(f"{what}: " + "; ".join(dict.fromkeys(sentences))) from None


def _sentence(model: type[BaseModel], problem: Any) -> str:
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path[-1], _keys_at(model, path[:-1]), n=1, cutoff=0.5)
        known = ", ".join(sorted(_keys_at(model, path[:-1]))) or "none"
        cure = f"did you mean {'.'.join([*path[:-1], near[0]])!r}?" if near else f"known: {known}"
        return f"unknown key {key!r}, {cure}"
    if problem["type"] == "missing":
        return f"{key!r} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{key}: {message}" if key else message
    return f"{key} = {problem['input']!r}: {message[0].lower()}{message[1:]}"


def _keys_at(model: Any, path: Sequence[str]) -> list[str]:
    """Return the keys that a config knows below `path`; empty where keys are free."""
    for part in path:
        model = _below(model, part)
    models = [m for m in _members(model) if isinstance(m, type) and issubclass(m, BaseModel)]
    return [name for m in models for name in m.model_fields]


def _below(annotation: Any, part: str) -> Any:
    for member in _members(annotation):
        if isinstance(member, type) and issubclass(member, BaseModel):
            if part in member.model_fields:
                return member.model_fields[part].annotation
        elif get_origin(member) in (dict, Mapping):
            return get_args(member)[1]
    return None


def _members(annotation: Any) -> list[Any]:
    """Return the alternatives of a union, or the annotation itself."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [m for inner in get_args(annotation) for m in _members(inner)]
    return [annotation]


def fit_options(
    given: Mapping[str, Any], *, options: Mapping[str, Any], among: Sequence[str], chosen: str
) -> dict[str, Any]:
    """Return `given` with the defaults of the options that a choice has; refuse the others.

    For configs in which one field decides which others mean anything. Those are declared with
    default None, "not given", and this runs before validation: no option is accepted and ignored,
    and the values written to a resolved recipe can be read again.

    Args:
        given: the fields as the user gave them.
        options: option -> default of every option the choice has (None: has no default).
        among: all options that some choice has.
        chosen: the choice in words, for the message.

    Raises:
        ConfigError: if an option is given that the choice does not have.

    Example:
        >>> fit_options({"kind": "b"}, options={"cap": 5.0}, among=("cap", "low"), chosen="kind b")
        {'kind': 'b', 'cap': 5.0}
    """
    for name in among:
        if name not in options and given.get(name) is not None:
            raise ConfigError(
                f"{name} = {given[name]!r} does not apply to {chosen}, which takes "
                f"{', '.join(options) or 'no such option'}: leave {name} out"
            )
    missing = {name: value for name, value in options.items() if given.get(name) is None}
    return {**given, **missing}
