"""Random values for the arguments of tools, by type, for random play.

Provides `random_value` for the types that `schema` accepts.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from enum import Enum
from typing import Any, Literal, Union

import numpy as np

LARGEST = 10
"""Random numbers are at least 0 and less than this."""
LONGEST = 3
"""The largest number of elements of a random list or dict."""


def random_value(hint: Any, words: Sequence[str], rng: np.random.Generator) -> Any:
    """Return a random JSON value of a type hint.

    Args:
        hint: a type that `schema_of` accepts.
        words: the words of random text; "?" if there are none.
        rng: the random generator.

    Example:
        >>> random_value(list[bool], (), np.random.default_rng(0))
        [True, True, False]
    """
    origin, args = typing.get_origin(hint), list(typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _one_of([member.value for member in hint], rng)
    if origin is Literal:
        return _one_of(args, rng)
    if origin is Union or origin is types.UnionType:
        return random_value(_one_of(args, rng), words, rng)
    if origin is tuple:
        return [random_value(arg, words, rng) for arg in args]
    if hint is type(None):
        return None
    if hint is bool:
        return bool(rng.integers(2))
    if hint is int:
        return int(rng.integers(LARGEST))
    if hint is float:
        return round(float(rng.random()) * LARGEST, 2)
    if hint in (list, tuple) or origin is list:
        part = args[0] if args else str
        return [random_value(part, words, rng) for _ in range(rng.integers(LONGEST + 1))]
    if hint is dict or origin is dict:
        part = args[1] if args else str
        keys = [_word(words, rng) for _ in range(rng.integers(LONGEST + 1))]
        return {key: random_value(part, words, rng) for key in keys}
    return _word(words, rng)


def _word(words: Sequence[str], rng: np.random.Generator) -> str:
    return _one_of(words, rng) if words else "?"


def _one_of(values: Sequence[Any], rng: np.random.Generator) -> Any:
    return values[int(rng.integers(len(values)))]
