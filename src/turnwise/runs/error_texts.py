"""Standard errors of scores and measures in words.

Provides `error_text`, `score_error_text` and `measured`.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.envs import Measure

SMALL = 0.0005
"""Smaller errors would be printed as 0.000."""


def measured(players: Mapping[str, Mapping[str, Measure]]) -> dict[str, dict[str, str]]:
    """Return the measures of players in words, without the players that have none."""
    return {
        player: {
            name: f"{found.mean:.3f} {error_text(found.stderr, found.episodes)}"
            for name, found in measures.items()
        }
        for player, measures in players.items()
        if measures
    }


def error_text(stderr: float, count: int) -> str:
    """Return the standard error of the mean of `count` values in words."""
    if count == 1:
        return "(one episode)"
    if stderr == 0:
        return f"(all {count} equal)"
    return f"± {stderr:.3f}" if stderr >= SMALL else f"± {stderr:.2g}"


def score_error_text(score: float, stderr: float, count: int, *, bounded: bool) -> str:
    """Return the standard error of the mean of `count` scores in words.

    `bounded` scores whose mean is 0 or 1 are all equal: their error is an upper bound, by what was
    not drawn (docs/standard-errors.md).

    Example:
        >>> score_error_text(1.0, 0.114, 500, bounded=True)
        '(all 500 equal, ± 0.114 at most)'
        >>> score_error_text(1.0, 0.114, 500, bounded=False)
        '± 0.114'
    """
    said = error_text(stderr, count)
    if bounded and score in (0.0, 1.0) and said.startswith("±"):
        return f"(all {count} equal, {said} at most)"
    return said
