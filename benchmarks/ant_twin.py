"""What kept the published ant colony on its first tier? The twin, and its repairs one by one.

    python benchmarks/ant_twin.py FILE --rows published rate --seeds 0 1 2 3 4
    python benchmarks/ant_twin.py FILE               # the table of what FILE holds

The twin is the recipe `ant-colony-qwen3-0.6b` with a nano model: demonstrations of the heuristic on
tiers 0 and 1, then 30 iterations of one task with a group of 4, at a rate of 5e-6. A job is a row
of `ROWS` and a seed, from a warm-up that the rows of one seed and equal `--set` share. Jobs that
FILE holds are not trained again, and a run that was interrupted goes on. A line of FILE holds the
commands, the commit, `eval.json` (tier 0, greedy and sampled), the totals, the curve and the last
tier.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

from teams import told
from teams_runs import Job, as_table, by_row, command_line, from_warm_up, run_and_show

RECIPE = "ant-colony-qwen3-0.6b"
ENVS = ("tier-0",)
NANO = ("policies.main.model=nano", "policies.main.nano.init_std=0.09")
SMALL = (
    *("policies.main.lora=none", "policies.main.gradient_checkpointing=false"),
    *("policies.main.template_options=none", "agents.ant.system=none"),
    *("warmup.optimizer.lr=4e-3", "warmup.batch_size=32"),
)
"""What suits a nano model in place of Qwen3-0.6B: all its weights, and a rate of the warm-up."""
BATCH = ("trainer.tasks_per_iteration=24", "trainer.group_size=8", "trainer.minibatches=4")
RATE = ("optimizer.lr=auto",)
CREDIT = (
    *("credit.scheme=gae", "credit.state_key=observation", "credit.gamma=0.3"),
    *("credit.gae_lambda=0.3", "credit.least_advantage=-3.0"),
)
STARTS = ("env.training.start=anywhere", "env.training.ticks=6")
PROGRESS = ("credit.rewards.progress=5.0",)
ROWS: dict[str, tuple[str, ...]] = {
    "published": (),
    "rate": RATE,
    "iterations": ("trainer.iterations=300",),
    "batch": BATCH,
    "credit": CREDIT,
    "progress": PROGRESS,
    "starts": STARTS,
    "no-kl": ("loss.kl=none", "loss.kl_weight=none"),
    "rate+batch": (*RATE, *BATCH),
    "rate+batch+credit": (*RATE, *BATCH, *CREDIT),
    "all": (*RATE, *BATCH, *CREDIT, *PROGRESS, *STARTS),
}


def train(job: Job, runs: Path, version: str) -> dict[str, Any]:
    """Train a job, or go on; return what is kept."""
    row = from_warm_up(job, runs, version, words, ROWS[job.row], NANO)
    return row | {"tier": last_tier(runs / job.name)}


def words(job: Job, settings: tuple[str, ...]) -> list[str]:
    """Return the command that trains the twin with a job's seed and settings."""
    given = (f"seed={job.seed}", *SMALL, *settings)
    return ["train", RECIPE, *(word for one in given for word in ("--set", one))]


def last_tier(run: Path) -> int:
    """Return the tier of the last iteration of a run."""
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return int([each["curriculum/tier"] for each in records if "curriculum/tier" in each][-1])


def table(rows: list[dict[str, Any]]) -> str:
    """Return the tier and the scores of each row, means over seeds with 95 % intervals."""
    heads = ("env", "row", "seeds", "tiers at the end", "greedy", "sampled", "warm-up", "s")
    found: list[list[str]] = []
    for cells, group in by_row(rows):
        scores = [row["scores"] for row in group]
        own = [told([each[f"score_{how}"] for each in scores]) for how in ("greedy", "sampled")]
        warm = told([each["baselines"]["warmup"] for each in scores])
        seconds = f"{mean(row['totals']['seconds'] for row in group):,.0f}"
        found.append([*cells, " ".join(str(row["tier"]) for row in group), *own, warm, seconds])
    return as_table(heads, found)


def main() -> None:
    """Train what is left, and print the table."""
    args = command_line(__doc__, ENVS, tuple(ROWS), "runs/ant-twin").parse_args()
    run_and_show(args, train, lambda rows: print(table(rows)))


if __name__ == "__main__":
    main()
