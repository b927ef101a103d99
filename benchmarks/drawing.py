"""Solve drawings at test time by several methods, and keep what each run cost.

    turnwise train arc-draw-base --run runs/base
    python benchmarks/drawing.py FILE --base runs/base --arms grpo hindsight --seeds 0 1 2
    python benchmarks/drawing.py FILE --tasks 16-squares --budget 4096 --workers 2 --base runs/base
    python benchmarks/drawing.py FILE                     # the table
    python benchmarks/drawing.py FILE --plot drawing.png --arms grpo hindsight  # solves nothing

A job is an arm, a task and a seed: `turnwise solve` with a method and some settings. Jobs whose
command FILE holds for the same base are not solved again, and one that was interrupted goes on. One
that fails is told, and the others go on. Each line of FILE holds its command, the commit, the costs
that every comparison prints (docs/math.md 5), and as `curve` the programs, the updates and the best
share of cells after each iteration. The plot shows the mean of that share over seeds by programs,
or by updates (`--by updates`), and a dot for each exact program. A task passes the gate if none of
256 samples of the base is exact: `--arms gate-0.5 gate-0.9`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any, NamedTuple

from result_rows import add_row, commit, kept_rows

from turnwise.app.solve_base import base_of, digest_of, weights_of
from turnwise.runs import (
    Run,
    episode_file,
    read_episodes,
    read_metrics,
    recorded_iterations,
)
from turnwise.runs.metric_names import TRAIN
from turnwise.utils.hashes import short_hash

TASKS = ("9-vertical-lines", "12-squares", "16-squares", "25-squares")
LOCK = Lock()


class Arm(NamedTuple):
    """A method, its settings over the recipe's, and the budget where it is fixed.

    `first` is a method that begins, and how many of the programs it samples: the arm's method goes
    on from the adapter that it learned.
    """

    method: str
    settings: tuple[str, ...] = ()
    budget: int | None = None
    first: tuple[str, int] | None = None


PLAIN = ("credit.rewards={pixels=1.0, shared=0.0}",)
"""The plain share of right cells as the reward."""
PUBLISHED = {
    "sharing": PLAIN,
    "kl": ("loss.kl=loss_k3", "loss.kl_weight=0.04"),
    "narrow": ("agents.player.temperature=0.5",),
    "one-group": ("trainer.tasks_per_iteration=1", "trainer.minibatches=1"),
    "small-step": ("optimizer.lr=1e-4",),
    "one-epoch": ("trainer.epochs=1",),
    "std": ("credit.std=group",),
    "cut": ("trainer.truncated_completions=train",),
}
"""The choices of the published runs that may have kept GRPO from 16 squares, and their settings. A
small step is a tenth of the recipe's: the published rates are of a model 300 times as large."""
OTHERS = {
    "sharing": ("credit.rewards={pixels=0.0, shared=1.0}",),
    "kl": ("loss.kl=none",),
    "narrow": ("agents.player.temperature=0.7",),
    "one-group": ("trainer.tasks_per_iteration=4", "trainer.minibatches=4"),
    "small-step": ("optimizer.lr=1e-3",),
    "one-epoch": ("trainer.epochs=2",),
    "std": ("credit.std=none",),
    "cut": ("trainer.truncated_completions=exclude",),
}
"""The same, each repaired. The recipe takes from both."""
FEW = ("trainer.tasks_per_iteration=1", "trainer.minibatches=1", "optimizer.lr=3e-3")
"""8 new programs an iteration for the hybrid, and the best rate of its trials with as many."""
ARMS: dict[str, Arm] = {
    "grpo": Arm("grpo"),
    "hindsight": Arm("hindsight"),
    "hybrid": Arm("hybrid"),
    "sample": Arm("sample"),
    "hindsight-grpo": Arm("grpo", first=("hindsight", 256)),
    # fewer new programs between updates
    "hindsight-4": Arm("hindsight", ("trainer.tasks_per_iteration=1", "trainer.group_size=4")),
    "hybrid-8": Arm("hybrid", FEW),
    # what hindsight owes to what: at least as many updates without relabels (a quarter of the new
    # programs, twice as often), wrong relabels, and no earlier programs
    "best-of": Arm("hindsight", ("trainer.relabel=none", "trainer.passes=4")),
    "shuffled": Arm("hindsight", ("trainer.relabel=shuffled",)),
    "hindsight-no-replay": Arm("hindsight", ("trainer.replay=0",)),
    # arc25 drops programs that fail
    "hindsight-drop": Arm("hindsight", ("env.options.relabel_failed=false",)),
    # what kept grpo from 16 squares: at least as many updates as hindsight, the choices of the
    # published runs, one by one and all together, and the plain reward with an entropy bonus
    "grpo-more-updates": Arm("grpo", ("trainer.epochs=4",)),
    "grpo-one-step": Arm("grpo", ("trainer.minibatches=1",)),
    "grpo-no-sharing": Arm("grpo", PUBLISHED["sharing"]),
    "grpo-entropy": Arm("grpo", (*PLAIN, "loss.entropy_weight=0.05", "trainer.epochs=1")),
    **{
        f"grpo-{name}": Arm("grpo", PUBLISHED[name])
        for name in ("kl", "narrow", "one-group", "small-step", "one-epoch")
    },
    **{f"grpo-no-{name}": Arm("grpo", OTHERS[name]) for name in ("std", "cut")},
    "grpo-published": Arm("grpo", tuple(each for own in PUBLISHED.values() for each in own)),
    "grpo-repaired": Arm("grpo", tuple(each for own in OTHERS.values() for each in own)),
    "gate-0.5": Arm("sample", ("agents.player.temperature=0.5",), 256),
    "gate-0.9": Arm("sample", ("agents.player.temperature=0.9",), 256),
}
TOTALS = {
    "prefilled_tokens": "total/prefilled_tokens",
    "env_steps": "total/env_steps",
    "state_resets": "total/state_resets",
}
"""Costs of a run that `turnwise solve` does not tell, and their metrics."""
COSTS = (
    *("generations", "distinct", "updates", "sampled_tokens", "prefilled_tokens"),
    *("trained_tokens", "env_steps", "state_resets", "seconds"),
)


