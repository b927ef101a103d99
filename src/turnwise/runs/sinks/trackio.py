"""The Trackio sink: local, or on the Hugging Face Space named by TRACKIO_SPACE_ID."""

from __future__ import annotations

import importlib
import io
import uuid
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any, ClassVar

from turnwise.runs.sinks.trackers import Tracker


class TrackioSink(Tracker):
    """One trackio run per run folder. Trackio finds runs by name, so names are made unique."""

    package: ClassVar[str] = "trackio"

    def begin(self) -> Any:
        """Begin or resume the trackio run; trackio's own output is discarded."""
        trackio: Any = importlib.import_module("trackio")
        known = self.read_state()
        project = known["project"] if known else self.origin.project
        name = known["name"] if known else self._free_name(trackio, project)
        self.write_state(project=project, name=name)
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

    def send_summary(self, run: Any, axis: int, values: Mapping[str, float]) -> None:
        """Log the summary as metrics of the last step, because trackio has no summaries."""
        run.log(dict(values), step=axis)

    def end(self, run: Any) -> None:
        """Finish the run."""
        with redirect_stdout(io.StringIO()):
            run.finish()

    def _free_name(self, trackio: Any, project: str) -> str:
        """Return the folder's name, with a suffix if another folder used the name before."""
        try:
            taken = {run.name for run in trackio.Api().runs(project)}
        except ValueError:  # the project does not exist yet
            taken = set()
        name = self.origin.name
        return name if name not in taken else f"{name}-{uuid.uuid4().hex[:6]}"
