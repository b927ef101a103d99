"""A wish to stop, kept until a loop reaches a safe point.

Owns the handlers of SIGINT (Ctrl-C), SIGTERM (systems that shut down) and SIGUSR1 (SLURM, before
the time limit) while a loop runs. Knows nothing of the loop: it asks `requested` where stopping
loses nothing, usually after a checkpoint.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGUSR1")


class StopSignal:
    """Turns the first signal into a flag; a second Ctrl-C interrupts at once.

    Outside the main thread, where Python allows no handlers, it never requests anything.

    Example:
        >>> with StopSignal() as stop:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     stop.requested
        'SIGTERM'
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self._interrupted = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            known = signal.Signals.__members__  # SIGUSR1 does not exist on Windows
            for number in (known[name] for name in NAMES if name in known):
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            # None stands for a handler that was not set from Python and cannot be set again
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = self._interrupted or number == signal.SIGINT
        self.requested = self.requested or signal.Signals(number).name
