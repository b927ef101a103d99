"""Handlers of the signals that stop a run.

Provides `StopSignal`, which handles SIGINT (Ctrl-C), SIGTERM (system shutdown), SIGHUP (a closed
terminal) and SIGUSR1 (SLURM, before the time limit). The training loop reads `requested` at points
where stopping loses no work, usually after a checkpoint. In an `at_once` block, as while a model is
loaded or scored, a signal raises immediately, because waiting would save nothing.
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

from turnwise.utils.console import silence

NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")


class StopSignal:
    """Records the first signal; a second Ctrl-C interrupts immediately.

    Outside the main thread, where Python allows no handlers, `requested` stays None.

    Args:
        say: called with the message for the user when the signal arrives.

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
                    continue  # ignored on purpose, as by `nohup`
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            # None is a handler that was not installed from Python and cannot be restored
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Raise KeyboardInterrupt for any signal in the block.

        A signal that arrived before is raised at the start of the block.
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
            except RuntimeError:  # the signal interrupted a write to the same stream
                os.write(2, f"\n{text}\n".encode())

    def _leave_terminal(self) -> None:
        """Discard output to a closed terminal; writing to it would be an error."""
        for file in self._terminals:
            with suppress(ValueError, OSError):  # no descriptor
                silence(file)
