"""The progress of a loop: a protocol of three calls, and a class that ignores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

TIME_SHARE = "time/share"
"""The share of `trainer.minutes` that is over, told with each iteration; 0 without a limit."""
WARNING = "warning: "
"""Begins a note that says that something may be wrong."""


class Progress(Protocol):
    """Receives the phases and steps of a run; the command line draws them."""

    def begin(self, phase: str, *, done: int, total: int) -> None:
        """A phase begins or goes on at step `done`.

        Phases are "exploration", "warm-up", "training" and "evaluation".
        """
        ...

    def advance(self, done: int, metrics: Mapping[str, float]) -> None:
        """Step number `done` of the phase is finished, with these metrics."""
        ...

    def note(self, text: str) -> None:
        """Something the user should read."""
        ...


class Silent:
    """Watches nothing."""

    def begin(self, phase: str, *, done: int, total: int) -> None:
        """Ignore the phase."""

    def advance(self, done: int, metrics: Mapping[str, float]) -> None:
        """Ignore the step."""

    def note(self, text: str) -> None:
        """Ignore the note."""
