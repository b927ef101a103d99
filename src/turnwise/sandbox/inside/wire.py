"""Serialisation of plain values: a tag of one byte, then a fixed structure or a size and contents.

Provides `dump` and `load`. A value is None, a bool, int, float, complex, str, bytes, or a list,
tuple, dict, set, frozenset or numeric numpy array of such values. `load` accepts bytes from a
hostile program: it imports nothing, bounds depth, sizes and the cost of comparing keys before it
allocates, takes time linear in the bytes, and raises only `NotPlainError`.
"""

from __future__ import annotations

import math
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

DEEPEST = 64
"""The deepest nesting of values."""
COMPARISONS, COMPARISONS_A_BYTE = 20_000, 4
"""The largest cost of comparing keys with equal hashes in one value, in compared scalars."""
SECONDS, SECONDS_A_BYTE = 0.05, 5e-7
"""The largest CPU time of inserting keys: integers can be chosen so that tables probe for long
although their hashes differ. Ordinary keys take a hundredth of it."""
_AT_ONCE = 256
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
"""The accepted dtypes, by their number in the format."""
_ITEM_SIZES = (1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 8, 16)
LARGEST_INTEGER = 10**4300
"""Larger integers have more digits than Python prints, and are refused."""
_MOST_DIMENSIONS = 32
MOST_EMPTY = 1 << 20
"""Largest size of an empty array: (2**40, 0) takes no bytes, but as lists all memory."""
_INT, _FLOAT, _COMPLEX = struct.Struct("<q"), struct.Struct("<d"), struct.Struct("<dd")
_SIZE = struct.Struct("<I")
_DIMENSION = struct.Struct("<Q")
_LARGEST = (1 << 32) - 1


class NotPlainError(ValueError):
    """A value is refused: an unsupported type, too deep, or malformed bytes."""


class TooLargeError(ValueError):
    """The serialised value is longer than allowed."""


def dump(value: Any, most: int) -> bytes:
    r"""Return `value`, serialised in at most `most` bytes.

    Raises:
        NotPlainError: for a type that does not pass; subclasses of plain types do not.
        TooLargeError: if it is longer.

    Example:
        >>> dump((1, True), 100)
        b't\x02\x00\x00\x00i\x01\x00\x00\x00\x00\x00\x00\x00T'
    """
    writer = _Writer(most)
    writer.write(value, 0)
    return b"".join(writer.parts)


def load(data: bytes, numpy: Callable[[], Any] | None = None) -> Any:
    """Return the value that `dump` serialised.

    Args:
        data: the bytes.
        numpy: returns numpy, for values with arrays; None refuses arrays.

    Raises:
        NotPlainError: if the bytes are not a serialised value.

    Example:
        >>> load(dump({1: b"x", "y": {2, 3}}, 1000))
        {1: b'x', 'y': {2, 3}}
    """
    try:
        reader = _Reader(bytes(data), numpy)
        value = reader.read(0)
    except NotPlainError:
        raise
    except Exception as cause:  # the boundary: bytes must have no effect beyond a refusal
        raise NotPlainError(f"no plain value: {type(cause).__name__}") from None
    if reader.place != len(reader.data):
        raise NotPlainError("no plain value: bytes are left over")
    return value


