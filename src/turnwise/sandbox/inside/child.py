"""The fresh process in which one program runs, from its first instruction to its last.

Owns what a program finds: limits, its own output, its inputs; and what is made of how it ended. The
program shares this process with the code below and may change all of it: nothing here is trusted
afterwards. What this process knows are the program and its inputs; how long it took, what it used
and whether it broke a wall is for `worker` to say.
"""

from __future__ import annotations

import builtins
import errno
import io
import linecache
import mmap
import os
import resource
import struct
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from turnwise.sandbox.inside import kernel, wire
from turnwise.sandbox.inside.filters import Filter
from turnwise.sandbox.inside.jail import Walls

FILE = "<program>"
"""What the program's source is called in tracebacks."""
MOST_SAID = 500
"""Characters of a message about a failure."""
DESCRIPTORS = 64
STACK = 8 << 20
ROOM = 8192
"""Bytes of a sheet beside those of the value: for the message of a failure."""
SPARE = 16 << 20
_SPARE = mmap.mmap(-1, SPARE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
"""Addresses with which to say that a program has used up its own."""
_HEAD = struct.Struct("<II")
_DONE = 0x600DF00D
_NO_MEMORY = (errno.ENOMEM,)
_REFUSALS = (errno.EPERM, errno.EACCES, errno.EROFS)
_FULL = (errno.EFBIG, errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One program and all that bounds it, as `worker` was told.

    Example:
        >>> Job(source="result = 1", call="", inputs=b"[]", stdin=b"", limits={}).call
        ''
    """

    source: str
    call: str
    inputs: bytes
    stdin: bytes
    limits: dict[str, Any]


class Sheet:
    """Memory that worker and child share, on which the child leaves the value when it is done.

    No descriptor leads to it, so that nothing a program prints or writes can.

    Example:
        >>> sheet = Sheet(4096)
        >>> sheet.leave(b"{}")
        >>> sheet.take()
        b'{}'
        >>> sheet.take() is None
        True
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = mmap.mmap(-1, size + _HEAD.size)

    def leave(self, said: bytes) -> None:
        """Put down what the child has to say."""
        self._memory[_HEAD.size : _HEAD.size + len(said)] = said
        self._memory[: _HEAD.size] = _HEAD.pack(_DONE, len(said))

    def take(self) -> bytes | None:
        """Return what was left, and forget all of it; None if nothing was."""
        mark, size = _HEAD.unpack(self._memory[: _HEAD.size])
        whole = mark == _DONE and size <= self.size
        said = self._memory[_HEAD.size : _HEAD.size + size] if whole else None
        self._memory.madvise(mmap.MADV_REMOVE)
        return said


def live(job: Job, walls: Walls, filter: Filter | None, sheet: Sheet, folder: str) -> None:
    """Run the program to its end and exit; never returns.

    Descriptors: 0, 1 and 2 are the program's own; 3 is told when all walls stand, just before the
    program begins. All others are closed.
    """
    try:
        try:
            os.closerange(4, 1 << 16)
            _bound(resource.RLIMIT_AS, job.limits["base"] + job.limits["memory"], for_good=True)
            _bound(resource.RLIMIT_FSIZE, job.limits["files"], for_good=True)
            if job.limits["processes"] > 1:  # a single one is watched, more exactly
                _bound(resource.RLIMIT_CPU, int(job.limits["cpu"]) + 1, for_good=True)
            _stand(walls, filter, folder)
        except (OSError, ValueError) as error:
            os.write(2, _what(error).encode(errors="replace"))
            return
        os.write(3, b"!")
        os.close(3)
        said = _run(job)
        _flush()
        sheet.leave(said)
    finally:
        os._exit(0)


def _stand(walls: Walls, filter: Filter | None, folder: str) -> None:
    """Put this process behind what is the program's own of the walls."""
    if not walls.own_root:
        os.setsid()
        os.chdir(folder)
    if walls.user is not None:
        os.setgroups([])
        os.setresgid(walls.user, walls.user, walls.user)
        os.setresuid(walls.user, walls.user, walls.user)  # and with it, all capabilities
    elif filter is not None:
        kernel.drop_capabilities()
    if filter is not None:
        filter.put_on(os.getpid())


def limit(limits: dict[str, Any], walls: Walls) -> None:
    """Set the limits on this process's children that it can bear itself; `live` sets the others."""
    bounds = {
        resource.RLIMIT_NOFILE: DESCRIPTORS,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_STACK: STACK,
    }
    if walls.own_root:
        beside = 0 if walls.user is not None else 2  # the worker and the one that waits for it
        bounds[resource.RLIMIT_NPROC] = beside + limits["processes"] + limits["threads"]
    for name, most in bounds.items():
        _bound(name, most, for_good=False)


def _bound(name: int, most: int, *, for_good: bool) -> None:
    hard = resource.getrlimit(name)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(name, (most, most if for_good else hard))


def _run(job: Job) -> bytes:
    """Run the program; return what there is to say of it."""
    steps = job.limits["steps"]
    try:
        code = compile(job.source, FILE, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return _failed("syntax", _what(error), _line_of_syntax(error))
    try:
        value = _value_of(job, code, steps)
    except _TooManySteps:
        return _failed("cpu", f"more than {steps} steps")
    except BaseException as error:
        return _told(error)
    try:
        return wire.dump(["value", value], job.limits["output"] + 16)
    except wire.TooLargeError as error:
        return _failed("output", f"its value is too large: {error}")
    except wire.NotPlainError as error:
        return _failed("exception", f"its value cannot come back: {error}")
    except BaseException as error:  # its own classes may do anything when they are looked at
        return _told(error)


def make_streams() -> None:
    """Make the files that programs print to and read from; all children begin with copies of them.

    They are made over pipes, as what they find out about their descriptors then holds in children.
    """
    ends = os.pipe()
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        kept = os.dup(descriptor)
        os.dup2(ends[mode == "w"], descriptor)
        raw = io.FileIO(descriptor, mode, closefd=False)
        buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
        errors = "surrogateescape" if mode == "r" else "backslashreplace"
        stream = io.TextIOWrapper(buffer, encoding="utf-8", errors=errors)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
        os.dup2(kept, descriptor)
        os.close(kept)
    for end in ends:
        os.close(end)


def _value_of(job: Job, code: types.CodeType, steps: int) -> Any:
    """Run the program, and return what it calls its result."""
    module = types.ModuleType("program" if job.call else "__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules[module.__name__] = module
    linecache.cache[FILE] = (len(job.source), None, job.source.splitlines(keepends=True), FILE)
    given = wire.load(job.inputs)
    if not job.call:
        module.__dict__.update(given if isinstance(given, dict) else {"inputs": given})
    with _Counted(steps):
        try:
            exec(code, module.__dict__)
        except SystemExit as left:
            if left.code not in (None, 0):
                raise
        if not job.call:
            return module.__dict__.get("result")
        if job.call not in module.__dict__:
            raise NameError(f"the program defines no {job.call!r}")
        entry = module.__dict__[job.call]
        return entry(**given) if isinstance(given, dict) else entry(*given)


class _TooManySteps(BaseException):
    pass


class _Counted:
    """Counts lines as they run, where there is a limit on them, and exits at the limit.

    A program that takes the count away is left to its limit of seconds.
    """

    def __init__(self, most: int) -> None:
        self.left = most

    def __enter__(self) -> None:
        if self.left:
            threading.settrace(self._trace)
            sys.settrace(self._trace)

    def __exit__(self, *ended: object) -> None:
        sys.settrace(None)
        if self.left < 0:
            raise _TooManySteps

    def _trace(self, frame: types.FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if frame.f_code is _Counted.__exit__.__code__:
            return None
        if event == "line":
            self.left -= 1
            if self.left < 0:
                raise _TooManySteps
        return self._trace


def _flush() -> None:
    """Write what is left of the output."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):  # whatever the program has put there
            stream.flush()


def _told(error: BaseException) -> bytes:
    """Return the failure that an exception which nobody caught amounts to."""
    kind = "exception"
    if isinstance(error, MemoryError) or _is_one_of(error, _NO_MEMORY):
        kind = "memory"
        _SPARE.close()
    elif _is_one_of(error, _REFUSALS):
        kind = "forbidden"
    elif _is_one_of(error, _FULL):
        kind = "output"
    return _failed(kind, _what(error), _line_of(error))


def _is_one_of(error: BaseException, numbers: Sequence[int]) -> bool:
    return isinstance(error, OSError) and error.errno in numbers


def _what(error: BaseException) -> str:
    """Return type and message of an exception whose own text may do anything."""
    name = type(error).__name__
    try:
        said = str(error)
    except BaseException as worse:
        return f"{name} (its message raised {type(worse).__name__})"
    return f"{name}: {said[:MOST_SAID]}" if said else name


def _line_of(error: BaseException) -> int:
    """Return the line of the program in which an exception was raised; 0 if in none."""
    try:
        lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if _is_own(frame)]
    except BaseException:
        return 0
    return lines[-1] if lines else 0


def _is_own(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename == FILE


def _line_of_syntax(error: BaseException) -> int:
    return error.lineno or 0 if isinstance(error, SyntaxError) else 0


def _failed(kind: str, message: str, line: int = 0) -> bytes:
    plain = "".join(str(message))[: MOST_SAID + 100]
    return wire.dump(["failed", kind, plain, int(line)], ROOM)
