"""The protocol of all sinks of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol


class Sink(Protocol):
    """Receives a run's metrics: finite floats by their names in `metrics.jsonl`.

    `takes_back` says whether repeated steps of a resumed run replace values that were sent before.
    If not, repeated steps are not sent again.
    """

    takes_back: ClassVar[bool]

    def add(self, phase: str, step: int, axis: int, values: Mapping[str, float]) -> None:
        """Add one record: `step` counts within `phase`, `axis` over all phases."""
        ...

    def summarise(self, axis: int, values: Mapping[str, float]) -> None:
        """Add the final numbers of a run."""
        ...

    def close(self) -> None:
        """Send all pending records."""
        ...
