"""Episodes in which a policy goes round in circles until its turns are used up.

Provides `circling`. A greedy policy answers equal prompts equally. Where the env is deterministic,
a prompt that comes again then comes for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean

from turnwise.types import Episode, Trajectory

TIMES = 3
"""A seat that saw its last prompt so often in an episode went round in a circle."""


def circling(episodes: Sequence[Episode]) -> dict[str, int]:
    """Return in how many greedy episodes each role went round in a circle until they were cut.

    Roles that never did are left out. The result is empty where no other episode came to an end
    with a better score than these had on average: a policy may be right to repeat itself.
    """
    found: Counter[str] = Counter()
    circles, ended = list[float](), list[float]()
    for episode in episodes:
        if episode.terminated:
            ended.append(episode.score)
        elif not episode.broken:
            roles = {one.role for one in episode.trajectories if _is_circle(one)}
            found.update(roles)
            circles += [episode.score] if roles else []
    if not circles or not ended or mean(ended) <= mean(circles):
        return {}
    return dict(found)


def _is_circle(trajectory: Trajectory) -> bool:
    """Return whether a seat of the policy saw its last prompt `TIMES` times or more."""
    if trajectory.player or not trajectory.turns:
        return False
    prompts = [turn.shown for turn in trajectory.turns]
    return prompts.count(prompts[-1]) >= TIMES
