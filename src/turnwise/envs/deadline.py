"""A limit on how long a call may take, for code that is not ours and may never return.

Provides `within` and `Alarm`: in the main thread by its alarm clock (SIGALRM, `ITIMER_REAL`), on
other threads by a watching thread. Knows nothing of envs.
"""

from __future__ import annotations

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
"""Seconds after which the alarm comes again, where the call swallowed the first one."""
LONGEST = 1e9
"""Seconds of the longest limit that the alarm clock takes, some 30 years."""
LEAST_LEFT = 1e-3
"""Seconds left to a clock that somebody else set and that ran out meanwhile."""
POLL = 0.05
"""Seconds between two looks of the watching thread."""
IDLE_POLL = 1.0
"""Seconds between two looks of the watching thread while no call has a limit."""
GRACE = 3.0
"""Seconds after its limit from which on a call counts as one that cannot be interrupted."""

ASIDE = "asyncio_aside"
"""The name of threads whose calls have a limit of another kind: who waits for them gives up."""

Stuck = Callable[[float, FrameType | None], None]
"""Told, on the watching thread, how many seconds a call has taken, and where it is."""


class Overrun(BaseException):
    """A call took too long. No `Exception`: the broad `except` of the called must not catch it."""


class _Clock:
    armed = False
    alarms = 0
    repeats = False
    tracer: tuple[Any, ...] = ()  # the trace function that `_raise_at_line` replaced


def within(seconds: float, call: Callable[..., T], *args: Any, stuck: Stuck | None = None) -> T:
    """Return `call(*args)`, or raise if that takes longer than `seconds`.

    In the main thread the alarm interrupts Python code and system calls such as `sleep`, `read` and
    `recv`, also where the code catches every exception in a loop. On other threads (as in
    notebooks, where play runs on a thread of its own) and where there are no interval timers
    (Windows), Python code is interrupted, a system call only when it returns. Nothing interrupts C
    code that neither returns nor lets Python handle signals: `stuck` is told of it, once, `GRACE`
    seconds after the limit. A call inside a call has the outer one's limit. The clock is one a
    process: one that somebody else had set goes on afterwards.

    Raises:
        Overrun: if the call takes too long.

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
    if thread.name == ASIDE:
        return call(*args)
    if thread is not threading.main_thread() or not hasattr(signal, "setitimer"):
        return _WATCH.within(seconds, stuck, call, *args)
    if _Clock.armed:
        return call(*args)
    with Alarm(seconds, stuck, repeats=True):
        return call(*args)


class Alarm:
    """Lets what runs inside the block be interrupted by an `Overrun` after `seconds`.

    Does nothing outside the main thread, without interval timers, and inside another limit.

    Args:
        seconds: the limit.
        stuck: told of a block that cannot be interrupted.
        repeats: whether a block that catches the `Overrun` gets another one in its `except`.
    """

    def __init__(
        self, seconds: float, stuck: Stuck | None = None, *, repeats: bool = False
    ) -> None:
        self._seconds, self._stuck, self._repeats = seconds, stuck, repeats
        self._entered = False

    def __enter__(self) -> None:
        main = threading.current_thread() is threading.main_thread()
        if _Clock.armed or not main or not hasattr(signal, "setitimer"):
            return
        self._entered = True
        self._others = signal.getsignal(signal.SIGALRM)
        if self._others is not _on_alarm:
            signal.signal(signal.SIGALRM, _on_alarm)
        self._began = time.monotonic()
        _WATCH.watch(threading.get_ident(), self._seconds, self._stuck, interrupts=False)
        _Clock.alarms, _Clock.repeats, _Clock.armed = 0, self._repeats, True
        self._left = signal.setitimer(signal.ITIMER_REAL, min(self._seconds, LONGEST), REPEAT)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._entered:
            return
        _Clock.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if _Clock.tracer:
            sys.settrace(_Clock.tracer[0])
            _Clock.tracer = ()
        _WATCH.unwatch(threading.get_ident())
        left, interval = self._left
        if left:
            signal.signal(signal.SIGALRM, self._others)
            left = max(left - (time.monotonic() - self._began), LEAST_LEFT)
            signal.setitimer(signal.ITIMER_REAL, left, interval)


def _on_alarm(number: int, frame: FrameType | None) -> None:
    code = None if frame is None else frame.f_code
    # Python code of this module runs before the call begins and after it has returned. In `within`
    # itself the call is one of C, such as `time.sleep`, which has no frame of its own.
    outside = code is not None and code.co_filename == __file__ and code is not within.__code__
    if not _Clock.armed or outside:
        return
    _Clock.alarms += 1
    if _Clock.repeats and _Clock.alarms > 1:
        _trace(frame)
    raise Overrun


def _trace(frame: FrameType | None) -> None:
    """Let the next line that the call runs raise: the `except` that swallows what is raised now."""
    if not _Clock.tracer:
        _Clock.tracer = (sys.gettrace(),)
    while frame is not None and frame.f_code.co_filename != __file__:
        frame.f_trace = _raise_at_line
        frame = frame.f_back
    sys.settrace(_raise_at_line)


def _raise_at_line(frame: FrameType, event: str, argument: Any) -> Any:
    if event == "line" and _Clock.armed:
        raise Overrun
    return None if event == "call" else _raise_at_line


@dataclass(slots=True)
class _Limit:
    """A call that the watching thread knows of; `late` grows by its looks, not by the clock.

    So a process that was suspended, or whose interpreter was held, is not taken for one that hangs.
    """

    began: float
    due: float
    stuck: Stuck | None
    interrupts: bool
    next_interrupt: float = 0.0
    late: float = 0.0


class _Watch:
    """Interrupts calls on threads other than the main one, and tells of those that cannot be.

    Its own thread begins with the first call.
    """

    def __init__(self) -> None:
        self._lock, self._limits = threading.Lock(), dict[int, _Limit]()
        self._some, self._thread = threading.Event(), None

    def within(self, seconds: float, stuck: Stuck | None, call: Callable[..., T], *args: Any) -> T:
        """Return `call(*args)`, made on this thread, or raise `Overrun`."""
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
        """Watch the call that `thread` is about to make."""
        now = time.monotonic()
        self._limits[thread] = _Limit(now, now + seconds, stuck, interrupts)
        if self._thread is None:
            name = "asyncio_deadline"  # known to `engines.loop` as one that wakes nobody
            self._thread = threading.Thread(target=self._poll, name=name, daemon=True)
            self._thread.start()
        if not self._some.is_set():
            self._some.set()

    def unwatch(self, thread: int) -> None:
        """Watch a thread no longer."""
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
    """Let `error` be raised in a thread as soon as it runs Python code; None takes that back."""
    given = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)


_WATCH = _Watch()