class Job(NamedTuple):
    """Runs of `turnwise solve` one after another, until one solves the task.

    `commands` hold BASE in place of the base, and FIRST in place of the run before.
    """

    arm: str
    task: str
    seed: int
    budget: int
    settings: list[str]
    commands: list[str]

    @property
    def command(self) -> str:
        """All commands as one text."""
        return " && ".join(self.commands)


def job_of(arm: str, task: str, seed: int, args: argparse.Namespace) -> Job:
    """Return a job."""
    own = ARMS[arm]
    settings, budget = [*own.settings, *args.set], own.budget or args.budget

    def command(method: str, count: int, base: str, sets: list[str]) -> str:
        words = ["turnwise", "solve", task, "--method", method, "--seed", str(seed)]
        words += ["--budget", str(count), "--base", base]
        return shlex.join([*words, *(word for one in sets for word in ("--set", one))])

    if own.first is None:
        commands = [command(own.method, budget, "BASE", settings)]
    else:
        method, count = own.first
        begun = command(method, count, "BASE", args.set)
        commands = [begun, command(own.method, budget - count, "FIRST", settings)]
    return Job(arm, task, seed, budget, settings, commands)


def solve(job: Job, args: argparse.Namespace, version: str, base: str) -> dict[str, Any]:
    """Solve a task, or go on; return what is kept."""
    parts = list[dict[str, Any]]()
    folder = args.runs / f"{job.arm}-{job.task}-{job.seed}-{short_hash(f'{base} {job.command}')}"
    bases = {"BASE": str(args.base), "FIRST": str(folder)}
    with (args.runs / f"{folder.name}.log").open("a") as log:
        for number, command in enumerate(job.commands):
            run = folder.with_name(f"{folder.name}-then") if number else folder
            words = [bases.get(word, word) for word in shlex.split(command)[1:]]
            done = subprocess.run(
                [sys.executable, "-m", "turnwise", *words, "--run", str(run), "--json"],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                check=True,
            )
            parts.append(json.loads(done.stdout) | measured(Run.open(run)))
            if parts[-1]["solved"]:
                break
    kept = {"arm": job.arm, "budget": job.budget, "settings": job.settings, "command": job.command}
    return kept | {"commit": version} | joined(parts)


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the outcome of runs that followed one another, with the costs of all.

    `distinct` counts the drawings of each run, so that what two runs drew counts twice.
    """
    whole = dict(parts[0])
    for part in parts[1:]:
        before = {name: whole[name] for name in COSTS}
        best = whole["curve"][-1][2]
        later = [
            (programs + before["generations"], updates + before["updates"], max(best, share))
            for programs, updates, share in part["curve"]
        ]
        curve = [*whole["curve"], *later]
        if not part["solved"] and whole["pixels"] > part["pixels"]:
            part = part | {name: whole[name] for name in ("pixels", "program")}
        whole |= part | {name: before[name] + part[name] for name in COSTS}
        whole |= {"base": parts[0]["base"], "curve": curve}
    return {name: value for name, value in whole.items() if name != "run"}


def measured(run: Run) -> dict[str, Any]:
    """Return the other costs of a finished run, and its curve."""
    records = {each["step"]: each for each in read_metrics(run.metrics) if each["phase"] == TRAIN}
    curve: list[tuple[int, int, float]] = []
    best = 0.0
    for iteration in recorded_iterations(run.episodes):
        played = read_episodes(episode_file(run.episodes, iteration)).episodes
        best = max([best, *(each.measures.get("pixels", 0.0) for each in played)])
        totals = records[iteration + 1]
        updates = int(totals.get("total/optimizer_steps", 0))
        curve.append((int(totals["total/episodes"]), updates, round(best, 4)))
    last = records[max(records)]
    return {name: int(last[key]) for name, key in TOTALS.items()} | {"curve": curve}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the costs of each task and arm: solved runs, and medians over seeds.

    A run that did not solve its task counts with the programs that it sampled, as a lower bound.
    """
    heads = ("task", "arm", "budget", "base", "solved", *COSTS, "best cells")
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    groups: dict[tuple[str, str, int, str, tuple[str, ...]], list[dict[str, Any]]] = {}
    for row in rows:
        of = (row["task"], row["arm"], row["budget"], row["base"][:8], tuple(row["settings"]))
        groups.setdefault(of, []).append(row)
    for (task, arm, budget, base, _), group in sorted(groups.items()):
        solved = sum(row["solved"] for row in group)
        costs = [f"{median(row[cost] for row in group):,.0f}" for cost in COSTS]
        if 2 * solved <= len(group):
            costs[0] = f"> {costs[0]}"
        best = f"{median(row['pixels'] for row in group):.3f}"
        cells = (task, arm, f"{budget:,}", base, f"{solved} of {len(group)}", *costs, best)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], path: Path, by: str) -> None:
    """Draw the best share of cells by programs or updates, the mean over seeds.

    A run that drew the picture has the share 1 from there on; a dot is the end of such a run.
    """
    from matplotlib.figure import Figure

    solved = {row["task"] for row in rows}
    tasks = [*(task for task in TASKS if task in solved), *sorted(solved - set(TASKS))]
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    figure = Figure(figsize=(3.2 * len(tasks) + 1.4, 3.4), dpi=110, layout="constrained")
    for place, task in enumerate(tasks):
        axes = figure.add_subplot(1, len(tasks), place + 1)
        axes.set_title(task, fontsize=10)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("programs sampled" if by == "programs" else "optimizer steps")
        for number, arm in enumerate(arms):
            runs = [row for row in rows if (row["task"], row["arm"]) == (task, arm)]
            color = f"C{number % 10}"
            axes.plot([], [], color=color, label=arm)
            if not runs:
                continue
            curves = [
                ([point[by == "updates"] for point in row["curve"]], [p[2] for p in row["curve"]])
                for row in runs
            ]
            across = sorted({each for xs, _ in curves for each in xs if each > 0})
            axes.plot(across, mean_curve(curves, across), color=color, linewidth=1.5)
            ends = [xs[-1] for (xs, _), row in zip(curves, runs, strict=True) if row["solved"]]
            heights = [1.01 + 0.012 * number] * len(ends)
            axes.plot(ends, heights, "o", color=color, markersize=4, alpha=0.8)
    figure.axes[0].set_ylabel("best share of right cells")
    figure.axes[-1].legend(fontsize=8, loc="lower right")
    figure.savefig(path)


