"""What a person sees while a run goes on: phases, a bar, the score and its curve in one line.

Owns the drawing of `trainers.Progress` on a terminal; where there is none, a line now and then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 24
LINE_EVERY = 10.0
SHOWN = {
    "pretrain": (("loss/ce", "loss"), ("warmup/seeing", "seeing")),
    "warm-up": (("loss/ce", "loss"), ("warmup/seeing", "seeing")),
    "training": (
        ("rollout/score", "score"),
        ("validation/score", "validation"),
        ("policy/span_entropy", "entropy"),
        ("credit/mixed_share", "mixed"),
    ),
    "evaluation": (("test/score", "test score"),),
}
CURVES = {"pretrain": "warmup/seeing", "warm-up": "warmup/seeing", "training": "rollout/score"}


class LiveProgress:
    """Draws phases as progress bars on a terminal, or writes a line every ten seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description:>10}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[curve]} {task.fields[facts]}"),
            console=console,
        )
        self._task: TaskID | None = None
        self._phase, self._total = "", 0
        self._latest: dict[str, float] = {}
        self._curve: list[float] = []
        self._said = 0.0

    def __enter__(self) -> LiveProgress:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._bars.stop()

    def begin(self, phase: str, *, done: int, total: int) -> None:
        """Draw a new bar."""
        self._close()
        self._phase, self._total = phase, total
        self._latest, self._curve, self._said = {}, [], 0.0
        if self._console.is_terminal:
            self._task = self._bars.add_task(phase, total=total, completed=done, curve="", facts="")

    def advance(self, done: int, metrics: Mapping[str, float]) -> None:
        """Move the bar and show the phase's most telling metrics."""
        self._latest.update(metrics)
        curve = CURVES.get(self._phase, "")
        if curve in metrics:
            self._curve.append(metrics[curve])
        facts = "  ".join(
            f"{label} {self._latest[name]:.2f}"
            for name, label in SHOWN.get(self._phase, ())
            if name in self._latest
        )
        if self._task is not None:
            self._bars.update(self._task, completed=done, curve=sparkline(self._curve), facts=facts)
        elif done >= self._total or time.monotonic() - self._said > LINE_EVERY:
            self._said = time.monotonic()
            line = f"{self._phase} {done}/{self._total}  {sparkline(self._curve)}  {facts}"
            self._console.print(line, highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Write a line above the bars."""
        self._console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)

    def _close(self) -> None:
        """Let a bar that ended early (enough was seen, the target was met) say so."""
        if self._task is not None:
            task = self._bars.tasks[self._task]
            self._bars.update(self._task, total=task.completed)
            self._bars.stop_task(self._task)


def sparkline(values: Sequence[float]) -> str:
    """Return values as one line of bars, averaged into at most 24 columns.

    Bars stand for 0 to 1, or for all that the values span where they are not there.

    Example:
        >>> sparkline([0.0, 0.5, 1.0]), sparkline([-2.0, 0.0, 2.0])
        ('▁▅█', '▁▅█')
    """
    if not values:
        return ""
    columns = min(WIDTH, len(values))
    edges = [len(values) * i // columns for i in range(columns + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(values), max(values)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    top = (len(BARS) - 1) / ((high - low) or 1.0)
    return "".join(BARS[round((mean - low) * top)] for mean in means)
