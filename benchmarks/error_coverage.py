"""How often the 95 % interval of `envs.standard_error` holds the true mean, by simulation.

    python benchmarks/error_coverage.py

Prints the table of `docs/standard-errors.md`. Scores are 0 or 1. Problems are drawn by `weights`,
and a problem's chance of a 1 from a beta distribution with mean `rate`, whose variance is `between`
times the most that it can be: 0 makes all problems alike, 1 makes them certain. The truth is `rate`
where `error_unit` says "problems", and the mean of these problems' own probabilities where it says
"episodes". In brackets: what ± 1.96 of the plain cluster-robust error (Liang and Zeger 1986) holds
of `rate`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from turnwise.envs import error_unit, standard_error

DRAWN = ("equal", "root", "zipf", "dominant")
RATES = (0.5, 0.1, 0.02)
PROBLEMS = (2, 5, 8, 20, 100, 500)
BETWEEN = (0.0, 0.2, 1.0)


def shares(kind: str, problems: int) -> np.ndarray:
    """Return how often each problem is drawn, as shares."""
    number = np.arange(1.0, problems + 1)
    weights = {
        "equal": np.ones(problems),
        "root": number**-0.5,
        "zipf": 1 / number,
        "dominant": np.where(number == 1, 9.0, 1 / max(1, problems - 1)),
    }[kind]
    return weights / weights.sum()


class Coverage(NamedTuple):
    """Shares of intervals that held the truth, and of draws with errors over problems."""

    plain: float
    ours: float
    over_problems: float


def coverage(
    weights: np.ndarray, rate: float, between: float, episodes: int, repeats: int, seed: int = 0
) -> Coverage:
    """Simulate `repeats` evaluations of so many episodes each."""
    rng = np.random.default_rng(seed)
    held = {"plain": 0, "ours": 0, "problems": 0}
    for _ in range(repeats):
        probabilities = _chances(rng, rate, between, len(weights))
        drawn = rng.choice(len(weights), episodes, p=weights)
        scores = (rng.random(episodes) < probabilities[drawn]).astype(float)
        names = [str(number) for number in drawn]
        apart = error_unit(names) == "problems"
        truth = rate if apart else float(weights @ probabilities)
        mean, error = scores.mean(), standard_error(scores.tolist(), names, 1.0)
        held["problems"] += apart
        held["ours"] += abs(mean - truth) <= 1.96 * error + 1e-12
        held["plain"] += abs(mean - rate) <= 1.96 * _plain(scores, drawn) + 1e-12
    found: Mapping[str, float] = {name: count / repeats for name, count in held.items()}
    return Coverage(plain=found["plain"], ours=found["ours"], over_problems=found["problems"])


def _plain(scores: np.ndarray, drawn: np.ndarray) -> float:
    sums = np.bincount(drawn, weights=scores - scores.mean())
    problems = np.count_nonzero(np.bincount(drawn))
    return float(np.sqrt((sums**2).sum() * problems / max(1, problems - 1))) / len(scores)


def _chances(rng: np.random.Generator, rate: float, between: float, problems: int) -> np.ndarray:
    if between == 0:
        return np.full(problems, rate)
    if between == 1:
        return (rng.random(problems) < rate).astype(float)
    size = 1 / between - 1
    return rng.beta(rate * size, (1 - rate) * size, size=problems)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--drawn", nargs="+", choices=DRAWN, default=DRAWN)
    given = parser.parse_args()
    print(f"{given.episodes} episodes, {given.repeats} repeats\n")
    header = " | ".join(f"rate {rate}" for rate in RATES)
    print(f"| drawn | problems | between | over problems | {header} |")
    print("|---|---:|---:|---:|" + "---:|" * len(RATES))
    for kind in given.drawn:
        for problems in PROBLEMS:
            for between in BETWEEN:
                found = [
                    coverage(shares(kind, problems), rate, between, given.episodes, given.repeats)
                    for rate in RATES
                ]
                over = np.mean([each.over_problems for each in found])
                cells = " | ".join(f"{each.ours:.2f} ({each.plain:.2f})" for each in found)
                print(f"| {kind} | {problems} | {between} | {over:.0%} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
