"""The common base of experiment trackers, whose packages may fail without stopping a run.

Provides `Tracker`. A failure switches the tracker off with one warning. A small file in the run
folder stores the tracker's name of the run, so that a resumed run continues it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from turnwise.errors import TurnwiseError
from turnwise.runs.files import write_atomically

TRACKER_PACKAGES = (
    "wandb",
    "trackio",
    "httpx",
    "httpcore",
    "requests",
    "huggingface_hub",
    "sqlite3",
)
"""Packages whose errors, like every OSError, count as failures of the tracker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The run that sends metrics: its folder and name, the project, and its recipe."""

    folder: Path
    name: str
    project: str
    recipe: Mapping[str, Any]


class Tracker(ABC):
    """A service that stores runs. Its first failure is reported and switches it off.

    Every record also has `step/<phase>`, so that a phase can be plotted over its own steps.
    """

    takes_back: ClassVar[bool] = False
    package: ClassVar[str]

    def __init__(self, origin: Origin, note: Callable[[str], None]) -> None:
        self.origin, self.note = origin, note
        self._run: Any = None
        with self._catch_errors("begin"):
            self._run = self.begin()

    def add(self, phase: str, step: int, axis: int, values: Mapping[str, float]) -> None:
        """Send one record."""
        if self._run is not None:
            with self._catch_errors("log"):
                self.send(self._run, axis, {**values, f"step/{phase}": float(step)})

    def summarise(self, axis: int, values: Mapping[str, float]) -> None:
        """Send the final numbers of the run."""
        if self._run is not None:
            with self._catch_errors("summarise"):
                self.send_summary(self._run, axis, values)

    def close(self) -> None:
        """Wait until all records are sent, for a limited time."""
        if self._run is not None:
            with self._catch_errors("finish"):
                self.end(self._run)
        self._run = None

    @abstractmethod
    def begin(self) -> Any:
        """Return the tracker's run, new or resumed."""

    @abstractmethod
    def send(self, run: Any, axis: int, values: Mapping[str, float]) -> None:
        """Send values at a step of the common axis."""

    @abstractmethod
    def send_summary(self, run: Any, axis: int, values: Mapping[str, float]) -> None:
        """Send the summary."""

    @abstractmethod
    def end(self, run: Any) -> None:
        """End the tracker's run."""

    def read_state(self) -> dict[str, str] | None:
        """Return the stored state of this tracker; None in a new run."""
        if not self._state_file.is_file():
            return None
        return json.loads(self._state_file.read_text(encoding="utf-8"))

    def write_state(self, **facts: str) -> None:
        """Store the tracker's name of the run in the run folder."""
        write_atomically(self._state_file, json.dumps(facts) + "\n")

    @property
    def _state_file(self) -> Path:
        return self.origin.folder / f"{self.package}.json"

    def _catch_errors(self, doing: str) -> _CatchTrackerErrors:
        def fail(error: BaseException) -> None:
            self._run = None
            said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            self.note(
                f"{self.package} failed to {doing} and is not used any more ({said}); "
                "metrics.jsonl has everything"
            )

        return _CatchTrackerErrors(fail)


class _CatchTrackerErrors:
    """Passes the errors of a tracker to `fail` and lets all others propagate."""

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None or isinstance(error, TurnwiseError):
            return False
        homes = {base.__module__.partition(".")[0] for base in type(error).__mro__}
        if not isinstance(error, OSError) and homes.isdisjoint(TRACKER_PACKAGES):
            return False
        self._fail(error)
        return True
