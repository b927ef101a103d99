"""The metrics of credit assignment, as flat `credit/...` floats.

Provides `credit_metrics` and `score_metrics`. A group is mixed, has zero variance, or has one
member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from turnwise.credit.compare import sample_std
from turnwise.credit.groups import Group
from turnwise.credit.returns import WHOLE_TURN, Penalties
from turnwise.types import Episode, TurnId


def credit_metrics(
    groups: Sequence[Group],
    advantages: Mapping[TurnId, float],
    *,
    excluded: int,
    penalties: Penalties | None = None,
) -> dict[str, float]:
    """Return the metrics of one batch.

    `credit/episodes` counts what is compared: the episode of each seat by itself.

    Args:
        groups: the episode-level groups.
        advantages: each turn's advantage for the return.
        excluded: episodes left out for an infrastructure failure.
        penalties: what was taken off the turns' rewards. Returns are those compared, less the
            penalties; `credit/penalty_mean` is the mean of what an episode paid.
    """
    returns = np.array([value for group in groups for value in group.returns])
    count = max(len(groups), 1)
    singletons = sum(group.singleton for group in groups)
    flat = sum(group.zero_variance for group in groups)
    spreads = [group.std for group in groups if not group.singleton]
    metrics = {
        "credit/return_mean": _mean(returns),
        "credit/return_std": sample_std(returns),
        "credit/group_std_mean": _mean(spreads),
        "credit/groups": float(len(groups)),
        "credit/episodes": float(len(returns)),
        "credit/singletons": float(singletons),
        "credit/zero_variance_share": flat / count,
        "credit/mixed_share": sum(group.mixed for group in groups) / count,
        "credit/excluded": float(excluded),
        "credit/advantage_abs_mean": _mean(np.abs(list(advantages.values()))),
        "credit/turns_without_signal": float(sum(value == 0 for value in advantages.values())),
    }
    if penalties is not None:
        metrics["credit/penalty_mean"] = _mean(_paid(groups, penalties))
    if len({unit.role for group in groups for unit in group.units}) > 1:
        metrics |= advantage_shares(groups, advantages)
    return metrics


def advantage_shares(
    groups: Sequence[Group], advantages: Mapping[TurnId, float]
) -> dict[str, float]:
    """Return each role's share of the sum of all |advantages|.

    Each turn counts its advantage once, whatever its number of tokens.
    """
    role = {t: unit.role for group in groups for unit in group.units for t in unit.turns}
    mass: dict[str, float] = {}
    for turn, value in advantages.items():
        mass[role[turn]] = mass.get(role[turn], 0.0) + abs(value)
    total = sum(mass.values()) or 1.0
    return {f"credit/advantage_share/{name}": mass[name] / total for name in sorted(mass)}


def score_metrics(groups: Sequence[Group], episodes: Sequence[Episode]) -> dict[str, float]:
    """Return how the returns of a group's episodes go with their scores and their lengths.

    `credit/score_correlation` is the correlation of return and score within groups, over all
    groups; `credit/best_turns` and `credit/other_turns` are the mean turns of the best-paid members
    of mixed groups and of the others. Groups with an episode that the trainer left before its end
    have no score. What no group tells is absent.

    Args:
        groups: the episode-level groups.
        episodes: the episodes that they are of.
    """
    scores = {episode.id: episode.score for episode in episodes if not episode.left}
    returns, scored = np.zeros(0), np.zeros(0)
    best: list[int] = []
    others: list[int] = []
    for group in groups:
        ended = all(unit.is_episode and unit.episode in scores for unit in group.units)
        if not group.mixed or not ended:
            continue
        own = np.array([scores[unit.episode] for unit in group.units])
        returns = np.concatenate([returns, np.array(group.returns) - np.mean(group.returns)])
        scored = np.concatenate([scored, own - own.mean()])
        most = max(group.returns)
        for unit, value in zip(group.units, group.returns, strict=True):
            (best if value == most else others).append(len(unit.turns))
    spread = float(np.sqrt((returns**2).sum() * (scored**2).sum()))
    metrics = {}
    if spread > 0:
        metrics["credit/score_correlation"] = float((returns * scored).sum()) / spread
    if best:
        metrics |= {"credit/best_turns": _mean(best), "credit/other_turns": _mean(others)}
    return metrics


def _paid(groups: Sequence[Group], penalties: Penalties) -> list[float]:
    """Return what each unit's turns paid together."""
    units = (unit for group in groups for unit in group.units)
    return [sum(penalties[turn][WHOLE_TURN] for turn in unit.turns) for unit in units]


def _mean(values: Sequence[float] | np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else 0.0
