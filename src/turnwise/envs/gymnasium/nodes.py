"""The `Kind` of each Python type whose objects can be saved and restored in place.

The content of an object is saved separately from the objects that it refers to. Identity is kept,
so views, aliases, closures and weak references stay valid. Unlisted types whose memory Python does
not expose (generators, files, objects of C libraries) raise `NotCopiedError`.
"""

from __future__ import annotations

import gc
import operator
import threading
import types
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from turnwise.envs.gymnasium.contents import (
    ATOMS,
    FIXED,
    KINDS,
    MISSING,
    Kind,
    NotCopiedError,
    Taken,
    add_torch,
)

_HEAP, _POINTER = 1 << 9, 8


def kind_of(thing: Any) -> Kind | None:
    """Return the kind of an object; None for an immutable one.

    Raises:
        NotCopiedError: if its content cannot be saved.
    """
    found = _kind_of_type(type(thing))
    if isinstance(found, str):
        raise NotCopiedError(thing, found)
    return found


@cache
def _kind_of_type(kind: type) -> Kind | str | None:
    if kind in KINDS:
        return KINDS[kind]
    if kind in ATOMS or (issubclass(kind, FIXED) and kind is not np.void):
        ATOMS.add(kind)
        return None
    if issubclass(kind, threading.Thread):
        return "a thread"
    if package_of(kind) == "torch":
        add_torch()
    base = _solid_base(kind)
    if base in KINDS:
        return KINDS[base] if base is kind else _object_kind(kind, KINDS[base])
    if base is object or base in ATOMS:
        return _object_kind(kind, None)
    return "its content is not open to Python"


def references(nodes: Sequence[Any]) -> list[Any]:
    """Return all objects that `nodes` refer to, in order, including the keys of dicts.

    It is fast enough for comparisons. Python's collector does not report the keys of dicts of
    strings.
    """
    found = gc.get_referents(*nodes)
    found += chain.from_iterable(map(dict.keys, [node for node in nodes if isinstance(node, dict)]))
    return found


def same_references(nodes: Sequence[Any], before: Sequence[Any]) -> bool:
    """Whether `nodes` refer to the very same objects in the same order as `before`."""
    now = references(nodes)
    return len(now) == len(before) and all(map(operator.is_, now, before))


def package_of(kind: type) -> str:
    """Return the top-level package of a class; some types of C libraries have none."""
    try:
        return kind.__module__.partition(".")[0]
    except AttributeError:
        return ""


def _solid_base(kind: type) -> type:
    """Return the first base written in C: the classes above it add attributes and slots only."""
    while kind.__flags__ & _HEAP and kind not in KINDS:
        base = kind.__base__
        assert base is not None
        own = vars(kind)
        slots = sum(isinstance(v, types.MemberDescriptorType) for v in _slots(kind).values())
        most = slots + ("__dict__" in own) + ("__weakref__" in own)
        added = (kind.__basicsize__ - base.__basicsize__) // _POINTER
        if not slots <= added <= most and added:
            return kind
        if slots != len(_slots(kind)) or "__module__" not in own:
            return kind
        kind = base
    return kind


def _slots(kind: type) -> dict[str, Any]:
    names = vars(kind).get("__slots__", ())
    found = {}
    for name in (names,) if isinstance(names, str) else tuple(names):
        if name not in ("__dict__", "__weakref__"):
            private = name.startswith("__") and not name.endswith("__")
            mangled = f"_{kind.__name__.lstrip('_')}{name}" if private else name
            if mangled in vars(kind):
                found[mangled] = vars(kind)[mangled]
    return found


def _object_kind(kind: type, own: Kind | None) -> Kind:
    """Return the kind of instances of a class: attributes, slots, and the content of a C base."""
    slots = [d for base in kind.__mro__ if base not in KINDS for d in _slots(base).values()]
    has_dict = kind.__dictoffset__ != 0

    def take(thing: Any) -> Taken:
        held = thing.__dict__ if has_dict else None
        fields = held.copy() if held is not None and held is not thing else None
        filled = [_slot(d, thing) for d in slots]
        inner, children = own.take(thing) if own else (None, ())
        refers = chain(fields.values() if fields else (), filled, children)
        return (kind, held, fields, filled, inner), refers

    def put(thing: Any, content: Any) -> None:
        shape, held, fields, filled, inner = content
        if type(thing) is not shape:
            thing.__class__ = shape
        if held is not None and thing.__dict__ is not held:
            thing.__dict__ = held
        if held is not None and fields is not None:
            held.update(fields)
            if len(held) != len(fields):
                held.clear()
                held.update(fields)
        for descriptor, value in zip(slots, filled, strict=True):
            if value is not MISSING:
                descriptor.__set__(thing, value)
            elif _slot(descriptor, thing) is not MISSING:
                descriptor.__delete__(thing)
        if own is not None and own.put is not None:
            own.put(thing, inner)

    def take_plain(thing: Any) -> Taken:
        held = thing.__dict__
        fields = held.copy()
        return (kind, held, fields, (), None), fields.values()

    return Kind(take_plain if has_dict and not slots and own is None else take, put)


def _slot(descriptor: Any, thing: Any) -> Any:
    try:
        return descriptor.__get__(thing)
    except AttributeError:
        return MISSING
