"""Runs of teams on planning puzzles: warm-ups, training that goes on, rows of results in a file.

Provides what `teams.py` and `teams_defects.py` share. A run is a folder, and a finished one has the
file `eval.json`. Jobs of one seed share warm-ups and follow each other; seeds run side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import product
from pathlib import Path
from threading import Event, Lock
from typing import Any, NamedTuple

from result_rows import add_row, commit, kept_rows

RECIPES = {env: f"{env}-two-policy" for env in ("sokoban", "plan-path", "sudoku")}
GRPO, TURNS = ("preset=grpo",), ("preset=turns",)
"""Whole episodes are compared; the recipes themselves have a spine, that is AT-GRPO."""
BESIDE = 'evaluation.baselines=["optimal"]'
"""All baselines of a puzzle take longer than a test, and are the same in each row."""
COSTS = ("sampled_tokens", "prefilled_tokens", "trained_tokens", "env_steps", "state_resets")
TURNWISE = ("-m", "turnwise")
"""What follows the interpreter in a command of turnwise."""


class Start(NamedTuple):
    """Where a kind of policies begins.

    `kind` has the warm-up, and `weights` maps each policy to the one there whose weights it has.
    `skipped` is the setting that leaves out the recipe's own warm-up.
    """

    kind: str
    weights: Mapping[str, str]
    skipped: str = "warmup.steps=0"


STARTS = {
    "single": Start("single", {"main": "main"}),
    "shared": Start("shared", {"main": "main"}),
    "lora": Start("shared", {"tool": "main", "planner": "main"}, "pretrain=none"),
    "models": Start("models", {"tool": "tool", "planner": "planner"}),
}
"""A kind of policies, which is a preset of each recipe -> where it begins."""


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
    """Return the command that trains a recipe with settings, and tests it beside the solver."""
    given = (BESIDE, *settings)
    return ["train", RECIPES[env], *(word for one in given for word in ("--set", one))]


def as_typed(*commands: Sequence[str]) -> str:
    """Return the shell command that runs commands of turnwise one after the other."""
    return " && ".join(shlex.join(["turnwise", *words]) for words in commands)


def begun_from(run: Path, kind: str) -> list[str]:
    """Return the settings of a run that begins with the weights of a warm-up."""
    start = STARTS[kind]
    weights = start.weights.items()
    return [*(f"policies.{n}.model={run / 'start' / own}" for n, own in weights), start.skipped]


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


class Job(NamedTuple):
    """A row to be trained on an env with a seed, and settings of all rows."""

    row: str
    env: str
    seed: int
    settings: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its run folder."""
        return self.folder(self.row)

    @property
    def warm_up(self) -> Job:
        """The job that a warm-up depends on: without the iterations, which come after it."""
        later = "trainer.iterations"
        kept = (one for one in self.settings if one.partition("=")[0].strip() != later)
        return self._replace(settings=tuple(kept))

    def folder(self, what: str) -> str:
        """Return the name of a folder of the env, the seed and the settings."""
        own = sha256("\n".join(self.settings).encode()).hexdigest()[:8] if self.settings else ""
        return "-".join(filter(None, (self.env, what, str(self.seed), own)))

    def kept(self, version: str) -> dict[str, Any]:
        """Return what its line in a file begins with."""
        named = {"row": self.row, "env": self.env, "seed": self.seed}
        return named | {"settings": list(self.settings), "commit": version}


def words_of_job(job: Job, settings: tuple[str, ...]) -> list[str]:
    """Return the command that trains the recipe that a job's env names, with its seed."""
    given = (f"seed={job.seed}", *settings)
    return ["train", job.env, *(word for one in given for word in ("--set", one))]


