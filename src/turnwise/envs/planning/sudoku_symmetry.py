"""The symmetries of sudoku, and the strings by which puzzles are divided into splits.

Provides `grid_class`, which is equal for solved grids that are equal up to symmetry, and
`pattern_class`, which is equal for patterns of clues that are. The symmetries exchange digits,
bands of rows, stacks of columns, rows of a band, columns of a stack and, where boxes are squares,
rows with columns.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, permutations, product

import numpy as np
from numpy.typing import NDArray

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


@lru_cache(maxsize=2)
def cell_orders(size: int) -> NDArray[np.intp]:
    """Return the orders of the cells that keep the rules, [N, size * size].

    N is 128 for 4 rows and 3456 for 6 rows.
    """
    tall, wide = BOXES[size]
    rows, columns = np.array(line_orders(size, tall)), np.array(line_orders(size, wide))
    orders = rows[:, None, :, None] * size + columns[None, :, None, :]
    placed = orders.reshape(-1, size * size)
    return np.concatenate([placed, _turned(placed, size)]) if tall == wide else placed


def _turned(cells: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    return cells % size * size + cells // size


@lru_cache(maxsize=65536)
def pattern_class(board: str) -> str:
    """Return which cells of a board of 4 or 6 rows are filled, up to symmetry, in hexadecimal.

    Digits do not count.

    Example:
        >>> pattern_class("." * 15 + "3"), pattern_class("1" + "." * 15)
        ('0001', '0001')
    """
    given = np.array([digit != EMPTY for digit in board])
    packed = np.packbits(given[cell_orders(round(len(board) ** 0.5))], axis=1)
    return packed[np.lexsort(packed.T[::-1])[0]].tobytes().hex()


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
