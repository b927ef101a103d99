"""Detection of values that an env changes in place: states, tasks and rewards.

Provides `Snapshot`. A new attribute of an object (a cached property) is no change.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

NOT_PICKLED = (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError)
MOST = 200_000
"""The largest number of objects inspected in a value that cannot be pickled."""


class Snapshot:
    """A copy of a value at one time, to compare the value with later.

    Example:
        >>> state = {"hits": [1]}
        >>> before = Snapshot(state)
        >>> before.holds(state)
        True
        >>> state["hits"].append(2)
        >>> before.holds(state)
        False
    """

    def __init__(self, value: Any) -> None:
        self._pickled = _pickled(value)
        self._walked = None if self._pickled is not None else _walked(value)

    def holds(self, value: Any) -> bool:
        """Whether `value` is unchanged."""
        if self._pickled is None:
            return _kept(self._walked, _walked(value))
        if _pickled(value) == self._pickled:
            return True
        try:  # pickles also differ by cached attributes and by identity
            before = pickle.loads(self._pickled)
        except (*NOT_PICKLED, ImportError, LookupError):
            return False
        return _kept(_walked(before), _walked(value))


def _pickled(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except NOT_PICKLED:
        return None


def _walked(value: Any) -> Any:
    """Return a value as nested tuples and dicts that share no objects with it."""
    return _walk(value, set(), [MOST])


def _walk(value: Any, seen: set[int], left: list[int]) -> Any:
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        return type(value).__name__, repr(value)
    left[0] -= 1
    if id(value) in seen or left[0] < 0:
        return "seen"
    seen.add(id(value))
    kind = type(value).__name__
    if isinstance(value, type | ModuleType | FunctionType):
        return "code", id(value)
    if isinstance(value, np.ndarray):
        raw = repr(value.tolist()) if value.dtype.hasobject else value.tobytes()
        return kind, str(value.dtype), value.shape, raw
    if isinstance(value, np.random.Generator):
        return kind, repr(value.bit_generator.state)
    if isinstance(value, Mapping):
        return kind, [(_walk(k, seen, left), _walk(v, seen, left)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return kind, [_walk(each, seen, left) for each in value]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(each) for each in value)
    return kind, {name: _walk(each, seen, left) for name, each in _attributes(value).items()}


def _attributes(value: Any) -> dict[str, Any]:
    found = dict(vars(value)) if hasattr(value, "__dict__") else {}
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


def _kept(before: Any, after: Any) -> bool:
    """Whether nothing is missing or different; objects may have new attributes."""
    if isinstance(before, dict) and isinstance(after, dict):
        return all(name in after and _kept(before[name], after[name]) for name in before)
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        return len(before) == len(after) and all(map(_kept, before, after))
    return bool(before == after)
