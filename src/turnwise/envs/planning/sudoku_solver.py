"""Solutions of sudokus, and puzzles with one solution.

Provides a search for solutions that counts them and is bounded, singles, and `draw_puzzle`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

import numpy as np

from turnwise.envs.planning.sudoku_rules import (
    EMPTY,
    candidates,
    conflicts,
    shape_of,
)
from turnwise.errors import ConfigError

FEWEST_CLUES = {4: 4, 6: 10, 9: 28}
"""The fewest clues that puzzles are drawn with. With fewer, draws take too long."""
MOST_NODES = 20_000
"""The most cells that one search for solutions fills."""
MOST_DRAWS = 1000
"""The most grids from which clues are taken for one puzzle."""


def naked_single(board: str) -> tuple[int, str] | None:
    """Return the first empty cell that has one candidate, and the candidate.

    Example:
        >>> naked_single("123." + "." * 12)
        (3, '4')
    """
    for cell, digit in enumerate(board):
        if digit == EMPTY and len(found := candidates(board, cell)) == 1:
            return cell, found
    return None


def hidden_single(board: str) -> tuple[int, str] | None:
    """Return the first cell that is the only place of a unit for a digit, and the digit.

    Example:
        >>> hidden_single("1..." + "...." + "..1." + "....")
        (7, '1')
    """
    shape = shape_of(len(board))
    possible = [candidates(board, c) if digit == EMPTY else "" for c, digit in enumerate(board)]
    for unit in shape.units:
        for digit in shape.digits:
            places = [cell for cell in unit if digit in possible[cell]]
            if len(places) == 1:
                return places[0], digit
    return None


def solutions(board: str, order: np.random.Generator | None = None) -> Iterator[str]:
    """Yield the solutions of a board, which must be free of conflicts.

    The search fills the cell with the fewest candidates first, and at most `MOST_NODES` cells.

    Args:
        board: the board.
        order: draws the order in which digits are tried; None tries them in their order.

    Raises:
        ConfigError: if the search is longer.
    """
    bits = BitBoard(board)
    return bits.fill([cell for cell, bit in enumerate(bits.cells) if not bit], order)


class BitBoard:
    """A board of bits that changes in place: digit `d` is the bit `1 << d - 1`.

    `cells` has the bit of each cell, 0 if it is empty, and `taken` the bits of each unit.

    Example:
        >>> bits = BitBoard("12.." + "." * 12)
        >>> bin(bits.free(2))
        '0b1100'
    """

    def __init__(self, board: str) -> None:
        shape = shape_of(len(board))
        self.shape, self.spent = shape, 0
        self.every = (1 << shape.size) - 1
        self.cells = [0 if digit == EMPTY else 1 << int(digit) - 1 for digit in board]
        self.taken = [sum(self.cells[cell] for cell in unit) for unit in shape.units]

    def text(self) -> str:
        """Return the board as a string."""
        return "".join(f"{bit.bit_length()}" if bit else EMPTY for bit in self.cells)

    def put(self, cell: int, bit: int) -> None:
        """Put a digit into a cell; 0 empties it."""
        row, column, box = self.shape.units_of[cell]
        change = self.cells[cell] ^ bit
        self.cells[cell] = bit
        self.taken[row] ^= change
        self.taken[column] ^= change
        self.taken[box] ^= change

    def free(self, cell: int) -> int:
        """Return the bits that no unit of the cell has."""
        row, column, box = self.shape.units_of[cell]
        taken = self.taken
        return self.every & ~(taken[row] | taken[column] | taken[box])

    def fill(self, empty: list[int], order: np.random.Generator | None) -> Iterator[str]:
        """Yield the boards in which the cells `empty` are filled; the board is as before then."""
        if not empty:
            yield self.text()
            return
        cell, bits = self._narrowest(empty)
        rest = [other for other in empty if other != cell]
        found = [1 << digit for digit in range(self.shape.size) if bits >> digit & 1]
        if order is not None and len(found) > 1:
            found = [found[i] for i in order.permutation(len(found))]
        for bit in found:
            self.put(cell, bit)
            yield from self.fill(rest, order)
            self.put(cell, 0)

    def fillable(self, empty: list[int]) -> bool:
        """Whether the cells `empty` can be filled; the board is left as it was."""
        if not empty:
            return True
        cell, bits = self._narrowest(empty)
        rest, found = [other for other in empty if other != cell], False
        while bits and not found:
            bit = bits & -bits
            bits ^= bit
            self.put(cell, bit)
            found = self.fillable(rest)
            self.put(cell, 0)
        return found

    def _narrowest(self, empty: list[int]) -> tuple[int, int]:
        """Return the cell with the fewest candidates, and these."""
        self.spent += 1
        if self.spent > MOST_NODES:
            raise ConfigError(
                f"the search for solutions of a sudoku of {self.shape.size} rows fills more than "
                f"{MOST_NODES} cells: give more digits"
            )
        taken, every, units_of = self.taken, self.every, self.shape.units_of
        chosen, free, fewest = -1, 0, self.shape.size + 1
        for cell in empty:
            row, column, box = units_of[cell]
            bits = every & ~(taken[row] | taken[column] | taken[box])
            count = bits.bit_count()
            if count < fewest:
                chosen, free, fewest = cell, bits, count
                if count <= 1:
                    break
        return chosen, free

    def determined(self, cell: int) -> bool:
        """Whether the other digits of a board with one solution determine the digit of a cell.

        The cell is emptied if they do.
        """
        bit = self.cells[cell]
        self.put(cell, 0)
        others = self.free(cell) & ~bit
        if not others or self._only_place(cell, bit):
            return True
        empty = [c for c, filled in enumerate(self.cells) if not filled and c != cell]
        while others:
            other = others & -others
            others ^= other
            self.put(cell, other)
            fits = self.fillable(empty)
            self.put(cell, 0)
            if fits:
                self.put(cell, bit)
                return False
        return True

    def _only_place(self, cell: int, bit: int) -> bool:
        """Whether no other empty cell of a unit of `cell` may have the bit."""
        cells, units = self.cells, self.shape.units
        return any(
            not any(not cells[c] and c != cell and self.free(c) & bit for c in units[unit])
            for unit in self.shape.units_of[cell]
        )

    def is_stuck(self) -> bool:
        """Whether naked singles leave cells empty; the board is left as it was."""
        empty = [cell for cell, bit in enumerate(self.cells) if not bit]
        left, before = empty, 0
        while len(left) != before:
            before, after = len(left), list[int]()
            for cell in left:
                bits = self.free(cell)
                if bits.bit_count() == 1:
                    self.put(cell, bits)
                else:
                    after.append(cell)
            left = after
        for cell in empty:
            if self.cells[cell]:
                self.put(cell, 0)
        return bool(left)


def count_solutions(board: str, most: int = 2) -> int:
    """Return the number of solutions, or `most` if there are more; 0 for a board with conflicts.

    Raises:
        ConfigError: if the search fills more than `MOST_NODES` cells.

    Example:
        >>> count_solutions("." * 16, most=1000)
        288
    """
    if conflicts(board):
        return 0
    return sum(1 for _ in islice(solutions(board), most))


@lru_cache(maxsize=4096)
def solution_of(board: str) -> str | None:
    """Return the first solution of a board; None if it has none.

    Raises:
        ConfigError: if the search fills more than `MOST_NODES` cells.
    """
    return None if conflicts(board) else next(solutions(board), None)


def draw_puzzle(size: int, clues: int, rng: np.random.Generator, *, hard: bool = False) -> str:
    """Return a board of `clues` digits with one solution.

    Digits are taken out of a random grid in a random order, as long as one solution is left. Where
    none can be taken any more before `clues` are left, another grid is drawn.

    Args:
        size: the rows of the board.
        clues: the number of digits; with `hard` fewer are left at first, and some put back.
        rng: draws the grid and the order.
        hard: whether naked singles alone must not solve the puzzle.

    Raises:
        ConfigError: if `MOST_DRAWS` grids gave no such board.
    """
    for _ in range(MOST_DRAWS):
        grid = BitBoard(next(solutions(EMPTY * size**2, rng)))
        order, digits = rng.permutation(size**2).tolist(), list(grid.cells)
        left = size**2
        for cell in order:
            if left == (FEWEST_CLUES[size] if hard else clues):
                break
            left -= grid.determined(cell)
        if hard and grid.is_stuck():
            left += _put_back(grid, digits, order, clues - left)
        if left == clues and (not hard or grid.is_stuck()):
            return grid.text()
    words = " that naked singles do not solve" if hard else ""
    raise ConfigError(
        f"no sudoku of {size} rows with {clues} clues and one solution{words} in {MOST_DRAWS} "
        f"draws: set other clues, from {FEWEST_CLUES[size]}"
    )


def _put_back(grid: BitBoard, digits: list[int], order: list[int], most: int) -> int:
    """Put at most `most` digits back that leave the board stuck, and return how many."""
    put = 0
    for cell in order:
        if put >= most:
            break
        if not grid.cells[cell]:
            grid.put(cell, digits[cell])
            put += 1
            if not grid.is_stuck():
                grid.put(cell, 0)
                put -= 1
    return put
