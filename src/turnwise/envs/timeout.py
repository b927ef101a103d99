"""Time limits on calls of user code that may never return.

Provides `within` and `Alarm`. In the main thread the limit is an interval timer (SIGALRM,
`ITIMER_REAL`); on other threads a monitor thread enforces it.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports]
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
REPEAT = 1.0
"""Seconds between repeated alarms, for a call that caught the first one."""
LONGEST = 1e9
"""The longest limit that the interval timer takes, in seconds (30 years)."""
LEAST_LEFT = 1e-3
"""The seconds left on another owner's timer that expired during the call."""
POLL = 0.05
"""Seconds between two polls of the monitor thread."""
IDLE_POLL = 1.0
"""Seconds between two polls of the monitor thread while no call has a limit."""
GRACE = 3.0
"""Seconds after its limit at which a call is reported as one that cannot be interrupted."""

THREAD_NAME = "asyncio_untimed"
"""The name of threads without a limit of their own: the code that awaits them has a timeout."""

Stuck = Callable[[float, FrameType | None], None]
"""A callback on the monitor thread: the seconds that a call has taken, and its current frame."""


class Overrun(BaseException):
    """A call exceeded its limit. It is no `Exception`, so `except Exception` does not catch it."""


class _Timer:
    """The state of the process's one interval timer."""

    armed = False
    alarms = 0
    repeats = False
    tracer: tuple[Any, ...] = ()  # the trace function that `_raise_at_line` replaced


def within(seconds: float, call: Callable[..., T], *args: Any, stuck: Stuck | None = None) -> T:
    """Return `call(*args)`, or raise if that takes longer than `seconds`.

    In the main thread the alarm interrupts Python code and system calls such as `sleep`, `read` and
    `recv`, even if the code catches every exception in a loop. On other threads (in notebooks,
    episodes run on a thread) and without interval timers (Windows), Python code is interrupted at
    once, a system call when it returns. C code that neither returns nor handles signals cannot be
    interrupted: `stuck` is called once, `GRACE` seconds after the limit. A nested call has the
    limit of the outer call. A process has one interval timer: a timer that other code had set is
    restored afterwards.

    Args:
        seconds: the limit.
        call: the function to call.
        *args: the arguments of the call.
        stuck: called for a call that cannot be interrupted.

    Raises:
        Overrun: if the call takes longer than `seconds`.

    Example:
        >>> within(5.0, max, 3, 4)
        4
        >>> try:
        ...     within(0.01, time.sleep, 60)
        ... except Overrun:
        ...     "too long"
        'too long'
    """
    thread = threading.current_thread()
    if thread.name == THREAD_NAME:
        return call(*args)
    if thread is not threading.main_thread() or not hasattr(signal, "setitimer"):
        return _MONITOR.within(seconds, stuck, call, *args)
    if _Timer.armed:
        return call(*args)
    with Alarm(seconds, stuck, repeats=True):
        return call(*args)


class Alarm:
    """A context manager that raises `Overrun` in its block after `seconds`.

    It does nothing outside the main thread, without interval timers, and inside another limit.

    Args:
        seconds: the limit.
        stuck: called for a block that cannot be interrupted.
        repeats: whether a block that catches the `Overrun` gets another one in its `except`.
    """

    def __init__(
        self, seconds: float, stuck: Stuck | None = None, *, repeats: bool = False
    ) -> None:
        self._seconds, self._stuck, self._repeats = seconds, stuck, repeats
        self._entered = False

    def __enter__(self) -> None:
        main = threading.current_thread() is threading.main_thread()
        if _Timer.armed or not main or not hasattr(signal, "setitimer"):
            return
        self._entered = True
        self._others = _signal.getsignal(signal.SIGALRM)  # `signal`'s takes longer than the rest
        if self._others is not _on_alarm:
            signal.signal(signal.SIGALRM, _on_alarm)
        self._began = time.monotonic()
        _MONITOR.watch(threading.get_ident(), self._seconds, self._stuck, interrupts=False)
        _Timer.alarms, _Timer.repeats, _Timer.armed = 0, self._repeats, True
        self._left = signal.setitimer(signal.ITIMER_REAL, min(self._seconds, LONGEST), REPEAT)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._entered:
            return
        _Timer.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if _Timer.tracer:
            sys.settrace(_Timer.tracer[0])
            _Timer.tracer = ()
        _MONITOR.unwatch(threading.get_ident())
        left, interval = self._left
        if left:
            signal.signal(signal.SIGALRM, self._others)
            left = max(left - (time.monotonic() - self._began), LEAST_LEFT)
            signal.setitimer(signal.ITIMER_REAL, left, interval)


