"""Detection of state outside an env's instance: class attributes, globals, defaults.

Provides `Outside`, which names the changes that a step or a reset made there. Classes and functions
of gymnasium, of Python and of installed packages are skipped.
"""

from __future__ import annotations

import array
import contextvars
import ctypes
import enum
import functools
import io
import pickle
import random
import sys
import sysconfig
import threading
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.envs.gymnasium.contents import ATOMS, NotCopiedError
from turnwise.envs.gymnasium.nodes import kind_of, package_of, references, same_references

MOST = 20_000
"""The largest number of objects that are watched below one name."""
SMALL = 1000
"""With at most this many watched references and numbers every step is checked, else every
`RARELY`th."""
RARELY = 16
ALL = "*"
"""Stands for all globals of a module, including later ones, if its code calls `globals`."""
_RAW = (
    *(np.ndarray, np.random.BitGenerator, random.Random),
    *(bytearray, array.array, io.BytesIO, io.StringIO),
)
_UNWATCHED = (types.ModuleType, type, property, staticmethod, classmethod)
_KNOWN = frozenset(
    sys.stdlib_module_names - {"__main__"} | {"", "gymnasium", "turnwise", "torch", "numpy"}
)
_HERE = (sysconfig.get_paths()["stdlib"], "site-packages", "dist-packages")


@dataclass(slots=True, eq=False)
class _Mark:
    """A watched name: its value, the objects below it and their content, and a dict's items."""

    value: Any
    nodes: Sequence[Any]
    refers: Sequence[Any]
    data: Sequence[bytes]
    items: Sequence[tuple[Any, Any]] | None
    below: Sequence[Any]

    def holds(self, value: Any) -> bool:
        """Whether the name still has the same value with the same content."""
        if value is not self.value:
            return False
        return same_references(self.nodes, self.refers) and _data(self.nodes) == self.data


