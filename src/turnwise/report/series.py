"""One metric over the steps of a phase, for the report and the picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.runs.metrics import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Steps and values of one metric; records without a finite value are omitted."""

    steps: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def smooth(self, parts: int = 25) -> np.ndarray:
        """Return the values averaged over a trailing window of 1/`parts` of the series, [steps]."""
        width = max(1, len(self) // parts)
        sums = np.concatenate([[0.0], np.cumsum(self.values)])
        ends = np.arange(1, len(self) + 1)
        starts = np.maximum(0, ends - width)
        return (sums[ends] - sums[starts]) / (ends - starts)

    def end(self, part: float = 0.1) -> float:
        """Return the mean of the last part of the series, of at least one value."""
        assert len(self) > 0
        return float(np.mean(self.values[-max(1, round(len(self) * part)) :]))

    def start(self, most: int = 3) -> float:
        """Return the mean of the first `most` values, which later values do not change."""
        assert len(self) > 0
        return float(np.mean(self.values[:most]))

    def lately(self, least: int = 3) -> np.ndarray:
        """Return the last tenth of the values, at least `least` of them if there are so many."""
        return self.values[-max(least, round(len(self) / 10)) :]

    def rise(self, noise: float = 0.0) -> tuple[float, float]:
        """Return the mean of the last third less that of the first, and its standard error.

        Of few values it is that of the last half less that of the first, or of up to 3 values each.

        The variance of one value is half the variance of the differences of neighbours, so that a
        trend is not taken for noise; its standard deviation is at least `noise`.
        """
        assert len(self) > 0
        width = max(1, len(self) // 3, min(3, len(self) // 2))
        if len(self) > 2:
            noise = max(noise, float(np.std(np.diff(self.values))) / math.sqrt(2))
        difference = float(np.mean(self.values[-width:]) - np.mean(self.values[:width]))
        return difference, noise * math.sqrt(2 / width)


def series(records: Sequence[Record], phase: str, name: str) -> Series:
    """Return one metric of one phase.

    Example:
        >>> records = [{"phase": "train", "step": 0, "a/b": 1.0},
        ...            {"phase": "train", "step": 1, "a/b": None},
        ...            {"phase": "train", "step": 2, "a/b": 3.0}]
        >>> found = series(records, "train", "a/b")
        >>> found.steps.tolist(), found.values.tolist()
        ([0, 2], [1.0, 3.0])
    """
    rows = [r for r in records if r["phase"] == phase and r.get(name) is not None]
    return Series(
        steps=np.array([row["step"] for row in rows], dtype=np.int64),
        values=np.array([row[name] for row in rows], dtype=np.float64),
    )
