"""The progress display of a run: the phase, a bar, the score's curve and the latest numbers.

Provides `LiveProgress`, which draws `trainers.Progress`, and `watching`, which chooses the display
that fits: two lines that are redrawn on a terminal, one line that is rewritten in a notebook, and a
new line every ten seconds everywhere else (files, pipes, CI). Nothing is wider than the console.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import TracebackType
from typing import Literal

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from turnwise.errors import ConfigError
from turnwise.trainers.progress import TIME_SHARE, WARNING, Progress, Silent
from turnwise.utils.console import LastingConsole
from turnwise.utils.text import without_markup

BARS = "▁▂▃▄▅▆▇█"
CURVE = 24
"""The most columns of a curve."""
BAR = 20
"""The most columns of a progress bar."""
LINE_EVERY = 10.0
"""Seconds between two lines where nothing can be redrawn."""
REWRITE_EVERY = 0.5
"""Seconds between two versions of a notebook's line."""
Style = Literal["bars", "rewritten", "lines"]
SUPERVISED = (
    ("loss/ce", "loss"),
    ("warmup/perception", "perception"),
    ("warmup/readable", "readable replies"),
)
SHOWN = {
    "pretrain": SUPERVISED,
    "warm-up": SUPERVISED,
    "training": (
        ("rollout/score", "score"),
        ("reward/invalid", "failed replies"),
        ("credit/return_mean", "return"),
        ("hindsight/closest", "closest"),
        ("validation/score", "validation"),
        ("policy/span_entropy", "entropy"),
        ("credit/mixed_share", "mixed"),
    ),
    "evaluation": (("test/score", "test score"),),
    "search": (
        ("search/best", "best"),
        ("search/score", "score"),
        ("search/cost", "cost"),
        ("search/tokens", "tokens"),
    ),
}
"""The metrics shown of each phase, the most important first: a narrow console omits the last."""
FORMATS = {"reward/invalid": ".0%", "search/tokens": ",.0f"}
"""The formats of shown metrics that are shares or counts; others have two decimals."""
CURVES = {
    "pretrain": ("warmup/perception", "warmup/readable"),
    "warm-up": ("warmup/perception", "warmup/readable"),
    "training": ("rollout/score", "credit/return_mean", "hindsight/closest"),
    "search": ("search/best",),
}
"""The metrics that may be drawn; the first that has changed is. In a long game single steps never
win, so that the score stays constant and the return does not."""


