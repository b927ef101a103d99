"""Compare methods of policy search on tasks, with many seeds and one budget, in a table.

    python benchmarks/search_table.py FOLDER --tasks frozen-lake cart-pole --seeds 10
    python benchmarks/search_table.py FOLDER --methods random --searchers own=RUN --controls blank

Finished searches of the folder are not repeated. A cell is the mean over seeds of the fresh score
(exact where it can be computed) of the returned policy, with the standard deviation over seeds; in
brackets is the mean over the evaluations of the best policy so far, by the same measure, with the
standard error over seeds. A searcher is the run of a policy that was trained to search.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.app.search import search_policy
from turnwise.errors import ConfigError, RunError
from turnwise.search.config import SearchConfig
from turnwise.search.folder import Result
from turnwise.settings import parse

METHODS = ("random", "hill-climbing", "evolution", "guided", "cem", "cma-es", "q-learning")
CONTROLS = {
    "blank": {"control": "blank"},
    "shuffled": {"control": "shuffled"},
    "relabel": {"relabel": 1},
    "start": {"start": True},
}


def columns_of(
    methods: Sequence[str], searchers: Sequence[str], controls: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the name of each column -> the settings of its searches.

    Raises:
        ConfigError: if a searcher is not NAME=RUN, or its name is taken.
    """
    columns: dict[str, dict[str, Any]] = {method: {"method": method} for method in methods}
    for searcher in searchers:
        name, _, run = searcher.partition("=")
        if not name or not run:
            raise ConfigError(f"--searchers {searcher}: expected NAME=RUN")
        own = {name: {"run": run}}
        own |= {f"{name}-{each}": {"run": run, **CONTROLS[each]} for each in controls}
        if taken := sorted(own.keys() & columns.keys()):
            raise ConfigError(f"--searchers {searcher}: {taken[0]!r} is another column's name")
        columns |= own
    return columns


def results_of(
    folder: Path, task: str, name: str, settings: dict[str, Any], seeds: Sequence[int], budget: dict
) -> list[Result]:
    """Return the results of a column on a task, of searches that are made where they are missing.

    Raises:
        ConfigError: if the column's method cannot search the task.
    """
    found = []
    for seed in seeds:
        data = {"task": task, "seed": seed, "budget": budget, **settings}
        config = parse(SearchConfig, data, "the search")
        place = folder / f"{task}-{name}-{seed}"
        found.append(search_policy(config, place).result)
        print(place.name, found[-1].exact, found[-1].fresh, found[-1].seconds, flush=True)
    return found


def cell(results: list[Result]) -> str:
    exact = [each.exact for each in results if each.exact is not None]
    scores = exact or [each.fresh for each in results]
    areas = [each.mean_best_exact for each in results if each.mean_best_exact is not None]
    areas = areas or [each.mean_best for each in results]
    several = len(scores) > 1
    spread = np.std(scores, ddof=1) if several else 0.0
    error = np.std(areas, ddof=1) / len(areas) ** 0.5 if several else 0.0
    return f"{np.mean(scores):.4g} ± {spread:.2g} ({np.mean(areas):.4g} ± {error:.2g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", nargs="+", default=["frozen-lake"])
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--searchers", nargs="*", default=[], metavar="NAME=RUN")
    parser.add_argument("--controls", nargs="*", default=[], choices=list(CONTROLS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--recheck", type=int, default=10)
    given = parser.parse_args()
    budget = {"iterations": given.iterations, "recheck": given.recheck}
    try:
        columns = columns_of(given.methods, given.searchers, given.controls)
    except ConfigError as error:
        parser.error(str(error))
    if given.seeds < 1 or not columns:
        parser.error("a table needs a seed and a column: give --seeds, --methods or --searchers")
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    rows = [f"| task | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for task in given.tasks:
        cells = []
        for name, settings in columns.items():
            try:
                cells.append(cell(results_of(given.folder, task, name, settings, seeds, budget)))
            except (ConfigError, RunError) as error:  # Q-learning needs discrete observations
                print(f"{task} {name}: {error}")
                cells.append("-")
        rows.append(f"| {task} | {' | '.join(cells)} |")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
