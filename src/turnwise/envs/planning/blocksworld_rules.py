"""The rules of `blocksworld`: towers of blocks on a table, and queries.

The standard library alone is imported: this source also runs in the sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

TABLE = "0"


class Position(NamedTuple):
    """What each block stands on, what it stands on at the goal, and the most towers.

    `on` and `goal` have a digit for each block, b1 first: the number of the block below, or `0` for
    the table. The table has room for `places` towers.
    """

    on: str
    goal: str
    places: int


@lru_cache(maxsize=16)
def _moves(count: int) -> tuple[str, ...]:
    blocks = range(1, count + 1)
    on_blocks = [f"b{a} on b{b}" for a in blocks for b in blocks if a != b]
    return (*on_blocks, *(f"b{block} on table" for block in blocks))


@lru_cache(maxsize=16)
def _meanings(count: int) -> Mapping[str, tuple[str, str]]:
    """Return what each move moves, and to where."""
    words = [(move, move.split(" on ")) for move in _moves(count)]
    return {move: (block[1:], TABLE if to == "table" else to[1:]) for move, (block, to) in words}


def moves(position: Position) -> Sequence[str]:
    """Return all moves of a block onto another, and of a block to the table."""
    return _moves(len(position.on))


def move_length(word: str) -> int:
    """Return 3: a move is a block, `on`, and a block or the table."""
    return 3


def is_clear(on: str, block: str) -> bool:
    """Whether nothing stands on a block, of which the number is given."""
    return block not in on


def apply(position: Position, move: str) -> Position | None:
    """Return the position after a move; None if the rules forbid it, and for other texts.

    The block and what it is put on must be clear, the table must have a place for one more tower,
    and the block must not stand there already.

    Example:
        >>> apply(Position("010", "000", 3), "b2 on table").on
        '000'
        >>> [apply(Position("010", "000", 2), move) for move in ("b2 on table", "b1 on b3")]
        [None, None]
    """
    on = position.on
    block, to = _meanings(len(on)).get(move, ("", ""))
    if not block or block in on:
        return None
    if on.count(TABLE) >= position.places if to == TABLE else to in on:
        return None
    place = int(block) - 1
    if on[place] == to:
        return None
    return Position(on[:place] + to + on[place + 1 :], position.goal, position.places)


def solved(position: Position) -> bool:
    """Whether every block stands where the goal says."""
    return position.on == position.goal


@lru_cache(maxsize=65536)
def misplaced(on: str, goal: str) -> tuple[str, ...]:
    """Return the blocks that must move: what is below them, somewhere, is not as the goal says.

    Example:
        >>> misplaced("0120", "0300"), misplaced("012", "012")
        (('2', '3'), ())
    """
    return tuple(str(i + 1) for i in range(len(on)) if below(on, i) != below(goal, i))


def below(on: str, place: int) -> str:
    """Return the blocks below a block, from its own support down to the table.

    Example:
        >>> below("0120", 2)
        '210'
    """
    found = on[place]
    while found[-1] != TABLE:
        found += on[int(found[-1]) - 1]
    return found


def report(position: Position) -> str:
    """Return how many blocks must move."""
    return f"misplaced {len(misplaced(position.on, position.goal))}"


def clear(position: Position, words: list[str]) -> str:
    """Answer which blocks have nothing on them."""
    _expect(words, 0, "no arguments")
    numbers = range(1, len(position.on) + 1)
    return " ".join(f"b{block}" for block in numbers if is_clear(position.on, str(block)))


def under(position: Position, words: list[str]) -> str:
    """Answer what a block stands on."""
    block = _block(position, words)
    return f"{words[0]} on {_name(position.on[int(block) - 1])}"


def over(position: Position, words: list[str]) -> str:
    """Answer what stands on a block."""
    block = _block(position, words)
    above = position.on.find(block)
    return f"{words[0]} clear" if above < 0 else f"b{above + 1} on {words[0]}"


def placed(position: Position, words: list[str]) -> str:
    """Answer whether a block, and all below it, stands as the goal says."""
    block = _block(position, words)
    return f"{words[0]} {'no' if block in misplaced(position.on, position.goal) else 'yes'}"


def count_misplaced(position: Position, words: list[str]) -> str:
    """Answer how many blocks must move."""
    _expect(words, 0, "no arguments")
    return report(position)


QUERIES: Mapping[str, Callable[[Position, list[str]], str]] = {
    "clear": clear,
    "under": under,
    "over": over,
    "placed": placed,
    "misplaced": count_misplaced,
}


def _name(number: str) -> str:
    return "table" if number == TABLE else f"b{number}"


def _expect(words: list[str], count: int, what: str) -> None:
    if len(words) != count:
        raise ValueError(f"got {len(words)} words: give {what}")


def _block(position: Position, words: list[str]) -> str:
    names = {f"b{block}": str(block) for block in range(1, len(position.on) + 1)}
    if len(words) != 1 or words[0] not in names:
        raise ValueError(f"give one block, from b1 to b{len(position.on)}")
    return names[words[0]]
