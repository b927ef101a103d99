"""Is a policy better than the reflex where the reflex fails? Scores on the maps it mostly loses.

    python benchmarks/lake_hard_maps.py RUN [--tasks 2000] [--seed 0] [--at-most 0.5]

Draws unseen maps as the report does, computes for each how often the reflex (DOWN or RIGHT,
whichever is safe, by chance if both) wins it, lets the best checkpoint of RUN play it once
greedily, and compares the two on all maps and on those that the reflex wins at most half the time.
The reflex is computed as a Markov chain, so no luck of its own decides which maps those are.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from turnwise.app.loading import load_run
from turnwise.envs import clustered_stderr
from turnwise.envs.frozen_lake.baselines import reflex_chances
from turnwise.envs.frozen_lake.env import FrozenLake
from turnwise.envs.frozen_lake.exact import success_of
from turnwise.evaluation import evaluate
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-most", type=float, default=0.5)
    arguments = parser.parse_args()
    loaded = load_run(arguments.run, seed=arguments.seed)
    loaded.use_checkpoint()
    env = loaded.recipe.env.make("evaluation").unwrapped
    if not isinstance(env, FrozenLake):
        parser.error(f"{arguments.run} plays {env.name!r}: this table is of lakes")
    tasks = GeneratedTasks(env, "test", arguments.seed).take(arguments.tasks)
    probabilities = [reflex_chance(env, task) for task in tasks]
    scores = evaluate(loaded.judge(env), tasks, greedy=True).scores
    problems = [env.canonical(task.data) for task in tasks]
    hard = [chance <= arguments.at_most for chance in probabilities]
    print(f"checkpoint {loaded.checkpoint.path.name}, {arguments.tasks} maps of the test split")
    print(table_row("all maps", scores, probabilities, problems, [True] * len(tasks)))
    print(table_row(f"reflex <= {arguments.at_most}", scores, probabilities, problems, hard))


def reflex_chance(env: FrozenLake, task: Task) -> float:
    """Return the exact probability that the reflex solves `task`."""
    first = env.reset(task)
    player = reflex_chances(first.map)
    return success_of(first.map, first.slippery, first.limit, first.position, player)


def table_row(
    name: str,
    scores: Sequence[float],
    probabilities: Sequence[float],
    problems: Sequence[str],
    chosen: Sequence[bool],
) -> str:
    """Return the means over the chosen maps, and the paired difference with its standard error."""
    kept = np.flatnonzero(chosen)
    if not len(kept):
        return f"{name:16s} no map"
    mine, reflex = np.array(scores)[kept], np.array(probabilities)[kept]
    names = [problems[i] for i in kept]
    error, apart = clustered_stderr(list(mine), names), clustered_stderr(list(mine - reflex), names)
    return (
        f"{name:16s} {len(kept):5d} maps  policy {mine.mean():.3f} +- {error:.3f}  "
        f"reflex {reflex.mean():.3f}  difference {(mine - reflex).mean():+.3f} +- {apart:.3f}"
    )


if __name__ == "__main__":
    main()
