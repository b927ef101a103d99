"""The rules of sudoku, and questions about one board.

A board is a string of digits, row by row, with "." for an empty cell. The sizes are 4 (boxes of 2
rows and 2 columns), 6 (2 rows and 3 columns) and 9 (3 and 3). A move fills an empty cell, as in
`r0c1=3`, with a digit that no cell of its row, column and box has. It is one word, so that a small
model copies it in one step. Nothing is taken back. The source of this module also runs in the
sandbox, so it imports the standard library alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3)}
"""Size -> rows and columns of a box."""
EMPTY = "."
MOST_SHOWN = 240
"""The most characters of a result, as in `library.py`."""
COUNTS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
"""The words for numbers of fills."""


class Position(NamedTuple):
    """A board, and the board that the task began with."""

    board: str
    clues: str


class Shape(NamedTuple):
    """The cells of a size.

    `units` are its rows, its columns and its boxes; `units_of[cell]` the numbers of a cell's three
    units; `peers[cell]` the cells that share a unit with it; `names` the names of cells, `numbers`
    the cells by name.
    """

    size: int
    digits: str
    units: tuple[tuple[int, ...], ...]
    units_of: tuple[tuple[int, ...], ...]
    peers: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    numbers: Mapping[str, int]
    lines: Mapping[str, tuple[int, ...]]


@lru_cache(maxsize=3)
def shape_of(cells: int) -> Shape:
    """Return the shape of a board of 16, 36 or 81 cells.

    Example:
        >>> shape_of(16).units[8], shape_of(16).peers[0], shape_of(16).names[5]
        ((0, 1, 4, 5), (1, 2, 3, 4, 5, 8, 12), 'r1c1')
    """
    size = round(cells**0.5)
    tall, wide = BOXES[size]
    across, every = size // wide, range(cells)
    rows = [tuple(c for c in every if c // size == i) for i in range(size)]
    columns = [tuple(c for c in every if c % size == i) for i in range(size)]
    boxes = [
        tuple(c for c in every if c // size // tall * across + c % size // wide == i)
        for i in range(size)
    ]
    units = (*rows, *columns, *boxes)
    units_of = tuple(tuple(i for i, unit in enumerate(units) if c in unit) for c in every)
    names = tuple(f"r{c // size}c{c % size}" for c in every)
    return Shape(
        size=size,
        digits="123456789"[:size],
        units=units,
        units_of=units_of,
        peers=tuple(
            tuple(sorted({other for i in units_of[c] for other in units[i]} - {c})) for c in every
        ),
        names=names,
        numbers={name: c for c, name in enumerate(names)},
        lines={f"{'rcb'[i // size]}{i % size}": unit for i, unit in enumerate(units)},
    )


def candidates(board: str, cell: int) -> str:
    """Return the digits that no peer of `cell` has, in their order.

    Example:
        >>> candidates("12.." + "." * 12, 2)
        '34'
    """
    shape = shape_of(len(board))
    seen = {board[peer] for peer in shape.peers[cell]}
    return "".join([digit for digit in shape.digits if digit not in seen])


def conflicts(board: str) -> tuple[int, ...]:
    """Return the filled cells whose digit one of their peers has, too."""
    peers = shape_of(len(board)).peers
    return tuple(
        cell
        for cell, digit in enumerate(board)
        if digit != EMPTY and any(board[peer] == digit for peer in peers[cell])
    )


def dead_cells(board: str) -> tuple[int, ...]:
    """Return the empty cells without a candidate."""
    return tuple(c for c, digit in enumerate(board) if digit == EMPTY and not candidates(board, c))


def filled(board: str, cell: int, digit: str) -> str:
    """Return the board with `digit` in `cell`."""
    return board[:cell] + digit + board[cell + 1 :]


@lru_cache(maxsize=3)
def fills(cells: int) -> tuple[str, ...]:
    """Return the fills of all cells of a board of 16, 36 or 81 with all digits."""
    shape = shape_of(cells)
    return tuple(fill(name, digit) for name in shape.names for digit in shape.digits)


def moves(position: Position) -> Sequence[str]:
    """Return the fills of all cells with all digits."""
    return fills(len(position.board))


def move_length(word: str) -> int:
    """Return the number of words of a move, which is one."""
    return 1


def fill(name: str, digit: str) -> str:
    """Return the move that fills a cell.

    Example:
        >>> fill("r0c1", "3")
        'r0c1=3'
    """
    return f"{name}={digit}"


def apply(position: Position, move: str) -> Position | None:
    """Return the position after a move; None for a filled cell, a conflict, and other texts.

    Example:
        >>> begun = Position("12.." + "." * 12, "12.." + "." * 12)
        >>> apply(begun, "r0c2=3").board[:4], apply(begun, "r0c2=1")
        ('123.', None)
    """
    board, (name, _, digit) = position.board, move.partition("=")
    shape = shape_of(len(board))
    cell = shape.numbers.get(name)
    if cell is None or digit not in shape.digits or len(digit) != 1 or board[cell] != EMPTY:
        return None
    if any(board[peer] == digit for peer in shape.peers[cell]):
        return None
    return Position(filled(board, cell, digit), position.clues)


def counted(found: Sequence[str], subject: str = "") -> str:
    """Return how many fills there are, and these; where there are none, of which subject.

    The number comes first: whether a fill is the only one is then told by the word before it.

    Example:
        >>> counted(["r0c1=2", "r0c1=4"], "r0c1"), counted([], "r0c1"), counted([])
        ('two r0c1=2 r0c1=4', 'r0c1 none', 'none')
    """
    words = (COUNTS[len(found)], *found)
    return " ".join(words if found or not subject else (subject, *words))


def solved(position: Position) -> bool:
    """Whether every cell is filled; moves make no conflict."""
    return EMPTY not in position.board


def report(position: Position) -> str:
    """Return how many cells are empty, and whether each has a candidate."""
    board = position.board
    return f"empty {board.count(EMPTY)} consistent {consistent(position, [])}"


def consistent(position: Position, words: list[str]) -> str:
    """Answer whether every empty cell has a candidate; if not, the first that has none."""
    _expect(words, 0, "no arguments")
    dead = dead_cells(position.board)
    return f"no {shape_of(len(position.board)).names[dead[0]]}" if dead else "yes"


def candidates_of(position: Position, words: list[str]) -> str:
    """Answer with which digits a cell may be filled by its row, column and box."""
    _expect(words, 1, "a cell")
    cell = _cell(position, words[0])
    if position.board[cell] != EMPTY:
        return f"{words[0]} has {position.board[cell]}"
    return counted([fill(words[0], digit) for digit in candidates(position.board, cell)])


def conflicts_of(position: Position, words: list[str]) -> str:
    """Answer which cells conflict with a fill."""
    _expect(words, 1, "a cell with a digit, as in r0c0=1")
    name, _, digit = words[0].partition("=")
    shape, cell = shape_of(len(position.board)), _cell(position, name)
    _digit(position, digit)
    found = [shape.names[peer] for peer in shape.peers[cell] if position.board[peer] == digit]
    return " ".join(found) or "none"


def places_of(position: Position, words: list[str]) -> str:
    """Answer which cells of a row, column or box a digit may fill; `has` where one has it.

    Without a digit the answer has the fills of each digit that the unit lacks, those of the digits
    with the fewest first, as many as there is room for.

    Example:
        >>> board = "1..." + "3412" + "2143" + "432."
        >>> places_of(Position(board, board), ["r0", "2"])
        'one r0c1=2'
        >>> places_of(Position(board, board), ["r0"])
        'one r0c1=2 one r0c2=3 one r0c3=4'
    """
    if len(words) != 1:
        _expect(words, 2, "a row, column or box, as in r0, c0 or b0, and a digit or none")
    board, shape = position.board, shape_of(len(position.board))
    if words[0] not in shape.lines:
        raise ValueError(f"{words[0][:20]!r} is none of r0 to b{shape.size - 1}")
    unit = shape.lines[words[0]]
    had = {board[cell]: shape.names[cell] for cell in unit}

    def fills_with(digit: str) -> list[str]:
        found = (c for c in unit if board[c] == EMPTY and digit in candidates(board, c))
        return [fill(shape.names[c], digit) for c in found]

    if len(words) == 2:
        digit = _digit(position, words[1])
        return f"{had[digit]} has {digit}" if digit in had else counted(fills_with(digit))
    lacked = {digit: fills_with(digit) for digit in shape.digits if digit not in had}
    fewest_first = sorted(lacked, key=lambda digit: len(lacked[digit]))
    lists = [counted(lacked[digit], digit) for digit in fewest_first]
    while len(" ".join(lists)) > MOST_SHOWN:  # a list without some of its fills would look sure
        lists.pop()
    return " ".join(lists) or "full"


QUERIES: Mapping[str, Callable[[Position, list[str]], str]] = {
    "candidates": candidates_of,
    "conflicts": conflicts_of,
    "places": places_of,
    "consistent": consistent,
}


def _expect(words: list[str], count: int, what: str) -> None:
    if len(words) != count:
        raise ValueError(f"got {len(words)} words: give {what}")


def _cell(position: Position, name: str) -> int:
    shape = shape_of(len(position.board))
    if name not in shape.numbers:
        raise ValueError(f"{name[:20]!r} is no cell: give r0c0 to {shape.names[-1]}")
    return shape.numbers[name]


def _digit(position: Position, word: str) -> str:
    digits = shape_of(len(position.board)).digits
    if word not in digits or len(word) != 1:
        raise ValueError(f"{word[:20]!r} is no digit from 1 to {len(digits)}")
    return word
