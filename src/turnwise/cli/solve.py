"""`turnwise solve`: its arguments, and the picture that a program drew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.app.progress_bar import LiveProgress
from turnwise.cli.options import (
    AsJson,
    Sets,
    console,
    one_sentence,
    print_json,
    print_styled,
    problems,
    say,
    watched,
)

if TYPE_CHECKING:
    from turnwise.app.solve import Solved
    from turnwise.envs.drawing.interpreter import Grid

COLOURS = (
    "#000000", "#0074D9", "#FF4136", "#2ECC40", "#FFDC00",
    "#AAAAAA", "#F012BE", "#FF851B", "#7FDBFF", "#870C25",
)  # fmt: skip
"""The colours 0 to 9 of ARC-AGI."""
GAP = "    "


def solve(
    task: Annotated[
        str, typer.Argument(help="A picture of arc-draw, or a JSON file of a task of ARC-AGI.")
    ],
    method: Annotated[
        str, typer.Option(help="grpo, hindsight, hybrid, or sample, which learns nothing.")
    ] = "hybrid",
    base: Annotated[
        str | None,
        typer.Option(
            help="A model's directory or a run; the latest finished arc-draw-base in runs without."
        ),
    ] = None,
    budget: Annotated[int, typer.Option(min=1, help="The most programs that are sampled.")] = 4096,
    seed: Annotated[int, typer.Option(min=0, help="Seeds everything.")] = 0,
    sets: Sets = None,
    run: Annotated[
        Path | None, typer.Option(help="The run folder; an interrupted one goes on.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Adapt a fresh adapter to one drawing, until one of its programs is exact."""
    with one_sentence():
        from turnwise.app.solve import solve as go

        live = LiveProgress(problems if as_json else console)
        with watched(live):
            found = go(
                task, method, base=base, budget=budget, seed=seed, settings=sets or [], run=run,
                progress=live,
            )  # fmt: skip
    if as_json:
        print_json(plain(found))
    else:
        show(found)
    picture = found.run / "drawing.png"
    with one_sentence():  # what was found is printed before, as the folder may be read-only
        draw_png(picture, found)
    if not as_json:
        say(f"run: {found.run}; picture: {picture}")


def plain(found: Solved) -> dict[str, Any]:
    """Return what was found as plain values, without the grids."""
    from dataclasses import asdict

    values = asdict(found) | {"run": str(found.run)}
    return {key: value for key, value in values.items() if key not in ("wanted", "drawn")}


def show(found: Solved) -> None:
    """Print the program, its grids beside the wanted ones, and the costs."""
    from rich.text import Text

    for number, wanted in enumerate(found.wanted):
        drawn = found.drawn[number] if number < len(found.drawn) else ()
        for row in range(max(len(wanted), len(drawn))):
            line = Text()
            for grid in (wanted, drawn):
                width = 2 * len(grid[0]) if grid else 0
                if row < len(grid):
                    for cell in grid[row]:
                        line.append("  ", style=f"on {COLOURS[int(cell)]}")
                else:
                    line.append(" " * width)
                line.append(GAP)
            print_styled(line)
        say("")
    say(found.program)
    said = "solved" if found.solved else f"not solved: {found.pixels:.1%} of the cells are right"
    say(
        f"{found.task} by {found.method}: {said}; {found.generations:,} programs, "
        f"{found.distinct:,} different drawings, {found.updates:,} updates, {found.seconds:,.0f} s"
    )


def draw_png(path: Path, found: Solved) -> None:
    """Write the wanted grids, and beside them what the program drew."""
    from matplotlib.figure import Figure

    from turnwise.report.curve import drawable, png
    from turnwise.runs.files import write_atomically

    count = len(found.wanted)
    figure = Figure(figsize=(7.2, 3.8 * count), dpi=110, layout="constrained")
    titles = ("wanted", "solved" if found.solved else f"drawn: {found.pixels:.1%} right")
    for number in range(count):
        pair = (found.wanted[number], found.drawn[number] if number < len(found.drawn) else ())
        for place, (title, grid) in enumerate(zip(titles, pair, strict=True)):
            axes = figure.add_subplot(count, 2, 2 * number + place + 1)
            axes.set_title(title if not number else "", fontsize=11)
            _draw_grid(axes, grid)
    title = f"{drawable(found.task)}, {found.method}, {found.generations:,} programs"
    figure.suptitle(title, fontsize=11)
    write_atomically(path, png(figure))


def _draw_grid(axes: Any, grid: Grid | tuple[()]) -> None:
    from matplotlib.colors import ListedColormap

    axes.set_xticks([])
    axes.set_yticks([])
    if not grid:
        axes.text(0.5, 0.5, "the program failed", transform=axes.transAxes, ha="center")
        return
    cells = [[int(cell) for cell in row] for row in grid]
    axes.imshow(cells, cmap=ListedColormap(COLOURS), vmin=-0.5, vmax=9.5)
    for side, count in ((axes.axhline, len(cells)), (axes.axvline, len(cells[0]))):
        for line in range(1, count):
            side(line - 0.5, color="#555555", lw=0.5)
