"""The options of a config class and of the classes in it, by their keys.

Provides `may_be` and `is_unknown` on single options, and what the messages of `turnwise.settings`
are made of. A path is the keys from the outermost table to an option.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The key of a discriminated union (`one_of`), and its value where it is not given."""

    by: str
    default: str


def may_be(model: type[BaseModel], path: Sequence[str], data: Mapping[str, Any], name: str) -> bool:
    """Whether an option has a value of a name, in the class that its section chooses.

    Example:
        >>> from turnwise.losses.clipped import ClippedConfig
        >>> may_be(ClippedConfig, ["kl"], {}, "none"), may_be(ClippedConfig, ["kl"], {}, "k9")
        (True, False)
    """
    *section, last = path
    found, of = choice_at(model, section), type_at(model, section)
    if found is not None:
        of = found[1].get(chosen_name(found[0], value_at(data, section)))
    return any(
        name in get_args(m) for m in members_of(type_below(of, last)) if get_origin(m) is Literal
    )


def is_unknown(model: type[BaseModel], path: Sequence[str]) -> bool:
    """Whether no class of a section has an option; keys that are free are known."""
    return bool(known := keys_at(model, path[:-1])) and path[-1] not in known


def own_options(classes: Sequence[type[BaseModel]]) -> list[str]:
    """Return the options that some of `classes` have and others do not, or with another default.

    Example:
        >>> from turnwise.settings import Settings
        >>> class One(Settings):
        ...     size: int = 1
        ...     low: float = 0.0
        >>> class Two(Settings):
        ...     size: int = 1
        >>> own_options([One, Two])
        ['low']
    """
    fields = [each.model_fields for each in classes]
    names = dict.fromkeys(name for each in fields for name in each)
    return [
        name
        for name in names
        if not all(
            name in each and each[name].default == fields[0][name].default for each in fields
        )
    ]


def choice_at(model: Any, path: Sequence[str]) -> tuple[Choice, dict[str, type[BaseModel]]] | None:
    """Return how a section chooses its class, and the classes by name; None if it does not."""
    below, found = model, None
    for part in path:
        found = _field_choice(below, part)
        below = type_below(below, part)
        found = found or _choice_of(below)
    if found is None:
        return None
    classes = {get_args(m.model_fields[found.by].annotation)[0]: m for m in members_of(below)}
    return found, classes


def _field_choice(model: Any, name: str) -> Choice | None:
    """Return the choice that a field of a config declares."""
    for member in members_of(model):
        if isinstance(member, type) and issubclass(member, BaseModel):
            for each in member.model_fields[name].metadata if name in member.model_fields else ():
                if isinstance(each, Choice):
                    return each
    return None


def _choice_of(annotation: Any) -> Choice | None:
    """Return the choice that an annotation declares, as the values of a table have it."""
    if get_origin(annotation) is not Annotated:
        return None
    return next((each for each in get_args(annotation) if isinstance(each, Choice)), None)


def chosen_name(choice: Choice, given: Any) -> str:
    """Return the name of the class that a section, or None, chooses."""
    return given.get(choice.by, choice.default) if isinstance(given, Mapping) else choice.default


def value_at(data: Any, path: Sequence[str]) -> Any:
    """Return what nested mappings have at a path, or None."""
    for part in path:
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def keys_at(model: Any, path: Sequence[str]) -> list[str]:
    """Return the keys that a config knows below `path`; empty where keys are free."""
    models = [m for m in members_of(type_at(model, path)) if isinstance(m, type)]
    return [name for m in models if issubclass(m, BaseModel) for name in m.model_fields]


def full_keys(
    model: Any, data: Any, path: tuple[str, ...] = (), depth: int = 5
) -> Iterator[tuple[str, ...]]:
    """Yield the full keys of a config; keys that are free are those in `data`."""
    for member in members_of(model):
        if isinstance(member, type) and issubclass(member, BaseModel):
            for name, field in member.model_fields.items():
                yield (*path, name)
                below = data.get(name) if isinstance(data, Mapping) else None
                if depth:
                    yield from full_keys(field.annotation, below, (*path, name), depth - 1)
        elif get_origin(member) in (dict, Mapping) and isinstance(data, Mapping):
            for name, below in data.items():
                yield from full_keys(get_args(member)[1], below, (*path, name), depth - 1)


def type_at(model: Any, path: Sequence[str]) -> Any:
    """Return the annotation of the option at a path, or None."""
    for part in path:
        model = type_below(model, part)
    return model


def type_below(annotation: Any, part: str) -> Any:
    """Return the annotation that one more key leads to, or None."""
    for member in members_of(annotation):
        if isinstance(member, type) and issubclass(member, BaseModel):
            if part in member.model_fields:
                return member.model_fields[part].annotation
        elif get_origin(member) in (dict, Mapping):
            return get_args(member)[1]
    return None


def members_of(annotation: Any) -> list[Any]:
    """Return the alternatives of a union, or the annotation itself."""
    if get_origin(annotation) is Annotated:
        return members_of(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [m for inner in get_args(annotation) for m in members_of(inner)]
    return [annotation]