def from_warm_up(
    job: Job,
    runs: Path,
    version: str,
    words: Callable[[Job, tuple[str, ...]], list[str]],
    settings: tuple[str, ...],
    of_warm_up: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Train a job of one policy from a warm-up that its seed's jobs share, or go on.

    Args:
        job: the job.
        runs: the folder of the runs.
        version: the commit.
        words: from the job and settings to the words of the command that trains it.
        settings: of the job's row.
        of_warm_up: settings of the warm-up alone.

    Returns:
        What is kept of it.
    """
    warm = runs / job.warm_up.folder("warm")
    begun = (f"policies.main.model={warm / 'start' / 'main'}", "warmup.steps=0")
    commands = [
        words(job, (*of_warm_up, *job.warm_up.settings, "trainer.iterations=0")),
        words(job, (*settings, *job.settings, *begun)),
    ]
    for command, run in zip(commands, (warm, runs / job.name), strict=True):
        trained(command, run)
    return job.kept(version) | {"command": as_typed(*commands)} | measured(runs / job.name)


def run_rows(
    args: argparse.Namespace, train: Callable[[Job, str], dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Train the jobs that a file lacks, and append a line of each; return all rows, and failures.

    Args:
        args: `file`; `envs`, `rows`, `seeds` and `set`, which name the jobs; `runs`, the folder of
            the runs; `workers`, how many seeds run side by side.
        train: trains a job, or goes on, and returns its row; it is given the commit.
    """
    for folder in (args.runs, args.file.parent):
        folder.mkdir(parents=True, exist_ok=True)
    rows, version = kept_rows(args.file), commit()
    known = {(row["row"], row["env"], row["seed"], tuple(row["settings"])) for row in rows}
    failed: list[str] = []
    lock = Lock()
    stopped = Event()
    seeds: dict[int, list[Job]] = {}
    for env, row, seed in product(args.envs, args.rows, args.seeds):
        job = Job(row, env, seed, tuple(args.set))
        if job not in known and job not in seeds.get(seed, ()):
            seeds.setdefault(seed, []).append(job)

    def one_seed(own: Sequence[Job]) -> None:  # they share warm-ups, so one follows the other
        for job in own:
            if stopped.is_set():
                return
            try:
                row = train(job, version)
            except (subprocess.CalledProcessError, UnfinishedError) as problem:
                failed.append(job.name)
                log = args.runs / f"{job.name}.log"
                said = problem if isinstance(problem, UnfinishedError) else f"read {log}"
                print(f"{job.name} failed: {said}", flush=True)
                continue
            with lock:
                rows.append(row)
                add_row(args.file, row)
            print(job.name, f"{row['scores']['score']:.3f}", flush=True)

    with ThreadPoolExecutor(args.workers) as pool:
        try:
            list(pool.map(one_seed, seeds.values()))
        except KeyboardInterrupt:  # the commands that run get Ctrl-C, too; no others are begun
            stopped.set()
            raise
    return rows, failed


def command_line(
    told: str | None, envs: Sequence[str], rows: Sequence[str], folder: str
) -> argparse.ArgumentParser:
    """Return the parser of a script whose docstring is `told`; its runs lie in `folder`."""
    parser = argparse.ArgumentParser(description=(told or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--envs", nargs="+", default=list(envs), choices=envs)
    parser.add_argument("--rows", nargs="+", default=[], choices=rows)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", action="append", default=[], help="a setting of all rows")
    parser.add_argument("--runs", type=Path, default=Path(folder))
    parser.add_argument("--workers", type=at_least_1, default=2, help="seeds that run side by side")
    return parser


def at_least_1(text: str) -> int:
    """Return the number that a text is.

    Raises:
        ArgumentTypeError: if it is none, or below 1.
    """
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: give a number from 1 on")
    return int(text)


def run_and_show(
    args: argparse.Namespace,
    train: Callable[[Job, Path, str], dict[str, Any]],
    show: Callable[[list[dict[str, Any]]], None],
) -> None:
    """Train what is left of the rows that are asked for, show all rows, and exit if one failed."""
    rows, failed = run_rows(args, lambda job, version: train(job, args.runs, version))
    if rows:
        show(rows)
    elif not failed:
        sys.exit(f"{args.file} holds no rows, and none are asked for: name envs and rows to train")
    if failed:
        sys.exit(1)


def by_row(rows: Sequence[dict[str, Any]]) -> list[tuple[list[str], list[dict[str, Any]]]]:
    """Return the env, the row with its settings and the number of seeds, and the seeds' rows.

    Of several rows of one seed the last one counts: two processes may have kept one each.
    """
    groups: dict[tuple[str, str, tuple[str, ...]], dict[int, dict[str, Any]]] = {}
    for row in rows:
        place = (row["env"], row["row"], tuple(row["settings"]))
        groups.setdefault(place, {})[row["seed"]] = row
    return [
        ([env, " ".join([name, *settings]), str(len(group))], list(group.values()))
        for (env, name, settings), group in groups.items()
    ]


def as_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, its first two columns to the left."""
    lines = ["| " + " | ".join(heads) + " |", "|---" * 2 + "|---:" * (len(heads) - 2) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows)])
