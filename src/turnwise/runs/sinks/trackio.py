"""Trackio: local by default, on a Hugging Face Space where TRACKIO_SPACE_ID names one."""

from __future__ import annotations

import importlib
import io
import uuid
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any, ClassVar

from turnwise.runs.sinks.trackers import Tracker


class TrackioSink(Tracker):
    """One trackio run for one run folder. Trackio finds runs by name, so that names are unique."""

    package: ClassVar[str] = "trackio"

    def begin(self) -> Any:
        """Begin or go on with the trackio run; what trackio prints is left out."""
        trackio: Any = importlib.import_module("trackio")
        known = self.recall()
        project = known["project"] if known else self.origin.project
        name = known["name"] if known else self._free_name(trackio, project)
        self.remember(project=project, name=name)
        with redirect_stdout(io.StringIO()):
            run = trackio.init(
                project=project,
                name=name,
                config=dict(self.origin.recipe),
                resume="allow" if known else "never",
                embed=False,
            )
        self.note(f"trackio: run {name}; `trackio show --project {project}` shows it")
        return run

    def send(self, run: Any, axis: int, values: Mapping[str, float]) -> None:
        """Log values at a step of the run."""
        run.log(dict(values), step=axis)

    def sum_up(self, run: Any, axis: int, values: Mapping[str, float]) -> None:
        """Log the summary as metrics of the last step: trackio has no summaries."""
        run.log(dict(values), step=axis)

    def end(self, run: Any) -> None:
        """Finish the run."""
        with redirect_stdout(io.StringIO()):
            run.finish()

    def _free_name(self, trackio: Any, project: str) -> str:
        """Return the folder's name, with a few letters more where another folder had it before."""
        try:
            taken = {run.name for run in trackio.Api().runs(project)}
        except ValueError:  # there is no such project yet
            taken = set()
        name = self.origin.name
        return name if name not in taken else f"{name}-{uuid.uuid4().hex[:6]}"
