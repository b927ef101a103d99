"""The symmetries of sudoku, and the strings by which puzzles are divided into splits.

Provides the permutations of cells that keep the rules, `grid_class`, which is equal for solved
grids that are equal up to symmetry, and `pattern_class`, which is equal for patterns of clues that
are. The symmetries exchange digits, bands of rows, stacks of columns, rows of a band, columns of a
stack and, where boxes are squares, rows with columns.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, permutations, product

from turnwise.envs.planning.sudoku_rules import BOXES, EMPTY


def line_orders(size: int, group: int) -> list[tuple[int, ...]]:
    """Return the orders of `size` lines that keep groups of `group` lines together.

    Example:
        >>> len(line_orders(4, 2)), line_orders(4, 2)[1]
        (8, (0, 1, 3, 2))
    """
    blocks = [range(first, first + group) for first in range(0, size, group)]
    inner = list(product(*(list(permutations(block)) for block in blocks)))
    return [
        tuple(line for block in order for line in orders[block])
        for order in permutations(range(len(blocks)))
        for orders in inner
    ]


@lru_cache(maxsize=1)
def small_symmetries() -> tuple[tuple[int, ...], ...]:
    """Return the 128 permutations of the cells of a 4x4 board."""
    tall, wide = BOXES[4]
    placed = [
        tuple(row * 4 + column for row in rows for column in columns)
        for rows in line_orders(4, tall)
        for columns in line_orders(4, wide)
    ]
    turned = [tuple(cell % 4 * 4 + cell // 4 for cell in cells) for cells in placed]
    return (*placed, *turned)


@lru_cache(maxsize=65536)
def pattern_class(board: str) -> str:
    """Return which cells of a 4x4 board are filled, up to symmetry; digits do not count.

    Example:
        >>> pattern_class("." * 15 + "3"), pattern_class("1" + "." * 15)
        ('###############.', '###############.')
    """
    marks = ["#" if digit == EMPTY else "." for digit in board]
    return min("".join(marks[cell] for cell in cells) for cells in small_symmetries())


@lru_cache(maxsize=65536)
def grid_class(grid: str) -> str:
    """Return a string that is equal for solved grids that are equal up to symmetry.

    Two lines define a permutation of the digits: the digit above to the digit below it. Its cycle
    lengths do not change when digits are exchanged, nor when columns are. The string lists them for
    all pairs of rows and all pairs of columns, sorted in the way in which symmetries exchange
    lines. Classes may share a string, which puts them into one split: the 2 classes of 4x4 grids
    have 2 strings, the 49 classes of 6x6 grids 40.
    """
    size = round(len(grid) ** 0.5)
    tall, wide = BOXES[size]
    rows = [grid[first : first + size] for first in range(0, size * size, size)]
    columns = [grid[first::size] for first in range(size)]
    parts = [_lines_class(rows, tall), _lines_class(columns, wide)]
    return " / ".join(sorted(parts) if tall == wide else parts)


def _lines_class(lines: list[str], group: int) -> str:
    """Return what the cycle lengths of all pairs of lines are, sorted by groups."""
    groups = [lines[first : first + group] for first in range(0, len(lines), group)]
    within = [sorted(_cycles(a, b) for a, b in combinations(block, 2)) for block in groups]
    joined = []
    for (i, first), (j, second) in combinations(enumerate(groups), 2):
        across = sorted(_cycles(a, b) for a, b in product(first, second))
        joined.append((sorted((within[i], within[j])), across))
    return " | ".join(
        " ".join(("+".join(one), "+".join(other), "+".join(across)))
        for (one, other), across in sorted(joined)
    )


def _cycles(upper: str, lower: str) -> str:
    """Return the cycle lengths of the permutation of digits, the shortest first."""
    follows, lengths = dict(zip(upper, lower, strict=True)), []
    while follows:
        digit, length = next(iter(follows)), 0
        while digit in follows:
            digit, length = follows.pop(digit), length + 1
        lengths.append(str(length))
    return "".join(sorted(lengths))
