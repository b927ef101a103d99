"""A limit on how long a call may take, for code that is not ours and may never return.

Owns the alarm clock of the main thread (SIGALRM, `ITIMER_REAL`). Knows nothing of envs.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
AGAIN = 1.0
"""Seconds after which the alarm rings again, where the call swallowed the first one."""
SOON = 1e-3
"""Seconds left to a clock that somebody else set and that ran out meanwhile."""


class Overrun(BaseException):
    """A call took too long. No `Exception`: the broad `except` of the called must not catch it."""


class _Clock:
    armed = False


def within(seconds: float, call: Callable[..., T], *args: Any) -> T:
    """Return `call(*args)`, or raise if that takes longer than `seconds`.

    The alarm interrupts Python code and system calls such as `sleep`, `read` and `recv`. It cannot
    act, and the call may take for ever: outside the main thread (as in notebooks, where play runs
    on a thread of its own); where there are no interval timers (Windows); in C code that neither
    returns nor lets Python handle signals. A call inside a call has the outer one's limit. The
    clock is one a process: one that somebody else had set goes on afterwards.

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
    main = threading.current_thread() is threading.main_thread()
    if _Clock.armed or not main or not hasattr(signal, "setitimer"):
        return call(*args)
    others = signal.getsignal(signal.SIGALRM)
    if others is not _ring:
        signal.signal(signal.SIGALRM, _ring)
    began = time.monotonic()
    _Clock.armed = True
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        return call(*args)
    finally:
        _Clock.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if left:
            signal.signal(signal.SIGALRM, others)
            left = max(left - (time.monotonic() - began), SOON)
            signal.setitimer(signal.ITIMER_REAL, left, interval)


def _ring(number: int, frame: FrameType | None) -> None:
    if _Clock.armed:
        raise Overrun
