"""Signals that stop a run: kept until a loop reaches a safe point, or raised at once.

Owns the handlers of SIGINT (Ctrl-C), SIGTERM (systems that shut down), SIGHUP (a terminal that is
closed) and SIGUSR1 (SLURM, before the time limit) while a run goes on. Knows nothing of the loop:
it asks `requested` where stopping loses nothing, usually after a checkpoint. While a model is
loaded or scored, nothing would be saved by waiting: in an `at_once` block the signal is raised.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import IO, Any

from turnwise.output import silence

NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")


class StopSignal:
    """Turns the first signal into a flag; a second Ctrl-C interrupts at once.

    Outside the main thread, where Python allows no handlers, it never requests anything.

    Args:
        say: told what is going to happen, at the moment the signal comes.

    Attributes:
        requested: the name of the first signal; None before.
        interrupted: whether Ctrl-C was pressed.

    Example:
        >>> with StopSignal(print) as stop:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     stop.requested
        SIGTERM: stopping after this iteration
        'SIGTERM'
    """

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self.requested: str | None = None
        self._say = say
        self.interrupted = False
        self._at_once = False
        self._before: dict[signal.Signals, Any] = {}
        self._terminals: list[IO[str]] = []

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():
            self._terminals = [file for file in (sys.stdout, sys.stderr) if file.isatty()]
            known = signal.Signals.__members__  # SIGUSR1 does not exist on Windows
            for number in (known[name] for name in NAMES if name in known):
                if number.name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN:
                    continue  # `nohup` asked for that
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

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Raise KeyboardInterrupt in the block for any signal, which waits for nothing there.

        One that has come before is raised now.
        """
        if self.requested is not None:
            raise KeyboardInterrupt
        self._at_once = True
        try:
            yield
        finally:
            self._at_once = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if signal.Signals(number).name == "SIGHUP":
            self._leave_terminal()
        again = number == signal.SIGINT and self.interrupted
        self.interrupted = self.interrupted or number == signal.SIGINT
        first = self.requested is None
        self.requested = self.requested or signal.Signals(number).name
        if again or self._at_once:
            raise KeyboardInterrupt
        if first and self._say is not None:
            if number == signal.SIGINT:
                text = "Ctrl-C: stopping after this iteration; once more stops at once"
            else:
                text = f"{self.requested}: stopping after this iteration"
            try:
                self._say(text)
            except RuntimeError:  # the signal came in the middle of a write to the same stream
                os.write(2, f"\n{text}\n".encode())

    def _leave_terminal(self) -> None:
        """Let output to a terminal that is closed go nowhere: writing to it is an error."""
        for file in self._terminals:
            with suppress(ValueError, OSError):  # no descriptor
                silence(file)
