"""Players of frozen lakes that need no model, from chance to the optimum.

Owns the named policies that every score on a lake is read against. Each takes the full state and a
generator, as `envs.base.Baseline` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from turnwise.envs.base import Baseline
from turnwise.envs.lake_maps import ACTIONS, Rows, lake_of
from turnwise.envs.lake_solver import action_values, success_chances
from turnwise.envs.lake_state import LakeState, shortest_path

Rule = Callable[[LakeState, np.random.Generator], str]


def lake_baselines() -> Mapping[str, Baseline]:
    """Return the players by name, the weakest first."""
    return {
        "random": random_action,
        **{f"always-{action.lower()}": partial(_always, action) for action in ACTIONS},
        "safe-walk": safe_walk,
        "reflex": reflex,
        "shortest-path": follow_shortest_path,
        "optimal": optimal,
    }


def random_action(state: LakeState, rng: np.random.Generator) -> str:
    """Return any action, uniformly."""
    return ACTIONS[rng.integers(4)]


def _always(action: str, state: LakeState, rng: np.random.Generator) -> str:
    return action


def _safe_in(rows: Rows, here: int) -> list[int]:
    """Return the actions that lead to another cell, on the map, without a hole."""
    lake = lake_of(rows)
    return [
        action
        for action, cell in enumerate(lake.moves[here])
        if cell != here and lake.letters[cell] != "H"
    ]


def safe_walk(state: LakeState, rng: np.random.Generator) -> str:
    """Return any action that neither enters a hole nor bumps into the edge; any at all if none."""
    safe = _safe_in(state.map, state.position)
    return ACTIONS[safe[rng.integers(len(safe))]] if safe else random_action(state, rng)


def reflex(state: LakeState, rng: np.random.Generator) -> str:
    """Return DOWN or RIGHT, whichever is safe, by chance if both; else a safe action."""
    taken = _reflex_in(state.map, state.position)
    return ACTIONS[taken[rng.integers(len(taken))]]


def _reflex_in(rows: Rows, here: int) -> list[int]:
    """Return the actions that the reflex chooses among, evenly."""
    safe = _safe_in(rows, here)
    ahead = [action for action in safe if ACTIONS[action] in ("DOWN", "RIGHT")]
    return ahead or safe or list(range(len(ACTIONS)))


def reflex_chances(rows: Rows) -> NDArray[np.float64]:
    """Return how likely the reflex takes each action in each cell [C, 4]: `reflex` as a table.

    Example:
        >>> reflex_chances(("SF", "FG"))[0].tolist(), reflex_chances(("SH", "FG"))[0].tolist()
        ([0.0, 0.5, 0.5, 0.0], [0.0, 1.0, 0.0, 0.0])
    """
    chances = np.zeros((len(lake_of(rows).letters), len(ACTIONS)))
    for cell in range(len(chances)):
        taken = _reflex_in(rows, cell)
        chances[cell, taken] = 1 / len(taken)
    return chances


def follow_shortest_path(state: LakeState, rng: np.random.Generator) -> str:
    """Return the next move of a shortest path, as if the ice were firm."""
    path = shortest_path(state)
    return path[0] if path else safe_walk(state, rng)


def optimal(state: LakeState, rng: np.random.Generator) -> str:
    """Return an action with the best chance of success in the steps left.

    On slippery ice by backward induction over them; ties are broken, and firm ice is decided, by
    the discounted values, which prefer the shorter way.
    """
    values = action_values(state.map, state.slippery)[state.position]
    if state.slippery:
        chances = success_chances(state.map, True, state.limit)[state.left, state.position]
        values = np.where(chances >= chances.max() - 1e-12, values, -1.0)
    return ACTIONS[int(values.argmax())]