class LiveProgress:
    """Draws the phases of a run on a console; a context manager, which ends the drawing.

    Example:
        >>> with LiveProgress(Console(file=sys.stdout, width=60)) as live:
        ...     live.begin("training", done=0, total=2)
        ...     live.advance(2, {"rollout/score": 0.5})
        training 2/2  ▅  score 0.50
        >>> with LiveProgress(Console(file=sys.stdout, width=60)) as live:
        ...     live.begin("training", done=0, total=2000)
        ...     live.advance(24, {"rollout/score": 0.5, "time/share": 0.3})
        training 24, 30% of the time  ▅  score 0.50
    """

    def __init__(self, console: Console, style: Style | None = None) -> None:
        redraws = console.is_terminal and not console.is_dumb_terminal
        self._console = console
        self._style: Style = style or ("bars" if redraws else "lines")
        self._phase, self._done, self._total = "", 0, 0
        self._began, self._first = time.monotonic(), 0
        self._stepped = self._began
        self._timed = (self._began, 0.0)  # when the first share of the time was told, and which
        self._latest: dict[str, float] = {}
        self._curves: list[list[float]] = []
        self._said = 0.0
        self._open = False  # whether a notebook's line waits to be rewritten
        self._live = Live(
            console=console, get_renderable=self._drawing, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> LiveProgress:
        if self._style == "bars":
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()
        if self._style == "bars":
            self._live.stop()

    def begin(self, phase: str, *, done: int, total: int) -> None:
        """Start the display of a phase; the last state of the one before stays visible."""
        self._total = min(self._done, self._total)  # it may have ended before its last step
        self._leave()
        self._phase, self._done, self._total = phase, done, total
        self._began = self._stepped = time.monotonic()
        self._first = done
        self._latest, self._said = {}, 0.0
        self._curves = [[] for _ in CURVES.get(phase, ())]

    def advance(self, done: int, metrics: Mapping[str, float]) -> None:
        """Show the step that is finished and the phase's most telling metrics."""
        self._done, self._stepped = done, time.monotonic()
        if TIME_SHARE not in self._latest:
            self._timed = (self._stepped, metrics.get(TIME_SHARE, 0.0))
        self._latest.update(metrics)
        ended = self._share >= 1
        for name, values in zip(CURVES.get(self._phase, ()), self._curves, strict=True):
            if name in metrics:
                values.append(metrics[name])
        since = time.monotonic() - self._said
        if self._style == "lines" and (ended or since > LINE_EVERY):
            self._said = time.monotonic()
            line = "  ".join(part for part in (self._counted(), *self._parts()) if part)
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        elif self._style == "rewritten" and (ended or since > REWRITE_EVERY):
            self._said = time.monotonic()
            self._rewrite()

    def note(self, text: str) -> None:
        """Write a sentence above the display, without markdown; a terminal's lines end at words."""
        if self._open:
            self._end_line()
        style = "yellow" if text.startswith(WARNING) else "dim"
        text = without_markup(text)
        if self._style == "bars":
            text = wrapped(text, self._console.width)
        self._console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    @property
    def _share(self) -> float:
        """The share of the phase that is over: of its steps, or of the time where that is more."""
        return max(self._done / max(self._total, 1), self._latest.get(TIME_SHARE, 0.0))

    @property
    def _by_time(self) -> bool:
        """Whether the time will end the phase before its last step."""
        return self._share > self._done / max(self._total, 1)

    def _count(self) -> str:
        if self._by_time:
            return f"{self._done}, {self._share:.0%} of the time"
        return f"{self._done}/{self._total}"

    def _counted(self) -> str:
        return f"{self._phase} {self._count()}"

    def _parts(self, width: int | None = None) -> list[str]:
        """Return the curve and the facts, with a curve that leaves room for the first two."""
        moved = (values for values in self._curves if len(set(values)) > 1)
        values, facts = next(moved, next(iter(self._curves), [])), self._facts()
        room = CURVE if width is None else width - len(" ".join(facts[:2])) - 2
        return [sparkline(values, min(room, CURVE)), *facts]

    def _facts(self) -> list[str]:
        shown = [pair for pair in SHOWN.get(self._phase, ()) if pair[0] in self._latest]
        return [f"{label} {self._latest[name]:{FORMATS.get(name, '.2f')}}" for name, label in shown]

    def _drawing(self) -> Text | Group:
        """Return the two lines of a terminal: phase, bar, count and times; curve and facts."""
        if not self._phase:
            return Group()
        width = self._console.width - 1
        elapsed, left = time.monotonic() - self._began, self._left()
        times = f"{_clock(elapsed)} <{'-:--' if left is None else _clock(left)}"
        head, count = f"{self._phase:>10} ", f" {self._count()} "
        room = width - len(head) - len(count) - len(times)
        bar = min(BAR, room if room >= 4 else width - len(head) - len(count))
        full = round(max(bar, 0) * min(1.0, self._share))
        drawn = Text(no_wrap=True)
        drawn.append(head)
        drawn.append("━" * full, "cyan").append("━" * (max(bar, 0) - full), "bright_black")
        drawn.append(count)
        if room >= 4:
            drawn.append(times, "dim")
        second = fitted(self._parts(width - len(head)), width - len(head), gap=" ")
        if second:
            drawn.append("\n" + " " * len(head) + second)
        return drawn

    def _left(self) -> float | None:
        """Return the seconds that are left, counted down from the latest step; None before one."""
        made, to_come, began = self._done - self._first, self._total - self._done, self._began
        if self._by_time:
            began, first = self._timed
            made, to_come = self._share - first, 1 - self._share
        if not made:
            return None
        each = (self._stepped - began) / made
        since = time.monotonic() - self._stepped
        return max(0.0, each * to_come - since)

    def _rewrite(self) -> None:
        """Write a notebook's line over the one before."""
        room = self._console.width - len(self._counted()) - 3
        line = fitted([self._counted(), *self._parts(room)], self._console.width - 1)
        self._console.file.write("\r" + line.ljust(self._console.width - 1))
        self._console.file.flush()
        self._open = True

    def _end_line(self) -> None:
        self._console.file.write("\n")
        self._open = False

    def _leave(self) -> None:
        """Leave the phase's last state on the screen."""
        if self._open:
            self._end_line()
        if self._style == "bars" and self._phase:
            drawn, self._phase = self._drawing(), ""
            self._live.refresh()  # a line that is printed brings the last drawing along
            self._console.print(drawn)


@contextmanager
def watching(progress: Progress | bool | None) -> Iterator[Progress]:
    """Yield who watches a run: the one given; nobody for False; else the display that fits.

    Scripts are shown the display on standard error, so that their own output stays clean.
    """
    if progress is False:
        yield Silent()
    elif progress is None or progress is True:
        notebook = Console().is_jupyter
        file = sys.stdout if notebook else sys.stderr
        width = 110 if notebook else None
        console = LastingConsole(file=file, force_jupyter=False, width=width)
        with LiveProgress(console, "rewritten" if notebook else None) as live:
            yield live
    elif all(hasattr(progress, name) for name in ("begin", "advance", "note")):
        yield progress
    else:
        raise ConfigError(
            f"progress = {progress!r}: expected True, False or a turnwise.Progress, which has "
            "begin, advance and note"
        )


def fitted(parts: Sequence[str], width: int, gap: str = "  ") -> str:
    """Return as many of `parts` as fit into `width` columns, whole, in their order.

    Example:
        >>> fitted(["training 3/9", "score 0.50", "entropy 1.20"], 25)
        'training 3/9  score 0.50'
    """
    line = ""
    for part in filter(None, parts):
        longer = f"{line}{gap}{part}" if line else part
        if len(longer) > width:
            break
        line = longer
    return line


def wrapped(text: str, width: int) -> str:
    r"""Return `text` in lines of at most `width` columns; what has no spaces, a path, stays whole.

    Example:
        >>> wrapped("the report is in /tmp/run", 12)
        'the report\nis in\n/tmp/run'
    """
    lines = [
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    ]
    return "\n".join(lines)


def sparkline(values: Sequence[float], most: int = CURVE) -> str:
    """Return values as one line of bars, averaged into at most `most` columns.

    Bars stand for 0 to 1, or for all that the values span where they are not there.

    Example:
        >>> sparkline([0.0, 0.5, 1.0]), sparkline([-2.0, 0.0, 2.0])
        ('▁▅█', '▁▅█')
    """
    columns = min(most, len(values))
    if columns <= 0:
        return ""
    edges = [len(values) * i // columns for i in range(columns + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(values), max(values)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    top = (len(BARS) - 1) / ((high - low) or 1.0)
    return "".join(BARS[round((mean - low) * top)] for mean in means)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
