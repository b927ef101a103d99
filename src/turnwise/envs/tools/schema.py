"""The JSON schema of a tool and the validation of its arguments, from a typed method.

The schema has the dialect of `transformers.utils.get_json_schema` (type hints and a Google
docstring). Arguments are validated against the same type hints.
"""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NoReturn, Union

from pydantic import ConfigDict, TypeAdapter, ValidationError

from turnwise.errors import ConfigError, IllegalActionError

SCALARS: dict[Any, str] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    type(None): "null",
}
PLAIN: dict[Any, str] = SCALARS | {list: "array", tuple: "array", dict: "object"}
TYPES = "int, float, str, bool, Literal, Enum, and list, dict, tuple and unions of them"
NOISE = "noise"
"""The parameter of a tool that gets the random generator; models do not see it."""
_SECTION = re.compile(r"^[ \t]*(Args|Returns|Raises|Example|Examples|Note|Yields):[ \t]*$", re.M)
_ARGUMENT = re.compile(r"(\w+)(?: \([^)]*\))?:\s*(.*)", re.DOTALL)
_CHOICES = re.compile(r"\(choices:\s*(.*?)\)\s*$", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tool:
    """A typed method that models may call.

    `schema` is shown by a chat template. `hints` are the types of the arguments, `required` those
    without a default, and `noisy` says whether the method takes the random generator.
    """

    name: str
    method: Callable[..., Any]
    schema: Mapping[str, Any]
    hints: Mapping[str, Any]
    required: tuple[str, ...]
    noisy: bool
    readers: Mapping[str, TypeAdapter[Any]]

    @property
    def text(self) -> str:
        """The schema as JSON."""
        return json.dumps(self.schema, ensure_ascii=False)

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with the method's types; only whole numbers become floats.

        Raises:
            IllegalActionError: if one is missing, unknown or of another type.
        """
        unknown = [name for name in given if name not in self.hints]
        takes = ", ".join(self.hints) or "nothing"
        if unknown:
            raise IllegalActionError(f"{self.name} has no argument {unknown[0][:40]!r}: {takes}")
        missing = [name for name in self.required if name not in given]
        if missing:
            raise IllegalActionError(f"{self.name} needs the argument {missing[0]!r}")
        return {name: self._value(name, value) for name, value in given.items()}

    def _value(self, name: str, value: Any) -> Any:
        try:
            return self.readers[name].validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            what = error.errors()[0]["msg"]
        except (ValueError, RecursionError):
            what = "the value is too large"
        raise IllegalActionError(f"{self.name}: {name}: {what}") from None


def make_tool(method: Callable[..., Any], owner: str) -> Tool:
    """Return the tool made from a method `(self, state, ...)`.

    Args:
        method: the function in the body of its class.
        owner: the class, for messages.

    Raises:
        ConfigError: if it takes no state or is async, if a parameter has no type hint, an
            unsupported one or no description, or if the method has no description.
    """
    name, where = method.__name__, f"{owner}.{method.__name__}"
    parameters = list(inspect.signature(method).parameters.values())
    _check_state(method, where)
    own = [p for p in parameters[2:] if p.name != NOISE]
    hints = _hints(method, where)
    _check_noise(method, where)
    said, described, returned = read_docstring(inspect.getdoc(method) or "")
    if not said:
        _refuse(where, "has no docstring", "say in one what the tool does")
    properties: dict[str, Any] = {}
    for parameter in own:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            _refuse(where, f"has the parameter {parameter}", "name every argument")
        if parameter.name not in hints:
            _refuse(where, f"has no type hint for {parameter.name!r}", "write one")
        if not described.get(parameter.name):
            cure = f"add `{parameter.name}: ...` under `Args:`"
            _refuse(where, f"does not describe {parameter.name!r} in its docstring", cure)
        place, said_of_it = f"{where}, {parameter.name!r},", described[parameter.name]
        schema = schema_of(hints[parameter.name], place)
        properties[parameter.name] = _described(schema, said_of_it, place)
    required = tuple(p.name for p in own if p.default is p.empty)
    shape = {"type": "object", "properties": properties}
    function: dict[str, Any] = {"name": name, "description": said, "parameters": shape}
    if required:
        shape["required"] = list(required)
    back = _returned(hints)
    if back is not None:
        function["return"] = back | ({"description": returned} if returned else {})
    kinds = {parameter.name: hints[parameter.name] for parameter in own}
    config = ConfigDict(allow_inf_nan=False)
    return Tool(
        name=name,
        method=method,
        schema={"type": "function", "function": function},
        hints=kinds,
        required=required,
        noisy=any(parameter.name == NOISE for parameter in parameters[2:]),
        readers={key: TypeAdapter(kind, config=config) for key, kind in kinds.items()},
    )


def schema_of(hint: Any, where: str) -> dict[str, Any]:
    """Return the JSON schema of a type hint, as transformers writes it.

    Raises:
        ConfigError: for a hint without a JSON type.

    Example:
        >>> schema_of(list[int] | None, "f, 'x'")
        {'type': 'array', 'items': {'type': 'integer'}, 'nullable': True}
    """
    origin = typing.get_origin(hint)
    args: list[Any] = list(typing.get_args(hint))
    if hint is Any:
        return {}
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum([member.value for member in hint], where)
    if origin is Literal:
        return _enum(args, where)
    if origin is Union or origin is types.UnionType:
        return _union(args, where)
    if origin is list:
        return {"type": "array", "items": schema_of(args[0], where)}
    if origin is tuple and len(args) > 1 and ... not in args:
        return {"type": "array", "prefixItems": [schema_of(arg, where) for arg in args]}
    if origin is dict and args[0] is str:
        return {"type": "object", "additionalProperties": schema_of(args[1], where)}
    _refuse(where, f"has the type {hint!r}", f"use {TYPES}")


def read_docstring(text: str) -> tuple[str, dict[str, str], str]:
    r"""Return the parts of a Google docstring: summary, arguments, and return value.

    Example:
        >>> read_docstring("Add.\n\nArgs:\n    a: one\n        number\n    b: another")
        ('Add.', {'a': 'one number', 'b': 'another'}, '')
    """
    pieces = _SECTION.split(text)
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    arguments: dict[str, str] = {}
    for entry in _entries(sections.get("Args", "")):
        found = _ARGUMENT.fullmatch(entry)
        if found:
            arguments[found[1]] = re.sub(r"\s*\n+\s*", " ", found[2].strip())
    return pieces[0].strip(), arguments, inspect.cleandoc(sections.get("Returns", ""))


def _entries(section: str) -> list[str]:
    """Return the entries of a section; a line with deeper indentation continues an entry."""
    lines = [line for line in section.splitlines() if line.strip()]
    if not lines:
        return []
    depth = min(len(line) - len(line.lstrip()) for line in lines)
    entries: list[str] = []
    for line in lines:
        if line[depth:].startswith((" ", "\t")) and entries:
            entries[-1] += f"\n{line.strip()}"
        else:
            entries.append(line.strip())
    return entries


def _described(schema: dict[str, Any], said: str, where: str) -> dict[str, Any]:
    """Return a parameter's schema with its description."""
    if _CHOICES.search(said):  # transformers shows them to the model, but they are not validated
        _refuse(where, "names its choices in the docstring", "write the type Literal[...] instead")
    return schema | {"description": said}


def _enum(values: list[Any], where: str) -> dict[str, Any]:
    kinds = list(dict.fromkeys(SCALARS[type(v)] for v in values if type(v) in SCALARS))
    if not values or any(type(value) not in SCALARS for value in values):
        _refuse(where, f"may be one of {values!r}", "let every choice be text, a number or a bool")
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def _union(args: list[Any], where: str) -> dict[str, Any]:
    parts = [schema_of(arg, where) for arg in args if arg is not type(None)]
    if len(parts) == 1:
        found = parts[0]
    elif all(part.keys() == {"type"} and isinstance(part["type"], str) for part in parts):
        names = sorted({part["type"] for part in parts})
        found = {"type": names[0] if len(names) == 1 else names}
    else:
        found = {"anyOf": parts}
    return found | ({"nullable": True} if type(None) in args else {})


def _hints(method: Callable[..., Any], where: str) -> dict[str, Any]:
    """Return the type hints of the arguments and the result; the state may have any type."""
    kept = [*list(inspect.signature(method).parameters)[2:], "return"]
    shown = {k: v for k, v in method.__annotations__.items() if k in kept and k != NOISE}
    plain = types.SimpleNamespace(__annotations__=shown)
    try:
        return typing.get_type_hints(plain, globalns=method.__globals__)
    except (NameError, TypeError) as error:
        _refuse(where, f"has a type hint that cannot be read ({error})", "import what it names")


def _check_state(method: Callable[..., Any], where: str) -> None:
    """Refuse a method whose first parameter is not the state, or that is async."""
    cure = f"begin it as `def {method.__name__}(self, state, ...)`"
    first = list(inspect.signature(method).parameters)[1:2]
    if not first:
        _refuse(where, "takes no state", cure)
    hint = method.__annotations__.get(first[0])
    if hint in PLAIN or hint in {kind.__name__ for kind in PLAIN}:
        _refuse(where, f"takes {first[0]!r} where the state comes", cure)
    if inspect.iscoroutinefunction(method):
        cure = "write def; with blocking = True on the env, steps of episodes wait side by side"
        _refuse(where, "is async", cure)


def _check_noise(method: Callable[..., Any], where: str) -> None:
    """Refuse a parameter `noise` that is meant as an argument of the call."""
    hint = method.__annotations__.get(NOISE)
    if hint in PLAIN or hint in {kind.__name__ for kind in PLAIN}:
        cure = "it is handed the world's generator: call the argument otherwise"
        _refuse(where, f"has a parameter {NOISE!r} of a type that models give", cure)


def _returned(hints: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the result, None if its hint has none."""
    if "return" not in hints:
        return None
    try:
        return schema_of(hints["return"], "")
    except ConfigError:
        return None


def _refuse(where: str, what: str, cure: str) -> NoReturn:
    raise ConfigError(f"tool {where} {what}: {cure}")
