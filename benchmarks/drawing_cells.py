"""Print in what share of a run's last programs each cell of its target is right.

    python benchmarks/drawing_cells.py RUN --iterations 10

RUN is a folder of `turnwise solve`. The grid shows percent for each cell. Below it stand how many
cells are right in none of the programs, the smallest share, the mean, and how many of the programs
are different. A cell that no program has right earns nothing, so that no reward asks for it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from turnwise.envs.drawing.env import ArcDraw
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run, episode_file, read_episodes, recorded_iterations


def main() -> None:
    """Count right cells."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--iterations", type=int, default=10, help="the last ones of the run")
    args = parser.parse_args()
    run = Run.open(args.run)
    env = load_recipe(str(run.recipe), (), lambda text: None).env.make("training").unwrapped
    assert isinstance(env, ArcDraw), "a run of arc-draw"
    programs: list[str] = []
    right: list[list[bool]] = []
    for iteration in recorded_iterations(run.episodes)[-args.iterations :]:
        for episode in read_episodes(episode_file(run.episodes, iteration)).episodes:
            programs.append(episode.turns[-1].text)
            right.append(env.right_cells(episode))
    shares = np.mean(right, axis=0)
    width = len(env.reset(episode.task).pairs[0][1][0])
    for row in shares.reshape(-1, width):
        print(" ".join(f"{100 * share:4.0f}" for share in row))
    print(f"cells right in no program: {(shares == 0).sum()} of {shares.size}")
    print(f"smallest share {shares.min():.3f}, mean {shares.mean():.3f}")
    print(f"different programs: {len(set(programs))} of {len(programs)}")


if __name__ == "__main__":
    main()
