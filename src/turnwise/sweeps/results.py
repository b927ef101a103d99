"""What the cells of a sweep measured: a table, and a plot.

Provides `numbers_of`, `compare` and `draw_plot`. Cells that differ in the seed alone are
repetitions: their mean has the standard error over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from turnwise.envs.measures import is_finite
from turnwise.errors import RunError
from turnwise.report.curve import drawable, png
from turnwise.runs import Run, read_metrics
from turnwise.runs.files import json_object, write_atomically
from turnwise.sweeps.definition import SEED, Cell, SweepConfig, flat, key_of, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 20.0
"""The ratio of the largest to the smallest value of a key from which its axis is logarithmic."""
LONGEST = 60
"""The most characters of a text in the plot."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666")
Pairs = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Cells that differ in the seed alone.

    `settings` are theirs without the seed, and `values` what each measured, by `labels`. `stderr`
    is the standard error of the mean over seeds; of one cell it is that of its test, or None.
    """

    settings: Pairs
    labels: tuple[str, ...]
    values: tuple[float, ...]
    stderr: float | None

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return mean(self.values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """The measured cells of a sweep, in its order; `missing` are the labels of the others.

    `unmeasured` are the labels of those that were trained and have no such number.
    """

    measure: str
    keys: tuple[str, ...]
    groups: tuple[Measured, ...]
    missing: tuple[str, ...]
    unmeasured: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The headings of `rows`."""
        return (*self.keys, "runs", self.measure, "standard error", "range")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A row for each group, as text."""
        found: list[tuple[str, ...]] = []
        for group in self.groups:
            given = dict(group.settings)
            cells = [shown(given[key]) if key in given else "" for key in self.keys]
            error = "" if group.stderr is None else f"{group.stderr:.2g}"
            span = f"{min(group.values):.4g} to {max(group.values):.4g}"
            cells += [str(len(group.values)), f"{group.mean:.4g}", error]
            found.append((*cells, span if len(group.values) > 1 else ""))
        return found

    @property
    def markdown(self) -> str:
        """The table in Markdown, and what is missing."""
        lines = [_line(self.columns), "|" + "---|" * len(self.columns)]
        lines += map(_line, self.rows)
        if self.missing:
            lines += ["", f"Without a result: {', '.join(self.missing)}."]
        if self.unmeasured:
            lines += ["", f"Without the number {self.measure!r}: {', '.join(self.unmeasured)}."]
        return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    """Return a line of a table in Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def numbers_of(run: Path) -> dict[str, float]:
    """Return the numbers of a finished run: of its `eval.json`, and the last of each metric.

    Raises:
        RunError: if a file of the run is damaged.
    """
    folder = Run.open(run)
    found: dict[str, Any] = {}
    for record in read_metrics(folder.metrics):
        found |= record
    if folder.evaluation.is_file():
        scores = json_object(folder.evaluation.read_bytes())
        if scores is None:
            raise RunError(f"'{folder.evaluation}' is damaged: delete the run to train it again")
        found |= flat(scores)
    return {key: value for key, value in found.items() if is_number(value)}


def compare(config: SweepConfig, rows: Sequence[Mapping[str, Any]]) -> Compared:
    """Return the groups of a sweep's cells.

    Args:
        config: the sweep.
        rows: of finished cells: their `settings` and `numbers`.
    """
    known = {key_of(row["settings"]): row["numbers"] for row in rows}
    own_error = "stderr" if config.measure == "score" else f"{config.measure}_stderr"
    by_settings: dict[str, list[tuple[Cell, float]]] = {}
    missing: list[str] = []
    unmeasured: list[str] = []
    for cell in config.all_cells:
        numbers = known.get(cell.key)
        if numbers is None:
            missing.append(cell.label)
        elif config.measure not in numbers:
            unmeasured.append(cell.label)
        else:
            group = by_settings.setdefault(Cell(cell.seedless).key, [])
            group.append((cell, numbers[config.measure]))
    groups: list[Measured] = []
    for group in by_settings.values():
        values = tuple(value for _, value in group)
        if len(values) > 1:
            error = stdev(values) / math.sqrt(len(values))
        else:
            error = known[group[0][0].key].get(own_error)
        groups.append(
            Measured(
                settings=group[0][0].seedless,
                labels=tuple(cell.label for cell, _ in group),
                values=values,
                stderr=error,
            )
        )
    keys = dict.fromkeys(key for cell in config.all_cells for key, _ in cell.seedless)
    return Compared(
        measure=config.measure,
        keys=tuple(keys),
        groups=tuple(groups),
        missing=tuple(missing),
        unmeasured=tuple(unmeasured),
    )


def draw_plot(path: Path, title: str, found: Compared) -> None:
    """Write the plot: the measure over the values of the first key, a line for each of the others.

    Points are single runs, the line joins their means, and bars are standard errors.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(drawable(title, LONGEST), fontsize=11, loc="left", weight="bold")
    axes.set_ylabel(drawable(found.measure, LONGEST))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E4E4E4", lw=0.6)
    if found.groups:
        _draw_groups(axes, found)
    else:
        axes.text(0.5, 0.5, "no result", transform=axes.transAxes, ha="center", color="#666666")
    write_atomically(path, png(figure))


def _draw_groups(axes: Axes, found: Compared) -> None:
    first = found.keys[0] if found.keys else SEED
    lines: dict[str, list[tuple[Any, Measured]]] = {}
    for group in found.groups:
        others = tuple(pair for pair in group.settings if pair[0] != first)
        lines.setdefault(Cell(others).label, []).append((dict(group.settings).get(first), group))
    names = list(dict.fromkeys(shown(value) for line in lines.values() for value, _ in line))
    numbers = [value for line in lines.values() for value, _ in line]
    numeric = all(is_number(value) for value in numbers)
    if numeric and min(numbers) > 0 and max(numbers) / min(numbers) >= WIDE:
        axes.set_xscale("log")
    for number, (label, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        if numeric:
            line = sorted(line, key=lambda pair: pair[0])
        places = [value if numeric else names.index(shown(value)) for value, _ in line]
        for place, (_, group) in zip(places, line, strict=True):
            axes.plot([place] * len(group.values), group.values, ".", color=colour, alpha=0.4)
        means = [group.mean for _, group in line]
        errors = [group.stderr or 0.0 for _, group in line]
        axes.errorbar(
            places, means, yerr=errors, color=colour, marker="o", ms=5, lw=1.5, capsize=3,
            label=drawable(label, LONGEST) or None,
        )  # fmt: skip
    if not numeric:
        axes.set_xticks(range(len(names)), [drawable(name, LONGEST) for name in names])
    axes.set_xlabel(drawable(first, LONGEST))
    if any(lines):
        axes.legend(frameon=False, fontsize=8.5)


def is_number(value: Any) -> bool:
    """Whether a value is a number that a float can hold, and not true or false."""
    return is_finite(value) and not isinstance(value, bool)
