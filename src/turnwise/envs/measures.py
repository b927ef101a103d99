"""Named measures of an episode, beside its score: what they may be, and their means over episodes.

Provides `Measure`, `expected_measures`, `mean_measures`, and `expected_score` for the score itself.
`wrong_field` checks a relabelled task in the same way. An env gives the measures of a final state
by `Env.measures`. They are reported, and never trained on.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.envs.base import Relabelled, ScoredBy
from turnwise.envs.standard_errors import standard_error
from turnwise.envs.unicode import UNICODE, is_unicode
from turnwise.settings import Settings

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.@-]{0,39}")
TAKEN = frozenset(
    {
        *("baseline", "score", "score_greedy", "score_sampled", "score_best"),
        *("stderr", "score_greedy_stderr", "score_sampled_stderr"),
        *("episodes", "turns", "env_steps", "completion_tokens", "prompt_tokens", "left_out"),
        *("terminated_share", "truncated_share", "failed_share", "broken_share", "cut_share"),
        *("capped_share", "restarted_share"),
    }
)
"""Names that metrics `rollout/...` and `test/...` have already."""


class Measure(Settings):
    """The mean of one measure over episodes.

    Example:
        >>> Measure(mean=5.5, stderr=0.2, episodes=100).mean
        5.5
    """

    mean: float
    """The mean."""
    stderr: float
    """Its standard error (`envs.standard_error`); 0 if all values are equal."""
    episodes: int
    """The number of episodes that have the measure: those that came to a final state. An episode
    that an invalid reply ended, or that broke, has none."""


def expected_measures(found: Any, names: Sequence[str] | None = None) -> str:
    """Return what was expected of the measures of a state, "" if `found` is right.

    Args:
        found: what `Env.measures` returned.
        names: the names that it returned for another state, if there was one.

    Example:
        >>> expected_measures({"steps": 3}), expected_measures({"steps": float("nan")})
        ('', "a dict of name and finite float of at most 1e+18 in size, as in {'steps': 3.0}")
    """
    if not isinstance(found, Mapping) or not all(map(_is_number, found.values())):
        size = f"of at most {LARGEST_REWARD:g} in size"
        return f"a dict of name and finite float {size}, as in {{'steps': 3.0}}"
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in found):
        return "names of at most 40 letters, digits, '_', '.', '@' and '-', a letter first"
    taken = sorted(TAKEN & set(found))
    if taken:
        return f"another name than {taken[0]!r}, which a metric has already"
    if names is not None and set(names) != set(found):
        return f"the same names in every state, which were {', '.join(names) or 'none'} in another"
    return ""


def expected_score(found: Any, scored_by: ScoredBy) -> str:
    """Return what was expected of the score of a state, "" if `found` is right.

    Args:
        found: what `Env.score` returned.
        scored_by: `Env.scored_by`; the value is not used where the return is the score.

    Example:
        >>> expected_score(7.0, "score"), expected_score(7.0, "return")
        ('a float from 0 to 1', '')
    """
    if scored_by == "return":
        return "" if is_finite(found) else "a finite float"
    return "" if is_finite(found) and 0 <= found <= 1 else "a float from 0 to 1"


def wrong_field(found: Relabelled) -> tuple[str, Any, str] | None:
    """Return a field of a relabelled task that is wrong: its name and value, and what it should be.

    Example:
        >>> wrong_field(Relabelled(data={"goal": 3}, actions=("RIGHT",), closeness=2.0))
        ('closeness', 2.0, 'a number from 0 to 1')
        >>> wrong_field(Relabelled(data={"goal": 3}, actions=("RIGHT",), closeness=0.5)) is None
        True
    """
    data, actions, closeness = found.data, found.actions, found.closeness
    if not isinstance(data, Mapping) or not _is_plain(data):
        return "data", data, "the data of a task, of values that JSON can hold"
    if not isinstance(actions, tuple) or not all(isinstance(each, str) for each in actions):
        return "actions", actions, "a tuple of texts"
    if not all(map(is_unicode, actions)):
        return "actions", actions, f"a tuple of {UNICODE}"
    if isinstance(closeness, bool) or not is_finite(closeness) or not 0 <= closeness <= 1:
        return "closeness", closeness, "a number from 0 to 1"
    return None


def mean_measures(
    rows: Sequence[Mapping[str, float]], problems: Sequence[str]
) -> dict[str, Measure]:
    """Return the mean of each measure over the episodes that have it.

    Args:
        rows: the measures of each episode, empty where it has none.
        problems: the canonical problem of each episode.

    Example:
        >>> mean_measures([{"steps": 2.0}, {}, {"steps": 4.0}], ["a", "b", "c"])["steps"].mean
        3.0
    """
    found: dict[str, Measure] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        pairs = [(r[name], p) for r, p in zip(rows, problems, strict=True) if name in r]
        values = [value for value, _ in pairs]
        found[name] = Measure(
            mean=math.fsum(values) / len(values),
            stderr=standard_error(values, [problem for _, problem in pairs]),
            episodes=len(values),
        )
    return found


LARGEST_REWARD = 1e18
"""The largest size of a reward, and of a measure: squares and sums of returns are finite numbers,
in 32 bits too."""


def is_reward(value: Any) -> bool:
    """Whether a value is a finite number of at most `LARGEST_REWARD` in size.

    Example:
        >>> is_reward(-2), is_reward(1e19), is_reward(float("nan"))
        (True, False, False)
    """
    return is_finite(value) and abs(value) <= LARGEST_REWARD


def is_finite(value: Any) -> bool:
    """Whether a value is a number that a float can hold.

    Example:
        >>> is_finite(2), is_finite(float("inf")), is_finite(10**400), is_finite("2")
        (True, False, False, False)
    """
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


def _is_plain(data: Mapping[str, Any]) -> bool:
    """Whether JSON can hold the data of a task."""
    try:
        json.dumps(dict(data))
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _is_number(value: Any) -> bool:
    return is_reward(value) and not isinstance(value, bool)
