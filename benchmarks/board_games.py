"""Train tic-tac-toe and connect-four by self-play with several baselines of the return.

    python benchmarks/board_games.py FILE --envs tic-tac-toe --rows rae reinforce --seeds 0 1 2
    python benchmarks/board_games.py FILE               # the table of what FILE holds

A job is a row of `ROWS`, a game and a seed: `turnwise train` with some settings, from a warm-up
that the rows of one seed share. Scores are taken against a minimax player of depth 1, half of the
games with each seat. Jobs that FILE holds are not trained again, and a run that was interrupted
goes on. A line of FILE holds the command, the commit, `eval.json`, the totals and the curve.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from teams import told
from teams_runs import Job, measured, run_rows, trained

ENVS = ("tic-tac-toe", "connect-four")
ROWS = {
    "recipe": (),  # the mean of the group, and of equal states (GiGPO)
    "rae": ("credit.scheme=rae",),  # a running mean for each seat
    "reinforce": ("credit.scheme=reinforce",),  # no baseline
    "self-rae": ("preset=self", "credit.scheme=rae"),  # against itself alone
    "self-reinforce": ("preset=self", "credit.scheme=reinforce"),
}
PLAYERS = ("perfect", "minimax-2", "minimax-1", "warmup", "random")


def train(job: Job, runs: Path, version: str) -> dict[str, Any]:
    """Train a job, or go on; return what is kept."""
    warm = runs / f"{job.env}-warm-{job.seed}"
    commands = [
        words(job, ("trainer.iterations=0",)),
        words(
            job,
            (f"policies.main.model={warm / 'start' / 'main'}", "warmup.steps=0", *ROWS[job.row]),
        ),
    ]
    for command, run in zip(commands, (warm, runs / job.name), strict=True):
        trained(command, run)
    told_as = " && ".join(" ".join(["turnwise", *command]) for command in commands)
    return job.kept(version) | {"command": told_as} | measured(runs / job.name)


def words(job: Job, settings: tuple[str, ...]) -> list[str]:
    """Return the command that trains the recipe of a job with settings."""
    given = (f"seed={job.seed}", *settings, *job.settings)
    return ["train", job.env, *(word for one in given for word in ("--set", one))]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the scores of each game and row, means over seeds with 95 % intervals."""
    heads = ("game", "row", "seeds", "sampled", "greedy", *PLAYERS, "sampled tokens", "seconds")
    lines = ["| " + " | ".join(heads) + " |", "|---" * 2 + "|---:" * (len(heads) - 2) + "|"]
    groups: dict[tuple[str, str, tuple[str, ...]], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["env"], row["row"], tuple(row["settings"])), []).append(row)
    for (env, name, settings), group in groups.items():
        scores = [row["scores"] for row in group]
        cells = [env, " ".join([name, *settings]), str(len(group))]
        cells += [told([each[f"score_{how}"] for each in scores]) for how in ("sampled", "greedy")]
        for player in PLAYERS:
            known = [each["baselines"][player] for each in scores if player in each["baselines"]]
            cells.append(f"{sum(known) / len(known):.3f}" if known else "")
        totals = [row["totals"] for row in group]
        for cost in ("sampled_tokens", "seconds"):
            cells.append(f"{sum(each[cost] for each in totals) / len(totals):,.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Train what is left, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--envs", nargs="+", default=list(ENVS), choices=ENVS)
    parser.add_argument("--rows", nargs="+", default=[], choices=ROWS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", action="append", default=[], help="a setting of all rows")
    parser.add_argument("--runs", type=Path, default=Path("runs/board-games"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    rows, failed = run_rows(args, lambda job, version: train(job, args.runs, version))
    if rows:
        print(table(rows))
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
