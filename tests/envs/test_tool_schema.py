"""The schema of a tool equals the one that transformers makes; type hints check the calls."""

from __future__ import annotations

import types
from enum import Enum
from typing import Any, Literal, Optional

import pytest
from transformers.utils import get_json_schema

from turnwise.envs import ToolEnv, ToolResult, tool
from turnwise.envs.tools.env import tools_of
from turnwise.envs.tools.schema import make_tool
from turnwise.errors import ConfigError, IllegalActionError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def buy(self, state, item: str, count: int = 1) -> int:
    """Buy something, more than
    one if there is money.

    Args:
        state: No model sees it.
        item: What is bought,
            by its name.
        count: How many.

    Returns:
        What is left.

    Raises:
        IllegalActionError: if there is none.
    """
    return state.money - count


def paint(self, state, colour: Colour, size: Literal[1, 2, 3], where: tuple[int, float], noise):
    """Paint.

    Args:
        colour: Which colour.
        size: How large.
        where: Where it begins.
    """
    return "done"


def tell(self, state, words: list[str], marks: dict[str, float], loud: bool, more: Any) -> str:
    """Say words.

    Args:
        words: The words.
        marks: What each is worth.
        loud: Whether to shout.
        more: Anything.
    """
    return " ".join(words)


def find(self, state, key: int | str, near: Optional[float] = None, of: list[int] | None = None):  # noqa: UP045
    """Find a thing.

    Args:
        key: Its number or name.
        near: Where to begin.
        of: Among which.
    """
    return key


def wait(self, state) -> ToolResult:
    """Do nothing."""
    return ToolResult(value="")


def plain(method):
    """Return the function that a user of transformers would have written instead of a method."""
    hidden = ("self", "state", "noise")
    code = method.__code__
    names = [n for n in code.co_varnames[: code.co_argcount] if n not in hidden]
    defaults = dict(zip(reversed(names), reversed(method.__defaults__ or ()), strict=False))
    shown = ", ".join(f"{n}=defaults[{n!r}]" if n in defaults else n for n in names)
    space = {"defaults": defaults}
    exec(f"def {method.__name__}({shown}): ...", space)
    function = space[method.__name__]
    function.__annotations__ = {
        name: hint for name, hint in method.__annotations__.items() if name not in hidden
    }
    made = types.FunctionType(
        function.__code__, method.__globals__, method.__name__, function.__defaults__
    )
    made.__annotations__, made.__doc__ = function.__annotations__, method.__doc__
    return made


def squeezed(value):
    """Return a schema with every run of blanks as one: docstrings are indented."""
    if isinstance(value, dict):
        return {key: squeezed(inner) for key, inner in value.items()}
    return " ".join(value.split()) if isinstance(value, str) else value


@pytest.mark.parametrize("method", [buy, paint, tell, find, wait])
def test_the_schema_is_that_of_transformers(method):
    own = make_tool(method, "Shop").schema
    theirs = get_json_schema(plain(method))
    assert squeezed(own) == squeezed(theirs)
    keys = list(own["function"]["parameters"]["properties"])
    assert keys == list(theirs["function"]["parameters"]["properties"])


def test_the_schema_in_words():
    found = make_tool(buy, "Shop")
    assert (found.name, found.required, found.noisy) == ("buy", ("item",), False)
    function = found.schema["function"]
    assert function["description"] == "Buy something, more than\none if there is money."
    assert function["parameters"]["properties"] == {
        "item": {"type": "string", "description": "What is bought, by its name."},
        "count": {"type": "integer", "description": "How many."},
    }
    assert function["return"] == {"type": "integer", "description": "What is left."}
    assert make_tool(paint, "Shop").noisy


@pytest.mark.parametrize(
    ("method", "given", "read"),
    [
        (buy, {"item": "tea"}, {"item": "tea"}),
        (buy, {"item": "tëa ☕", "count": 2}, {"item": "tëa ☕", "count": 2}),
        (buy, {"item": "", "count": -(10**40)}, {"item": "", "count": -(10**40)}),
        (paint, {"colour": "red", "size": 2, "where": [1, 2]},
         {"colour": Colour.RED, "size": 2, "where": (1, 2.0)}),
        (tell, {"words": [], "marks": {"a": 1}, "loud": False, "more": {"x": [None]}},
         {"words": [], "marks": {"a": 1.0}, "loud": False, "more": {"x": [None]}}),
        (find, {"key": "3", "near": None}, {"key": "3", "near": None}),
        (find, {"key": 3, "of": [1]}, {"key": 3, "of": [1]}),
    ],
)  # fmt: skip
def test_arguments_are_read_as_their_types(method, given, read):
    assert make_tool(method, "Shop").read(given) == read


