"""Policies on the standard lake that see the last action, as the published prompt shows it.

Provides the Markov chain over cell and last action: the states of expert data, and exact measures
of a policy, in numpy. Shapes: C = 16 cells, L = 5 last actions (4 is none yet), A = 4 actions. A
policy is a table [C, L, A] of probabilities; the rest to 1 is the probability of an illegal answer,
which ends the episode.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from turnwise.envs.frozen_lake.exact import DEMO_STEPS, free_cells
from turnwise.envs.frozen_lake.maps import ACTIONS, lake_of
from turnwise.envs.frozen_lake.published_prompt import STANDARD
from turnwise.envs.frozen_lake.solver import (
    Array,
    action_values,
    advantages,
    success_chances,
    transitions,
)

NONE_YET = 4
BONUS = 0.2
"""The published reward adds this for the expert's own action, before the cap at 1."""


def with_bonus(worth: Array, matches: Array) -> Array:
    """Return the published correctness: the advantage and the bonus, at most 1.

    Example:
        >>> with_bonus(np.array([1.0, 0.9, 0.5]), np.array([1.0, 1.0, 0.0])).tolist()
        [1.0, 1.0, 0.5]
    """
    return np.minimum(1.0, worth + BONUS * matches)


@cache
def worths() -> tuple[Array, Array]:
    """Return the normalised advantages and whether an action is the expert's own, both [C, A].

    The expert's own action is the first of the best in its table; an equal one is no match.
    """
    best = np.eye(len(ACTIONS))[action_values(STANDARD, True).argmax(axis=1)]
    return np.array(advantages(STANDARD, True)), best


@cache
def expert_visits() -> Array:
    """Return the distribution of cells and last actions in expert data, [C, L], in sum 1.

    These are the states of episodes of the best stationary policy from the start.
    """
    flow = _flow(np.repeat(worths()[1][:, None], NONE_YET + 1, axis=1), DEMO_STEPS)[0]
    return flow / flow.sum()


def even_visits() -> Array:
    """Return equal shares of all free cells, [C, L], with the last actions of expert data."""
    visits = expert_visits()
    cells = visits.sum(axis=1, keepdims=True)
    shares = np.divide(visits, cells, out=np.zeros_like(visits), where=cells > 0)
    return shares / len(free_cells(STANDARD))


def player_measures(player: Array, formatted: Array, limit: int) -> dict[str, float]:
    """Return the exact measures of a policy.

    - `success`, `of_optimum`: as in `exact.measures`, from the start within `limit` steps;
    - `published`: half the probability of the format plus half the correctness, over expert data;
    - `advantage`: the expected normalised advantage, over all free cells uniformly;
    - `format`: the probability of the format, over expert data;
    - `left`, `down`, `right`, `up`: the probability of each answer over expert data; one is near 1
      if the policy is constant.

    Args:
        player: probabilities of actions, [C, L, A].
        formatted: probabilities of a reply in the format with any answer, [C, L].
        limit: steps.
    """
    data, (worth, matches) = expert_visits(), worths()
    correct = (player * with_bonus(worth, matches)[:, None]).sum(axis=2)
    success = _flow(player, limit)[1]
    best = float(success_chances(STANDARD, True, limit)[limit, 0].max())
    answers = (data[..., None] * player).sum(axis=(0, 1))
    return {
        "success": success,
        "of_optimum": success / best,
        "published": float((data * (formatted + correct)).sum() / 2),
        "advantage": float((even_visits()[..., None] * player * worth[:, None]).sum()),
        "format": float((data * formatted).sum()),
        **{action.lower(): float(p) for action, p in zip(ACTIONS, answers, strict=True)},
    }


def _flow(player: Array, limit: int) -> tuple[Array, float]:
    """Return the expected counts of cell and last action in `limit` steps, and the success."""
    after, chance = transitions(STANDARD, True)
    letters = lake_of(STANDARD).letters
    moves = np.zeros((len(letters), len(ACTIONS), len(letters)))
    for cell in free_cells(STANDARD):
        for action in range(len(ACTIONS)):
            np.add.at(moves[cell, action], after[cell, action], chance)
    now = np.zeros((len(letters), NONE_YET + 1))
    now[0, NONE_YET] = 1.0
    goal, met, success = letters.index("G"), np.zeros_like(now), 0.0
    for _ in range(limit):
        met += now
        acting = np.einsum("cl,cla,cad->da", now, player, moves)
        success += float(acting[goal].sum())
        now = np.zeros_like(now)
        for cell in free_cells(STANDARD):
            now[cell, :NONE_YET] = acting[cell]
    return met, success