class Outside:
    """Watches state that the code of some classes may change outside their instances.

    Example:
        >>> class Env:
        ...     __module__ = "yours"
        ...     seen = []
        >>> outside = Outside([Env])
        >>> Env.seen.append(1)
        >>> outside.changed()
        ['Env.seen']
    """

    def __init__(self, kinds: Iterable[type]) -> None:
        self._kinds, self._names = _code_of(kinds)
        self._marks = {name: _mark(value) for name, value in self._values()}
        self._step = 0
        self._alert = False
        count = sum(len(mark.refers) for mark in self._marks.values())
        count += sum(len(data) // 8 for mark in self._marks.values() for data in mark.data)
        self.every = 1 if count <= SMALL else RARELY
        """The number of steps between two checks."""

    def __bool__(self) -> bool:
        """Whether anything is watched."""
        return bool(self._marks)

    def changed(self) -> list[str]:
        """Return the names of what has changed since the last call, and record the new state.

        A dict that only gained keys, and a name that was None, count as caches.
        """
        found = []
        for name, value in self._values():
            mark = self._marks.get(name)
            if mark is None:
                self._marks[name] = _mark(value)
            elif not mark.holds(value):
                if not _grown(mark, value):
                    found.append(name)
                self._marks[name] = _mark(value)
        return found

    def before(self) -> None:
        """At the start of a step, ignore earlier changes by other code."""
        if self._alert:
            self.changed()

    def after(self) -> list[str]:
        """Return the changes of a step. The first change of a name may come from other code."""
        self._step += 1
        if not self._marks or self._step % self.every:
            return []
        found = self.changed()
        if found and not self._alert:
            self._alert, self.every = True, 1
            return []
        return found

    def _values(self) -> Iterator[tuple[str, Any]]:
        for kind in self._kinds:
            for name, value in vars(kind).items():
                if not (name.startswith("__") and name.endswith("__")) and _watched(value):
                    yield f"{kind.__name__}.{name}", value
        for place, names in self._names.items():
            held = vars(sys.modules[place])
            late = [name for name in held if not name.startswith("__")] if ALL in names else []
            for name in dict.fromkeys((*names, *late)):
                if name in held and _watched(held[name]):
                    yield f"the global {name}", held[name]


def hidden_state(kinds: Iterable[type]) -> str | None:
    """Return the name of hidden state that cannot be copied; None if there is none.

    The cache of a method is keyed by `self` and spans episodes; C libraries have memory of their
    own.
    """
    found, names = _code_of(kinds)
    for kind in found:
        for name, value in vars(kind).items():
            if isinstance(value, functools._lru_cache_wrapper):
                return f"{kind.__name__}.{name} caches by `self`, over all episodes"
    for place, held in names.items():
        for name in held:
            value = vars(sys.modules[place]).get(name)
            if isinstance(value, ctypes.CDLL) or value is ctypes:
                return f"{place} uses {name}, whose memory is not open to Python"
    return None


def own_packages(kinds: Iterable[type]) -> frozenset[str]:
    """Return the packages of the classes and their bases: the user's, or an env's package."""
    found = {package_of(base) for kind in kinds for base in kind.__mro__}
    return frozenset(found - _KNOWN)


def _is_own(module: str, packages: frozenset[str]) -> bool:
    top = module.partition(".")[0]
    if top in packages or top in _KNOWN:
        return top in packages
    file = vars(sys.modules[module]).get("__file__") if module in sys.modules else None
    return file is None or not any(part in file for part in _HERE)


def _watched(value: Any) -> bool:
    if isinstance(value, types.FunctionType):
        parts = value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__
        return any(parts)
    return not isinstance(value, _UNWATCHED) and type(value) is not types.BuiltinFunctionType


def _code_of(kinds: Iterable[type]) -> tuple[list[type], Mapping[str, list[str]]]:
    """Return the user's classes, and the globals that their code names, by module."""
    waiting: list[Any] = [base for kind in kinds for base in kind.__mro__]
    packages = own_packages(waiting)
    found: dict[type, None] = {}
    names: dict[str, dict[str, None]] = {}
    done: set[Any] = set()
    while waiting:
        thing = _plain_function(waiting.pop())
        if isinstance(thing, property):
            waiting += [part for part in (thing.fget, thing.fset) if part is not None]
        elif isinstance(thing, type):
            if thing not in found and package_of(thing) and _is_own(thing.__module__, packages):
                found[thing] = None
                waiting += [*vars(thing).values(), *thing.__bases__]
        elif isinstance(thing, types.FunctionType) and thing not in done:
            done.add(thing)
            place = thing.__module__ or ""
            if place in sys.modules and _is_own(place, packages):
                held = vars(sys.modules[place])
                named = [name for name in _names_in(thing.__code__) if name in held]
                if "globals" in thing.__code__.co_names:
                    named += [name for name in held if not name.startswith("__")] + [ALL]
                names.setdefault(place, {}).update(dict.fromkeys(named))
                waiting += [held[name] for name in named if name in held]
    return list(found), {place: list(held) for place, held in names.items()}


def _plain_function(thing: Any) -> Any:
    if isinstance(thing, staticmethod | classmethod):
        return thing.__func__
    if isinstance(thing, functools.cached_property):
        return thing.func
    return thing.__wrapped__ if isinstance(thing, functools._lru_cache_wrapper) else thing


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _names_in(part)


def _mark(value: Any) -> _Mark:
    nodes: list[Any] = []
    seen: set[int] = set()
    stack = [value]
    while stack and len(nodes) < MOST:
        thing = stack.pop()
        if isinstance(thing, threading.local):
            thing = vars(thing)
        if id(thing) in seen or type(thing) in ATOMS:
            continue
        seen.add(id(thing))
        if isinstance(thing, set | contextvars.ContextVar):
            nodes.append(thing)
            continue
        if isinstance(thing, enum.Enum):  # its value never changes, but what it was given may
            nodes.append(thing.__dict__)
            stack += thing.__dict__.values()
            continue
        try:
            how = kind_of(thing)
            if how is None or package_of(type(thing)) == "torch":
                continue
            refers = list(how.take(thing)[1])
        except NotCopiedError:
            continue
        nodes.append(thing)
        if type(thing).__dictoffset__:
            nodes.append(thing.__dict__)
        stack += [part for part in refers if type(part) not in ATOMS]
    items = list(value.items()) if type(value) is dict else None
    below = references(nodes[1:]) if items else []
    return _Mark(value, nodes, references(nodes), _data(nodes), items, below)


def _data(nodes: Sequence[Any]) -> list[bytes]:
    """Return the content of `nodes` other than references to objects."""
    found = []
    for thing in nodes:
        if isinstance(thing, contextvars.ContextVar):
            found.append(str(id(thing.get(None))).encode())
        elif isinstance(thing, _RAW):
            how = kind_of(thing)
            assert how is not None
            objects = isinstance(thing, np.ndarray) and thing.dtype.hasobject
            found.append(b"" if objects else pickle.dumps(how.take(thing)[0]))
    return found


def _grown(mark: _Mark, value: Any) -> bool:
    """Whether a name was None, or a dict only gained keys, as caches do."""
    if mark.value is None:
        return True
    if value is not mark.value or mark.items is None:
        return False
    keys = all(key in value and value[key] is held for key, held in mark.items)
    same = not mark.items or same_references(mark.nodes[1:], mark.below)
    return keys and same and _data(mark.nodes) == mark.data
