"""Runs of teams on planning puzzles: warm-ups, training that goes on, rows of results in a file.

Provides what `teams.py` and `teams_defects.py` share. A run is a folder, and a finished one has the
file `eval.json`. Jobs of one seed share warm-ups and follow each other; seeds run side by side.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar

RECIPES = {env: f"{env}-two-policy" for env in ("sokoban", "plan-path", "sudoku")}
POLICIES = {
    "single": ("main",),
    "shared": ("main",),
    "lora": ("tool", "planner"),
    "models": ("tool", "planner"),
}
"""A kind of policies, which is a preset of each recipe -> the policies that it has."""
GRPO, TURNS = ("preset=grpo",), ("preset=turns",)
"""Whole episodes are compared; the recipes themselves have a spine, that is AT-GRPO."""
COSTS = ("sampled_tokens", "prefilled_tokens", "trained_tokens", "env_steps", "state_resets")
TURNWISE = ("-m", "turnwise")
"""What follows the interpreter in a command of turnwise."""


class JobLike(Protocol):
    """What `run_jobs` reads of a job."""

    @property
    def seed(self) -> int:
        """The seed of the run."""
        ...

    @property
    def name(self) -> str:
        """The name of the run folder."""
        ...


J = TypeVar("J", bound=JobLike)


class UnfinishedError(Exception):
    """A job failed in another way than its command; the message says how."""


def turnwise(
    words: Sequence[str], log: Path, *, told: bool = False, program: Sequence[str] = TURNWISE
) -> str:
    """Run a command; return its output if it is to be told, else it is in `log`."""
    with log.open("a") as file:
        done = subprocess.run(
            [sys.executable, *program, *words],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if told else file,
            stderr=file,
            text=True,
            check=True,
        )
    return done.stdout or ""


def trained(words: Sequence[str], run: Path, program: Sequence[str] = TURNWISE) -> None:
    """Train in a run folder, or go on."""
    if (run / "eval.json").is_file():
        return
    going = (run / "recipe.toml").is_file()
    asked = ["resume", str(run)] if going else [*words, "--run", str(run)]
    turnwise(asked, run.with_name(f"{run.name}.log"), program=program)


def words_of(env: str, settings: Sequence[str]) -> list[str]:
    """Return the command that trains a recipe with settings."""
    return ["train", RECIPES[env], *(word for one in settings for word in ("--set", one))]


def begun_from(run: Path, kind: str) -> list[str]:
    """Return the settings of a run that begins with the weights of a warm-up."""
    if kind == "lora":  # the base is what both adapters begin with
        (base,) = (run / "models").iterdir()
        weights = dict.fromkeys(POLICIES[kind], base)
    else:
        weights = {name: run / "start" / name for name in POLICIES[kind]}
    begun = [f"policies.{name}.model={path}" for name, path in weights.items()]
    return [*begun, "pretrain=none" if kind == "lora" else "warmup.steps=0"]


def measured(run: Path) -> dict[str, Any]:
    """Return the scores of a run, its totals and its curve."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = records[-1]
    curve = [
        (int(r["total/sampled_tokens"]), int(r["total/env_steps"]), round(r["validation/score"], 4))
        for r in records
        if "validation/score" in r
    ]
    totals = {k.removeprefix("total/"): v for k, v in last.items() if k.startswith("total/")}
    totals["seconds"] = last["time/total"]
    scores = json.loads((run / "eval.json").read_text())
    return {"scores": scores, "totals": totals, "curve": curve}


def kept_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; what a kill cut off is left out."""
    rows: list[dict[str, Any]] = []
    for line in file.read_text().splitlines() if file.is_file() else ():
        with suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def add_row(file: Path, row: dict[str, Any]) -> None:
    """Append a row to a file, on a new line also where a kill has cut the last one off."""
    is_cut = file.is_file() and file.read_bytes()[-1:] not in (b"", b"\n")
    with file.open("a") as out:
        out.write("\n" * is_cut + json.dumps(row) + "\n")


def commit() -> str:
    """Return the commit of this checkout, marked where files differ from it."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def run_jobs(
    jobs: Iterable[J],
    train: Callable[[J], dict[str, Any]],
    file: Path,
    *,
    runs: Path,
    workers: int,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Train jobs, and append a row of each to a file; return the rows and the failed jobs' names.

    Args:
        jobs: what is left to do, in order; those of one seed follow each other.
        train: trains a job, or goes on, and returns its row.
        file: gets a line of JSON for each row.
        runs: the folder of the runs, with their logs.
        workers: how many seeds run side by side.
    """
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    lock = Lock()
    seeds: dict[int, list[J]] = {}
    for job in jobs:
        seeds.setdefault(job.seed, []).append(job)

    def one_seed(own: Sequence[J]) -> None:
        for job in own:
            try:
                row = train(job)
            except (subprocess.CalledProcessError, UnfinishedError) as problem:
                failed.append(job.name)
                said = f"{problem}; " if isinstance(problem, UnfinishedError) else ""
                print(f"{job.name} failed: {said}read {runs / f'{job.name}.log'}", flush=True)
                continue
            with lock:
                rows.append(row)
                add_row(file, row)
            print(job.name, f"{row['scores']['score']:.3f}", flush=True)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one_seed, seeds.values()))
    return rows, failed
