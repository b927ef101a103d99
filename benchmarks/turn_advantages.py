"""Where is the signal? Advantages of recorded turns, by what the turn said it was about.

    python benchmarks/turn_advantages.py RUN "destination here" "passenger here" destination

Goes through the training episodes in the run's folder. Each turn is sorted by the first of the
given texts that its reply contains (none: "other") and by its action, and the table says how many
there are, and the mean and the sum of their advantages: a kind of state in which the right action
has no positive sum is one that the reward does not teach.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from turnwise.runs import Run, episode_file, read_episodes, recorded_iterations

OTHER, NONE = "other", "no action"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("kinds", nargs="*", help="texts that tell kinds of turns apart, in order")
    parser.add_argument("--first", type=int, default=0, help="the first iteration")
    parser.add_argument("--last", type=int, default=10**9, help="the last one")
    arguments = parser.parse_args()
    folder = Run(arguments.run).episodes
    iterations = [
        number
        for number in recorded_iterations(folder)
        if arguments.first <= number <= arguments.last
    ]
    if not iterations:
        parser.error(f"{folder} has no training episodes of those iterations")
    print(f"iterations {iterations[0]} to {iterations[-1]}, {len(iterations)} recorded")
    print(f"{'kind':<28} {'action':<40} {'turns':>7} {'mean':>8} {'sum':>9}")
    for (kind, action), found in sorted(advantages(folder, iterations, arguments.kinds).items()):
        mean, total = np.mean(found), np.sum(found)
        print(f"{kind:<28} {action[:40]:<40} {len(found):>7} {mean:>8.3f} {total:>9.1f}")


def advantages(
    folder: Path, iterations: Sequence[int], kinds: Sequence[str]
) -> Mapping[tuple[str, str], list[float]]:
    """Return (kind, action) -> the advantages of its turns.

    A turn's advantage is that of its spans which is largest in size.
    """
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in iterations:
        recorded = read_episodes(episode_file(folder, number))
        for episode in recorded.episodes:
            for turn in (turn for one in episode.trajectories for turn in one.turns):
                kind = next((kind for kind in kinds if kind in turn.text), OTHER)
                spans = recorded.advantages.get(turn.id, {})
                action = " ".join((turn.action or NONE).split())
                found[kind, action].append(max(spans.values(), key=abs, default=0.0))
    return found


if __name__ == "__main__":
    main()
