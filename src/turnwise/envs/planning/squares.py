"""The 8 symmetries of a square board, as permutations of its cells.

Provides `symmetries`.
"""

from __future__ import annotations

from functools import cache


@cache
def symmetries(size: int) -> tuple[tuple[int, ...], ...]:
    """Return the permutations; the first one leaves all cells where they are.

    In each of them, entry i is the cell that is moved to cell i.

    Example:
        >>> len(set(symmetries(3))), symmetries(2)[0]
        (8, (0, 1, 2, 3))
    """
    cells = [(row, column) for row in range(size) for column in range(size)]
    last = size - 1
    found = []
    for transposed in (False, True):
        for upside_down in (False, True):
            for left_right in (False, True):
                moved = [
                    (last - row if upside_down else row, last - column if left_right else column)
                    for row, column in cells
                ]
                found.append(tuple(c * size + r if transposed else r * size + c for r, c in moved))
    return tuple(found)
