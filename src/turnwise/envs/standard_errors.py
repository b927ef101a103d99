"""Standard errors of mean scores, over distinct problems or over episodes.

Provides `standard_error`, `error_unit`, `clustered_stderr` and `degrees_of_freedom`.
`docs/standard-errors.md` has the simulated coverage of the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

LEAST_FREEDOM = 4.0
"""The least degrees of freedom of an error over problems. Five problems that are drawn equally
often have four degrees of freedom; so have many problems of which a few make up most episodes."""
NORMAL = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
STUDENT = {1: 12.706204736, 2: 4.302652730, 3: 3.182446305}
"""Degrees of freedom -> the 97.5 % quantile of Student's t, where its expansion is inexact."""
RARE = NORMAL**2
"""The weight of an unobserved rare outcome. Without any success in n episodes the 95 % interval
ends at `RARE` / n; Wilson's interval ends at `RARE` / (n + `RARE`)."""
ErrorUnit = Literal["problems", "episodes"]
Floats = NDArray[np.float64]


def error_unit(problems: Collection[str]) -> ErrorUnit:
    """Return the unit of observation that `standard_error` uses for episodes on these problems.

    The unit is the problem if the error over problems has at least `LEAST_FREEDOM` degrees of
    freedom, otherwise the episode.

    Args:
        problems: the canonical problem of each episode.

    Example:
        >>> error_unit(["a", "a", "b"]), error_unit(list("abcdef"))
        ('episodes', 'problems')
        >>> error_unit(["a"] * 95 + list("bcdef"))
        'episodes'
    """
    return _unit(degrees_of_freedom(problems))


def standard_error(
    values: Sequence[float], problems: Sequence[str], span: float | None = None
) -> float:
    """Return the standard error of the mean of `values`, scaled so that ± 1.96 of it covers 95 %.

    The mean is over episodes: a problem counts as often as it is drawn. If `error_unit` is
    "problems", the error is `clustered_stderr`, or the error over episodes if that is larger; it
    applies to new problems of the same distribution. If `error_unit` is "episodes", the error
    applies to new episodes on the same problems only. Both are multiplied by the ratio of the
    quantiles of Student's t and of the normal distribution.

    Rare outcomes skew the distribution, and an interval from the variance alone covers too little.
    The difference between the largest positive and the largest negative residual is added as one
    more observation with weight `RARE`. If all values are equal, that observation is a typical
    episode, or problem, that differs by `span`.

    Args:
        values: scores, or differences of scores.
        problems: the canonical problem of each value.
        span: the largest possible difference of two values: 1 for scores from 0 to 1 and for their
            paired differences; None if it is unknown. With None the error of equal values is 0,
            which does not mean that the mean is certain. The 95 % interval is at most twice the
            span to each side.

    Example:
        >>> round(standard_error([0.0, 1.0] * 200, ["a"] * 400), 4)
        0.0251
        >>> round(standard_error([1.0] * 200, ["a"] * 200, span=1.0), 4)
        0.0099
        >>> standard_error([1.0] * 200, ["a"] * 200)
        0.0
    """
    scores = np.asarray(values, dtype=np.float64)
    count = len(scores)
    if count < 2:
        return 0.0
    equal = scores.max() == scores.min()
    if equal and span is None:
        return 0.0
    rest = np.zeros(count) if equal else (scores - scores.mean()) / count
    may_differ = span if equal else None
    over_episodes = _scaled(rest, np.full(count, 1 / count), count - 1.0, may_differ)
    index, shares = _clusters(problems)
    freedom = _satterthwaite(shares)
    found = over_episodes
    if _unit(freedom) == "problems":
        sums = _sums(index, rest)
        found = max(found, _scaled(sums, shares, freedom, may_differ))
    return found if span is None else min(found, 2 * span / NORMAL)


