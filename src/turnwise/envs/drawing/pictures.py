"""Named targets: lines, squares and pictures that the random generator hardly ever draws.

Provides `PICTURES`, name -> the grid to draw on an empty grid of its shape. Lines and squares are
those of github.com/ironbar/arc25: blocks of 2 x 2 cells have the colours 1, 2, ... in turn, down
the columns of blocks and then to the right.
"""

from __future__ import annotations

from turnwise.envs.drawing.interpreter import Grid

ROCKET: Grid = (
    "0000220000",
    "0002222000",
    "0002552000",
    "0022552200",
    "0022222200",
    "0022222200",
    "0822222280",
    "8822222288",
    "8802222088",
    "0009449000",
    "0004994000",
    "0000440000",
)


def lines(count: int) -> Grid:
    """Return a square of `count` vertical lines, of the colours 1, 2, ...

    Example:
        >>> lines(3)
        ('123', '123', '123')
    """
    return ("".join(str(column + 1) for column in range(count)),) * count


def squares(rows: int, columns: int, side: int = 2) -> Grid:
    """Return `rows` x `columns` square blocks of `side` cells.

    Their colours are 1 to 9 in turn, or 1 to 8 with 9 rows or more, so that columns differ.

    Example:
        >>> squares(2, 2)
        ('1133', '1133', '2244', '2244')
    """
    colours = 9 if rows < 9 else 8
    cells = [
        "".join(str((column * rows + row) % colours + 1) * side for column in range(columns))
        for row in range(rows)
    ]
    return tuple(line for line in cells for _ in range(side))


def concentric(count: int) -> Grid:
    """Return squares in each other, of the colours 1, 2, ... from the outermost.

    Example:
        >>> concentric(2)
        ('1111', '1221', '1221', '1111')
    """
    side = range(2 * count)
    depth = [min(place, 2 * count - 1 - place) for place in side]
    return tuple("".join(str(1 + min(depth[r], depth[c])) for c in side) for r in side)


PICTURES: dict[str, Grid] = {
    "9-vertical-lines": lines(9),
    "12-squares": squares(3, 4),
    "16-squares": squares(4, 4),
    "20-squares": squares(5, 4),
    "25-squares": squares(5, 5),
    **{f"{n * n}-squares": squares(n, n) for n in range(6, 11)},
    "9-squares-3x3": squares(3, 3, side=3),
    "5-concentric-squares": concentric(5),
    "rocket": ROCKET,
}
"""Name -> target; the grid to begin with is empty (colour 0)."""
