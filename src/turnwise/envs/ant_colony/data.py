"""Demonstrations of the ant colony as rows: what an ant sees, and what the heuristic does.

Provides `COLUMNS` and `demonstration_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from turnwise.envs.ant_colony.env import AntColony
from turnwise.envs.ant_colony.tiers import AntColonyConfig
from turnwise.envs.split import split_of
from turnwise.formats import REPLY_FORMATS
from turnwise.types import Task

COLUMNS = ("prompt", "completion", "tier")


def demonstration_rows(
    tier: int, noise: float, rng: np.random.Generator
) -> Iterator[Mapping[str, str]]:
    """Yield rows without end: the turns of the heuristic's episodes on training tasks, in order.

    Args:
        tier: the highest tier; each task is of one of the tiers up to it.
        noise: the share of turns after which a random action is played in place of the row's.
        rng: draws the tasks and the episodes.
    """
    env = AntColony(AntColonyConfig(tier=tier, up_to=True))
    player, lines = env.baselines()["heuristic"], REPLY_FORMATS["lines"]
    while True:
        data = env.generate(rng)
        if split_of(env.canonical(data)) != "train":
            continue
        state = env.reset(Task(id="demonstration", env=env.name, seed=0, data=data))
        while not state.ended:
            (seat,) = env.acting(state)
            seen, action = env.observe(state, seat), player(state, rng)
            yield {
                "prompt": seen.text,
                "completion": lines.render(seen.description, action),
                "tier": str(state.world.tier),
            }
            if rng.random() < noise:
                action = env.random_action(state, seat, rng)
            state = env.step(state, seat, action, rng).state
