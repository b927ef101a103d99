"""Rewards of replies that no model gave to rows: one reply to all of them, and other rows' values.

Provides `reply_scores`. A model that says one of few words has to beat the best of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from turnwise.envs.rows.env import Rows, RowState
from turnwise.envs.rows.reply_column import PATIENCE, rewards_of
from turnwise.envs.rows.table import Row
from turnwise.envs.user_calls import call_on_thread
from turnwise.errors import EnvError, RewardError
from turnwise.seeding import generator
from turnwise.types import Task

CANDIDATES = 5
"""The most values that are tried as the constant reply."""
BATCH = 64
"""Rows that may be judged within `PATIENCE` seconds."""


def reply_scores(
    env: Rows,
    tasks: Sequence[Task],
    seed: int,
    repeats: int,
    weights: Mapping[str, float],
) -> dict[str, np.ndarray]:
    """Return the weighted rewards of the baselines, float64 [tasks, repeats]; NaN where none apply.

    `constant` is the value with the largest mean among the most frequent ones. A baseline is left
    out if a reward function fails on its replies, as one that reads the tokens of a model may.
    """
    players = env.baselines()
    if not players:
        return {}
    rows = [task.data for task in tasks]
    drawn = [
        players["random"](RowState(row=row), generator(seed, "baseline", "random", visit, repeat))
        for visit, row in enumerate(rows)
        for repeat in range(repeats)
    ]
    repeated = [row for row in rows for _ in range(repeats)]
    found: dict[str, np.ndarray] = {}
    random = _rewards(env, repeated, drawn, weights)
    if random is not None:
        found["random"] = random.reshape(len(rows), repeats)
    said = env.frequent_replies(CANDIDATES)
    constants = [_rewards(env, rows, [reply] * len(rows), weights) for reply in said]
    judged = [rewards for rewards in constants if rewards is not None]
    if judged:
        best = max(judged, key=lambda rewards: float(np.nan_to_num(rewards).mean()))
        found["constant"] = np.repeat(best[:, None], repeats, axis=1)
    return found


def _rewards(
    env: Rows, rows: Sequence[Row], replies: Sequence[str], weights: Mapping[str, float]
) -> np.ndarray | None:
    """Return the weighted rewards of replies, float64 [rows]; None if a reward function fails."""
    seconds = PATIENCE * math.ceil(len(rows) / BATCH)
    try:
        return call_on_thread("a reward function", seconds, rewards_of, env, rows, replies, weights)
    except (EnvError, RewardError):
        return None
