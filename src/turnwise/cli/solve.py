"""`turnwise solve`: its arguments, and the picture that a program drew."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
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
    from rich.text import Text

    from turnwise.app.solve import ShownPair, Solved
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
    ] = "hindsight",
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
        from turnwise.report import write_report
        from turnwise.runs import Run
        from turnwise.runs.files import write_atomically

        folder = Run(found.run)
        draw_png(picture, found)
        write_atomically(folder.program, f"{found.program}\n")
        write_report(folder, command=_command(found, budget, sets or []))
    if not as_json:
        say(f"run: {found.run}; picture: {picture}")


def _command(found: Solved, budget: int, sets: Sequence[str]) -> str:
    """Return the command that prints the result of a run again."""
    options = f"--method {found.method} --budget {budget} --seed {found.seed} --run"
    given = [arg for each in sets for arg in ("--set", each)]
    task, rest = shlex.quote(found.task), shlex.join([str(found.run), *given])
    return f"turnwise solve {task} {options} {rest}"


def plain(found: Solved) -> dict[str, Any]:
    """Return what was found as plain values, without the grids."""
    from dataclasses import asdict

    values = asdict(found) | {"run": str(found.run)}
    return {key: value for key, value in values.items() if key != "shown"}


def columns_of(pair: ShownPair) -> dict[str, Grid | None]:
    """Return the grids of a pair by what they are, in their order.

    A given grid of zeros is left out, and a wanted one that is not known.
    """
    given = pair.given if set("".join(pair.given)) != {"0"} else None
    columns = {"given": given, "wanted": pair.wanted}
    return {name: grid for name, grid in columns.items() if grid} | {"drawn": pair.drawn}


def show(found: Solved) -> None:
    """Print the program, the grids of all pairs, and the costs.

    Colours are printed where the terminal has them, and digits elsewhere.
    """
    for pair in found.shown:
        columns = columns_of(pair)
        widths = [max(2 * len(grid[0]) if grid else 0, len(name)) for name, grid in columns.items()]
        heads = (name.ljust(width) for name, width in zip(columns, widths, strict=True))
        say(f"{pair.name}: {'' if pair.drawn else 'the program fails'}".rstrip(": "))
        say(GAP.join(heads).rstrip())
        for row in range(max(len(grid) for grid in columns.values() if grid)):
            print_styled(_line(columns.values(), widths, row))
        say("")
    say(found.program)
    said = "solved" if found.solved else f"not solved: {found.pixels:.1%} of the cells are right"
    if found.greedy_exact and not found.solved:
        shows = f"`turnwise play --run {shlex.quote(str(found.run))}`"
        said += f" in the best sample, but the greedy program is exact, which {shows} shows"
    if found.test_exact is not None:
        said += f", the test pairs are {'right' if found.test_exact else 'not right'}"
    say(
        f"{found.task} by {found.method}: {said}; {found.generations:,} programs, "
        f"{found.distinct:,} different drawings, {found.updates:,} updates, {found.seconds:,.0f} s"
    )


def _line(grids: Iterable[Grid | None], widths: Sequence[int], row: int) -> Text:
    """Return one row of grids beside each other."""
    from rich.text import Text

    line = Text()
    for grid, width in zip(grids, widths, strict=True):
        cells = grid[row] if grid and row < len(grid) else ""
        for cell in cells:
            shown = "  " if console.color_system else f"{cell} "
            line.append(shown, style=f"on {COLOURS[int(cell)]}")
        line.append(" " * (width - 2 * len(cells)) + GAP)
    return line


def draw_png(path: Path, found: Solved) -> None:
    """Write the grids of all pairs, and beside them what the program drew."""
    from matplotlib.figure import Figure

    from turnwise.report.curve import drawable, png
    from turnwise.runs.files import write_atomically

    rows = [columns_of(pair) for pair in found.shown]
    count, across = len(rows), max(map(len, rows))
    figure = Figure(figsize=(3.6 * across, 3.6 * count + 0.5), dpi=110, layout="constrained")
    for number, (pair, columns) in enumerate(zip(found.shown, rows, strict=True)):
        for place, (name, grid) in enumerate(columns.items()):
            axes = figure.add_subplot(count, across, across * number + place + 1)
            axes.set_title(f"{pair.name}: {name}" if count > 1 else name, fontsize=11)
            _draw_grid(axes, grid)
    said = "solved" if found.solved else f"{found.pixels:.1%} right"
    title = f"{drawable(found.task)}, {found.method}, {found.generations:,} programs: {said}"
    figure.suptitle(title, fontsize=11)
    write_atomically(path, png(figure))


def _draw_grid(axes: Any, grid: Grid | None) -> None:
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
