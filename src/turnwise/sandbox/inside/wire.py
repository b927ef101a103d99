"""What passes between the library, a worker and a program: frames of bytes, and plain values.

Owns both formats. A frame is a header of JSON and some blobs of bytes. A value is None, a bool, an
int, a float, a complex, text, bytes, or a list, tuple, dict, set, frozenset or numeric numpy array
of such, as JSON with a tag where JSON has no word for it. Reading one evaluates nothing and builds
nothing else, whatever the bytes are: they may be a hostile program's.
"""

from __future__ import annotations

import base64
import json
import math
import os
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

ALIKE = 100
"""How many keys of a set or dict may have a hash that another has."""
DEEPEST = 64
"""How deep values may be nested."""
WIDEST = 2**63
"""Integers from here on are written in hexadecimal digits."""
NUMBERS = "biufc"
"""Kinds of numpy's dtypes that come back: booleans and numbers."""


class NotPlainError(ValueError):
    """A value cannot pass: of another type, nested too deep, or not what was written."""


class TooLargeError(ValueError):
    """A value, written, would be longer than is allowed."""


def dump(value: Any, most: int) -> bytes:
    """Return `value`, written in at most `most` bytes.

    Raises:
        NotPlainError: for a type that does not pass, subclasses of those that do among them.
        TooLargeError: if it is longer.

    Example:
        >>> dump((1, float("inf")), 100)
        b'{"t":[1,{"f":"inf"}]}'
    """
    text = json.dumps(_Writer(most).tagged(value, 0), separators=(",", ":")).encode()
    if len(text) > most:
        raise TooLargeError(f"{len(text)} bytes, of {most} allowed")
    return text


def load(text: bytes) -> Any:
    """Return the value that `dump` wrote.

    Raises:
        NotPlainError: if that is not what the bytes are.

    Example:
        >>> load(dump({1: b"x", "y": {2, 3}}, 1000))
        {1: b'x', 'y': {2, 3}}
    """
    try:
        return _built(json.loads(text), 0)
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError) as cause:
        raise NotPlainError(f"no plain value: {type(cause).__name__}") from None


class _Writer:
    """Turns a value into what JSON can hold, and stops where that becomes too large."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def tagged(self, value: Any, depth: int) -> Any:
        kind = type(value)
        self.spend(1)
        if value is None or kind is bool:
            return value
        if depth > DEEPEST:
            raise NotPlainError(f"nested deeper than {DEEPEST}")
        if kind is int:
            return self.integer(value)
        if kind is float:
            return value if math.isfinite(value) else {"f": repr(value)}
        if kind is str:
            self.spend(len(value))
            return value
        if kind in _CONTAINERS:
            return self.container(value, kind, depth)
        if kind is bytes or kind is bytearray:
            self.spend(len(value) * 4 // 3)
            return {"b": base64.b64encode(value).decode()}
        if kind is complex:
            return {"c": [self.tagged(value.real, depth), self.tagged(value.imag, depth)]}
        return self.of_numpy(value, kind, depth)

    def integer(self, value: int) -> Any:
        if -WIDEST <= value < WIDEST:
            return value
        self.spend(value.bit_length() // 4)
        return {"i": hex(value)}

    def container(self, value: Any, kind: type, depth: int) -> Any:
        if kind is dict:
            pairs = [[self.tagged(p, depth + 1) for p in pair] for pair in value.items()]
            return {"d": pairs}
        parts = [self.tagged(part, depth + 1) for part in value]
        return {_CONTAINERS[kind]: parts} if _CONTAINERS[kind] else parts

    def of_numpy(self, value: Any, kind: type, depth: int) -> Any:
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None and kind is numpy.ndarray and value.dtype.kind in NUMBERS:
            if value.dtype.itemsize > 16 or value.dtype.str[1:] in ("f16", "c32"):
                raise NotPlainError(f"an array of {value.dtype} does not pass")
            self.spend(value.nbytes * 4 // 3)
            written = base64.b64encode(value.tobytes()).decode()
            return {"a": [value.dtype.str, list(value.shape), written]}
        if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in NUMBERS:
            return self.tagged(value.item(), depth)
        raise NotPlainError(f"a {kind.__name__} does not pass")

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise TooLargeError(f"more than {self.most} bytes")


_CONTAINERS: dict[type, str] = {list: "", tuple: "t", set: "s", frozenset: "z", dict: "d"}


def _built(found: Any, depth: int) -> Any:
    if depth > 2 * DEEPEST + 8:
        raise NotPlainError("nested too deep")
    if isinstance(found, list):
        return [_built(part, depth + 1) for part in found]
    if not isinstance(found, dict):
        return found
    ((tag, inner),) = found.items()
    return _READERS[tag](inner, depth) if tag in _READERS else _refuse()


def _refuse() -> Any:
    raise NotPlainError("no such tag")


def _parts(inner: Any, depth: int) -> list[Any]:
    return [_built(part, depth + 1) for part in inner] if isinstance(inner, list) else _refuse()


def _apart(parts: list[Any]) -> list[Any]:
    """Return keys; refuse many of one hash, which take for ever to tell apart."""
    if len(parts) - len({hash(part) for part in parts}) > ALIKE:
        raise NotPlainError(f"more than {ALIKE} keys of one hash")
    return parts


def _dict(inner: Any, depth: int) -> dict[Any, Any]:
    pairs = [_parts(pair, depth) for pair in inner]
    _apart([key for key, _ in pairs])
    return dict(pairs)


def _array(inner: Any, depth: int) -> Any:
    import numpy

    name, shape, written = inner
    dtype = numpy.dtype(name) if isinstance(name, str) and len(name) < 8 else _refuse()
    if dtype.kind not in NUMBERS or not all(type(n) is int and n >= 0 for n in shape):
        _refuse()
    return numpy.frombuffer(base64.b64decode(written, validate=True), dtype).reshape(shape).copy()


_READERS: dict[str, Callable[[Any, int], Any]] = {
    "t": lambda inner, depth: tuple(_parts(inner, depth)),
    "s": lambda inner, depth: set(_apart(_parts(inner, depth))),
    "z": lambda inner, depth: frozenset(_apart(_parts(inner, depth))),
    "d": _dict,
    "b": lambda inner, depth: base64.b64decode(inner, validate=True),
    "f": lambda inner, depth: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[inner],
    "i": lambda inner, depth: int(inner, 16),
    "c": lambda inner, depth: complex(*(float(p) for p in _parts(inner, depth))),
    "a": _array,
}


def write_frame(descriptor: int, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
    """Write one frame, whole.

    Raises:
        OSError: if nobody reads any more.
    """
    told = json.dumps(header | {"blobs": [len(blob) for blob in blobs]}).encode()
    write_all(descriptor, b"".join((struct.pack("<I", len(told)), told, *blobs)))


def write_all(descriptor: int, text: bytes) -> None:
    """Write all of `text`."""
    left = memoryview(text)
    while left:
        left = left[os.write(descriptor, left) :]


def read_frame(descriptor: int) -> tuple[dict[str, Any], list[bytes]]:
    """Return the next frame.

    Raises:
        EOFError: if there is none, or it breaks off.
    """
    (size,) = struct.unpack("<I", _exactly(descriptor, 4))
    header = json.loads(_exactly(descriptor, size))
    return header, [_exactly(descriptor, size) for size in header.pop("blobs")]


def _exactly(descriptor: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError("the other end is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