class _Writer:
    """Serialises a value into `parts`, and stops when the result becomes too large."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most
        self.parts: list[bytes] = []

    def put(self, *parts: bytes) -> None:
        self.left -= sum(map(len, parts))
        if self.left < 0:
            raise TooLargeError(f"more than {self.most} bytes")
        self.parts += parts

    def write(self, value: Any, depth: int) -> None:
        kind = type(value)
        if value is None:
            self.put(b"N")
        elif kind is bool:
            self.put(b"T" if value else b"F")
        elif kind is int:
            self.integer(value)
        elif kind is float:
            self.put(b"f", _FLOAT.pack(value))
        elif kind is str:
            self.sized(b"s", value.encode("utf-8", "surrogatepass"))
        elif kind is bytes or kind is bytearray:
            self.sized(b"b", bytes(value))
        elif kind is complex:
            self.put(b"c", _COMPLEX.pack(value.real, value.imag))
        elif kind in _CONTAINERS:
            self.container(value, kind, depth)
        else:
            self.of_numpy(value, kind, depth)

    def sized(self, tag: bytes, data: bytes) -> None:
        if len(data) > _LARGEST:
            raise TooLargeError(f"more than {_LARGEST} bytes")
        self.put(tag, _SIZE.pack(len(data)), data)

    def integer(self, value: int) -> None:
        if -(1 << 63) <= value < 1 << 63:
            self.put(b"i", _INT.pack(value))
            return
        size = value.bit_length() // 8 + 1
        if size > self.left:
            raise TooLargeError(f"more than {self.most} bytes")
        if not -LARGEST_INTEGER < value < LARGEST_INTEGER:
            raise NotPlainError("an int of more than 4300 digits does not pass")
        self.sized(b"I", value.to_bytes(size, "little", signed=True))

    def container(self, value: Any, kind: type, depth: int) -> None:
        if depth >= DEEPEST:
            raise NotPlainError(f"nested deeper than {DEEPEST}")
        self.put(_CONTAINERS[kind], _SIZE.pack(min(len(value), _LARGEST)))
        if kind is dict:
            for key, inner in value.items():
                self.write(key, depth + 1)
                self.write(inner, depth + 1)
            return
        for inner in value:
            self.write(inner, depth + 1)

    def of_numpy(self, value: Any, kind: type, depth: int) -> None:
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None and kind is numpy.ndarray:
            native = value.dtype.newbyteorder("=")
            if native.name not in DTYPES or value.ndim > _MOST_DIMENSIONS:
                raise NotPlainError(f"an array of {value.dtype} does not pass")
            if not value.size and _parts(value.shape) > MOST_EMPTY:
                raise NotPlainError(f"an empty array of shape {value.shape} does not pass")
            if value.nbytes > self.left:
                raise TooLargeError(f"more than {self.most} bytes")
            self.put(b"a", bytes((DTYPES.index(native.name), value.ndim)))
            self.put(*(_DIMENSION.pack(size) for size in value.shape))
            self.put(value.astype(native).tobytes())
            return
        if numpy is not None and isinstance(value, numpy.generic) and value.dtype.name in DTYPES:
            self.write(value.item(), depth)
            return
        raise NotPlainError(f"a {kind.__name__} does not pass")


def _parts(shape: Sequence[int]) -> int:
    """Return the number of elements of an array whose empty dimensions count as one."""
    return math.prod(max(extent, 1) for extent in shape)


_CONTAINERS: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"S", frozenset: b"z", dict: b"d"}


class _Reader:
    """Reads one value; `cost` is the cost of comparing the last value with an equal one."""

    def __init__(self, data: bytes, numpy: Callable[[], Any] | None) -> None:
        self.data, self.place, self.numpy = data, 0, numpy
        self.left = COMPARISONS + COMPARISONS_A_BYTE * len(data)
        self.seconds = SECONDS + SECONDS_A_BYTE * len(data)
        self.cost = 1

    def take(self, size: int) -> bytes:
        end = self.place + size
        if end > len(self.data):
            raise NotPlainError("no plain value: it ends too early")
        part, self.place = self.data[self.place : end], end
        return part

    def size(self) -> int:
        """Return a size; every object with a size takes at least as many of the remaining bytes."""
        (size,) = _SIZE.unpack(self.take(_SIZE.size))
        if size > len(self.data) - self.place:
            raise NotPlainError("no plain value: it ends too early")
        return size

    def read(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise NotPlainError(f"no plain value: nested deeper than {DEEPEST}")
        reader = _READERS.get(self.take(1))
        if reader is None:
            raise NotPlainError("no plain value: no such tag")
        self.cost = 1
        return reader(self, depth)

    def read_integer(self, depth: int) -> int:
        return _INT.unpack(self.take(8))[0]

    def read_long(self, depth: int) -> int:
        data = self.take(self.size())
        self.cost = 1 + len(data) // 64
        value = int.from_bytes(data, "little", signed=True)
        if not -LARGEST_INTEGER < value < LARGEST_INTEGER:
            raise NotPlainError("no plain value: an int of more than 4300 digits")
        return value

    def read_float(self, depth: int) -> float:
        return _FLOAT.unpack(self.take(8))[0]

    def read_complex(self, depth: int) -> complex:
        return complex(*_COMPLEX.unpack(self.take(16)))

    def read_text(self, depth: int) -> str:
        data = self.take(self.size())
        self.cost = 1 + len(data) // 64
        return data.decode("utf-8", "surrogatepass")

    def read_raw(self, depth: int) -> bytes:
        data = self.take(self.size())
        self.cost = 1 + len(data) // 64
        return data

    def parts(self, depth: int) -> tuple[list[Any], list[int]]:
        """Return the elements of a container, and the cost of each."""
        values: list[Any] = []
        costs: list[int] = []
        for _ in range(self.size()):
            values.append(self.read(depth + 1))
            costs.append(self.cost)
        self.cost = 1 + sum(costs)
        return values, costs

    def read_list(self, depth: int) -> list[Any]:
        return self.parts(depth)[0]

    def read_tuple(self, depth: int) -> tuple[Any, ...]:
        return tuple(self.parts(depth)[0])

    def read_frozenset(self, depth: int) -> frozenset[Any]:
        values, costs = self.parts(depth)
        cost = self.apart(values, costs)
        found = frozenset(self.inserted(values))
        self.cost = cost
        return found

    def read_set(self, depth: int) -> set[Any]:
        values, costs = self.parts(depth)
        self.apart(values, costs)
        return set(self.inserted(values))

    def read_dict(self, depth: int) -> dict[Any, Any]:
        keys: list[Any] = []
        costs: list[int] = []
        values: list[Any] = []
        for _ in range(self.size()):
            keys.append(self.read(depth + 1))
            costs.append(self.cost)
            values.append(self.read(depth + 1))
        self.apart(keys, costs)
        return dict(zip(self.inserted(keys), values, strict=True))

    def apart(self, keys: list[Any], costs: list[int]) -> int:
        """Charge the cost of distinguishing keys with one hash; return that of comparing them all.

        Keys of equal hash are compared pair by pair. A pair costs at most as much as its more
        expensive key; the cost of a frozenset includes the comparisons within it.
        """
        alike: dict[int, list[int]] = {}
        for key, cost in zip(keys, costs, strict=True):
            alike.setdefault(hash(key), []).append(cost)
        total = 1
        for group in alike.values():
            compared = len(group) * len(group) * max(group)
            total += compared
            if len(group) > 1:
                self.left -= compared
        if self.left < 0 or total > COMPARISONS + COMPARISONS_A_BYTE * len(self.data):
            raise NotPlainError("no plain value: too many keys of one hash")
        return total

    def inserted(self, keys: list[Any]) -> dict[Any, None]:
        """Return a dict of the keys; refuse repeated keys, or keys that take long to insert."""
        found: dict[Any, None] = {}
        for start in range(0, len(keys), _AT_ONCE):
            began = time.thread_time()
            found.update(dict.fromkeys(keys[start : start + _AT_ONCE]))
            self.seconds -= time.thread_time() - began
            if self.seconds < 0:
                raise NotPlainError("no plain value: too many keys that collide")
        if len(found) != len(keys):
            raise NotPlainError("no plain value: a key comes twice")
        return found

    def read_array(self, depth: int) -> Any:
        if self.numpy is None:
            raise NotPlainError("no plain value: an array, and no numpy")
        number, dimensions = self.take(2)
        if number >= len(DTYPES) or dimensions > _MOST_DIMENSIONS:
            raise NotPlainError("no plain value: no such array")
        shape = [_DIMENSION.unpack(self.take(8))[0] for _ in range(dimensions)]
        size = _ITEM_SIZES[number]
        for extent in shape:
            size *= extent
        if size > len(self.data) - self.place or (not size and _parts(shape) > MOST_EMPTY):
            raise NotPlainError("no plain value: it ends too early")
        module = self.numpy()
        name = DTYPES[number]
        kept = module.dtype("uint8" if name == "bool" else name)
        found = module.frombuffer(self.take(size), kept).reshape(shape)
        return found.astype(name)  # a copy in which booleans are 0 or 1


_READERS: dict[bytes, Callable[[_Reader, int], Any]] = {
    b"N": lambda reader, depth: None,
    b"T": lambda reader, depth: True,
    b"F": lambda reader, depth: False,
    b"i": _Reader.read_integer,
    b"I": _Reader.read_long,
    b"f": _Reader.read_float,
    b"c": _Reader.read_complex,
    b"s": _Reader.read_text,
    b"b": _Reader.read_raw,
    b"l": _Reader.read_list,
    b"t": _Reader.read_tuple,
    b"S": _Reader.read_set,
    b"z": _Reader.read_frozenset,
    b"d": _Reader.read_dict,
    b"a": _Reader.read_array,
}
