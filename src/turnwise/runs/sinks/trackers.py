"""What the experiment trackers share: packages of others that may fail, and must not stop a run.

Owns the switching off of a tracker that fails, the one warning about it, and the small file in the
run folder by which a resumed run finds its own again.
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

THEIRS = ("wandb", "trackio", "httpx", "httpcore", "requests", "huggingface_hub", "sqlite3")
"""Packages whose own errors are a tracker's trouble; so is every OSError."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The run whose metrics are sent: its folder and name, the project, and its recipe."""

    folder: Path
    name: str
    project: str
    recipe: Mapping[str, Any]


class Tracker(ABC):
    """A service that keeps runs. Its first failure is noted and switches it off.

    Every record also holds `step/<phase>`, so that a phase can be looked at by its own steps.
    """

    takes_back: ClassVar[bool] = False
    package: ClassVar[str]

    def __init__(self, origin: Origin, note: Callable[[str], None]) -> None:
        self.origin, self.note = origin, note
        self._run: Any = None
        with self._forgiving("begin"):
            self._run = self.begin()

    def add(self, phase: str, step: int, axis: int, values: Mapping[str, float]) -> None:
        """Send one record."""
        if self._run is not None:
            with self._forgiving("log"):
                self.send(self._run, axis, {**values, f"step/{phase}": float(step)})

    def summarise(self, axis: int, values: Mapping[str, float]) -> None:
        """Send the numbers that the run is known by."""
        if self._run is not None:
            with self._forgiving("summarise"):
                self.sum_up(self._run, axis, values)

    def close(self) -> None:
        """Wait until all is sent, but not for ever."""
        if self._run is not None:
            with self._forgiving("finish"):
                self.end(self._run)
        self._run = None

    @abstractmethod
    def begin(self) -> Any:
        """Return the tracker's run, new or gone on with."""

    @abstractmethod
    def send(self, run: Any, axis: int, values: Mapping[str, float]) -> None:
        """Send values at a place of the axis."""

    @abstractmethod
    def sum_up(self, run: Any, axis: int, values: Mapping[str, float]) -> None:
        """Send the summary."""

    @abstractmethod
    def end(self, run: Any) -> None:
        """End the tracker's run."""

    def recall(self) -> dict[str, str] | None:
        """Return what the run folder remembers of this tracker; None in a new run."""
        if not self._memory.is_file():
            return None
        return json.loads(self._memory.read_text(encoding="utf-8"))

    def remember(self, **facts: str) -> None:
        """Write into the run folder by which name the tracker knows the run."""
        write_atomically(self._memory, json.dumps(facts) + "\n")

    @property
    def _memory(self) -> Path:
        return self.origin.folder / f"{self.package}.json"

    def _forgiving(self, doing: str) -> _Forgiving:
        def fail(error: BaseException) -> None:
            self._run = None
            said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            self.note(
                f"{self.package} failed to {doing} and is left out from here on ({said}); "
                "metrics.jsonl has everything"
            )

        return _Forgiving(fail)


class _Forgiving:
    """Hands the errors of a tracker to `fail` and lets all others pass."""

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
        if not isinstance(error, OSError) and homes.isdisjoint(THEIRS):
            return False
        self._fail(error)
        return True
