"""What every sink of metrics can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol


class Sink(Protocol):
    """Receives a run's metrics: finite floats under their names in `metrics.jsonl`.

    `takes_back` says whether a step that a resumed run repeats replaces what was sent before; where
    it does not, repeated steps are not sent again.
    """

    takes_back: ClassVar[bool]

    def add(self, phase: str, step: int, axis: int, values: Mapping[str, float]) -> None:
        """Take one record: `step` counts within `phase`, `axis` over all phases."""
        ...

    def summarise(self, axis: int, values: Mapping[str, float]) -> None:
        """Take the numbers that a finished run is known by."""
        ...

    def close(self) -> None:
        """Hand over what is still on its way."""
        ...
