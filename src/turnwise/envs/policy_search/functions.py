"""The functions on which a searcher is trained: bandits and synthetic functions, no environment.

Provides `FAMILIES`, `Function` and `manifest`. Each function takes `count` parameters, each a level
from 0 to `levels - 1`, and returns a value from 0 to 1. None has states, episodes or a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.seeding import generator

Levels = tuple[int, ...]
"""Parameters: a level for each."""
Value = Callable[[Levels], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """Functions that differ by their draws.

    Attributes:
        formula: the function in words and symbols, p_i being the level of parameter i.
        ordered: whether levels are amounts, of which neighbours have similar values.
        make: from a generator, the number of parameters and of levels to a function.
    """

    formula: str
    ordered: bool
    make: Callable[[np.random.Generator, int, int], Value]


def _bandit(rng: np.random.Generator, count: int, levels: int) -> Value:
    worth = rng.random((count, levels))
    low, high = worth.min(axis=1).sum(), worth.max(axis=1).sum()
    rows = np.arange(count)
    return lambda p: float((worth[rows, list(p)].sum() - low) / (high - low))


def _chain(rng: np.random.Generator, count: int, levels: int) -> Value:
    order, target = rng.permutation(count), rng.integers(levels, size=count)

    def value(p: Levels) -> float:
        right = 0
        while right < count and p[order[right]] == target[order[right]]:
            right += 1
        return right / count

    return value


def _product(rng: np.random.Generator, count: int, levels: int) -> Value:
    chance = 1 - rng.random((count, levels)) * rng.uniform(0.1, 0.6)
    chance /= chance.max(axis=1, keepdims=True)
    rows = np.arange(count)
    return lambda p: float(chance[rows, list(p)].prod())


def _pairs(rng: np.random.Generator, count: int, levels: int) -> Value:
    worth, best = rng.random((count, levels, levels)), rng.integers(levels, size=count)
    rows, after = np.arange(count), (np.arange(count) + 1) % count
    worth[rows, best, best[after]] = 1.0
    return lambda p: float(worth[rows, list(p), np.asarray(p)[after]].mean())


def _quadratic(rng: np.random.Generator, count: int, levels: int) -> Value:
    best, weight = rng.integers(levels, size=count), rng.uniform(0.2, 1.0, count)
    farthest = (weight * np.maximum(best, levels - 1 - best) ** 2).sum()
    return lambda p: float(1 - (weight * (np.asarray(p) - best) ** 2).sum() / farthest)


def _ridge(rng: np.random.Generator, count: int, levels: int) -> Value:
    best, along = rng.integers(levels, size=count), rng.normal(size=count)
    along /= np.abs(along).sum()
    scale = (np.abs(along) * np.maximum(best, levels - 1 - best)).sum()
    return lambda p: float(max(0.0, 1 - abs((along * (np.asarray(p) - best)).sum()) / scale))


def _ackley(rng: np.random.Generator, count: int, levels: int) -> Value:
    best = rng.integers(levels, size=count)

    def value(p: Levels) -> float:
        x = 4 * (np.asarray(p) - best) / (levels - 1)
        far = -20 * math.exp(-0.2 * math.sqrt(float((x**2).mean())))
        waves = -math.exp(float(np.cos(2 * math.pi * x).mean()))
        return max(0.0, 1 - (far + waves + 20 + math.e) / 22)

    return value


FAMILIES: dict[str, Family] = {
    "bandit": Family(
        formula="sum_i w[i][p_i], scaled to 0 to 1, w uniform: as many bandits as parameters, "
        "pulled at once",
        ordered=False,
        make=_bandit,
    ),
    "chain": Family(
        formula="the share of parameters, in a random order, that are right before the first "
        "wrong one",
        ordered=False,
        make=_chain,
    ),
    "product": Family(
        formula="prod_i q[i][p_i], q between 0.4 and 1, the best 1",
        ordered=False,
        make=_product,
    ),
    "pairs": Family(
        formula="mean_i w[i][p_i][p_(i+1)], w uniform, 1 for one hidden p",
        ordered=False,
        make=_pairs,
    ),
    "quadratic": Family(
        formula="1 - sum_i a_i (p_i - b_i)^2 / its maximum, a and b drawn",
        ordered=True,
        make=_quadratic,
    ),
    "ridge": Family(
        formula="1 - |sum_i a_i (p_i - b_i)| / sum_i |a_i| max |p_i - b_i|, a and b drawn",
        ordered=True,
        make=_ridge,
    ),
    "ackley": Family(
        formula="1 - Ackley(4 (p - b) / (levels - 1)) / 22, at least 0, b drawn",
        ordered=True,
        make=_ackley,
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Function:
    """One function: its family, its size and the seed of its draws.

    Example:
        >>> Function(family="chain", count=3, levels=2, seed=7).value((0, 0, 0)) in (0, 1/3, 2/3, 1)
        True
    """

    family: str
    count: int
    levels: int
    seed: int

    @property
    def value(self) -> Value:
        """The function."""
        rng = generator(self.seed, "search function", self.family, self.count, self.levels)
        return FAMILIES[self.family].make(rng, self.count, self.levels)


def manifest(families: Sequence[str]) -> list[dict[str, Any]]:
    """Return the families of functions that a searcher was trained on, with their formulas."""
    return [{"name": name, "formula": FAMILIES[name].formula} for name in families]
