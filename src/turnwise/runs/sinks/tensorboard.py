"""TensorBoard event files: a folder for each phase, because each counts its own steps."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar


class TensorBoardSink:
    """Event files in one folder; a resumed phase purges the steps that it repeats."""

    takes_back: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, _EventWriter] = {}

    def add(self, phase: str, step: int, axis: int, values: Mapping[str, float]) -> None:
        """Write one step's values into the phase's folder."""
        if phase not in self._writers:
            self._writers[phase] = _EventWriter(self._folder / phase)
        self._writers[phase].add(step, values)

    def summarise(self, axis: int, values: Mapping[str, float]) -> None:
        """Do nothing: `eval.json` and the report have the summary, which is no curve."""

    def close(self) -> None:
        """Close all files."""
        for writer in self._writers.values():
            writer.close()


class _EventWriter:
    """TensorBoard event files of one phase; each phase has its own steps, so its own folder."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        # protoc makes these classes at run time, so type checkers do not know them
        self._event = event_pb2.Event  # pyright: ignore[reportAttributeAccessIssue]
        self._session = event_pb2.SessionLog  # pyright: ignore[reportAttributeAccessIssue]
        self._summary = summary_pb2.Summary  # pyright: ignore[reportAttributeAccessIssue]
        self._goes_on = folder.is_dir() and any(folder.iterdir())
        if self._goes_on:
            _wait_for_a_later_name(folder)
        # not tensorboard's EventFileWriter, whose thread raises a traceback on a full disk
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._file = RecordWriter((folder / name).open("wb"))
        self._write(file_version="brain.Event:2")

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Write one step's values; a resumed phase first purges the steps that it repeats."""
        if self._goes_on:
            self._write(step=step, session_log=self._session(status=self._session.START))
            self._goes_on = False
        rows = [self._summary.Value(tag=tag, simple_value=values[tag]) for tag in values]
        self._write(step=step, summary=self._summary(value=rows))

    def _write(self, **event: Any) -> None:
        self._file.write(self._event(wall_time=time.time(), **event).SerializeToString())
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _wait_for_a_later_name(folder: Path) -> None:
    """Sleep until the name of a new event file sorts after the existing ones.

    TensorBoard reads files in the order of their names. A name begins with the second of its
    creation; the rest (host, process, counter) is in no order of time.
    """
    latest = max(file.stat().st_mtime for file in folder.iterdir())
    time.sleep(min(1.0, max(0.0, math.floor(latest) + 1 - time.time())))