def clustered_stderr(values: Sequence[float], clusters: Sequence[str]) -> float:
    """Return the cluster-robust standard error of the mean of `values`.

    The estimator is the bias-reduced CR2 (Bell and McCaffrey 2002): residuals are summed within
    clusters, and the square of each sum is divided by one minus the cluster's share of the values.

    Args:
        values: the observations.
        clusters: the cluster of each observation.

    Example:
        >>> round(clustered_stderr([0.0, 1.0, 0.0, 1.0], ["a", "b", "c", "d"]), 4)
        0.2887
        >>> clustered_stderr([1.0, 1.0], ["a", "a"])
        0.0
    """
    scores = np.asarray(values, dtype=np.float64)
    index, shares = _clusters(clusters)
    if len(shares) < 2:
        return 0.0
    sums = _sums(index, (scores - scores.mean()) / len(scores))
    return math.sqrt(_variance(sums, shares))


def degrees_of_freedom(clusters: Collection[str]) -> float:
    """Return Satterthwaite's degrees of freedom of `clustered_stderr` (Bell and McCaffrey 2002).

    They are the lesser of two: for independent values, and for values that are equal in a cluster.

    Example:
        >>> round(degrees_of_freedom(list("abcdefabcdef")), 6)
        5.0
        >>> round(degrees_of_freedom(["a"] * 90 + list("bcdefghijk")), 1)
        1.0
    """
    return _satterthwaite(_clusters(clusters)[1])


def _unit(freedom: float) -> ErrorUnit:
    return "problems" if freedom >= LEAST_FREEDOM - 1e-9 else "episodes"


def _satterthwaite(shares: Floats) -> float:
    """Return the degrees of freedom for clusters with these shares of the values."""
    if len(shares) < 2:
        return 0.0
    weights = 1.0 / (1.0 - shares)
    roots = weights**0.5 * shares
    independent = _freedom(weights * shares, roots, -0.5 * roots)
    within = _freedom(
        weights * shares**2, roots, 0.5 * float(shares @ shares) * roots - roots * shares
    )
    return min(independent, within)


def _freedom(diagonal: Floats, left: Floats, right: Floats) -> float:
    """Return trace(M)² / trace(M²) of M = diag(diagonal) + left rightᵀ + right leftᵀ."""
    trace = float(diagonal.sum() + 2 * (left @ right))
    outer = 2 * float((left @ left) * (right @ right) + (left @ right) ** 2)
    square = float(diagonal @ diagonal + 4 * (diagonal * left) @ right) + outer
    return trace**2 / square


def _scaled(sums: Floats, shares: Floats, freedom: float, span: float | None) -> float:
    """Return the scaled error of a mean from the clusters' sums of residuals, divided by the count.

    A `span` is given if all values are equal; a cluster of typical size then differs by it.
    """
    missed = sums.max() + sums.min() if span is None else span * float(shares @ shares)
    return math.sqrt(_variance(sums, shares) + RARE * missed**2) * student(freedom) / NORMAL


def _variance(sums: Floats, shares: Floats) -> float:
    """Return the CR2 variance of a mean from the clusters' sums of residuals over the count."""
    return float(np.sum(sums**2 / (1 - shares)))


def student(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t, to three decimals (Cornish and Fisher 1937).

    Example:
        >>> [round(student(count), 3) for count in (2, 4, 10, 1000)]
        [4.303, 2.776, 2.228, 1.962]
    """
    if freedom < LEAST_FREEDOM - 1e-9:
        return STUDENT[max(1, math.floor(freedom))]
    z = NORMAL
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))


def _sums(index: NDArray[np.intp], values: Floats) -> Floats:
    """Return the sum of every cluster's values."""
    return np.bincount(index, weights=values).astype(np.float64)


def _clusters(names: Collection[str]) -> tuple[NDArray[np.intp], Floats]:
    """Return the cluster index of each value, and each cluster's share of the values."""
    numbers: dict[str, int] = {}
    index = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.intp)
    return index, np.bincount(index) / len(index)
