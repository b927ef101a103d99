"""Compare methods of policy search on tasks, with many seeds and one budget, in a table.

    python benchmarks/search_table.py FOLDER --tasks frozen-lake cart-pole --seeds 10

Finished searches of the folder are not repeated. A cell is the mean over seeds of the fresh score
(exact where it can be computed) of the returned policy, with the standard deviation over seeds; in
brackets is the mean over the evaluations of the best policy so far, by the same measure.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from turnwise.app.search import search_policy
from turnwise.errors import ConfigError
from turnwise.search.config import SearchConfig
from turnwise.search.folder import Result
from turnwise.settings import parse

METHODS = ("random", "hill-climbing", "evolution", "guided", "cem", "cma-es", "q-learning")


def results_of(folder: Path, task: str, method: str, seeds: int, budget: dict) -> list[Result]:
    found = []
    for seed in range(seeds):
        data = {"task": task, "method": method, "seed": seed, "budget": budget}
        config = parse(SearchConfig, data, "the search")
        place = folder / f"{task}-{method}-{seed}"
        found.append(search_policy(config, place).result)
        print(place.name, found[-1].exact, found[-1].fresh, found[-1].seconds, flush=True)
    return found


def cell(results: list[Result]) -> str:
    exact = [each.exact for each in results if each.exact is not None]
    scores = exact or [each.fresh for each in results]
    areas = [each.mean_best_exact for each in results if each.mean_best_exact is not None]
    areas = areas or [each.mean_best for each in results]
    spread = np.std(scores, ddof=1) if len(scores) > 1 else 0.0
    return f"{np.mean(scores):.4g} ± {spread:.2g} ({np.mean(areas):.4g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", nargs="+", default=["frozen-lake"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--recheck", type=int, default=10)
    given = parser.parse_args()
    budget = {"iterations": given.iterations, "recheck": given.recheck}
    rows = [f"| task | {' | '.join(given.methods)} |", "|---|" + "---|" * len(given.methods)]
    for task in given.tasks:
        cells = []
        for method in given.methods:
            try:
                cells.append(cell(results_of(given.folder, task, method, given.seeds, budget)))
            except ConfigError:  # Q-learning needs discrete observations
                cells.append("-")
        rows.append(f"| {task} | {' | '.join(cells)} |")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
