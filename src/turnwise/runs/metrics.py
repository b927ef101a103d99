"""The metrics of a run: flat `area/name` floats, one record per step, copied to the sinks.

Provides `MetricsLog`, which writes `metrics.jsonl` and maps the steps of phases to one axis for
sinks without phases. A number that is not finite is written as null, because JSON cannot represent
it, and is not sent to sinks. Time and memory are under `time/` and `mem/`; two runs of one recipe
differ only in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.errors import RunError
from turnwise.runs.files import LineLog, read_json_lines
from turnwise.runs.sinks.base import Sink

Record = dict[str, Any]
UNREPEATABLE = ("time/", "mem/")


class MetricsLog:
    """Appends records to `metrics.jsonl` and sends them to the sinks.

    Phases follow one another, and each counts its own steps. On the common axis a phase begins
    where the preceding one ended: after 400 steps of warm-up, training step 3 is at 403.

    Example:
        >>> import tempfile
        >>> log = MetricsLog(Path(tempfile.mkdtemp()) / "metrics.jsonl")
        >>> log.append("train", 0, {"rollout/score": 0.25, "loss/total": float("nan")})
        >>> read_metrics(log.path)
        [{'phase': 'train', 'step': 0, 'rollout/score': 0.25, 'loss/total': None}]
    """

    def __init__(self, path: Path, *, sinks: Sequence[Sink] = ()) -> None:
        self.path = path
        self._log = LineLog(path)
        self._sinks = sinks
        self._axis = _AxisPosition.of(read_metrics(path))
        self._sent = self._axis.at

    def append(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
        """Write one record; a kill afterwards does not lose it."""
        values = {name: float(value) for name, value in metrics.items()}
        assert all("/" in name.strip("/") for name in values), f"not area/name: {sorted(values)}"
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        written = {name: finite.get(name) for name in values}
        self._log.append({"phase": phase, "step": step, **written})
        self._axis = self._axis.moved(phase, step)
        for sink in self._sinks:
            if sink.takes_back or self._axis.at > self._sent:
                sink.add(phase, step, self._axis.at, finite)

    def summarise(self, metrics: Mapping[str, float]) -> None:
        """Send the final numbers of the run to the sinks."""
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        for sink in self._sinks:
            sink.summarise(max(self._axis.at, self._sent), finite)

    def sync(self) -> int:
        """Sync all records to disk and return the offset to store in a checkpoint."""
        return self._log.sync()

    def truncate_to(self, offset: int) -> None:
        """Truncate the log to a checkpoint's offset, before the first record of a resumed run.

        TensorBoard purges later values of a phase when that phase continues. A sink that cannot
        purge keeps its values.

        Raises:
            RunError: if the log is shorter than that.
        """
        self._log.truncate_to(offset)
        self._axis = _AxisPosition.of(read_metrics(self.path))

    def close(self) -> None:
        """Close the file and all sinks."""
        self._log.close()
        for sink in self._sinks:
            sink.close()


class Unlogged(MetricsLog):
    """Takes records and writes nothing: another process of the run writes them."""

    def __init__(self) -> None:
        pass

    def append(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
        """Ignore a record."""

    def summarise(self, metrics: Mapping[str, float]) -> None:
        """Ignore the final numbers."""

    def sync(self) -> int:
        """Return 0: there is nothing to sync."""
        return 0

    def truncate_to(self, offset: int) -> None:
        """Leave the log to the process that writes it."""

    def close(self) -> None:
        """Do nothing: no file is open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _AxisPosition:
    """The position of the latest record: its phase, its step, and the start of its phase."""

    phase: str = ""
    step: int = 0
    start: int = 0
    at: int = -1

    @classmethod
    def of(cls, records: Iterable[Record]) -> _AxisPosition:
        axis = cls()
        for record in records:
            axis = axis.moved(record["phase"], record["step"])
        return axis

    def moved(self, phase: str, step: int) -> _AxisPosition:
        start = self.start if phase == self.phase else self.start + self.step
        return _AxisPosition(phase=phase, step=step, start=start, at=start + step)


def read_metrics(path: Path) -> list[Record]:
    """Return the records of a log; an incomplete last line is omitted, a missing file is empty.

    Raises:
        RunError: if a line other than the last is damaged.
    """
    records = read_json_lines(path)
    for number, record in enumerate(records, start=1):
        if not (isinstance(record.get("phase"), str) and isinstance(record.get("step"), int)):
            raise RunError(
                f"{path}, line {number} has no phase and step: the log was edited or damaged; "
                "restore it or remove the line"
            )
    return records


def comparable(records: Iterable[Record]) -> list[Record]:
    """Return the records without time and memory: equal for two runs of one recipe.

    Example:
        >>> comparable([{"phase": "train", "step": 0, "time/seconds": 1.5, "rollout/score": 0.5}])
        [{'phase': 'train', 'step': 0, 'rollout/score': 0.5}]
    """
    return [
        {key: value for key, value in record.items() if not key.startswith(UNREPEATABLE)}
        for record in records
    ]
