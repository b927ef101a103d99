"""The folder of a sweep: what it trains, the recipe that its cells share, and their results.

Provides `opened`, `read_results` and the names of its files. A sweep trains a copy of its recipe,
so that an edit of the recipe's file never puts runs of two recipes into one mean.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from turnwise.errors import RunError
from turnwise.recipe.schema import read_recipe
from turnwise.runs.files import json_object, locked, read_json_lines, write_atomically
from turnwise.runs.folder import check_own
from turnwise.sweeps.definition import Cell, SweepConfig, finite, key_of
from turnwise.sweeps.results import is_number

ABOUT, BASE, RESULTS, LOCK = "sweep.json", "base.toml", "results.jsonl", "sweep.lock"
NAMED = 5
"""The most keys that a message names."""


@contextmanager
def opened(config: SweepConfig, folder: Path) -> Iterator[None]:
    """Lock the folder of a sweep, which is made, and write what the sweep trains.

    Raises:
        RunError: if it belongs to something else, to another process or to another recipe; it is
            left as it was.
    """
    check_own(folder, ABOUT, {LOCK, BASE, f".{BASE}.partial", f".{ABOUT}.partial"})
    folder.mkdir(parents=True, exist_ok=True)
    busy = "wait for it, stop it, or choose another folder"
    with locked(folder / LOCK, f"sweep '{folder}'", busy):
        _begin(config, folder)
        yield


def run_of(folder: Path, cell: Cell) -> Path:
    """Return the run folder of a cell."""
    return folder / "cells" / cell.name


def log_of(folder: Path, cell: Cell) -> Path:
    """Return the file of what a cell prints."""
    return folder / "cells" / f"{cell.name}.log"


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Return the results of finished cells: their `settings` and `numbers`.

    Raises:
        RunError: if a line is damaged, or two lines are of one cell.
    """
    path, lines = folder / RESULTS, dict[str, int]()
    rows = read_json_lines(path)
    for number, row in enumerate(rows, start=1):
        settings, numbers = row.get("settings"), row.get("numbers")
        measured = isinstance(numbers, dict) and all(map(is_number, numbers.values()))
        if not measured or not isinstance(settings, dict):
            raise RunError(
                f"'{path}', line {number} is not the result of a cell, which has settings and "
                "finite numbers: restore it, or remove the line to measure the cell again"
            )
        first = lines.setdefault(key_of(settings), number)
        if first != number:
            raise RunError(
                f"'{path}', lines {first} and {number} are results of the same cell: remove one "
                "of them"
            )
    return rows


def _begin(config: SweepConfig, folder: Path) -> None:
    """Check that a folder is of this sweep, and write what it trains."""
    about, base = folder / ABOUT, read_recipe(config.recipe)
    if about.is_file():
        known = json_object(about.read_bytes())
        if known is None or not isinstance(known.get("settings"), dict):
            raise RunError(f"'{about}' is damaged: choose another folder")
        if key_of(config.settings) != key_of(known["settings"]):
            raise RunError(
                f"'{folder}' is of another sweep: its settings are {known['settings']!r}, not "
                f"{config.settings!r}: choose another folder"
            )
        if (folder / RESULTS).exists() or any((folder / "cells").glob("*/recipe.toml")):
            _check_base(config.recipe, base, folder)
    (folder / "cells").mkdir(exist_ok=True)
    write_atomically(folder / BASE, tomli_w.dumps(base))
    write_atomically(about, json.dumps(finite(config.model_dump()), indent=2))


def _check_base(name: str, base: Mapping[str, Any], folder: Path) -> None:
    """Refuse a recipe that differs from the one of the folder; it may have more presets."""
    path = folder / BASE
    try:
        known = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(
            f"'{path}' is missing, the recipe that the sweep was begun with: restore it, or choose "
            "another folder"
        ) from None
    except ValueError:  # neither TOML nor UTF-8
        raise RunError(f"'{path}' is damaged: restore it, or choose another folder") from None
    presets = known.get("presets", {})
    kept = {key: each for key, each in base.get("presets", {}).items() if key in presets}
    keys = list(_differing({"presets": {}, **known}, {**base, "presets": kept}))
    if keys:
        more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
        raise RunError(
            f"recipe {name!r} is not the one that '{folder}' was begun with: it differs in "
            f"{', '.join(keys[:NAMED])}{more}: change it back to '{path}', or choose another folder"
        )


def _differing(old: Mapping[str, Any], new: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Yield the dotted keys in which two recipes differ."""
    for key in dict.fromkeys([*old, *new]):
        ours, theirs = old.get(key), new.get(key)
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            yield from _differing(ours, theirs, f"{before}{key}.")
        elif repr(ours) != repr(theirs):  # 1 is not true, and nan is nan
            yield f"{before}{key}"
