"""The messages between the library and a worker: fixed structures of numbers, then bytes.

Provides `Order` (library to worker), `Task` (library to child) and `Report` (worker to library),
and functions that read and write them with a deadline. The worker reads only the numbers of an
order; the child reads the task that follows.
"""

from __future__ import annotations

import os
import select
import struct
import time
from typing import NamedTuple

ROOM = 8192
"""Bytes of a record beside those of the value, for the message of a failure."""
LARGEST_SETUP = 1 << 20
_MOST_STEPS = (1 << 63) - 1
NONE, CPU, TIMEOUT, FILES, THREADS, STDOUT, STDERR = range(7)
"""The reasons for which a worker ends a program."""
_ORDER = struct.Struct("<4sQddQQQII")
_REPORT = struct.Struct("<4sBBiddQQQQI")
BEGUN = struct.Struct("<cdd")
"""A child's message just before its program begins: "!", the time, its CPU time."""
_MARK = b"tw02"
_SIZE = struct.Struct("<I")


class BrokenFrameError(Exception):
    """A message is malformed, incomplete or late."""


class Order(NamedTuple):
    """The library's message about a program: its limits, and the size of the child's input.

    Example:
        >>> order = Order(9, 1.0, 10.0, 1 << 28, 1 << 20, 1 << 24, 1, 8)
        >>> Order.unpack(order.pack()) == order
        True
    """

    size: int
    cpu: float
    wall: float
    memory: int
    output: int
    files: int
    processes: int
    threads: int

    def pack(self) -> bytes:
        """Return the message as bytes."""
        return _ORDER.pack(_MARK, *self)

    @classmethod
    def unpack(cls, message: bytes) -> Order:
        """Return the order in a message."""
        mark, *fields = _ORDER.unpack(message)
        if mark != _MARK:
            raise BrokenFrameError("no order")
        return cls(*fields)


ORDER_SIZE = _ORDER.size


class Report(NamedTuple):
    """A worker's measurements of a program, and the sizes of the bytes that follow.

    `isolated` is 1 if the isolation was complete before the program began. `ended` is the reason
    for which the worker ended it, and `status` its exit status, as from `os.waitpid`.

    Example:
        >>> report = Report(1, CPU, 9, 1.0, 1.1, 1 << 20, 0, 0, 0, 0)
        >>> Report.unpack(report.pack()).ended == CPU
        True
    """

    isolated: int
    ended: int
    status: int
    cpu: float
    wall: float
    peak: int
    record: int
    stdout: int
    stderr: int
    reason: int

    def pack(self) -> bytes:
        """Return the message as bytes."""
        return _REPORT.pack(_MARK, *self)

    @classmethod
    def unpack(cls, message: bytes) -> Report:
        """Return the report in a message."""
        mark, *fields = _REPORT.unpack(message)
        if mark != _MARK:
            raise BrokenFrameError("no report")
        return cls(*fields)


REPORT_SIZE = _REPORT.size


_TASK = struct.Struct("<QIIIII")


class Task(NamedTuple):
    """One program with its inputs, which the child reads.

    Example:
        >>> task = Task("result = 1", "", b"", b"N", -3, 0)
        >>> Task.unpack(task.pack()) == task
        True
    """

    source: str
    call: str
    stdin: bytes
    inputs: bytes
    seed: int
    steps: int

    def pack(self) -> bytes:
        """Return the task as bytes."""
        seed = self.seed.to_bytes(self.seed.bit_length() // 8 + 1, "little", signed=True)
        source, call = (text.encode("utf-8", "surrogatepass") for text in self[:2])
        parts = (source, call, self.stdin, self.inputs, seed)
        return _TASK.pack(min(self.steps, _MOST_STEPS), *map(len, parts)) + b"".join(parts)

    @classmethod
    def unpack(cls, data: bytes) -> Task:
        """Return the task in the bytes."""
        steps, *sizes = _TASK.unpack_from(data)
        place, parts = _TASK.size, []
        for size in sizes:
            parts.append(data[place : place + size])
            place += size
        source, call, stdin, inputs, seed = parts
        text, name = source.decode("utf-8", "surrogatepass"), call.decode("utf-8", "surrogatepass")
        return cls(text, name, stdin, inputs, int.from_bytes(seed, "little", signed=True), steps)


def write_all(descriptor: int, data: bytes, seconds: float | None = None) -> None:
    """Write all of `data`; if `seconds` are given, to a non-blocking descriptor.

    Raises:
        BrokenFrameError: if it takes longer.
        OSError: if nobody reads any more.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            _wait(descriptor, select.POLLOUT, deadline)


def read_exactly(
    descriptor: int, size: int, deadline: float | None = None, alive: int = -1
) -> bytes:
    """Return the next `size` bytes; with a deadline, from a non-blocking descriptor.

    `alive` is a descriptor of the process that writes them, if that may end and leave others.

    Raises:
        BrokenFrameError: if they do not come in time, or the other end is closed.
    """
    parts: list[bytes] = []
    while size:
        try:
            part = os.read(descriptor, min(size, 1 << 20))
        except BlockingIOError:
            _wait(descriptor, select.POLLIN, deadline, alive)
            continue
        if not part:
            raise BrokenFrameError("the other end is closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write_text(descriptor: int, data: bytes, seconds: float | None = None) -> None:
    """Write bytes preceded by their size, for messages before the first program."""
    write_all(descriptor, _SIZE.pack(len(data)) + data, seconds)


def read_text(descriptor: int, deadline: float | None = None) -> bytes:
    """Return the bytes that `write_text` wrote.

    Raises:
        BrokenFrameError: if that does not come in time, or is too long.
    """
    (size,) = _SIZE.unpack(read_exactly(descriptor, _SIZE.size, deadline))
    if size > LARGEST_SETUP:
        raise BrokenFrameError(f"a message of {size} bytes")
    return read_exactly(descriptor, size, deadline)


def _wait(descriptor: int, event: int, deadline: float | None, alive: int = -1) -> None:
    left = None if deadline is None else 1e3 * (deadline - time.monotonic())
    if left is not None and left <= 0:
        raise BrokenFrameError("it did not answer in time")
    poll = select.poll()
    poll.register(descriptor, event)
    if alive >= 0:
        poll.register(alive, select.POLLIN)
    events = [ready for ready, _ in poll.poll(left)]
    if alive in events and descriptor not in events:
        raise BrokenFrameError("its process ended")
