"""Saving and restoring of builtin objects in place: a `Kind` for each known type.

The content of an object is saved separately from the objects that it refers to. `nodes` handles
classes written in Python.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import fractions
import functools
import gc
import io
import logging
import pathlib
import random
import re
import sys
import threading
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec


class NotCopiedError(Exception):
    """An object whose content cannot be saved or restored; `thing` is that object."""

    def __init__(self, thing: Any, why: str = "") -> None:
        super().__init__(why)
        self.thing = thing
        self.why = why


Taken = tuple[Any, Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Kind:
    """The way in which objects of a type are saved: `take` returns content and referenced objects.

    `put` restores the content of an object; None if the object is immutable.
    """

    take: Callable[[Any], Taken]
    put: Callable[[Any, Any], None] | None


ATOMS: set[type] = {
    *(type(None), bool, int, float, complex, str, bytes, range, type(...), type(NotImplemented)),
    *(types.ModuleType, types.CodeType, re.Pattern, decimal.Decimal, fractions.Fraction),
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, EnvSpec),
    *(np.ufunc, staticmethod, classmethod, property, types.MemberDescriptorType),
    *(types.GetSetDescriptorType, types.MethodDescriptorType, types.WrapperDescriptorType),
}
"""Types whose objects are immutable and refer only to immutable objects."""
FIXED = (type, enum.Enum, np.dtype, np.generic, logging.Logger, pathlib.PurePath)
"""Types whose subclasses count as atoms too."""
MISSING = object()
"""The content of an empty slot or cell."""
ATOMS.add(object)


def _through(refers: Callable[[Any], Iterable[Any]]) -> Kind:
    """Return the kind of immutable objects that refer to objects which may change."""
    return Kind(lambda thing: (None, refers(thing)), None)


def _take_list(thing: list[Any]) -> Taken:
    content = list.copy(thing)
    return content, content


def _put_list(thing: list[Any], content: list[Any]) -> None:
    list.__setitem__(thing, slice(None), content)


def _take_dict(thing: dict[Any, Any]) -> Taken:
    content = list(dict.items(thing))
    return content, chain.from_iterable(content)


def _put_dict(thing: dict[Any, Any], content: list[Any]) -> None:
    dict.clear(thing)
    dict.update(thing, content)


def _take_ordered(thing: Any) -> Taken:
    content = list(collections.OrderedDict.items(thing))
    return content, chain.from_iterable(content)


def _put_ordered(thing: Any, content: list[Any]) -> None:
    collections.OrderedDict.clear(thing)
    collections.OrderedDict.update(thing, content)


def _take_default(thing: Any) -> Taken:
    content, children = _take_dict(thing)
    return (thing.default_factory, content), (thing.default_factory, *children)


def _put_default(thing: Any, content: Any) -> None:
    thing.default_factory = content[0]
    _put_dict(thing, content[1])


def _take_set(thing: set[Any]) -> Taken:
    """Copy a set and build it again, because its order depends on its history."""
    content = list(set.__iter__(thing))
    _put_set(thing, content)
    return content, content


def _put_set(thing: set[Any], content: list[Any]) -> None:
    set.clear(thing)
    set.update(thing, content)


def _take_deque(thing: Any) -> Taken:
    content = list(collections.deque.__iter__(thing))
    return content, content


def _put_deque(thing: Any, content: list[Any]) -> None:
    collections.deque.clear(thing)
    collections.deque.extend(thing, content)


def _take_array(thing: np.ndarray[Any, Any]) -> Taken:
    kind = thing.dtype
    if kind.hasobject:
        if kind != np.dtype(object) or not thing.flags.writeable:
            raise NotCopiedError(thing, "an array of records that hold objects, or a locked one")
        values = thing.ravel().tolist()
        return (thing.shape, kind, thing.view(np.ndarray).copy()), (*values, thing.base)
    if isinstance(thing.base, np.ndarray):  # its memory is saved with the base
        return (thing.shape, kind, None), (thing.base,)
    return (thing.shape, kind, thing.tobytes()), (thing.base,)


def _put_array(thing: np.ndarray[Any, Any], content: Any) -> None:
    shape, kind, data = content
    plain = thing if type(thing) is np.ndarray else thing.view(np.ndarray)
    if plain.shape != shape or plain.dtype != kind:
        raise NotCopiedError(thing, "an array that changed its shape in place")
    if data is None:
        return
    if isinstance(data, bytes):
        if plain.flags.writeable:
            plain[...] = np.frombuffer(data, kind).reshape(shape) if kind.itemsize else plain
        elif plain.tobytes() != data:
            raise NotCopiedError(thing, "an array that was locked after a change")
    else:
        plain[...] = data


def _take_generator(thing: np.random.Generator) -> Taken:
    return None, (thing.bit_generator,)


def _spawned(thing: Any) -> Any:
    seed = thing.seed_seq
    return seed.n_children_spawned if isinstance(seed, np.random.SeedSequence) else None


def _take_bits(thing: Any) -> Taken:
    return (thing.state, _spawned(thing)), ()


def _put_bits(thing: Any, content: Any) -> None:
    if _spawned(thing) != content[1]:
        raise NotCopiedError(thing, "a generator that has spawned others")
    thing.state = content[0]


def _take_cell(thing: types.CellType) -> Taken:
    try:
        content = thing.cell_contents
    except ValueError:
        return MISSING, ()
    return content, (content,)


def _put_cell(thing: types.CellType, content: Any) -> None:
    if content is MISSING:
        raise NotCopiedError(thing, "an empty closure")
    thing.cell_contents = content


def _take_function(thing: types.FunctionType) -> Taken:
    own = thing.__dict__
    content = own.copy() if own else None
    parts = (thing.__closure__, thing.__defaults__, thing.__kwdefaults__)
    return content, (*parts, *(content.values() if content else ()))


def _put_function(thing: types.FunctionType, content: Any) -> None:
    if thing.__dict__ or content:
        thing.__dict__.clear()
        thing.__dict__.update(content or {})


def _take_lock(thing: Any) -> Taken:
    if not thing.acquire(blocking=False):
        raise NotCopiedError(thing, "a lock that is held")
    thing.release()
    if "owner=0" not in repr(thing) and "owner=" in repr(thing):  # an RLock of this thread
        raise NotCopiedError(thing, "a lock that is held")
    return None, ()


def _take_bytesio(thing: Any) -> Taken:
    content = thing.__getstate__()
    return content, ()


def _put_slice(thing: Any, content: Any) -> None:
    try:
        if bytes(thing) != bytes(content):
            thing[:] = content
    except BufferError as cause:
        raise NotCopiedError(thing, "a buffer that changed its size") from cause


KINDS: dict[type, Kind] = {
    list: Kind(_take_list, _put_list),
    dict: Kind(_take_dict, _put_dict),
    collections.OrderedDict: Kind(_take_ordered, _put_ordered),
    collections.defaultdict: Kind(_take_default, _put_default),
    set: Kind(_take_set, _put_set),
    collections.deque: Kind(_take_deque, _put_deque),
    tuple: _through(tuple.__iter__),
    frozenset: _through(frozenset.__iter__),
    slice: _through(lambda thing: (thing.start, thing.stop, thing.step)),
    bytearray: Kind(lambda thing: (bytes(thing), ()), _put_slice),
    array.array: Kind(lambda thing: (thing[:], ()), _put_slice),
    memoryview: _through(lambda thing: (thing.obj,)),
    np.ndarray: Kind(_take_array, _put_array),
    np.random.Generator: Kind(_take_generator, None),
    np.random.RandomState: _through(lambda thing: (thing._bit_generator,)),
    **{
        bits: Kind(_take_bits, _put_bits)
        for bits in (
            *(np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937),
            *(np.random.Philox, np.random.SFC64),
        )
    },
    random.Random: Kind(
        lambda thing: (random.Random.getstate(thing), ()),
        lambda thing, content: random.Random.setstate(thing, content),
    ),
    types.FunctionType: Kind(_take_function, _put_function),
    types.CellType: Kind(_take_cell, _put_cell),
    types.MethodType: _through(lambda thing: (thing.__self__, thing.__func__)),
    types.MethodWrapperType: _through(lambda thing: (thing.__self__,)),
    types.BuiltinFunctionType: _through(lambda thing: (thing.__self__,)),
    types.MappingProxyType: _through(gc.get_referents),
    functools.partial: _through(lambda thing: (thing.func, thing.args, thing.keywords)),
    io.BytesIO: Kind(_take_bytesio, lambda thing, content: thing.__setstate__(content)),
    io.StringIO: Kind(_take_bytesio, lambda thing, content: thing.__setstate__(content)),
    **{type(view): _through(gc.get_referents) for view in ({}.keys(), {}.values(), {}.items())},
    **{type(lock): Kind(_take_lock, None) for lock in (threading.Lock(), threading.RLock())},
}


@cache
def add_torch() -> None:
    """Add the kinds of torch, when the first object of one of its types is found."""
    torch = sys.modules["torch"]

    def take(thing: Any) -> Taken:
        if thing.grad_fn is not None or thing.device.type != "cpu" or thing.layout != torch.strided:
            raise NotCopiedError(thing, "a tensor of a graph or a device")
        content = (thing.data_ptr(), thing.shape, thing.detach().clone(), thing.grad)
        return content, (thing.grad,)

    def put(thing: Any, content: Any) -> None:
        place, shape, data, grad = content
        if thing.data_ptr() != place or thing.shape != shape:
            raise NotCopiedError(thing, "a tensor that moved")
        thing.detach().copy_(data)
        thing.grad = grad

    KINDS[torch._C.TensorBase] = Kind(take, put)
    KINDS[torch.Generator] = Kind(
        lambda thing: (thing.get_state(), ()), lambda thing, content: thing.set_state(content)
    )
    ATOMS.update((torch.dtype, torch.device, torch.Size))
