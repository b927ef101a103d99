"""The column of some rows whose values are what replies look like, found by their rewards.

Provides `find_reply_column` and `rewards_of`. A model made on the spot would hardly ever say one of
few words and stop: of 300 tokens, two right ones in a row have a probability of 1e-5. What other
rows hold in this column shows it how to answer, and not what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.envs.rows.env import Rows
from turnwise.envs.rows.table import Row, reply_of
from turnwise.envs.user_calls import call_on_thread
from turnwise.errors import RewardError
from turnwise.utils.rewards import mix_rewards

ASKED = 32
"""The most rows that are answered with a column's values."""
LONGEST = 400
"""The most characters of a value that is tried as a reply."""
PATIENCE = 60.0
"""Seconds that the rewards of these rows may take."""
LEAST_LEAD = 2.0
"""Standard errors by which a row's own value must earn more than those of others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyColumn:
    """A column, and the mean rewards of its values: each row's own one, and another row's."""

    name: str
    own: float
    others: float


def find_reply_column(
    env: Rows, weights: Mapping[str, float], rng: np.random.Generator
) -> ReplyColumn | None:
    """Return the column whose values earn most as replies to their own rows.

    It is None if no column's own values earn clearly more than those of other rows, if rewards run
    programs, or if a reward function fails on these replies, which training then reports.

    Args:
        env: the rows and their reward functions, which are called twice for each column of text.
        weights: reward function -> weight of its rewards.
        rng: draws the rows, and those whose values are the others.

    Raises:
        SlowEnvError: if the reward functions do not return within `PATIENCE` seconds.
    """
    if env.runs_programs:
        return None
    rows = env.tasks("train")
    names = dict.fromkeys(name for row in rows for name in row if name != "prompt")
    found = [
        column
        for name in names
        if (column := _tried(env, name, [r for r in rows if _is_reply(r, name)], weights, rng))
    ]
    return max(found, key=lambda column: column.own, default=None)


def _is_reply(row: Row, name: str) -> bool:
    """Whether a row has a short text or a number in a column."""
    reply = reply_of(row, name)
    return reply is not None and len(reply) <= LONGEST


def _tried(
    env: Rows,
    name: str,
    rows: Sequence[Row],
    weights: Mapping[str, float],
    rng: np.random.Generator,
) -> ReplyColumn | None:
    """Return a column if its values earn clearly more as replies to their own rows."""
    if len({reply_of(row, name) for row in rows}) < 2:
        return None
    asked = [rows[place] for place in rng.permutation(len(rows))[:ASKED]]
    own = [reply_of(row, name) or "" for row in asked]
    others = [_another(rows, name, reply, rng) for reply in own]
    try:
        earned = [
            call_on_thread("a reward function", PATIENCE, rewards_of, env, asked, replies, weights)
            for replies in (own, others)
        ]
    except RewardError:  # training calls the reward functions again, and reports it
        return None
    lead = earned[0] - earned[1]
    lead = lead[np.isfinite(lead)]
    if len(lead) < 2 or lead.mean() <= LEAST_LEAD * lead.std(ddof=1) / len(lead) ** 0.5:
        return None
    return ReplyColumn(
        name=name, own=float(np.nanmean(earned[0])), others=float(np.nanmean(earned[1]))
    )


def _another(rows: Sequence[Row], name: str, reply: str, rng: np.random.Generator) -> str:
    """Return another value of a column, of a row drawn at random."""
    while True:
        drawn = reply_of(rows[int(rng.integers(len(rows)))], name)
        if drawn is not None and drawn != reply:
            return drawn


def rewards_of(
    env: Rows, rows: Sequence[Row], replies: Sequence[str], weights: Mapping[str, float]
) -> np.ndarray:
    """Return the weighted rewards of replies, float64 [rows]; NaN where none applies."""
    judged = asyncio.run(env.judge(rows, replies))
    return np.array(
        [np.nan if found is None else mix_rewards(found, weights) for found in judged.rewards]
    )
