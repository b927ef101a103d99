"""The strict base class of every config, and its error messages.

Provides `Settings`, `parse`, and `one_of` for discriminated unions. An unknown key is an error with
the nearest known key.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union, get_origin

from pydantic import BaseModel, ConfigDict, Discriminator, Tag, ValidationError

from turnwise.errors import ConfigError, unknown_name
from turnwise.option_paths import (
    Choice,
    choice_at,
    chosen_name,
    full_keys,
    keys_at,
    members_of,
    own_options,
    type_at,
    type_below,
    value_at,
)

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
        found = choice_at(model, path)
        assert found is not None, "only `one_of` makes tagged unions"
        name, where = problem["input"].get(found[0].by), ".".join([*path, found[0].by])
        return str(unknown_name(where, str(name), found[1])), ""
    if problem["type"] == "missing" and isinstance(problem["loc"][-1], int):
        return f"{'.'.join(path[:-1])} = {problem['input']!r}: ", "expected more values"
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
    members = [
        m.model_fields for m in members_of(type_at(model, section)) if issubclass(m, BaseModel)
    ]
    field = next(m[name] for m in members if name in m and m[name].is_required())
    kinds = members_of(field.annotation)
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
        members = [m for m in members_of(model) if m is not type(None)]
        below = type_below(model, str(part))
        if len(members) > 1 and isinstance(part, str) and below is None and not named:
            named = True
            continue
        named = False
        path.append(str(part))
        model = below
    return path


def _of_another_choice(
    model: type[BaseModel], path: Sequence[str], data: Mapping[str, Any]
) -> str | None:
    """Return the choice that lacks a key which another choice has, and the cure; None otherwise."""
    *section, name = path
    found = choice_at(model, section)
    if found is None or not any(name in each.model_fields for each in found[1].values()):
        return None
    choice, classes = found
    tag = chosen_name(choice, value_at(data, section))
    own = own_options(list(classes.values()))
    names = [key for key in classes[tag].model_fields if key in own and key != choice.by]
    takes = ", ".join(names) or "no such option"
    return f"{choice.by} = {tag!r}, which takes {takes}: leave {name} out"


def _example(model: type[BaseModel], path: Sequence[str], problem: Any) -> str:
    """Return a table that may be meant: the given number under the first key that takes it."""
    below = type_at(model, path)
    models = [m for m in members_of(below) if isinstance(m, type) and issubclass(m, BaseModel)]
    given = problem["input"]
    if str(given).lower() == "none" and type(None) in members_of(below):
        return "or None, which leaves it out"
    for name, field in ((n, f) for m in models for n, f in m.model_fields.items()):
        kinds = members_of(field.annotation)
        if type(given) in kinds and not isinstance(given, bool):
            return f"such as {{{name} = {json.dumps(given)}}}"
    names = [name for m in models for name in m.model_fields]
    return f"with any of {', '.join(names)}" if names else "{...}"


def _cure(
    model: type[BaseModel], path: list[str], data: Mapping[str, Any], aliases: Mapping[str, str]
) -> str:
    """Return which key may be meant: by a like name beside it, or by its last part elsewhere."""
    last, beside = path[-1].lower(), keys_at(model, path[:-1])
    is_table = isinstance(value_at(data, path), Mapping)  # no single setting can be meant then
    near = difflib.get_close_matches(last, beside, n=1, cutoff=0.6 if is_table else 0.8)
    if near:
        return f"did you mean {'.'.join([*path[:-1], near[0]])!r}?"
    full = list(full_keys(model, data))
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