def mean_curve(curves: list[tuple[list[int], list[float]]], across: Sequence[int]) -> list[float]:
    """Return the mean over runs of the last best share at each place of `across`.

    Example:
        >>> mean_curve([([1, 3], [0.5, 1.0]), ([2], [0.7])], [2, 3])
        [0.6, 0.85]
    """
    at = [
        [max((y for x, y in zip(*each, strict=True) if x <= place), default=0.0) for each in curves]
        for place in across
    ]
    return [round(sum(each) / len(each), 6) for each in at]


def main() -> None:
    """Solve what is left, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--arms", nargs="+", default=[], choices=ARMS)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--budget", type=int, default=2400)
    parser.add_argument("--base", type=Path, help="a run of arc-draw-base, or a model's directory")
    parser.add_argument("--set", action="append", default=[], help="a setting of all arms")
    parser.add_argument("--runs", type=Path, default=Path("runs/drawing"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw rows, and solve nothing")
    parser.add_argument("--by", choices=("programs", "updates"), default="programs")
    args = parser.parse_args()
    if args.plot:
        rows = [
            row
            for row in kept_rows(args.file)
            if row["task"] in args.tasks and (row["arm"] in args.arms or not args.arms)
        ]
        if not rows:
            parser.error(f"--plot: {args.file} has no row of these arms and tasks")
        plot(rows, args.plot, args.by)
        return
    if args.arms and args.base is None:
        parser.error("--base: give a run of arc-draw-base")
    for arm in (ARMS[name] for name in args.arms):
        if arm.first is not None and args.budget <= arm.first[1]:
            parser.error(f"--budget {args.budget}: more than the {arm.first[1]} of {arm.first[0]}")
    for folder in (args.runs, args.file.parent):
        folder.mkdir(parents=True, exist_ok=True)
    rows = kept_rows(args.file)
    base = digest_of(weights_of(base_of(args.base))) if args.arms else ""
    known = {row["command"] for row in rows if row["base"] == base}
    version = commit()
    jobs = [
        job_of(arm, task, seed, args)
        for seed in args.seeds
        for task in args.tasks
        for arm in args.arms
    ]
    failed: list[str] = []

    def one(job: Job) -> None:
        try:
            row = solve(job, args, version, base)
        except subprocess.CalledProcessError:
            failed.append(f"{job.arm}-{job.task}-{job.seed}")
            print(*job[:3], "failed: read", args.runs / f"{failed[-1]}.log", flush=True)
            return
        with LOCK:
            rows.append(row)
            add_row(args.file, row)
        said = "solved" if row["solved"] else f"{row['pixels']:.3f} of the cells"
        print(*job[:3], said, row["generations"], f"{row['seconds']:.0f} s", flush=True)

    with ThreadPoolExecutor(args.workers) as pool:
        list(pool.map(one, [job for job in jobs if job.command not in known]))
    print(table(rows))
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
