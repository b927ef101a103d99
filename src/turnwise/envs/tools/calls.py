"""Tool calls as actions: the form in which envs read and write them.

The form is the chat format of Qwen and Hermes models: a JSON object with `name` and `arguments`
between `<tool_call>` tags. A call is hostile input: it is parsed as JSON to a value or refused with
one sentence, and nothing in it is evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from turnwise.errors import IllegalActionError

OPEN, CLOSE = "<tool_call>", "</tool_call>"
LONGEST = 100_000
"""Longer calls, in characters, are not parsed."""
SHOWN = 40
"""The number of characters of a model's text that an error repeats."""
_CALL = re.compile(rf"{OPEN}(.*?)(?:{CLOSE}|\Z)", re.DOTALL)
_FORM = '{"name": ..., "arguments": {...}}'


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A parsed call: the name of the tool, and its arguments as JSON values, not yet validated.

    Example:
        >>> ToolCall(name="look", arguments={"chest": "amber"}).name
        'look'
    """

    name: str
    arguments: Mapping[str, Any]


def call_text(name: str, /, **arguments: Any) -> str:
    r"""Return the action that calls tool `name`; several calls are joined by newlines.

    The arguments may have any names, `name` among them.

    Example:
        >>> call_text("look", chest="amber")
        '<tool_call>\n{"name": "look", "arguments": {"chest": "amber"}}\n</tool_call>'
    """
    said = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False, allow_nan=False)
    return f"{OPEN}\n{said}\n{CLOSE}"


def calls_in(action: str) -> tuple[str, ...]:
    """Return the text of every call in `action`, unparsed; the last may lack its closing tag.

    Example:
        >>> calls_in(call_text("look") + call_text("pay", coins=2))[1]
        '{"name": "pay", "arguments": {"coins": 2}}'
        >>> calls_in("amber")
        ()
    """
    return tuple(found.strip() for found in _CALL.findall(action))


def read_call(text: str) -> ToolCall:
    """Return the call in `text`; some models write `parameters` instead of `arguments`.

    Raises:
        IllegalActionError: if it is not a JSON object with a name and arguments.

    Example:
        >>> read_call('{"name": "look", "arguments": {"chest": "amber"}}').arguments
        {'chest': 'amber'}
    """
    if len(text) > LONGEST:
        _refuse(f"the call has {len(text)} characters, at most {LONGEST} are read")
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite
        )
        text.encode()
        json.dumps(value, ensure_ascii=False).encode()  # an escape may give a lone surrogate
    except IllegalActionError:
        raise
    except UnicodeEncodeError:
        _refuse("the call holds half a character")
    except (ValueError, RecursionError):
        _refuse(f"{_short(text)} is no JSON: write {_FORM}")
    keys = set(value) if isinstance(value, dict) else set()
    if keys not in ({"name", "arguments"}, {"name", "parameters"}):
        _refuse(f"{_short(text)} is no call: write {_FORM}")
    (arguments,) = (value[key] for key in keys - {"name"})
    if not isinstance(value["name"], str) or not isinstance(arguments, dict):
        _refuse(f"{_short(text)}: the name must be text and the arguments an object: write {_FORM}")
    return ToolCall(name=value["name"], arguments=arguments)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        _refuse("a key stands twice in the call")
    return found


def _no_number(name: str) -> NoReturn:
    _refuse(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if abs(value) != float("inf") else _refuse(f"{_short(digits)} is no finite number")


def _refuse(sentence: str) -> NoReturn:
    raise IllegalActionError(sentence)


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
