"""The metrics of a run: flat `area/name` floats, one record a step, mirrored to TensorBoard.

Owns `metrics.jsonl` and the event files. A number that is not finite is written as null, because
JSON has no other word for it, and is left out of TensorBoard. Clock and memory live under `time/`
and `mem/`: they are all that may differ between two runs of one recipe. Knows nothing of what the
numbers mean.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from turnwise.runs.files import LineLog, read_json_lines

Record = dict[str, Any]
UNREPEATABLE = ("time/", "mem/")


class MetricsLog:
    """Appends records to `metrics.jsonl` and, if given a folder, to TensorBoard.

    Example:
        >>> import tempfile
        >>> log = MetricsLog(Path(tempfile.mkdtemp()) / "metrics.jsonl")
        >>> log.append("train", 0, {"rollout/score": 0.25, "loss/total": float("nan")})
        >>> read_metrics(log.path)
        [{'phase': 'train', 'step': 0, 'rollout/score': 0.25, 'loss/total': None}]
    """

    def __init__(self, path: Path, *, tensorboard: Path | None = None) -> None:
        self.path = path
        self._log = LineLog(path)
        self._tensorboard = tensorboard
        self._writers: dict[str, _EventWriter] = {}

    def append(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
        """Write one record; a kill afterwards does not lose it."""
        values = {name: float(value) for name, value in metrics.items()}
        assert all("/" in name.strip("/") for name in values), f"not area/name: {sorted(values)}"
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        written = {name: finite.get(name) for name in values}
        self._log.append({"phase": phase, "step": step, **written})
        if self._tensorboard is not None:
            self._writer(phase, self._tensorboard / phase).add(step, finite)

    def sync(self) -> int:
        """Make all records durable and return the offset that a checkpoint remembers."""
        return self._log.sync()

    def truncate_to(self, offset: int) -> None:
        """Cut the log to a checkpoint's offset, before the first record of a resumed run.

        TensorBoard is told to forget what came later, phase by phase, as soon as a phase goes on.

        Raises:
            RunError: if the log is shorter than that.
        """
        self._log.truncate_to(offset)

    def close(self) -> None:
        """Close all files."""
        self._log.close()
        for writer in self._writers.values():
            writer.close()

    def _writer(self, phase: str, folder: Path) -> _EventWriter:
        if phase not in self._writers:
            self._writers[phase] = _EventWriter(folder)
        return self._writers[phase]


class _EventWriter:
    """TensorBoard event files of one phase; each phase has its own steps, so its own folder."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        # protoc makes these classes at run time, where no type checker sees them
        self._event = event_pb2.Event  # pyright: ignore[reportAttributeAccessIssue]
        self._session = event_pb2.SessionLog  # pyright: ignore[reportAttributeAccessIssue]
        self._summary = summary_pb2.Summary  # pyright: ignore[reportAttributeAccessIssue]
        self._goes_on = folder.is_dir() and any(folder.iterdir())
        if self._goes_on:
            _wait_for_a_later_name(folder)
        self._file = EventFileWriter(str(folder))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Write one step's values; a resumed phase first purges what it repeats."""
        if self._goes_on:
            start = self._session(status=self._session.START)
            self._file.add_event(self._event(wall_time=time.time(), step=step, session_log=start))
            self._goes_on = False
        rows = [self._summary.Value(tag=tag, simple_value=values[tag]) for tag in values]
        summary = self._summary(value=rows)
        self._file.add_event(self._event(wall_time=time.time(), step=step, summary=summary))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _wait_for_a_later_name(folder: Path) -> None:
    """Sleep until a new event file is named after those there: TensorBoard reads by name.

    A name begins with its second; what follows (host, process, counter) is in no order of time.
    """
    latest = max(file.stat().st_mtime for file in folder.iterdir())
    time.sleep(min(1.0, max(0.0, math.floor(latest) + 1 - time.time())))


def read_metrics(path: Path) -> list[Record]:
    """Return the records of a log in order; a torn last line is left out, a missing file is empty.

    Raises:
        RunError: if a line other than the last is damaged.
    """
    return read_json_lines(path)


def comparable(records: Iterable[Record]) -> list[Record]:
    """Return the records without clock and memory: equal for two runs of one recipe.

    Example:
        >>> comparable([{"phase": "train", "step": 0, "time/seconds": 1.5, "rollout/score": 0.5}])
        [{'phase': 'train', 'step': 0, 'rollout/score': 0.5}]
    """
    return [
        {key: value for key, value in record.items() if not key.startswith(UNREPEATABLE)}
        for record in records
    ]
