"""Where metrics go beside `metrics.jsonl`: TensorBoard files, Weights & Biases, Trackio.

To add one: write its file, add a line to `SINKS`, and an extra to pyproject.toml if it needs a
package. Sinks only receive: nothing in turnwise reads what they hold, and none can stop a run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from turnwise.errors import ConfigError, MissingDependencyError, unknown_name
from turnwise.runs.folder import Run
from turnwise.runs.sinks.base import Sink
from turnwise.runs.sinks.tensorboard import TensorBoardSink
from turnwise.runs.sinks.trackers import Origin, Tracker
from turnwise.runs.sinks.trackio import TrackioSink
from turnwise.runs.sinks.wandb import WandbSink
from turnwise.settings import Settings

SINKS: dict[str, type[TensorBoardSink] | type[Tracker]] = {
    "tensorboard": TensorBoardSink,
    WandbSink.package: WandbSink,
    TrackioSink.package: TrackioSink,
}


class MetricsConfig(Settings):
    """Where a run's metrics go beside `metrics.jsonl`, which is always written."""

    sinks: tuple[str, ...] = ("tensorboard",)
    """Any of `tensorboard`, `wandb` and `trackio`; the last two need `turnwise[wandb]` and
    `turnwise[trackio]`."""
    project: str = Field(default="turnwise", min_length=1)
    """The project under which wandb and trackio keep the run; its name is the run folder's."""

    @field_validator("sinks")
    @classmethod
    def _check(cls, sinks: tuple[str, ...]) -> tuple[str, ...]:
        for name in sinks:
            if name not in SINKS:
                raise unknown_name("sink", name, SINKS)
        if len(set(sinks)) < len(sinks):
            raise ConfigError(f"{list(sinks)} names a sink twice: leave one out")
        return sinks


def check_installed(sinks: Sequence[str]) -> None:
    """Raise unless the packages of `sinks` are installed.

    Raises:
        MissingDependencyError: with the command that installs what is missing.

    Example:
        >>> check_installed(["tensorboard"])
    """
    for name in sinks:
        if importlib.util.find_spec(name) is None:
            raise MissingDependencyError(
                f"metrics.sinks has {name!r}, which is not installed: "
                f"pip install 'turnwise[{name}]', or leave it out"
            )


def open_sinks(
    config: MetricsConfig, run: Run, recipe: Mapping[str, Any], note: Callable[[str], None]
) -> tuple[Sink, ...]:
    """Return the sinks of a run, begun or gone on with.

    Args:
        config: which ones.
        run: its folder, which remembers what a tracker calls the run.
        recipe: the resolved recipe, as plain values.
        note: told where to look, and once if a tracker cannot be reached.

    Raises:
        MissingDependencyError: if a package is missing.
        ConfigError: if a tracker refuses for a reason that only the user can mend.
    """
    check_installed(config.sinks)
    origin = Origin(folder=run.path, name=run.name, project=config.project, recipe=recipe)
    opened: list[Sink] = []
    for name in config.sinks:
        kind = SINKS[name]
        if issubclass(kind, Tracker):
            opened.append(kind(origin, note))
        else:
            opened.append(kind(run.tensorboard))
    return tuple(opened)


__all__ = ["SINKS", "MetricsConfig", "Sink", "check_installed", "open_sinks"]
