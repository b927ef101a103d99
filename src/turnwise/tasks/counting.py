"""The number of distinct problems in the splits of an env, and whether the splits can be disjoint.

Provides `Problems` and `count_problems`. Fewer than `FEW` problems, or those of which a hash would
leave a split with fewer than `LEAST`, are not divided: every split has all of them and says so.
Tasks that are drawn show only how many problems there are at least, and how likely others are at
most.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from turnwise.envs.base import Env
from turnwise.envs.split import FEW, LEAST, split_of, too_few
from turnwise.seeding import generator
from turnwise.types import Split

SPLITS: tuple[Split, ...] = get_args(Split)
LOOKED_AT = 128
"""Tasks that are drawn to find out whether an env repeats its problems."""
REPEATING = 96
"""Most different problems among them for which the draws go on, until nothing new comes."""
QUIET = 1_000
"""Draws without a new problem, and five for each known one, after which the draws end: others are
then less than 0.3 % of what is drawn, with 95 % confidence."""
MOST = 4_000
VAGUE = 0.05
"""Share of the draws that other problems may have; where it is more, nothing is told of numbers."""
LEAST_SHARE = 0.01
"""Share of the draws that every split must have: else it would hardly ever be drawn."""
TOO_FEW = f"fewer than {FEW}, or {LEAST} in one split, are not divided"
TOO_RARE = f"a split would be less than {LEAST_SHARE:.0%} of what is drawn"

Listed = Mapping[Split, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Problems:
    """The different problems of an env, as far as they are known.

    `counts` is how many each split has; empty where tasks are drawn and there are too many to
    count. With `same` every split has all problems; `why` is the reason. `known` are the problems
    that training meets, empty where `counts` is. `tasks` are the tasks of every split where the
    env lists them. Where tasks are drawn, `counts` are those found, which are so many at least, and
    `others` is the share of draws that other problems have at most, with 95 % confidence.

    Example:
        >>> Problems(counts={"train": 1}, same=True, known=frozenset({"a"})).same
        True
    """

    counts: Mapping[Split, int]
    same: bool
    known: frozenset[str]
    listed: Listed | None = None
    others: float | None = None
    why: str = ""

    def met(self, problems: Collection[str]) -> float:
        """Return the share of `problems`, one an episode, that training meets.

        Where problems are drawn and divided, training may meet all that its split has, whether they
        were found here or not. Where they are not divided and could not be counted, it is all.
        """
        if self.same and not self.known:
            return 1.0
        by_hash = self.listed is None and not self.same
        met = [p in self.known or (by_hash and split_of(p) == "train") for p in problems]
        return sum(met) / max(1, len(met))

    @property
    def described(self) -> str:
        """The counts in words, "" where they are not known.

        Example:
            >>> five = {"train": 5, "validation": 5, "test": 5}
            >>> Problems(counts=five, same=True, known=frozenset(), others=0.003).described
            'distinct problems, at least: train 5, validation 5, test 5; every split has the same; \
others are at most 0.3 % of what is drawn'
        """
        if not self.counts:
            return ""
        parts = ", ".join(f"{split} {count}" for split, count in self.counts.items())
        drawn = self.others is not None
        said = f"distinct problems{', at least' if drawn else ''}: {parts}"
        if self.same:
            said += f"; every split has the same{f' ({self.why})' if self.why else ''}"
        if self.others is None:
            return said
        return f"{said}; others are at most {_percent(self.others)} of what is drawn"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


def count_problems(env: Env[Any]) -> Problems:
    """Return the problems of an env; a function of the env and its options alone.

    Tasks that are drawn are counted where they repeat: the draws stop when nothing new has come for
    long, or when there are clearly too many to count. The splits are the same where too few
    problems are found, or where one of them would have less than `LEAST_SHARE` of the draws.
    """
    lists = {split: env.tasks(split) for split in SPLITS}
    if all(found is not None for found in lists.values()):
        return _of_lists(env, {split: lists[split] or () for split in SPLITS})
    drawn = _drawn(env)
    draws, others = sum(drawn.values()), unseen_bound(drawn)
    if others > VAGUE:
        return Problems(counts={}, same=env.single_task, known=frozenset())
    parts: dict[Split, list[str]] = {
        split: [name for name in drawn if split_of(name) == split] for split in SPLITS
    }
    rare = any(sum(drawn[n] for n in part) < LEAST_SHARE * draws for part in parts.values())
    few = too_few(parts.values())
    if env.single_task or few or rare:
        return Problems(
            counts=dict.fromkeys(SPLITS, len(drawn)),
            same=True,
            known=frozenset(drawn),
            others=others,
            why=TOO_FEW if few else "" if env.single_task else TOO_RARE,
        )
    counts: dict[Split, int] = {split: len(part) for split, part in parts.items()}
    return Problems(counts=counts, same=False, known=frozenset(parts["train"]), others=others)


def _of_lists(env: Env[Any], lists: Listed) -> Problems:
    """Return the problems of an env that lists them.

    An env that divided its list by the hash is given all of it in every split where that left too
    few; any other division is the env's own.
    """
    names = {split: [env.canonical(data) for data in found] for split, found in lists.items()}
    everything = {name for found in names.values() for name in found}
    hashed = all(split_of(name) == split for split, found in names.items() for name in found)
    same = hashed and too_few(names.values())
    if same:
        whole = [data for found in lists.values() for data in found]
        return Problems(
            counts=dict.fromkeys(SPLITS, len(everything)),
            same=True,
            known=frozenset(everything),
            listed=dict.fromkeys(SPLITS, whole),
            why=TOO_FEW,
        )
    distinct = {split: frozenset(found) for split, found in names.items()}
    return Problems(
        counts={split: len(distinct[split]) for split in SPLITS},
        same=len(set(distinct.values())) == 1,
        known=distinct["train"],
        listed=lists,
        why=TOO_FEW if len(everything) < FEW else "",
    )


def _drawn(env: Env[Any]) -> Counter[str]:
    """Return how often an env draws which problem."""
    rng = generator(0, "count problems")  # of no run: all its parts must find the same
    found: Counter[str] = Counter()
    latest = 0
    for number in range(MOST):
        problem = env.canonical(env.generate(rng))
        if problem not in found:
            latest = number
        found[problem] += 1
        if number + 1 == LOOKED_AT and len(found) > REPEATING:
            break
        if number - latest >= max(QUIET, 5 * len(found)):
            break
    return found


def unseen_bound(found: Counter[str]) -> float:
    """Return the share of draws that other problems have at most, with about 95 % confidence.

    Good and Turing's estimate is the share of problems found once; twice its standard error (Esty
    1983, without the negative term) is added, and so much that none in n draws gives 3 / n.
    """
    times = Counter(found.values())
    spread = math.sqrt(times[1] + 2 * times[2] + 1)
    return min(1.0, (times[1] + 2 * spread + 1) / sum(found.values()))
