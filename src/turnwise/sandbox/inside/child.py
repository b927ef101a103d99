"""The fresh process in which one program runs.

Provides `run_child`, which reads the program, completes the isolation, runs the program and stores
a record. No other process of the sandbox reads the program. The program shares this process with
the code below and may change all of it, so nothing here is trusted after the program has begun.
"""

from __future__ import annotations

import _thread
import atexit
import builtins
import errno
import fcntl
import importlib
import io
import mmap
import os
import random
import struct
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from . import frames, wire
from .filters import Filter
from .isolation import Isolation
from .memory import PrivateMap
from .plan import Calls, LaunchPlan

FILE = "<program>"
"""The name of the program's source in tracebacks."""
MOST_SAID = 500
"""The largest number of characters of a failure's message."""
SPARE = 16 << 20
_SPARE = mmap.mmap(-1, SPARE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
"""Spare address space in which to report that a program has used up its own."""
_AROUND = 64
_WARM_UPS = 20
_ALL_SEALS = 0xF
"""F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_WRITE."""
CONTROL = 60
"""The descriptor from which a child reads its program."""
_NO_MEMORY = (errno.ENOMEM,)
_REFUSALS = (errno.EPERM, errno.EACCES, errno.EROFS)
_FULL = (errno.EFBIG, errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildSettings:
    """The prepared state of a child: its isolation, its limits, and how to import.

    `plan` is made for the program's limits.
    """

    isolation: Isolation
    plan: LaunchPlan
    filter: Filter | None
    imports: tuple[list[Any], list[Any], list[Any]]


class RecordMemory:
    """Memory shared by a child and its worker, in which the child stores its record.

    The child closes the descriptor before the program begins, so that nothing which the program
    prints or writes leads there. The worker never maps it.

    Example:
        >>> descriptor = os.memfd_create("record")
        >>> RecordMemory(descriptor, 4096).leave(b"record")
        >>> RecordMemory.length(descriptor, 4096), os.pread(descriptor, 6, RecordMemory.START)
        (6, b'record')
    """

    _HEAD = struct.Struct("<QQ")
    _DONE = 0x600DF00D
    START = _HEAD.size

    def __init__(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size + self.START)
        self._memory = mmap.mmap(descriptor, size + self.START)

    def leave(self, said: bytes) -> None:
        """Store the record of the child."""
        self._memory[self.START : self.START + len(said)] = said
        self._memory[: self.START] = self._HEAD.pack(self._DONE, len(said))

    @classmethod
    def length(cls, descriptor: int, size: int) -> int:
        """Return the size of the stored record; 0 if there is none or its size is invalid."""
        head = os.pread(descriptor, cls.START, 0)
        mark, length = cls._HEAD.unpack(head) if len(head) == cls.START else (0, 0)
        return length if mark == cls._DONE and length <= size else 0


def run_child(
    order: frames.Order, settings: ChildSettings, folder: str, ends: Sequence[int]
) -> None:
    """Run the program to its end and exit; never returns.

    `ends` become the first descriptors: 1 and 2 are the program's own. Once the isolation is
    complete, the time at which the program begins and its CPU time until then are written to 3. 4
    is the memory for the record. The program is read from `CONTROL`. Only 0, 1 and 2 stay open.
    """
    try:
        for place, end in enumerate(ends):
            os.dup2(end, place)
        try:
            tasks, memory = _prepare(order, settings, folder)
        except Exception as error:  # the boundary: the program has not begun, whatever the error
            os.write(3, _what(error).encode(errors="replace")[: frames.ROOM])
            return
        os.write(3, frames.BEGUN.pack(b"!", time.monotonic(), time.process_time()))
        os.close(3)
        said = _run(tasks, order.output)
        _flush()
        memory.leave(said)
    finally:
        os._exit(0)


def _prepare(
    order: frames.Order, settings: ChildSettings, folder: str
) -> tuple[list[frames.Task], RecordMemory]:
    """Read the program, complete the isolation and set the limits.

    Returns the program and the memory for its record.
    """
    isolation, plan = settings.isolation, settings.plan
    task = frames.Task.unpack(frames.read_exactly(CONTROL, order.size))
    memory = RecordMemory(4, plan.shared)
    os.closerange(4, 1 << 20)
    sys.path, sys.meta_path, sys.path_hooks = settings.imports
    if isolation.nested:
        plan.isolation.make()
    else:
        isolation.close_in(folder)
        os.environ["HOME"] = os.environ["TMPDIR"] = folder
    if task.stdin:
        _give_stdin(task.stdin)
    else:
        plan.no_stdin.make()
    if order.processes == 1:
        mmap.mmap = PrivateMap
    plan.limits.make()
    if settings.filter is not None:
        settings.filter.put_on(os.getpid())
    return [task], memory


def _give_stdin(text: bytes) -> None:
    """Make `text` the content of descriptor 0."""
    descriptor = os.memfd_create("stdin", os.MFD_ALLOW_SEALING)
    frames.write_all(descriptor, text)
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _ALL_SEALS)
    os.dup2(descriptor, 0)
    os.close(descriptor)


def _run(tasks: list[frames.Task], most: int) -> bytes:
    """Run the program; return the record of how it ended, with a value of at most `most` bytes.

    The task is removed from `tasks`, so that no frame shows the program its own text.
    """
    source, call, _, given, seed, steps = tasks.pop()
    inputs = [given]
    del given
    if seed:
        seed_generators(seed)
    try:
        code = compile(source, FILE, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return _failed("syntax", _what(error), _line_of_syntax(error))
    del source
    try:
        value = _value_of(code, call, inputs, steps)
    except _TooManySteps:
        return _failed("cpu", f"more than {steps} steps")
    except BaseException as error:
        return _told(error)
    try:
        return wire.dump(("value", value), most + _AROUND)
    except wire.TooLargeError as error:
        return _failed("output", f"its value is too large: {error}")
    except wire.NotPlainError as error:
        return _failed("exception", f"its value cannot come back: {error}")
    except BaseException as error:  # reading attributes of its classes may raise anything
        return _told(error)


def make_streams() -> None:
    """Make the files of a program's output and input; all children begin with copies of them.

    They are made over pipes, so that what they detect about their descriptors is true in children.
    """
    ends = os.pipe()
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        kept = os.dup(descriptor)
        os.dup2(ends[mode == "w"], descriptor)
        raw = io.FileIO(descriptor, mode, closefd=False)
        vars(raw)["name"] = f"<{name}>"
        buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
        errors = "surrogateescape" if mode == "r" else "backslashreplace"
        stream = io.TextIOWrapper(buffer, encoding="utf-8", errors=errors)
        vars(stream)["mode"] = mode  # like Python's own streams, for readers that ask for it
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
        os.dup2(kept, descriptor)
        os.close(kept)
    for end in ends:
        os.close(end)


def _value_of(code: types.CodeType, call: str, inputs: list[bytes], steps: int) -> Any:
    """Run the program, and return its variable `result`."""
    module = types.ModuleType("program" if call else "__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules[module.__name__] = module
    given = wire.load(inputs.pop(), lambda: importlib.import_module("numpy"))
    if not call:
        module.__dict__.update(given if isinstance(given, dict) else {"inputs": given})
    with _Counted(steps):
        try:
            exec(code, module.__dict__)
        except SystemExit as left:
            if left.code not in (None, 0):
                raise
        if call and call not in module.__dict__:
            raise NameError(f"the program defines no {call!r}")
        if call:
            entry = module.__dict__[call]
            return entry(**given) if isinstance(given, dict) else entry(*given)
    _end_script()
    return module.__dict__.get("result")


def _end_script() -> None:
    """Wait for threads and call exit functions, as Python does at the end of a script.

    Their output is then complete. Most programs have neither, and skip this step.
    """
    if _thread._count():
        threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    if atexit._ncallbacks():
        atexit._run_exitfuncs()


def warm_up_interpreter() -> None:
    """Run the code of children once in a new worker, with programs written for this purpose.

    The interpreter specialises code that has run several times, and caches lookups. Each child
    would otherwise repeat this and copy the memory pages that it changes.
    """
    main = sys.modules["__main__"]
    given = wire.dump([1, 2.0, "three", [4], (5,), {"six": True}, None], frames.ROOM)
    named = wire.dump({"given": 1}, frames.ROOM)
    calls = Calls()
    calls.add("getpid", result=os.getpid())
    for _ in range(_WARM_UPS):
        for task in (
            frames.Task("def same(*given): return given", "same", b"", given, 0, 0),
            frames.Task("result = given", "", b"", named, 0, 0),
        ):
            _run([frames.Task.unpack(task.pack())], frames.ROOM)
            _flush()
            calls.make()
    del sys.modules["program"]
    sys.modules["__main__"] = main


def seed_generators(seed: int) -> None:
    """Seed the generators that programs share by convention; a worker seeds them with 0."""
    random.seed(seed)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(seed % 2**32)


class _TooManySteps(BaseException):
    pass


class _Counted:
    """Counts executed lines, if they are limited, and exits at the limit.

    A program that removes the counter is bounded by its limit of seconds.
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
    """Flush the output."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):  # the program may have replaced the stream
            stream.flush()


def _told(error: BaseException) -> bytes:
    """Return the failure of an uncaught exception."""
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
    """Return type and message of an exception whose `__str__` may do anything."""
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
    return wire.dump(("failed", kind, plain, int(line)), frames.ROOM)