@pytest.mark.parametrize(
    ("method", "given", "sentence"),
    [
        (buy, {}, "buy needs the argument 'item'"),
        (buy, {"item": "tea", "self": 1}, "buy has no argument 'self': item, count"),
        (buy, {"item": "tea", "state": 1}, "no argument 'state'"),
        (buy, {"item": "tea", "__class__": 1}, "no argument '__class__'"),
        (paint, {"noise": 1}, "paint has no argument 'noise'"),
        (wait, {"long": True}, "wait has no argument 'long': nothing"),
        (buy, {"item": 3}, "item: Input should be a valid string"),
        (buy, {"item": None}, "item: Input should be a valid string"),
        (buy, {"item": ["tea"]}, "item: Input should be a valid string"),
        (buy, {"item": "tea", "count": "2"}, "count: Input should be a valid integer"),
        (buy, {"item": "tea", "count": 2.5}, "count: Input should be a valid integer"),
        (buy, {"item": "tea", "count": True}, "count: Input should be a valid integer"),
        (paint, {"colour": "green", "size": 1, "where": [1, 2]}, "'red' or 'blue'"),
        (paint, {"colour": "red", "size": 4, "where": [1, 2]}, "size: Input should be 1, 2 or 3"),
        (paint, {"colour": "red", "size": 1, "where": [1]}, "where: Field required"),
        (paint, {"colour": "red", "size": 1, "where": [1, 2, 3]}, "where: Tuple should have at"),
        (tell, {"words": "ab", "marks": {}, "loud": True, "more": 0}, "words: Input should be"),
        (tell, {"words": [], "marks": {"a": float("inf")}, "loud": True, "more": 0}, "marks: "),
        (tell, {"words": [], "marks": {}, "loud": 1, "more": 0}, "loud: Input should be"),
    ],
)
def test_arguments_of_another_type_are_refused(method, given, sentence):
    with pytest.raises(IllegalActionError) as refusal:
        make_tool(method, "Shop").read(given)
    assert sentence in str(refusal.value)


def no_hint(self, state, item):
    """Look.

    Args:
        item: What.
    """


def no_doc(self, state, item: str): ...


def not_described(self, state, item: str, count: int):
    """Look.

    Args:
        item: What.
    """


def odd_type(self, state, item: set[str]):
    """Look.

    Args:
        item: What.
    """


def numbered(self, state, item: dict[int, str]):
    """Look.

    Args:
        item: What.
    """


def unknown_type(self, state, item: Nowhere):  # noqa: F821
    """Look.

    Args:
        item: What.
    """


def many(self, state, *items: str):
    """Look.

    Args:
        items: What.
    """


def choices(self, state, item: str):
    """Look.

    Args:
        item: What. (choices: ["tea", "milk"])
    """


def no_state(self):
    """Look."""


def state_forgotten(self, item: str):
    """Look.

    Args:
        item: What.
    """


async def awaited(self, state):
    """Look."""


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (no_hint, "tool Shop.no_hint has no type hint for 'item': write one"),
        (no_doc, "tool Shop.no_doc has no docstring: say in one what the tool does"),
        (not_described, "does not describe 'count' in its docstring: add `count: ...` under"),
        (odd_type, "'item', has the type set[str]: use int, float, str, bool, Literal, Enum"),
        (numbered, "has the type dict[int, str]: use"),
        (unknown_type, "cannot be read (name 'Nowhere' is not defined): import what it names"),
        (many, "has the parameter *items"),
        (choices, "names its choices in the docstring: write the type Literal[...] instead"),
        (no_state, "takes no state: begin it as `def no_state(self, state, ...)`"),
        (
            state_forgotten,
            "takes 'item' where the state comes: begin it as `def state_f",
        ),
        (awaited, "tool Shop.awaited is async: write def; with blocking = True"),
    ],
)
def test_a_method_that_no_model_could_call_is_refused_when_the_env_is_made(method, sentence):
    shop = type("Shop", (ToolEnv,), {method.__name__: tool(method)})
    with pytest.raises(ConfigError) as refusal:
        tools_of(shop)
    assert sentence in str(refusal.value)
