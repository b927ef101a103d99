"""What a turn of an ant costs as ants and ticks grow, from 1 ant for 40 ticks to 6 for 300.

    python benchmarks/ant_cost.py MODEL

MODEL is a policy of the ant colony, such as `runs/X/checkpoints/000150-train-150/policies/main`.
Each size trains for two iterations on whole episodes, one size after the other for `--repeats`
times. The first iteration warms up. Prints the medians of the seconds for a thousand turns of one
ant, and their ratios to those of the first size. With as many episodes six ants have 45 times the
turns, which share the fixed cost of an iteration. With as many turns one ant has 45 times the
episodes, which share passes of the model. So one ant is measured with both.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import median

from teams_runs import as_table, at_least_1, trained

ONE = ("env.options.tier=0", "env.options.seats=1", "env.training.ticks=40")
SIX = ("env.options.tier=6", "env.options.seats=6", "env.training.ticks=300")
SIZES = {
    "1 ant, 40 ticks, 8 episodes": (*ONE, "trainer.tasks_per_iteration=2"),
    "6 ants, 300 ticks, 8 episodes": (*SIX, "trainer.tasks_per_iteration=2"),
    "1 ant, 40 ticks, 360 episodes, as many turns": (*ONE, "trainer.tasks_per_iteration=90"),
}
COMMON = (
    *("preset=fast", "warmup.steps=0", "env.training.start=nest"),
    *("trainer.group_size=4", "trainer.iterations=2"),
    *("evaluation.test_tasks=1", "evaluation.validation_tasks=1"),
)
PARTS = ("rollout", "update", "step")


def costs(model: Path, settings: tuple[str, ...], run: Path) -> dict[str, float]:
    """Return the seconds of each part of the last iteration for a thousand turns."""
    given = (*COMMON, *settings, f"policies.main.model={model.resolve()}")
    trained(["train", "ant-colony", *(word for one in given for word in ("--set", one))], run)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    last = [each for each in map(json.loads, lines) if "rollout/turns" in each][-1]
    return {part: 1000 * last[f"time/{part}"] / last["rollout/turns"] for part in PARTS}


def main() -> None:
    """Measure the sizes, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--repeats", type=at_least_1, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs/ant-cost"))
    args = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    args.runs.mkdir(parents=True, exist_ok=True)
    for repeat in range(args.repeats):
        for number, (name, settings) in enumerate(SIZES.items()):
            found[name].append(costs(args.model, settings, args.runs / f"{number}-{repeat}"))
    middle = {
        name: {part: median(each[part] for each in all_of) for part in PARTS}
        for name, all_of in found.items()
    }
    first = next(iter(middle.values()))
    heads = ("size", *(f"{part}, s for 1000 turns" for part in PARTS), "ratio of a step")
    rows = [
        [
            name,
            *(f"{parts[part]:.2f}" for part in PARTS),
            f"{parts['step'] / first['step']:.2f}",
        ]
        for name, parts in middle.items()
    ]
    print(as_table(heads, rows))


if __name__ == "__main__":
    main()
