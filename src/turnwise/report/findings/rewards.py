"""Findings about rewards that favour something else than the score."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from turnwise.formats import REPLY_COMPONENTS
from turnwise.report.findings.facts import Facts, Finding
from turnwise.runs import metric_names
from turnwise.types import Episode

AGAINST = -0.1
"""The correlation of return and score within groups below which they disagree."""
LONGER = 1.2
"""The ratio of the turns of the episodes with the best return to those of the others, above which
the reward favours longer episodes."""


def favours_other(facts: Facts) -> Finding | None:
    """Say that return and score disagree: within groups, or over the iterations."""
    returns = facts.train(metric_names.RETURN)
    if len(returns) < 3 or facts.solved:
        return None
    best, others = (
        facts.train(name) for name in (metric_names.BEST_TURNS, metric_names.OTHER_TURNS)
    )
    if not len(best) or not len(others):
        return None
    long, short = float(best.lately().mean()), float(others.lately().mean())
    correlation = facts.train(metric_names.SCORE_CORRELATION)
    mean = float(correlation.lately().mean()) if len(correlation) else 0.0
    against = len(correlation) >= 3 and mean < AGAINST
    parted = facts.return_risen and not facts.risen and mean <= 0 and long > LONGER * short
    if not against and not parted:
        return None
    why = (
        f"within groups their correlation is {mean:.2f} ({metric_names.SCORE_CORRELATION})"
        if against
        else f"the mean return rose from {returns.start():.3g} to {returns.end():.3g} "
        f"({metric_names.RETURN}), the score did not: {facts.score}"
    )
    longer = long > short
    favours = "longer episodes" if longer else "something else than the score"
    return Finding(
        name="favours-longer" if longer else "favours-other",
        sentence=(
            f"The reward favours {favours}. Return and score disagree: {why}. The episodes of a "
            f"group with the best return take {long:.1f} turns, the others {short:.1f} "
            f"({metric_names.BEST_TURNS}, {metric_names.OTHER_TURNS})."
        ),
        setting=_cure(facts, longer=longer),
    )


def _cure(facts: Facts, *, longer: bool) -> str:
    """Return a setting that ends the disagreement, if there is one."""
    worst = _worst_component(facts)
    if worst:
        return f"credit.rewards.{worst}=0.0"
    turns = [len(episode.turns) for episode in facts.episodes if not episode.broken]
    if not longer or not turns:
        return ""
    best = max(episode.score for episode in facts.episodes)
    good = [len(e.turns) for e in facts.episodes if e.score == best and not e.broken]
    scored = best > min(episode.score for episode in facts.episodes)
    cap = math.ceil(np.mean(good if scored else turns))
    return f"env.max_turns={cap}" if cap < max(turns) else ""


def _worst_component(facts: Facts) -> str:
    """Return the component of the reward that goes against the score, if another goes with it."""
    weights = {
        name: weight
        for name, weight in facts.at("credit.rewards", {}).items()
        if weight and name not in REPLY_COMPONENTS
    }
    shares = {name: weight * _covariance(facts.episodes, name) for name, weight in weights.items()}
    worst = min(shares, key=lambda name: shares[name], default="")
    if not worst or shares[worst] >= 0 or max(shares.values()) <= 0:
        return ""
    return worst


def _covariance(episodes: Sequence[Episode], component: str) -> float:
    """Return the covariance of an episode's sum of a component with its score, within groups."""
    groups: dict[object, list[tuple[float, float]]] = {}
    for episode in episodes:
        if not episode.broken:
            paid = sum(turn.rewards.get(component, 0.0) for turn in episode.own_turns)
            groups.setdefault(episode.id.visit_id, []).append((paid, episode.score))
    found = 0.0
    for pairs in groups.values():
        paid, scores = np.array(pairs).T
        found += float(((paid - paid.mean()) * (scores - scores.mean())).sum())
    return found
