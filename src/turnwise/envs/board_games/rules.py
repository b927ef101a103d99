"""Rules of games in which two players place stones until one has so many in a line.

Provides `Rules`. A player's stones are a bit mask: cell number `row * columns + column`, counted
from the top left, is the bit of that number. Knows nothing of envs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Rules:
    """The board, the length of a winning line, and whether stones fall to the lowest free cell.

    Actions are numbers from 0: cells, or columns where stones fall.

    Example:
        >>> rules = Rules(rows=3, columns=3, line=3, falls=False)
        >>> len(rules.lines), rules.legal(0b111, 0)
        (8, (3, 4, 5, 6, 7, 8))
    """

    rows: int
    columns: int
    line: int
    falls: bool

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.rows * self.columns

    @property
    def actions(self) -> int:
        """The number of actions."""
        return self.columns if self.falls else self.cells

    @cached_property
    def full(self) -> int:
        """The mask of all cells."""
        return (1 << self.cells) - 1

    @cached_property
    def lines(self) -> tuple[int, ...]:
        """The masks of all winning lines."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[int]:
        for row in range(self.rows):
            for column in range(self.columns):
                for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                    ends = row + down * (self.line - 1), column + right * (self.line - 1)
                    if ends[0] < self.rows and 0 <= ends[1] < self.columns:
                        steps = range(self.line)
                        yield sum(self.bit(row + down * n, column + right * n) for n in steps)

    def bit(self, row: int, column: int) -> int:
        """Return the mask of one cell."""
        return 1 << (row * self.columns + column)

    @cached_property
    def lines_through(self) -> dict[int, tuple[int, ...]]:
        """The winning lines through each cell, by the cell's mask."""
        bits = [1 << cell for cell in range(self.cells)]
        return {bit: tuple(line for line in self.lines if line & bit) for bit in bits}

    @cached_property
    def _stacks(self) -> tuple[tuple[int, ...], ...]:
        """The cells that an action may fill, by action, in the order in which it fills them."""
        if not self.falls:
            return tuple((1 << cell,) for cell in range(self.cells))
        upwards = range(self.rows - 1, -1, -1)
        return tuple(tuple(self.bit(row, c) for row in upwards) for c in range(self.columns))

    def landing(self, taken: int, action: int) -> int:
        """Return the mask of the cell that an action fills; 0 if it is illegal."""
        for bit in self._stacks[action]:
            if not taken & bit:
                return bit
        return 0

    def landings(self, own: int, other: int) -> Iterator[tuple[int, int]]:
        """Yield each legal action with the mask of the cell that it fills."""
        taken = own | other
        for action in range(self.actions):
            bit = self.landing(taken, action)
            if bit:
                yield action, bit

    def legal(self, own: int, other: int) -> tuple[int, ...]:
        """Return the actions that can be taken."""
        return tuple(action for action, _ in self.landings(own, other))

    def wins(self, stones: int, bit: int) -> bool:
        """Whether `stones`, which hold the cell `bit`, have a winning line through it."""
        return any(stones & line == line for line in self.lines_through[bit])

    @cached_property
    def symmetries(self) -> tuple[tuple[int, ...], ...]:
        """The symmetries of the game, each as the new number of every cell.

        Where stones fall, the board can be mirrored. Else a square board has 8 symmetries.
        """
        places = [divmod(cell, self.columns) for cell in range(self.cells)]
        moved = [places, [(row, self.columns - 1 - column) for row, column in places]]
        if not self.falls:
            moved += [[(self.rows - 1 - row, column) for row, column in each] for each in moved]
            if self.rows == self.columns:
                moved += [[(column, row) for row, column in each] for each in moved]
        return tuple(tuple(r * self.columns + c for r, c in each) for each in moved)

    def canonical(self, first: int, second: int) -> tuple[int, int]:
        """Return the masks of the two players, equal for boards that are equal up to symmetry.

        Example:
            >>> rules = Rules(rows=3, columns=3, line=3, falls=False)
            >>> rules.canonical(1 << 8, 1 << 1) == rules.canonical(1 << 0, 1 << 5)
            True
        """
        return min((_moved(first, each), _moved(second, each)) for each in self.symmetries)


def _moved(stones: int, symmetry: tuple[int, ...]) -> int:
    return sum(1 << place for cell, place in enumerate(symmetry) if stones >> cell & 1)
