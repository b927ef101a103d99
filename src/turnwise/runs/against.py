"""Scores against opponents in words.

Provides `rows_against`, `told_against` and `lines_against`.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.envs.measures import Measure
from turnwise.runs.error_texts import error_text
from turnwise.utils.text import aligned

Against = Mapping[str, Mapping[str, Measure]]
"""Opponent -> seat of the policy -> mean score and its error."""


def told_against(found: Against) -> str:
    """Return who the opponent of the scores is, in a sentence; "" where there is none."""
    if not found:
        return ""
    return f"Scores are of games against {next(iter(found))}, with each seat equally often."


def rows_against(found: Against) -> list[tuple[str, ...]]:
    """Return the scores against each opponent by seat, after a line of titles.

    Example:
        >>> won = Measure(mean=0.75, stderr=0.025, episodes=300)
        >>> rows_against({"random": {"first": won}})
        [('against', 'as first'), ('random', '0.750 ± 0.025')]
    """
    if not found:
        return []
    seats = list(next(iter(found.values())))
    rows = [("against", *(f"as {seat}" for seat in seats))]
    for name, own in found.items():
        texts = {s: error_text(each.stderr, each.episodes) for s, each in own.items()}
        rows.append((name, *(f"{own[s].mean:.3f} {texts[s]}" for s in seats)))
    return rows


def lines_against(found: Against) -> list[str]:
    """Return the sentence and the table; nothing where there is no opponent."""
    return [told_against(found), *aligned(rows_against(found))] if found else []
