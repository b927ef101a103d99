"""Train on Gymnasium's slippery lake by GRPO with as many episodes as a policy search plays.

    python benchmarks/lake_budget.py FILE --rows expert episodes --seeds 0 1 2 3 4 5 6 7 8 9
    python benchmarks/lake_budget.py FILE               # the table of what FILE holds

A job is a row of `ROWS` and a seed: `turnwise train frozen-lake-slippery-maps` on that one map,
from a warm-up that the rows of one seed share, for at most the 8,020 episodes of `turnwise search`.
The scores are exact. Jobs that FILE holds are not trained again, and a run that was interrupted
goes on. A line of FILE holds the command, the commit, `eval.json`, the totals and the curve.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from typing import Any

from teams_runs import (
    Job,
    as_table,
    by_row,
    command_line,
    from_warm_up,
    run_and_show,
    words_of_job,
)

ENVS = ("frozen-lake-slippery-maps",)
EPISODES = 8020
"""The episodes of a policy search: 400 evaluations of 20 each, and 20 of the warm-up."""
LAKE = ('env.options.map=["SFFF","FHFH","FFFH","HFFG"]', "evaluation.test_tasks=100")
"""The lake of Gymnasium in place of maps that are drawn; the exact scores need no tests."""
PLAYED = (
    *("credit.scheme=gae", "credit.gamma=0.99", "credit.rewards.fall=0.0", "sft_mix=none"),
    *("trainer.group_size=24", "trainer.tasks_per_iteration=8", "trainer.iterations=41"),
    *("trainer.minibatches=8", "trainer.epochs=4"),
)
"""Whole episodes with state values, and more updates for an episode than the recipe makes."""
ROWS = {
    # an episode is one step, and its reward the optimal value of the action
    "expert": (
        *("env.training.start=anywhere", "env.training.steps=1"),
        *("credit.scheme=grpo", "credit.rewards.goal=none", "credit.rewards.fall=none"),
        *("credit.rewards.invalid=none", "credit.rewards.expert=1.0"),
        *("trainer.group_size=8", "trainer.tasks_per_iteration=22", "trainer.iterations=45"),
    ),
    # whole episodes; only the goal is rewarded
    "episodes": (*PLAYED, "env.training.start=corner"),
    "episodes-anywhere": (*PLAYED, "env.training.start=anywhere"),
}
HOW = ("greedy", "sampled")


def train(job: Job, runs: Path, version: str) -> dict[str, Any]:
    """Train a job, or go on; return what is kept."""
    return from_warm_up(job, runs, version, words_of_job, (*LAKE, *ROWS[job.row]), LAKE)


def table(rows: list[dict[str, Any]]) -> str:
    """Return the exact success of each row, means and standard deviations over seeds."""
    heads = ("env", "row", "seeds", *HOW, "episodes", "env steps", "seconds")
    found: list[list[str]] = []
    for cells, group in by_row(rows):
        exact = [row["scores"]["exact"] for row in group]
        scores = [spread([each[f"trained, {how}"]["success"] for each in exact]) for how in HOW]
        costs = [
            f"{mean(row['totals'][cost] for row in group):,.0f}"
            for cost in ("episodes", "env_steps", "seconds")
        ]
        found.append([*cells, *scores, *costs])
    return as_table(heads, found)


def spread(values: list[float]) -> str:
    """Return a mean, with the standard deviation where there are several values."""
    return f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


def main() -> None:
    """Train what is left, and print the table."""
    args = command_line(__doc__, ENVS, tuple(ROWS), "runs/lake-budget").parse_args()
    run_and_show(args, train, lambda rows: print(table(rows)))


if __name__ == "__main__":
    main()
