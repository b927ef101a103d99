"""Policies for frozen lakes without a model, from random to optimal.

Provides the baselines of every score on a lake, by name. Each maps the full state and a generator
to an action, as `envs.base.Baseline` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from turnwise.envs.base import Baseline
from turnwise.envs.frozen_lake.maps import ACTIONS, MapRows, lake_of
from turnwise.envs.frozen_lake.solver import action_values, success_chances
from turnwise.envs.frozen_lake.state import LakeState, shortest_path

Rule = Callable[[LakeState, np.random.Generator], str]


def lake_baselines() -> Mapping[str, Baseline]:
    """Return the baselines by name, the weakest first."""
    return {
        "random": random_action,
        **{f"always-{action.lower()}": partial(_always, action) for action in ACTIONS},
        "safe-walk": safe_walk,
        "reflex": reflex,
        "shortest-path": follow_shortest_path,
        "optimal": optimal,
    }


def random_action(state: LakeState, rng: np.random.Generator) -> str:
    """Return an action drawn uniformly from all four."""
    return ACTIONS[rng.integers(4)]


def _always(action: str, state: LakeState, rng: np.random.Generator) -> str:
    return action


def _safe_in(rows: MapRows, here: int) -> list[int]:
    """Return the actions that lead to another cell that is not a hole."""
    lake = lake_of(rows)
    return [
        action
        for action, cell in enumerate(lake.moves[here])
        if cell != here and lake.letters[cell] != "H"
    ]


def safe_walk(state: LakeState, rng: np.random.Generator) -> str:
    """Return a random action that enters no hole and stays on the map, or any if there is none."""
    safe = _safe_in(state.map, state.position)
    return ACTIONS[safe[rng.integers(len(safe))]] if safe else random_action(state, rng)


def reflex(state: LakeState, rng: np.random.Generator) -> str:
    """Return DOWN or RIGHT, whichever is safe, at random if both are; else a safe action."""
    taken = _reflex_in(state.map, state.position)
    return ACTIONS[taken[rng.integers(len(taken))]]


def _reflex_in(rows: MapRows, here: int) -> list[int]:
    """Return the actions among which `reflex` draws uniformly."""
    safe = _safe_in(rows, here)
    ahead = [action for action in safe if ACTIONS[action] in ("DOWN", "RIGHT")]
    return ahead or safe or list(range(len(ACTIONS)))


def reflex_chances(rows: MapRows) -> NDArray[np.float64]:
    """Return the action probabilities of `reflex` in each cell, [C, 4].

    Example:
        >>> reflex_chances(("SF", "FG"))[0].tolist(), reflex_chances(("SH", "FG"))[0].tolist()
        ([0.0, 0.5, 0.5, 0.0], [0.0, 1.0, 0.0, 0.0])
    """
    probabilities = np.zeros((len(lake_of(rows).letters), len(ACTIONS)))
    for cell in range(len(probabilities)):
        taken = _reflex_in(rows, cell)
        probabilities[cell, taken] = 1 / len(taken)
    return probabilities


def follow_shortest_path(state: LakeState, rng: np.random.Generator) -> str:
    """Return the first move of a shortest path on firm ice."""
    path = shortest_path(state)
    return path[0] if path else safe_walk(state, rng)


def optimal(state: LakeState, rng: np.random.Generator) -> str:
    """Return an action with the highest probability of success in the remaining steps.

    On slippery ice it is found by backward induction. Ties, and actions on firm ice, are decided by
    the discounted values, which prefer shorter paths.
    """
    values = action_values(state.map, state.slippery)[state.position]
    if state.slippery:
        probabilities = success_chances(state.map, True, state.limit)[state.left, state.position]
        values = np.where(probabilities >= probabilities.max() - 1e-12, values, -1.0)
    return ACTIONS[int(values.argmax())]
