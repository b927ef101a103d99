"""Train tic-tac-toe and connect-four by self-play with several baselines of the return.

    python benchmarks/board_games.py FILE --envs tic-tac-toe --rows rae reinforce --seeds 0 1 2
    python benchmarks/board_games.py FILE               # the table of what FILE holds

A job is a row of `ROWS`, a game and a seed: `turnwise train` with some settings, from a warm-up
that the rows of one seed and equal `--set` share. Scores are taken against a minimax player of
depth 1, half of the games with each seat. Jobs that FILE holds are not trained again, and a run
that was interrupted goes on. A line of FILE holds the command, the commit, `eval.json`, the totals
and the curve.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

from teams import told
from teams_runs import (
    Job,
    as_table,
    by_row,
    command_line,
    from_warm_up,
    run_and_show,
    words_of_job,
)

ENVS = ("tic-tac-toe", "connect-four")
ROWS = {
    "recipe": (),  # the mean of the group, and of equal states (GiGPO)
    "rae": ("credit.scheme=rae",),  # a running mean for each seat
    "reinforce": ("credit.scheme=reinforce",),  # no baseline
    "self-rae": ("preset=self", "credit.scheme=rae"),  # against itself alone
    "self-reinforce": ("preset=self", "credit.scheme=reinforce"),
}
PLAYERS = ("perfect", "minimax-2", "minimax-1", "warmup", "random")
SPENT = ("sampled_tokens", "seconds")


def train(job: Job, runs: Path, version: str) -> dict[str, Any]:
    """Train a job, or go on; return what is kept."""
    return from_warm_up(job, runs, version, words_of_job, ROWS[job.row])


def table(rows: list[dict[str, Any]]) -> str:
    """Return the scores of each game and row, means over seeds with 95 % intervals."""
    heads = ("game", "row", "seeds", "sampled", "greedy", *PLAYERS, "sampled tokens", "seconds")
    found: list[list[str]] = []
    for cells, group in by_row(rows):
        scores = [row["scores"] for row in group]
        own = [told([each[f"score_{how}"] for each in scores]) for how in ("sampled", "greedy")]
        others: list[str] = []
        for player in PLAYERS:
            known = [each["baselines"][player] for each in scores if player in each["baselines"]]
            others.append(f"{mean(known):.3f}" if known else "")
        spent = (mean(row["totals"][cost] for row in group) for cost in SPENT)
        found.append([*cells, *own, *others, *(f"{each:,.0f}" for each in spent)])
    return as_table(heads, found)


def main() -> None:
    """Train what is left, and print the table."""
    args = command_line(__doc__, ENVS, tuple(ROWS), "runs/board-games").parse_args()
    run_and_show(args, train, lambda rows: print(table(rows)))


if __name__ == "__main__":
    main()
