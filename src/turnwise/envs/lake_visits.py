"""Players of the standard lake who may look at their last action, as the published prompt allows.

Owns the Markov chain over cell and last action: the states of expert data, and the exact measures
of a player. Numpy only; knows no prompts. Shapes: C = 16 cells, L = 5 last actions of which number
4 is none yet, A = 4 actions. A player is a table [C, L, A] of chances; with what a row lacks to 1
nothing legal is answered, which ends the episode.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from turnwise.envs.lake_chain import DEMO_STEPS, free_cells
from turnwise.envs.lake_maps import ACTIONS, lake_of
from turnwise.envs.lake_prompt import STANDARD
from turnwise.envs.lake_solver import (
    Array,
    action_values,
    advantages,
    success_chances,
    transitions,
)

NONE_YET = 4
BONUS = 0.2
"""What the published reward adds for the expert's own action, before it is capped at 1."""


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

    The expert's own is the first of the best, as its table gives it; an equal one is no match.
    """
    best = np.eye(len(ACTIONS))[action_values(STANDARD, True).argmax(axis=1)]
    return np.array(advantages(STANDARD, True)), best


@cache
def expert_visits() -> Array:
    """Return the shares of cells and last actions in expert data, [C, L], in sum 1.

    The states of episodes that the best stationary player plays from the start.
    """
    flow = _flow(np.repeat(worths()[1][:, None], NONE_YET + 1, axis=1), DEMO_STEPS)[0]
    return flow / flow.sum()


def even_visits() -> Array:
    """Return equal shares of all free cells, [C, L]; in each, last actions as in expert data."""
    visits = expert_visits()
    cells = visits.sum(axis=1, keepdims=True)
    shares = np.divide(visits, cells, out=np.zeros_like(visits), where=cells > 0)
    return shares / len(free_cells(STANDARD))


def player_measures(player: Array, formatted: Array, limit: int) -> dict[str, float]:
    """Return the exact measures of a player.

    - `success`, `of_optimum`: as `lake_chain.measures`, from the start within `limit` steps;
    - `published`: half the chance of the format, half the correctness, over expert data;
    - `advantage`: the expected normalised advantage, over all free cells evenly;
    - `format`: the chance of the format, over expert data;
    - `left`, `down`, `right`, `up`: the chance of each answer over expert data: one is near 1 where
      the policy is constant.

    Args:
        player: chances of actions, [C, L, A].
        formatted: chances of a reply in the format, whatever it answers, [C, L].
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
    """Return how often a cell and last action are expected in `limit` steps, and the success."""
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
