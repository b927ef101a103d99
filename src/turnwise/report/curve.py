"""The picture of a run: score against the baselines, return, entropy, groups without variance.

Provides `draw_curve`, `drawable` and `png`. The warm-up is drawn left of step 0 on a shaded
background of fixed width, because its steps are not training iterations. What it measures are
shares, which have a panel of their own where scores are not in [0, 1].
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from turnwise.report.series import Series, series
from turnwise.runs import metric_names
from turnwise.runs.files import write_atomically
from turnwise.runs.metrics import Record
from turnwise.runs.results import RunScores
from turnwise.utils.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY, SHADE = "#0072B2", "#D55E00", "#009E73", "#666666", "#F0F0F0"
WARMUP_WIDTH = 0.16
LABEL_GAP = 0.062
LONGEST = 120
"""The most characters of a user's text in a figure."""
BOTTOM, TOP = -0.03, 1.03
WARMUP_SHARES = {
    metric_names.SEEING: "exact descriptions",
    metric_names.READABLE: "readable replies",
}
"""What a warm-up measures of an env with descriptions, and of one without."""


def draw_curve(path: Path, title: str, records: Sequence[Record], scores: RunScores | None) -> None:
    """Write the picture of a run to `path` as PNG; panels without data say so."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 6.4), dpi=130, layout="constrained")
    figure.suptitle(drawable(title), fontsize=11, x=0.01, ha="left", weight="bold")
    limits, shares = _limits(records, scores), _warmup_shares(records)
    apart = limits != (BOTTOM, TOP) and len(shares) > 0
    time = _TimeAxis(records)
    small = [
        (metric_names.RETURN, "mean return", None),
        (metric_names.ENTROPY, "entropy (nats a token)", 0.0),
        (metric_names.ZERO_VARIANCE, "groups without variance (share)", 0.0),
    ]
    if len(series(records, metric_names.TRAIN, metric_names.TIER)):
        small.append((metric_names.TIER, "tier", 0.0))
    grid = figure.add_gridspec(2, len(small) + apart, height_ratios=(1.7, 1.0))
    main = figure.add_subplot(grid[0, :])
    _draw_score(main, time, records, scores, limits, {} if apart else shares)
    for column, (name, label, floor) in enumerate(small):
        axes = figure.add_subplot(grid[1, column])
        _draw_small(axes, time, records, name, label, floor)
    if apart:
        _draw_shares(figure.add_subplot(grid[1, len(small)]), shares)
    write_atomically(path, png(figure))


class _TimeAxis:
    """The x axis: training at its own step numbers, warm-up in a strip left of the first."""

    def __init__(self, records: Sequence[Record]) -> None:
        steps = {
            phase: [r["step"] for r in records if r["phase"] == phase]
            for phase in (metric_names.WARMUP, metric_names.TRAIN)
        }
        self.warmup_steps = max(steps[metric_names.WARMUP], default=0)
        self.last = max(max(steps[metric_names.TRAIN], default=0), 1)
        self.width = WARMUP_WIDTH * self.last if self.warmup_steps else 0.0

    def place(self, phase: str, steps: np.ndarray) -> np.ndarray:
        """Return the x of a phase's steps."""
        if phase == metric_names.TRAIN:
            return steps.astype(np.float64)
        return steps / max(self.warmup_steps, 1) * self.width - self.width

    def prepare(self, axes: Axes, *, labelled: bool) -> None:
        """Set limits, shade the warm-up, keep ticks on training steps."""
        from matplotlib.ticker import MaxNLocator

        axes.set_xlim(-self.width - 0.01 * self.last, 1.01 * self.last)
        ticks = MaxNLocator(6 if labelled else 4, integer=True).tick_values(0, self.last)
        axes.set_xticks([tick for tick in ticks if 0 <= tick <= self.last])
        if not self.width:
            return
        axes.axvspan(-self.width - 0.01 * self.last, 0, color=SHADE, lw=0, zorder=0)
        if labelled:
            text = f"{self.warmup_steps:,} steps\nof warm-up"
            axes.text(
                -self.width / 2, -0.025, text, transform=axes.get_xaxis_transform(),
                ha="center", va="top", fontsize=8, color=GREY,
            )  # fmt: skip


def _draw_score(
    axes: Axes,
    time: _TimeAxis,
    records: Sequence[Record],
    scores: RunScores | None,
    limits: tuple[float, float],
    shares: Mapping[str, Series],
) -> None:
    time.prepare(axes, labelled=True)
    played = series(records, metric_names.TRAIN, metric_names.SCORE)
    checked = series(records, metric_names.TRAIN, metric_names.VALIDATION)
    for label, seen in shares.items():
        _draw_line(axes, time, metric_names.WARMUP, seen, GREY, f"warm-up: {label}")
    _draw_line(axes, time, metric_names.TRAIN, played, BLUE, "training episodes")
    if len(checked):
        x = time.place(metric_names.TRAIN, checked.steps)
        axes.plot(x, checked.values, color=ORANGE, marker="o", ms=4, lw=1.4, label="validation")
    if scores is not None:
        # The bar is clipped at the panel; otherwise it would shrink the whole figure.
        ends = [scores.score - limits[0], limits[1] - scores.score]
        axes.errorbar(
            [time.last], [scores.score], yerr=[[min(2 * scores.stderr, end)] for end in ends],
            color=GREEN, marker="D", ms=6, capsize=3, lw=1.5, ls="none", zorder=5, clip_on=False,
            label=f"{scores.split}, {scores.decoding}: {scores.score:.3f}",
        )  # fmt: skip
        _draw_baselines(axes, scores.baselines, limits)
    axes.set_ylim(*limits)
    axes.set_ylabel("score", fontsize=9)
    axes.set_xlabel("training iteration", fontsize=9)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, frameon=False, fontsize=8.5,
            borderaxespad=0.2, handlelength=1.6,
        )  # fmt: skip
    else:
        _say_nothing(axes)
    _tidy(axes)


