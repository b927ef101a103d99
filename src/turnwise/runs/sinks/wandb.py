"""Weights & Biases. Knows its API (0.21 and later) and nothing of what is sent.

Its own switches hold: WANDB_MODE=offline keeps everything in the run folder, for `wandb sync`.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from turnwise.errors import ConfigError
from turnwise.runs.sinks.trackers import Tracker

LONGEST_FINISH = 60.0
"""Seconds to wait at the end for what is still on its way: a job's time may be up."""


class WandbSink(Tracker):
    """One wandb run for one run folder; a resumed run goes on under the id it began with."""

    package: ClassVar[str] = "wandb"

    def begin(self) -> Any:
        """Begin or go on with the wandb run.

        Raises:
            ConfigError: if nobody is logged in.
        """
        wandb: Any = importlib.import_module("wandb")
        known = self.recall() or {"id": uuid.uuid4().hex[:12], "project": self.origin.project}
        self.remember(**known)
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
                f"metrics.sinks has 'wandb', which refuses ({said}): run `wandb login`, set "
                "WANDB_MODE=offline, or leave it out"
            ) from None
        if run.offline:
            self.note(f"wandb: offline; `wandb sync {self.origin.folder}/wandb/offline-*` sends it")
        elif run.url:
            self.note(f"wandb: {run.url}")
        return run

    def send(self, run: Any, axis: int, values: Mapping[str, float]) -> None:
        """Log values at a step of the run."""
        if axis >= run.step:  # wandb refuses, with a warning each, steps that it is past
            run.log(dict(values), step=axis, commit=True)

    def sum_up(self, run: Any, axis: int, values: Mapping[str, float]) -> None:
        """Set the run's summary."""
        run.summary.update(dict(values))

    def end(self, run: Any) -> None:
        """Finish the run."""
        run.finish()
