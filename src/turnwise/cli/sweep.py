"""`turnwise sweep`: its arguments, the sweep that they describe, and how its table is printed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.app.progress_bar import LiveProgress
from turnwise.cli.options import (
    AsJson,
    Sets,
    console,
    draw_table,
    one_sentence,
    print_json,
    problems,
    say,
    watched,
)
from turnwise.errors import ConfigError

if TYPE_CHECKING:
    from turnwise.sweeps import SweepConfig, SweepOutcome


def sweep(
    target: Annotated[
        str,
        typer.Argument(
            metavar="SWEEP | RECIPE",
            help="A sweep's .toml file; or a recipe's name or .toml file, with --over.",
        ),
    ],
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="What varies, as KEY=VALUE,VALUE; every combination of several is trained."
        ),
    ] = None,
    sets: Sets = None,
    measure: Annotated[
        str | None, typer.Option(help="What runs are compared by, such as total/episodes.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="The sweep's folder; runs/sweep-NAME without.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many runs at a time; one a core without.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a recipe with many settings, and compare the runs in a table and a plot.

    The same command goes on where it was interrupted.
    """
    with one_sentence():
        from turnwise.sweeps import run_sweep

        chosen = sweep_of(target, over or [], sets or [], measure)
        live = LiveProgress(problems if as_json else console)
        where = folder or Path("runs") / f"sweep-{chosen.name}"
        with watched(live):
            found = run_sweep(chosen, where, workers=workers, progress=live)
    if as_json:
        print_json(plain(found))
    else:
        draw_sweep(found)
    if found.failed:
        raise typer.Exit(2)


def sweep_of(
    target: str, over: Sequence[str], sets: Sequence[str], measure: str | None
) -> SweepConfig:
    """Return the sweep of a file; or of a recipe and what is varied.

    Args:
        target: a sweep's .toml file, or a recipe's name or .toml file.
        over: keys and their values, as "key=value,value".
        sets: settings of all cells, as "key=value".
        measure: what cells are compared by; None is the file's, or else `score`.

    Raises:
        ConfigError: if there is nothing to vary, or something is unknown.
    """
    from turnwise.recipe.overrides import parse_override
    from turnwise.recipe.schema import load_recipe
    from turnwise.settings import parse
    from turnwise.sweeps import SweepConfig, load_sweep, parse_values

    settings = dict(parse_override(each) for each in sets)
    grid: dict[str, list[Any]] = {}
    for key, values in map(parse_values, over):
        if key in grid:
            raise ConfigError(f"--over {key} is given twice: give all of its values in one")
        grid[key] = values
    if _is_sweep(target):
        data = load_sweep(Path(target)).model_dump(mode="json")
        data["settings"] |= settings
        data["grid"] |= grid
    elif not grid:
        load_recipe(target, (), lambda text: None)  # one that is not there is named first
        raise ConfigError(
            f"recipe {target!r}: there is nothing to vary: give --over KEY=VALUE,VALUE, or a "
            ".toml file with recipe and [grid]"
        )
    else:
        name = re.sub(r"[^\w.-]+", "-", Path(target).stem)
        data = {"name": name, "recipe": target, "settings": settings, "grid": grid}
    if measure is not None:
        data["measure"] = measure
    return parse(SweepConfig, data, "the sweep")


def _is_sweep(target: str) -> bool:
    """Whether a file has a sweep and not a recipe: it names one."""
    with suppress(OSError, ValueError):  # what is no TOML is refused when it is read
        return target.endswith(".toml") and "recipe" in tomllib.loads(Path(target).read_text())
    return False


def draw_sweep(found: SweepOutcome) -> None:
    """Print the table of a sweep, and where the rest is."""
    compared = found.compared
    numbers = ("runs", compared.measure, "standard error")
    if compared.groups:
        draw_table(compared.columns, compared.rows, numbers=numbers)
    for label in compared.unmeasured:
        say(f"{label}: has no number {compared.measure!r}: see 'numbers' in results.jsonl")
    for label, why in found.failed.items():
        say(f"{label}: failed: {why}")
    plot = found.folder / "plot.png"
    say(f"table: {found.folder / 'table.md'}{f'; plot: {plot}' if plot.is_file() else ''}")


def plain(found: SweepOutcome) -> dict[str, Any]:
    """Return a sweep's outcome as plain values."""
    groups = [
        {
            "settings": dict(group.settings),
            "runs": len(group.values),
            "mean": group.mean,
            "stderr": group.stderr,
            "values": dict(zip(group.labels, group.values, strict=True)),
        }
        for group in found.compared.groups
    ]
    return {
        "folder": str(found.folder),
        "measure": found.compared.measure,
        "groups": groups,
        "missing": list(found.compared.missing),
        "unmeasured": list(found.compared.unmeasured),
        "failed": dict(found.failed),
    }
