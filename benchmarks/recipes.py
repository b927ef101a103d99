"""Train recipes on several seeds, one thread each, and keep what they scored.

    python benchmarks/recipes.py benchmarks/recipes.jsonl frozen-lake:0-4 frozen-lake-plan:0-2
    python benchmarks/recipes.py benchmarks/recipes.jsonl frozen-lake-slippery:0,preset=lora
    python benchmarks/recipes.py benchmarks/recipes.jsonl            # the tables, nothing trained

A job is RECIPE:SEEDS, then settings after commas. Jobs that FILE holds already are not trained
again, and a run that was interrupted goes on. Each line of FILE holds a run's command, commit,
seconds (none where it was interrupted), scores and totals.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import nan
from pathlib import Path
from statistics import mean
from threading import Lock
from typing import Any

from result_rows import add_row, commit, half_interval, kept_rows


def jobs_of(told: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the recipe and the settings of every seed of a job."""
    first, *settings = told.split(",")
    recipe, _, seeds = first.partition(":")
    low, _, high = (seeds or "0").partition("-")
    for seed in range(int(low), int(high or low) + 1):
        yield recipe, (*settings, f"seed={seed}")


def train(recipe: str, settings: tuple[str, ...], folder: Path, version: str) -> dict[str, Any]:
    """Train, or go on; return what is kept."""
    name = "-".join([recipe, *(s.replace("=", "-").replace("/", "-") for s in settings)])
    run = folder / name
    command = ["train", recipe, *(word for s in settings for word in ("--set", s))]
    fresh = not run.is_dir()  # a run goes on with its own settings
    asked = [*command, "--run", str(run)] if fresh else ["resume", str(run)]
    began = time.perf_counter()
    with (folder / f"{name}.log").open("a") as log:
        subprocess.run(
            [sys.executable, "-m", "turnwise", *asked],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
        )
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return {
        "recipe": recipe,
        "settings": list(settings),
        "command": " ".join(["turnwise", *command]),
        "commit": version,
        "seconds": round(time.perf_counter() - began, 1) if fresh else None,
        "scores": json.loads((run / "eval.json").read_text()),
        "totals": {k.removeprefix("total/"): v for k, v in last.items() if k.startswith("total/")},
    }


def table(rows: list[dict[str, Any]]) -> None:
    """Print the mean of every score over seeds, with a 95 % confidence interval, and its range."""
    groups = defaultdict(list)
    for row in rows:
        others = tuple(s for s in row["settings"] if not s.startswith("seed="))
        groups[row["recipe"], others].append(row)
    for (recipe, others), group in groups.items():
        tasks = group[0]["scores"]["tasks"]
        seconds = [row["seconds"] for row in group if row["seconds"] is not None] or [nan]
        print(
            f"\n{' '.join([recipe, *others])}: {len(group)} seeds, {tasks} tasks, "
            f"{min(seconds):.0f} to {max(seconds):.0f} s, {sorted({r['commit'] for r in group})}"
        )
        for name, values in columns([row["scores"] for row in group]).items():
            half = half_interval(values) if len(values) > 1 else nan
            print(
                f"  {name:44} {mean(values):7.3f} +- {half:5.3f}"
                f"  {min(values):7.3f} to {max(values):7.3f}"
                f"  [{' '.join(f'{value:.3f}' for value in values)}]"
            )
        totals = defaultdict(list)
        for row in group:
            for name, value in row["totals"].items():
                totals[name].append(value)
        print("  " + ", ".join(f"{name} {mean(v):,.0f}" for name, v in totals.items()))


def columns(scores: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return every number that is compared, by name."""
    found: dict[str, list[float]] = defaultdict(list)
    for one in scores:
        found["trained, greedy"].append(one["score"])
        found["trained, sampled"].append(one["score_sampled"])
        for name, value in one["baselines"].items():
            found[name].append(value)
        for name, lead in one["paired"].items():
            found[f"greedy - {name}"].append(lead["difference"])
        for player, measures in one["exact"].items():
            for measure, value in measures.items():
                found[f"exact: {player}, {measure}"].append(value)
    return found


def main() -> None:
    """Train what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("jobs", nargs="*", metavar="RECIPE:SEEDS[,KEY=VALUE]")
    parser.add_argument("--runs", type=Path, default=Path("runs/measured"))
    parser.add_argument("--side-by-side", type=int, default=2)
    asked = parser.parse_args()
    asked.runs.mkdir(parents=True, exist_ok=True)
    rows, version = kept_rows(asked.file), commit()
    known = {(row["recipe"], tuple(row["settings"])) for row in rows}
    lock = Lock()

    def one(job: tuple[str, tuple[str, ...]]) -> None:
        row = train(*job, asked.runs, version)
        with lock:
            rows.append(row)
            add_row(asked.file, row)
        print(
            f"{job[0]} {' '.join(job[1])}: {row['scores']['score']:.3f}, {row['seconds']:.0f} s",
            flush=True,
        )

    wanted = [job for told in asked.jobs for job in jobs_of(told) if job not in known]
    with ThreadPoolExecutor(asked.side_by_side) as pool:
        list(pool.map(one, wanted))
    table(rows)


if __name__ == "__main__":
    main()
