"""Comparison of a program's value with the expected one.

Provides `is_same`, `Tolerance` and `as_plain`. Values have plain types, so that no value brings its
own equality. The type of the expected value decides: a tolerance applies only to floats.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from turnwise.errors import RewardError
from turnwise.sandbox.inside.wire import DEEPEST, LARGEST_INTEGER

CLOSE = 1e-6
"""Default relative tolerance of an expected float."""
NEAR_ZERO = 1e-12
"""Default absolute tolerance of an expected 0.0, for which no relative distance exists."""


WHOLE = 2**53
"""Larger ints are compared with floats exactly, because such floats are whole numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """The largest difference of a number from an expected float.

    `relative` is a share of the expected float's size. `absolute` is a distance; None is
    `NEAR_ZERO` for an expected 0.0, and 0 otherwise.

    Example:
        >>> Tolerance().allows(0.0, 3e-7), Tolerance(absolute=1e-6).allows(0.0, 3e-7)
        (False, True)
    """

    relative: float = CLOSE
    absolute: float | None = None

    def allows(self, value: float, expected: float) -> bool:
        """Return whether `value` is within the tolerance of the expected float."""
        if not math.isfinite(expected) or (isinstance(value, int) and abs(value) > WHOLE):
            return value == expected
        absolute = self.absolute
        if absolute is None:
            absolute = 0.0 if expected else NEAR_ZERO
        return abs(value - expected) <= max(self.relative * abs(expected), absolute)


EXACT = Tolerance()
_READ: tuple[tuple[type, Any], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
    (bytes, bytes.__bytes__),
)
"""Type -> function that makes an instance of a subclass, such as an enum's member, plain."""


def is_same(value: Any, expected: Any, tolerance: Tolerance = EXACT) -> bool:
    """Return whether a program's plain value is the expected one.

    An expected int is met by a number of exactly that value, an expected float by a number within
    the tolerance, an expected complex number part by part. A bool is met by that bool only. Lists
    and tuples are alike, and so are arrays and lists of their numbers, sets and frozensets. Keys of
    dicts are compared exactly.

    Example:
        >>> is_same((1, 2.0), [1.0, 2]), is_same(True, 1), is_same(1e9, 1000000007)
        (True, False, False)
        >>> is_same(0.30000000000000004, 0.3), is_same(float("nan"), float("nan"))
        (True, False)
    """
    value, expected = _parted(value), _unpacked(expected)
    if isinstance(expected, list | tuple):
        return (
            isinstance(value, list | tuple | np.ndarray)
            and len(value) == len(expected)
            and all(is_same(v, e, tolerance) for v, e in zip(value, expected, strict=True))
        )
    if isinstance(expected, dict):
        return isinstance(value, dict) and _same_dict(value, expected, tolerance)
    if isinstance(expected, set | frozenset):
        return isinstance(value, set | frozenset) and _same_set(value, expected, tolerance)
    if isinstance(expected, bool) or isinstance(value, bool):
        return value is expected
    if isinstance(expected, int):
        return isinstance(value, int | float) and value == expected
    if isinstance(expected, float):
        return isinstance(value, int | float) and tolerance.allows(value, expected)
    if isinstance(expected, complex):
        return isinstance(value, int | float | complex) and _same_complex(
            value, expected, tolerance
        )
    return type(value) is type(expected) and value == expected


def as_plain(value: Any, where: str, depth: int = 0) -> Any:
    """Return an expected value as the plain value to compare with.

    As in the values of programs, numpy's numbers become Python's, a Decimal or Fraction an int if
    it is whole and else a float, a Counter or defaultdict a dict, a deque or range a list.

    Raises:
        RewardError: for any other type, for nan, which no value equals, and for values that are
            nested too deep or too large for the sandbox.
    """
    value = _unpacked(value)
    if depth >= DEEPEST:
        raise RewardError(f"{where}: nested to {DEEPEST} levels, which no program can return")
    if isinstance(value, Decimal | Fraction):
        finite = not isinstance(value, Decimal) or value.is_finite()
        value = int(value) if finite and value == int(value) else float(value)
    if isinstance(value, int) and not -LARGEST_INTEGER < value < LARGEST_INTEGER:
        raise RewardError(f"{where}: an int of more than 4300 digits, which no program can return")
    if isinstance(value, float | complex) and value != value:
        raise RewardError(f"{where}: nan equals no value: test for it with `after`, math.isnan")
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return value
    below = depth + 1
    if isinstance(value, Mapping):
        return {as_plain(k, where, below): as_plain(v, where, below) for k, v in value.items()}
    if isinstance(value, list | deque | range):
        return [as_plain(part, where, below) for part in value]
    for kind in (tuple, frozenset, set):
        if isinstance(value, kind):
            return kind(as_plain(part, where, below) for part in value)
    for kind, read in _READ:
        if isinstance(value, kind):
            return read(value)
    raise RewardError(
        f"{where}: got a {type(value).__name__}, which no program can return: use None, numbers, "
        "text, bytes, lists, tuples, dicts, sets or numpy's arrays of numbers"
    )


def _unpacked(value: Any) -> Any:
    """Return arrays as lists and numpy's numbers as Python's."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _parted(value: Any) -> Any:
    """Return an array of one dimension as a list, and numpy's numbers as Python's.

    Other arrays are compared part by part, as far as the expected value goes: an empty one may
    have more rows than there is memory for lists, and one of many dimensions more lists than bytes.
    """
    return value if isinstance(value, np.ndarray) and value.ndim > 1 else _unpacked(value)


def _same_complex(value: Any, expected: complex, tolerance: Tolerance) -> bool:
    """Compare by the distance in the complex plane, so that a part near 0 needs no tolerance."""
    if not (math.isfinite(expected.real) and math.isfinite(expected.imag)):
        return value == expected
    try:
        return tolerance.allows(abs(complex(value) - expected) + abs(expected), abs(expected))
    except OverflowError:
        return False


def _same_dict(value: dict[Any, Any], expected: dict[Any, Any], tolerance: Tolerance) -> bool:
    if len(value) != len(expected):
        return False
    ours = {_name(key): part for key, part in value.items()}
    theirs = {_name(key): part for key, part in expected.items()}
    return ours.keys() == theirs.keys() and all(
        is_same(ours[name], part, tolerance) for name, part in theirs.items()
    )


def _same_set(value: Any, expected: Any, tolerance: Tolerance) -> bool:
    """Compare the members exactly, and remaining numbers in order with the tolerance."""
    if len(value) != len(expected):
        return False
    ours, theirs = ({_name(part): part for part in parts} for parts in (value, expected))
    left = [part for name, part in ours.items() if name not in theirs]
    wanted = [part for name, part in theirs.items() if name not in ours]
    if any(type(part) not in (int, float) or part != part for part in [*left, *wanted]):
        return False
    pairs = zip(sorted(left), sorted(wanted), strict=True)
    return all(is_same(part, other, tolerance) for part, other in pairs)


def _name(key: Any) -> str:
    """Return a text that is equal only for equal keys, where True differs from 1.

    Texts are compared instead of keys, because a program may choose keys with one hash, whose
    comparison takes quadratic time.
    """
    key = _unpacked(key)
    if isinstance(key, list | tuple):
        return f"({','.join(map(_name, key))})"
    if isinstance(key, set | frozenset):
        return f"{{{','.join(sorted(map(_name, key)))}}}"
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return f"number {hex(key)}"
    return f"{type(key).__name__} {key!r}"
