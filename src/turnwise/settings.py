"""The strict base class of every config, and its error messages.

Provides `Settings`, `parse`, `one_of` for discriminated unions, and `may_be` and `is_unknown` on
single options. An unknown key is an error with the nearest known key.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Discriminator, Tag, ValidationError

from turnwise.errors import ConfigError, unknown_name

M = TypeVar("M", bound=BaseModel)
_UNKNOWN = ""
"""The tag of a choice that is not in the table; pydantic refuses it."""


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
        other = _of_another_choice(model, path, data)
        if other:
            return f"{key} = {problem['input']!r} does not apply to {other}", ""
        return f"unknown key {key!r}, ", _cure(model, path, data, aliases)
    if problem["type"] == "union_tag_invalid":
        found = _choice_at(model, path)
        assert found is not None, "only `one_of` makes tagged unions"
        name, where = problem["input"].get(found[0].by), ".".join([*path, found[0].by])
        return str(unknown_name(where, str(name), found[1])), ""
    if problem["type"] == "missing":
        return f"{key!r} is missing{_what_to_add(model, path)}", ""
    if problem["type"] == "json_invalid":
        return "a value is not UTF-8 text: write it as such", ""
    if problem["type"] == "model_type":
        given = f"{key} = {problem['input']!r}: "
        return given, f"expected a table, {_example(model, path, problem)}"
    if problem["type"] in ("list_type", "tuple_type"):
        return f"{key} = {problem['input']!r}: ", f"expected an array{_as_array(problem['input'])}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{key}: {message}" if key else message, ""
    return f"{key} = {problem['input']!r}: ", f"{message[0].lower()}{message[1:]}"


def _what_to_add(model: type[BaseModel], path: Sequence[str]) -> str:
    """Return the table, or the meaning of the option, that a recipe lacks."""
    *section, name = path
    members = [m.model_fields for m in _members(_at(model, section)) if issubclass(m, BaseModel)]
    field = next(m[name] for m in members if name in m and m[name].is_required())
    kinds = _members(field.annotation)
    if any(get_origin(kind) in (dict, Mapping) for kind in kinds):
        return f", add [{'.'.join(path)}.NAME]"
    if any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds):
        return f", add [{'.'.join(path)}]"
    return f" ({' '.join(field.description.split()).rstrip('.')})" if field.description else ""


def _as_array(given: Any) -> str:
    """Return how words that were given as one text are written as an array."""
    if not isinstance(given, str):
        return " in brackets"
    words = [word.strip(" '\"") for word in given.strip(" []").split(",")]
    return f", such as {json.dumps(words)}" if all(words) else " in brackets"


def _path(model: Any, place: Sequence[Any]) -> list[str]:
    """Return the keys of a place; pydantic names the alternatives of a union among them."""
    path: list[str] = []
    named = False  # whether the alternative of the present union was named already
    for part in place:
        members = [m for m in _members(model) if m is not type(None)]
        below = _below(model, str(part))
        if len(members) > 1 and isinstance(part, str) and below is None and not named:
            named = True
            continue
        named = False
        path.append(str(part))
        model = below
    return path


def _choice_at(model: Any, path: Sequence[str]) -> tuple[Choice, dict[str, type[BaseModel]]] | None:
    """Return how a section chooses its class, and the classes by name; None if it does not."""
    below, found = model, None
    for part in path:
        found = _field_choice(below, part)
        below = _below(below, part)
        found = found or _choice_of(below)
    if found is None:
        return None
    classes = {get_args(m.model_fields[found.by].annotation)[0]: m for m in _members(below)}
    return found, classes


def _field_choice(model: Any, name: str) -> Choice | None:
    """Return the choice that a field of a config declares."""
    for member in _members(model):
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


def _of_another_choice(
    model: type[BaseModel], path: Sequence[str], data: Mapping[str, Any]
) -> str | None:
    """Return the choice that lacks a key which another choice has, and the cure; None otherwise."""
    *section, name = path
    found = _choice_at(model, section)
    if found is None or not any(name in each.model_fields for each in found[1].values()):
        return None
    choice, classes = found
    tag = _tag(choice, _value(data, section))
    own = own_options(list(classes.values()))
    names = [key for key in classes[tag].model_fields if key in own and key != choice.by]
    takes = ", ".join(names) or "no such option"
    return f"{choice.by} = {tag!r}, which takes {takes}: leave {name} out"


def may_be(model: type[BaseModel], path: Sequence[str], data: Mapping[str, Any], name: str) -> bool:
    """Whether an option has a value of a name, in the class that its section chooses.

    Example:
        >>> from turnwise.losses.clipped import ClippedConfig
        >>> may_be(ClippedConfig, ["kl"], {}, "none"), may_be(ClippedConfig, ["kl"], {}, "k9")
        (True, False)
    """
    *section, last = path
    found, of = _choice_at(model, section), _at(model, section)
    if found is not None:
        of = found[1].get(_tag(found[0], _value(data, section)))
    return any(name in get_args(m) for m in _members(_below(of, last)) if get_origin(m) is Literal)


def is_unknown(model: type[BaseModel], path: Sequence[str]) -> bool:
    """Whether no class of a section has an option; keys that are free are known."""
    return bool(known := _keys_at(model, path[:-1])) and path[-1] not in known


def _example(model: type[BaseModel], path: Sequence[str], problem: Any) -> str:
    """Return a table that may be meant: the given number under the first key that takes it."""
    below = _at(model, path)
    models = [m for m in _members(below) if isinstance(m, type) and issubclass(m, BaseModel)]
    given = problem["input"]
    if str(given).lower() == "none" and type(None) in _members(below):
        return "or None, which leaves it out"
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
    return f"known: {', '.join(sorted(set(beside))) or 'none'}"


def _tag(choice: Choice, given: Any) -> str:
    return given.get(choice.by, choice.default) if isinstance(given, Mapping) else choice.default


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
    models = [m for m in _members(_at(model, path)) if isinstance(m, type)]
    return [name for m in models if issubclass(m, BaseModel) for name in m.model_fields]


def _at(model: Any, path: Sequence[str]) -> Any:
    for part in path:
        model = _below(model, part)
    return model


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


def one_of(table: Mapping[str, type[M]], *, by: str = "kind", default: str) -> Any:
    """Return the annotation of a section whose key `by` chooses its class (a discriminated union).

    Args:
        table: choice -> config class.
        by: the key that chooses; each class has it as a field of one literal value.
        default: the choice of a section without the key.

    Example:
        >>> from pydantic import create_model
        >>> from turnwise.losses.clipped import ClippedConfig
        >>> from turnwise.losses.gspo import GspoConfig
        >>> kinds = one_of({"clipped": ClippedConfig, "gspo": GspoConfig}, default="clipped")
        >>> Run = create_model("Run", __base__=Settings, loss=(kinds, ClippedConfig()))
        >>> parse(Run, {"loss": {"kind": "gspo"}}, "a run").loss.clip_high
        0.0004
        >>> parse(Run, {"loss": {"kind": "gspo", "dual_clip": 2.0}}, "a run")
        Traceback (most recent call last):
            ...
        turnwise.errors.ConfigError: a run: loss.dual_clip = 2.0 does not apply to kind = \
