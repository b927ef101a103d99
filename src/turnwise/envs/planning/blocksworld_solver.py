"""Shortest plans of blocksworld, random towers, and the string that renaming does not change.

Provides `shortest_plan` (A*), the bound that it uses, `draw_towers` and `canonical_towers`.
"""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush
from math import comb, factorial

import numpy as np

from turnwise.envs.planning.blocksworld_rules import TABLE, Position, apply, below, moves

MOST_POSITIONS = 200_000
"""The most positions that one search for a plan looks at."""


@lru_cache(maxsize=65536)
def fewest_moves(on: str, goal: str) -> int:
    """Return a lower bound of the number of moves to the goal; it is 0 at the goal alone.

    A block that must move, moves once. It moves twice if some block is below it both now and at the
    goal, because then it is in the way of its own place.

    Example:
        >>> fewest_moves("012", "300"), fewest_moves("010", "001")
        (3, 2)
    """
    total = 0
    for place in range(len(on)):
        now, then = below(on, place), below(goal, place)
        if now != then:
            total += 1 + bool(set(now) & set(then) - {TABLE})
    return total


@lru_cache(maxsize=4096)
def shortest_plan(on: str, goal: str, places: int) -> tuple[str, ...] | None:
    """Return a shortest list of moves; None if `MOST_POSITIONS` positions were not enough.

    Example:
        >>> shortest_plan("010", "001", 3)
        ('b2 on table', 'b3 on b1')
    """
    waiting = [(fewest_moves(on, goal), 0, on)]
    best: dict[str, tuple[int, str, str]] = {on: (0, "", "")}
    looked = 0
    while waiting and looked < MOST_POSITIONS:
        _, spent, here = heappop(waiting)
        spent = -spent
        if here == goal:
            return _path(best, goal)
        if spent > best[here][0]:
            continue
        looked += 1
        position = Position(here, goal, places)
        for move in moves(position):
            after = apply(position, move)
            if after is None or spent + 1 >= best.get(after.on, (1 << 30, "", ""))[0]:
                continue
            best[after.on] = (spent + 1, move, here)
            bound = spent + 1 + fewest_moves(after.on, goal)
            heappush(waiting, (bound, -spent - 1, after.on))
    return None


def _path(best: dict[str, tuple[int, str, str]], end: str) -> tuple[str, ...]:
    found = list[str]()
    while best[end][1]:
        _, move, end = best[end]
        found.append(move)
    return tuple(reversed(found))


def draw_towers(count: int, places: int, rng: np.random.Generator) -> str:
    """Return what each of `count` blocks stands on, in at most `places` towers, all as probable."""
    sizes = range(1, min(count, places) + 1)
    # A row of all blocks is cut into towers; the order of towers does not count.
    ways = np.array([comb(count - 1, k - 1) / factorial(k) for k in sizes])
    towers = int(rng.choice(sizes, p=ways / ways.sum()))
    cuts = {0, *(rng.permutation(count - 1)[: towers - 1] + 1).tolist()}
    order = (rng.permutation(count) + 1).tolist()
    on = [TABLE] * count
    for index in range(1, count):
        if index not in cuts:
            on[order[index] - 1] = str(order[index - 1])
    return "".join(on)


@lru_cache(maxsize=65536)
def canonical_towers(on: str, goal: str) -> str:
    """Return a text that is equal for tasks that a renaming of blocks turns into each other.

    Blocks that touch, now or at the goal, form parts. From any block, the other blocks of its part
    are numbered in the order in which a walk along "under" and "over", now and at the goal, meets
    them. A part is the least text over its blocks, and the task is its parts, sorted.

    Example:
        >>> canonical_towers("010", "000") == canonical_towers("300", "000")
        True
    """
    names = [str(block) for block in range(1, len(on) + 1)]
    links = {
        name: [arrangement[place] for arrangement in (on, goal)]
        + [str(arrangement.find(name) + 1) for arrangement in (on, goal)]
        for place, name in enumerate(names)
    }  # what is under and over each block; TABLE where it is none
    parts, left = list[str](), set(names)
    while left:
        part = _walk(min(left), links)
        parts.append(min(_written(_walk(start, links), links) for start in part))
        left -= set(part)
    return " ".join(sorted(parts))


def _walk(start: str, links: dict[str, list[str]]) -> list[str]:
    found = [start]
    for name in found:  # grows in the loop
        found += [other for other in dict.fromkeys(links[name]) if other not in (TABLE, *found)]
    return found


def _written(order: list[str], links: dict[str, list[str]]) -> str:
    numbers = {TABLE: TABLE} | {name: str(number) for number, name in enumerate(order, 1)}
    return "".join(numbers[links[name][side]] for side in (0, 1) for name in order)
