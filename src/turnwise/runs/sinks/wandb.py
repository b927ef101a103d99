"""The Weights & Biases sink, for its API of version 0.21 and later.

Its environment variables apply: WANDB_MODE=offline stores everything in the run folder, for
`wandb sync`.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from turnwise.errors import ConfigError
from turnwise.runs.sinks.trackers import Tracker

LONGEST_FINISH = 60.0
"""Seconds to wait at the end for pending records; a job may be near its time limit."""


class WandbSink(Tracker):
    """One wandb run per run folder; a resumed run continues under its first id."""

    package: ClassVar[str] = "wandb"

    def begin(self) -> Any:
        """Begin or resume the wandb run.

        Raises:
            ConfigError: if the user is not logged in.
        """
        wandb: Any = importlib.import_module("wandb")
        known = self.read_state() or {"id": uuid.uuid4().hex[:12], "project": self.origin.project}
        self.write_state(**known)
        try:
            run = wandb.init(
                project=known["project"],
                id=known["id"],
                name=self.origin.name,
                config=dict(self.origin.recipe),
                dir=str(self.origin.folder),
                resume="allow",
                reinit="create_new",
                settings=wandb.Settings(silent=True, console="off", finish_timeout=LONGEST_FINISH),
            )
        except (wandb.errors.UsageError, wandb.errors.AuthenticationError) as error:
            said = " ".join(str(error).split())
            raise ConfigError(
                f"metrics.sinks has 'wandb', which failed ({said}): run `wandb login`, set "
                "WANDB_MODE=offline, or leave it out"
            ) from None
        if run.offline:
            self.note(f"wandb: offline; `wandb sync {self.origin.folder}/wandb/offline-*` sends it")
        elif run.url:
            self.note(f"wandb: {run.url}")
        return run

    def send(self, run: Any, axis: int, values: Mapping[str, float]) -> None:
        """Log values at a step of the run."""
        if axis >= run.step:  # wandb rejects earlier steps, with a warning for each
            run.log(dict(values), step=axis, commit=True)

    def send_summary(self, run: Any, axis: int, values: Mapping[str, float]) -> None:
        """Set the run's summary."""
        run.summary.update(dict(values))

    def end(self, run: Any) -> None:
        """Finish the run."""
        run.finish()