'gspo', which takes clip_low, clip_high: leave dual_clip out
    """

    def choice(given: Any) -> str:
        for name, config in table.items():
            if isinstance(given, config):
                return name
        found = given.get(by, default) if isinstance(given, Mapping) else default
        return found if isinstance(found, str) and found in table else _UNKNOWN

    chosen = Choice(by=by, default=default)
    if len(table) == 1:
        return Annotated[table[default], chosen]
    members = tuple(Annotated[config, Tag(name)] for name, config in table.items())
    union = Union[members]  # noqa: UP007
    return Annotated[union, Discriminator(choice), chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The key of a discriminated union (`one_of`), and its value where it is not given."""

    by: str
    default: str


def own_options(classes: Sequence[type[BaseModel]]) -> list[str]:
    """Return the options that some of `classes` have and others do not, or with another default.

    Example:
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


def make_one_of(
    table: Mapping[str, type[M]],
    options: Mapping[str, Any],
    what: str,
    *,
    by: str = "kind",
    default: str,
) -> M:
    """Return one config of a discriminated union from plain values; arguments as of `one_of`.

    Raises:
        ConfigError: if the choice or an option is wrong; `what` names the options in the message.
    """
    name = options.get(by, default)
    if name not in table:
        raise ConfigError(f"{what}: {unknown_name(by, str(name), table)}")
    for option in options:
        others = [other for other, each in table.items() if option in each.model_fields]
        if option not in table[name].model_fields and others:
            raise ConfigError(
                f"{what}: {option} = {options[option]!r} does not apply to {by} = {name!r}, only "
                f"to {', '.join(others)}: leave {option} out"
            )
    return parse(table[name], options, what)