def _draw_small(
    axes: Axes,
    time: _TimeAxis,
    records: Sequence[Record],
    name: str,
    label: str,
    floor: float | None,
) -> None:
    time.prepare(axes, labelled=False)
    found = {
        phase: series(records, phase, name) for phase in (metric_names.WARMUP, metric_names.TRAIN)
    }
    for phase, values in found.items():
        _draw_line(axes, time, phase, values, BLUE if phase == metric_names.TRAIN else GREY, None)
    if not any(len(values) for values in found.values()):
        _say_nothing(axes)
    if floor is not None:
        top = max((values.values.max() for values in found.values() if len(values)), default=1.0)
        axes.set_ylim(floor - 0.03 * max(top, 1e-3), 1.08 * max(top, 1e-3))
    if name == metric_names.ZERO_VARIANCE:
        axes.set_ylim(BOTTOM, TOP)
    axes.set_title(label, fontsize=9, loc="left")
    _tidy(axes)


def _draw_shares(axes: Axes, shares: Mapping[str, Series]) -> None:
    """Draw what the warm-up measures over its own steps."""
    for seen in shares.values():
        axes.plot(seen.steps, seen.values, color=GREY, lw=1.8, marker="o", ms=3)
    axes.set_ylim(BOTTOM, TOP)
    axes.set_title(f"warm-up: {', '.join(shares)}", fontsize=9, loc="left")
    _tidy(axes)


def _warmup_shares(records: Sequence[Record]) -> dict[str, Series]:
    """Return what the warm-up measured, by its label."""
    found = {
        label: series(records, metric_names.WARMUP, name) for name, label in WARMUP_SHARES.items()
    }
    return {label: seen for label, seen in found.items() if len(seen)}


def _draw_line(
    axes: Axes, time: _TimeAxis, phase: str, found: Series, color: str, label: str | None
) -> None:
    """Draw the values as a thin line and their running mean as a thick line."""
    if not len(found):
        return
    x = time.place(phase, found.steps)
    smooth = found.smooth()
    marker = "o" if len(found) == 1 else None
    if not np.array_equal(smooth, found.values):
        axes.plot(x, found.values, color=color, lw=0.8, alpha=0.3)
    axes.plot(x, smooth, color=color, lw=1.8, label=label, marker=marker, ms=4)


def _limits(records: Sequence[Record], scores: RunScores | None) -> tuple[float, float]:
    """Return the limits of the score panel: 0 to 1, or all values if some lie outside."""
    drawn = (metric_names.SCORE, metric_names.VALIDATION)
    values = [v for name in drawn for v in series(records, metric_names.TRAIN, name).values]
    tested = () if scores is None else (scores.score, *scores.baselines.values())
    low, high = min((*values, *tested), default=0.0), max((*values, *tested), default=1.0)
    if low >= 0 and high <= 1:
        return BOTTOM, TOP
    margin = 0.03 * max(high - low, 1e-6)
    return low - margin, high + margin


def _draw_baselines(
    axes: Axes, baselines: Mapping[str, float], limits: tuple[float, float]
) -> None:
    """Draw a line for each baseline with its name at the right edge; equal scores share a name."""
    levels: dict[float, list[str]] = {}
    for name, level in sorted(baselines.items(), key=lambda item: item[1]):
        levels.setdefault(round(level, 3), []).append(name)
    heights = _spread([_height(level, limits) for level in levels], LABEL_GAP)
    for (level, who), height in zip(levels.items(), heights, strict=True):
        axes.axhline(level, color=GREY, lw=0.9, ls=(0, (4, 3)), zorder=1)
        axes.plot(
            [1.0, 1.018], [_height(level, limits), height], transform=axes.transAxes, color=GREY,
            lw=0.7, clip_on=False,
        )  # fmt: skip
        axes.text(
            1.023, height, drawable(f"{_listed(who)}  {level:.3f}"), transform=axes.transAxes,
            va="center", fontsize=8, color=GREY,
        )  # fmt: skip


def _height(score: float, limits: tuple[float, float]) -> float:
    """Return the height of a score in the panel, as a share of the panel's height."""
    bottom, top = limits
    return (score - bottom) / (top - bottom)


def _listed(who: Sequence[str]) -> str:
    most = 2
    more = f" +{len(who) - most}" if len(who) > most else ""
    return ", ".join(who[:most]) + more


def _spread(heights: Sequence[float], gap: float) -> list[float]:
    """Return ascending heights at least `gap` apart, moved in one pass up and one pass down.

    Example:
        >>> [round(h, 2) for h in _spread([0.0, 0.01, 0.98, 0.99], 0.1)]
        [0.0, 0.1, 0.9, 1.0]
    """
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    ceiling = 1.0
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed


def _say_nothing(axes: Axes) -> None:
    axes.text(
        0.5, 0.5, "not logged", transform=axes.transAxes, ha="center", va="center",
        fontsize=9, color=GREY,
    )  # fmt: skip


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, length=3)
    axes.grid(axis="y", color="#E4E4E4", lw=0.6)
    axes.set_axisbelow(True)


def drawable(text: str, most: int = LONGEST) -> str:
    r"""Return text of a user for a figure: cut, and without mathematics between dollars.

    Example:
        >>> drawable(r"pay $\foo$ now"), drawable("a long name", 7)
        ('pay \\$\\foo\\$ now', 'a long…')
    """
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return printable(cut).replace("$", r"\$")


def png(figure: Figure) -> bytes:
    """Return a figure as the bytes of a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()