def _on_alarm(number: int, frame: FrameType | None) -> None:
    code = None if frame is None else frame.f_code
    # A frame of this module means that the call has not begun or has returned. The exception is
    # `within`: a C function that it calls, such as `time.sleep`, has no frame of its own.
    outside = code is not None and code.co_filename == __file__ and code is not within.__code__
    if not _Timer.armed or outside:
        return
    _Timer.alarms += 1
    if _Timer.repeats and _Timer.alarms > 1:
        _trace(frame)
    raise Overrun


def _trace(frame: FrameType | None) -> None:
    """Raise `Overrun` at the next line of the call: in the `except` that catches this one."""
    if not _Timer.tracer:
        _Timer.tracer = (sys.gettrace(),)
    while frame is not None and frame.f_code.co_filename != __file__:
        frame.f_trace = _raise_at_line
        frame = frame.f_back
    sys.settrace(_raise_at_line)


def _raise_at_line(frame: FrameType, event: str, argument: Any) -> Any:
    if event == "line" and _Timer.armed:
        raise Overrun
    return None if event == "call" else _raise_at_line


@dataclass(slots=True)
class _Limit:
    """A call that the monitor thread watches.

    `late` counts polls after the limit, in seconds. It does not use the clock, so that a suspended
    process, or one with a held interpreter lock, is not reported as stuck.
    """

    began: float
    due: float
    stuck: Stuck | None
    interrupts: bool
    next_interrupt: float = 0.0
    late: float = 0.0


class _Monitor:
    """Interrupts calls on threads other than the main one; reports calls that it cannot interrupt.

    The monitor thread starts with the first call.
    """

    def __init__(self) -> None:
        self._lock, self._limits = threading.Lock(), dict[int, _Limit]()
        self._some, self._thread = threading.Event(), None

    def within(self, seconds: float, stuck: Stuck | None, call: Callable[..., T], *args: Any) -> T:
        """Return `call(*args)`, made on the current thread, or raise `Overrun`."""
        thread = threading.get_ident()
        if thread in self._limits:  # inside another limit
            return call(*args)
        self.watch(thread, seconds, stuck, interrupts=True)
        try:
            return call(*args)
        finally:
            with self._lock:
                self.unwatch(thread)
                _interrupt(thread, None)

    def watch(self, thread: int, seconds: float, stuck: Stuck | None, *, interrupts: bool) -> None:
        """Start to watch the call that `thread` is about to make."""
        now = time.monotonic()
        self._limits[thread] = _Limit(now, now + seconds, stuck, interrupts)
        if self._thread is None:
            name = "asyncio_timeout"  # `engines.loop` ignores threads of this name
            self._thread = threading.Thread(target=self._poll, name=name, daemon=True)
            self._thread.start()
        if not self._some.is_set():
            self._some.set()

    def unwatch(self, thread: int) -> None:
        """Stop watching a thread."""
        self._limits.pop(thread, None)

    def _poll(self) -> None:
        while True:
            self._some.wait(IDLE_POLL)
            time.sleep(POLL)
            over: list[tuple[int, _Limit]] = []
            with self._lock:
                now, known = time.monotonic(), list(self._limits.items())
                for thread, limit in known:
                    if now < limit.due:
                        continue
                    limit.late += POLL
                    if limit.interrupts and now >= limit.next_interrupt:
                        _interrupt(thread, Overrun)
                        limit.next_interrupt = now + REPEAT
                    if limit.late >= GRACE:
                        over.append((thread, limit))
                if not known:
                    self._some.clear()
            for thread, limit in over:
                self._report(thread, limit)

    def _report(self, thread: int, limit: _Limit) -> None:
        tell, limit.stuck = limit.stuck, None
        if tell is not None and self._limits.get(thread) is limit:
            tell(time.monotonic() - limit.began, sys._current_frames().get(thread))


def _interrupt(thread: int, error: type[BaseException] | None) -> None:
    """Raise `error` in a thread as soon as it runs Python code; None cancels a pending error."""
    given = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)


_MONITOR = _Monitor()
