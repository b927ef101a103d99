"""Shortest solutions of Sokoban, and a greedy pusher.

Provides `solve`, a search over pushes with a bound on its work, and the greedy
pusher, which looks one push ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from heapq import heappop, heappush
from math import inf

from turnwise.envs.planning.sokoban_rules import (
    MOVES,
    WALL,
    Position,
    deadlock,
    offsets,
    pushes_left,
)

MOST_NODES = 20_000
"""The most positions that a search expands."""
_Node = tuple[int, tuple[int, ...]]
"""The player's cell and the boxes."""


def walks(board: str, columns: int, start: int, boxes: tuple[int, ...]) -> dict[int, int]:
    """Return the number of steps to each cell that the player reaches without pushing."""
    lengths, waiting = {start: 0}, [start]
    steps = offsets(columns).values()
    for cell in waiting:  # it grows
        length = lengths[cell] + 1
        for step in steps:
            other = cell + step
            if other not in lengths and board[other] != WALL and other not in boxes:
                lengths[other] = length
                waiting.append(other)
    return lengths


def walk(position: Position, target: int) -> list[str]:
    """Return the steps of a shortest walk to a cell that the player reaches without pushing."""
    lengths = walks(position.board, position.columns, target, position.boxes)
    cell, found = position.at, list[str]()
    while cell != target:
        for move, step in offsets(position.columns).items():
            if lengths.get(cell + step, inf) < lengths[cell]:
                found.append(move)
                cell += step
                break
    return found


def pushes(position: Position) -> Iterator[tuple[int, str, Position]]:
    """Yield each push: the length of the walk before it, its direction, the position after it."""
    board, columns, at, boxes, goals = position
    lengths = walks(board, columns, at, boxes)
    steps = offsets(columns)
    for box in boxes:
        for move in MOVES:
            step = steps[move]
            length, target = lengths.get(box - step), box + step
            if length is None or board[target] == WALL or target in boxes:
                continue
            moved = tuple(sorted(target if each == box else each for each in boxes))
            yield length, move, Position(board, columns, box, moved, goals)


@lru_cache(maxsize=4096)
def solve(position: Position, most_nodes: int = MOST_NODES) -> tuple[str, ...] | None:
    """Return a solution with the fewest moves; None where there is none or the search is too long.

    The search (A*) expands positions after pushes, by the moves so far and the pushes left.

    Args:
        position: where to begin.
        most_nodes: the most positions that are expanded.
    """
    first: _Node = (position.at, position.boxes)
    costs: dict[_Node, int] = {first: 0}
    before: dict[_Node, tuple[_Node, str]] = {}
    waiting = [(_least(position), 0, first)]
    expanded = 0
    while waiting and expanded < most_nodes:
        _, cost, node = heappop(waiting)
        if cost > costs[node]:
            continue
        here = position._replace(at=node[0], boxes=node[1])
        if here.boxes == here.goals:
            return _moves(position, node, before)
        expanded += 1
        for length, move, after in pushes(here):
            other, total = (after.at, after.boxes), cost + length + 1
            if total < costs.get(other, inf):
                least = _least(after)
                if least == inf or deadlock(after):
                    continue
                costs[other] = total
                before[other] = (node, move)
                heappush(waiting, (total + least, total, other))
    return None


def _least(position: Position) -> float:
    return pushes_left(position.board, position.columns, position.boxes, position.goals)


def _moves(
    position: Position, node: _Node, before: dict[_Node, tuple[_Node, str]]
) -> tuple[str, ...]:
    """Return the moves to a node: walks and pushes."""
    found: list[str] = []
    while node in before:
        earlier, move = before[node]
        here = position._replace(at=earlier[0], boxes=earlier[1])
        found[:0] = [*walk(here, node[0] - offsets(position.columns)[move]), move]
        node = earlier
    return tuple(found)


def greedy_push(position: Position) -> tuple[int, str, Position] | None:
    """Return the best push, as `pushes` does; None where every push is a known deadlock.

    The best push leaves the fewest pushes; of equal ones it is the nearest.
    """
    best: tuple[float, int] = (inf, 0)
    found = None
    for push in pushes(position):
        worth = (_least(push[2]), push[0])
        if worth < best and not deadlock(push[2]):
            best, found = worth, push
    return found


def greedy_move(position: Position) -> str:
    """Return the next move towards the best push; the first move where there is none."""
    found = greedy_push(position)
    if found is None:
        return MOVES[0]
    length, move, after = found
    return walk(position, after.at - offsets(position.columns)[move])[0] if length else move
