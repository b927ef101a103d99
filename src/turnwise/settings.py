"""The strict base model of every config, and the one sentence that a wrong config raises.

Owns `Settings` and `parse`. Unknown keys are errors with the nearest known key; nothing is coerced
silently or ignored.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
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


def parse(
    model: type[M], data: Mapping[str, Any], what: str, aliases: Mapping[str, str] | None = None
) -> M:
    """Return `data` as a `model`, or raise one sentence a problem: given, expected, cure.

    Args:
        model: the config class.
        data: plain values, as read from TOML.
        what: what the data are, for the message ("recipe 'frozen-lake'").
        aliases: other names of keys, such as another library's -> the full key, for the message; or
            why there is none, which begins with "not".

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
        sentences: dict[str, list[str]] = {}  # what is given -> what each alternative expects
        for problem in error.errors():
            given, expected = _sentence(model, problem, data, aliases or {})
            sentences.setdefault(given, []).append(expected)
        said = [given + " or ".join(dict.fromkeys(each)) for given, each in sentences.items()]
        raise ConfigError(f"{what}: " + "; ".join(said)) from None


def _sentence(
    model: type[BaseModel], problem: Any, data: Mapping[str, Any], aliases: Mapping[str, str]
) -> tuple[str, str]:
    """Return what is given and what is expected; together they are a sentence."""
    path = _path(model, problem["loc"])
    key = ".".join(path)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {key!r}, ", _cure(model, path, data, aliases)
    if problem["type"] == "missing":
        return f"{key!r} is missing", ""
    if problem["type"] == "json_invalid":
        return "a value is not UTF-8 text: write it as such", ""
    if problem["type"] == "model_type":
        given = f"{key} = {problem['input']!r}: "
        return given, f"expected a table, {_example(model, path, problem)}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{key}: {message}" if key else message, ""
    return f"{key} = {problem['input']!r}: ", f"{message[0].lower()}{message[1:]}"


def _path(model: Any, place: Sequence[Any]) -> list[str]:
    """Return the keys of a place; pydantic names the alternatives of a union among them."""
    path: list[str] = []
    for part in place:
        members = [m for m in _members(model) if m is not type(None)]
        below = _below(model, str(part))
        if len(members) > 1 and isinstance(part, str) and below is None:
            continue
        path.append(str(part))
        model = below
    return path


def _example(model: type[BaseModel], path: Sequence[str], problem: Any) -> str:
    """Return a table that may be meant: the given number under the first key that takes it."""
    below: Any = model
    for part in path:
        below = _below(below, part)
    models = [m for m in _members(below) if isinstance(m, type) and issubclass(m, BaseModel)]
    given = problem["input"]
    for name, field in ((n, f) for m in models for n, f in m.model_fields.items()):
        kinds = _members(field.annotation)
        if type(given) in kinds and not isinstance(given, bool):
            return f"such as {{{name} = {json.dumps(given)}}}"
    names = [name for m in models for name in m.model_fields]
    return f"with any of {', '.join(names)}" if names else "{...}"


def _cure(
    model: type[BaseModel], path: list[str], data: Mapping[str, Any], aliases: Mapping[str, str]
) -> str:
    """Return which key may be meant: by a like name beside it, or by its last part elsewhere."""
    last, beside = path[-1].lower(), _keys_at(model, path[:-1])
    is_table = isinstance(_value(data, path), Mapping)  # no single setting can be meant then
    near = difflib.get_close_matches(last, beside, n=1, cutoff=0.6 if is_table else 0.8)
    if near:
        return f"did you mean {'.'.join([*path[:-1], near[0]])!r}?"
    full = list(_full_keys(model, data))
    for name in (last, *difflib.get_close_matches(last, [k[-1] for k in full], n=1, cutoff=0.8)):
        meant = sorted({".".join(k) for k in full if k[-1] == name}, key=lambda k: k.count("."))
        if meant:
            return f"did you mean {' or '.join(map(repr, meant[:3]))}?"
        if name in aliases:
            own = aliases[name]
            return own if own.startswith("not ") else f"which is {own} here"
    known = [name for name, own in aliases.items() if not own.startswith("not ")]
    near = difflib.get_close_matches(last, known, n=1, cutoff=0.8)
    if near:
        return f"did you mean {aliases[near[0]]}?"
    near = difflib.get_close_matches(last, beside, n=1, cutoff=0.5)
    if near:
        return f"did you mean {'.'.join([*path[:-1], near[0]])!r}?"
    return f"known: {', '.join(sorted(beside)) or 'none'}"


def _value(data: Any, path: Sequence[str]) -> Any:
    for part in path:
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def _full_keys(
    model: Any, data: Any, path: tuple[str, ...] = (), depth: int = 5
) -> Iterator[tuple[str, ...]]:
    """Yield the full keys of a config; keys that are free are those in `data`."""
    for member in _members(model):
        if isinstance(member, type) and issubclass(member, BaseModel):
            for name, field in member.model_fields.items():
                yield (*path, name)
                below = data.get(name) if isinstance(data, Mapping) else None
                if depth:
                    yield from _full_keys(field.annotation, below, (*path, name), depth - 1)
        elif get_origin(member) in (dict, Mapping) and isinstance(data, Mapping):
            for name, below in data.items():
                yield from _full_keys(get_args(member)[1], below, (*path, name), depth - 1)


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
