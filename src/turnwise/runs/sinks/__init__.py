"""Sinks of metrics beside `metrics.jsonl`: TensorBoard, Weights & Biases and Trackio.

To add a sink, write its file, add a line to `SINKS`, and an extra to pyproject.toml if it needs a
package. turnwise never reads from a sink, and a sink that fails does not stop a run.
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
    """The sinks of a run's metrics beside `metrics.jsonl`, which is always written."""

    sinks: tuple[str, ...] = ("tensorboard",)
    """Any of `tensorboard`, `wandb` and `trackio`; the last two need `turnwise[wandb]` and
    `turnwise[trackio]`."""
    project: str = Field(default="turnwise", min_length=1)
    """The project of the run in wandb and trackio; the run is named by its folder."""

    @field_validator("sinks")
    @classmethod
    def _check(cls, sinks: tuple[str, ...]) -> tuple[str, ...]:
        for name in sinks:
            if name not in SINKS:
                raise unknown_name("sink", name, SINKS)
        if len(set(sinks)) < len(sinks):
            raise ConfigError(f"{list(sinks)} lists a sink twice: remove one")
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
    """Return the sinks of a new or resumed run.

    Args:
        config: the names of the sinks.
        run: its folder, which stores the tracker's name of the run.
        recipe: the resolved recipe, as plain values.
        note: called with the address of the run, and once if a tracker cannot be reached.

    Raises:
        MissingDependencyError: if a package is missing.
            ConfigError: if a tracker refuses for a reason that the user can fix.
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
