"""Maps of frozen lakes: layout, moves, distances and text, given or drawn at random.

Provides `Lake`, the cached and immutable properties of a map, and functions that draw maps. Cells
are numbered row by row, as in gymnasium.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf

import numpy as np

from turnwise.errors import ConfigError, DataError

ACTIONS = ("LEFT", "DOWN", "RIGHT", "UP")
"""The actions in gymnasium's order."""
OFFSETS = ((0, -1), (1, 0), (0, 1), (-1, 0))
CONTENTS = {"S": "start", "F": "ice", "H": "hole", "G": "goal"}
LARGEST = 16
MOST_DRAWS = 10_000

MapRows = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lake:
    """The properties of a map.

    `letters` are the rows joined, `digest` a hash of the rows; `start` is the cell of the S;
    `moves[cell][action]` is where a move leads on firm ice, the same cell at the edge;
    `distances[cell]` counts the fewest moves to a goal around the holes, infinite where there is no
    way; `text` is the map as a role reads it.

    Example:
        >>> lake = lake_of(("SF", "HG"))
        >>> lake.distances, lake.moves[0]
        ((2.0, 1.0, inf, 0.0), (0, 2, 1, 0))
    """

    rows: MapRows
    letters: str
    digest: str
    columns: int
    start: int
    moves: tuple[tuple[int, ...], ...]
    distances: tuple[float, ...]
    text: str

    def name(self, cell: int) -> str:
        """Return a cell's name, row and column from 0: "r1c2"."""
        return f"r{cell // self.columns}c{cell % self.columns}"

    def content(self, cell: int) -> str:
        """Return the word for what is on a cell."""
        return CONTENTS[self.letters[cell]]


@lru_cache(maxsize=4096)
def lake_of(rows: MapRows) -> Lake:
    """Return the lake drawn by `rows` of the letters S (start), F (ice), H (hole) and G (goal).

    Raises:
        DataError: if the rows are not a rectangle of these letters with one S and a G.
    """
    check_rows(rows)
    letters, columns = "".join(rows), len(rows[0])
    names = [f"r{i // columns}c{i % columns} {CONTENTS[x]}" for i, x in enumerate(letters)]
    lines = [" ".join(names[i : i + columns]) for i in range(0, len(names), columns)]
    return Lake(
        rows=rows,
        letters=letters,
        digest=hashlib.blake2b("/".join(rows).encode(), digest_size=8).hexdigest(),
        columns=columns,
        start=letters.index("S"),
        moves=moves_on(len(rows), columns),
        distances=distances_on(letters, columns),
        text="\n ".join(["lake", *lines]),
    )


def check_rows(rows: Sequence[str]) -> None:
    """Raise `DataError` if `rows` is not a map."""
    given = f"a lake's map, got {list(rows)!r},"
    if not 2 <= len(rows) <= LARGEST or not 2 <= len(rows[0]) <= LARGEST:
        raise DataError(f"{given} must have 2 to {LARGEST} rows and columns")
    if len({len(row) for row in rows}) > 1:
        raise DataError(f"{given} must have rows of one length")
    letters = "".join(rows)
    strange = sorted(set(letters) - set(CONTENTS))
    if strange:
        raise DataError(f"{given} must be of the letters S, F, H, G: replace {strange}")
    if letters.count("S") != 1 or "G" not in letters:
        raise DataError(f"{given} must have exactly one S and at least one G")


@lru_cache(maxsize=256)
def moves_on(height: int, width: int) -> tuple[tuple[int, ...], ...]:
    """Return, for every cell of a grid and every action, the cell that the move leads to.

    Example:
        >>> moves_on(2, 2)[1]
        (0, 3, 1, 1)
    """

    def target(cell: int, down: int, right: int) -> int:
        row, column = cell // width + down, cell % width + right
        inside = 0 <= row < height and 0 <= column < width
        return row * width + column if inside else cell

    return tuple(
        tuple(target(cell, down, right) for down, right in OFFSETS)
        for cell in range(height * width)
    )


def distances_on(letters: str, columns: int) -> tuple[float, ...]:
    """Return each cell's fewest moves to a goal, breadth first; infinite in holes and cut off."""
    moves = moves_on(len(letters) // columns, columns)
    found = [inf] * len(letters)
    queue = deque(cell for cell, letter in enumerate(letters) if letter == "G")
    for cell in queue:
        found[cell] = 0.0
    while queue:
        cell = queue.popleft()
        for near in moves[cell]:  # moves are symmetric, so the search may run backwards
            if found[near] == inf and letters[near] != "H":
                found[near] = found[cell] + 1
                queue.append(near)
    return tuple(found)


def draw_rows(
    rng: np.random.Generator, size: int, frozen_probability: float, *, solvable: bool
) -> MapRows:
    """Return a random square map, with S and G in opposite corners, as gymnasium draws them.

    Args:
        rng: the source of randomness.
        size: rows and columns.
        frozen_probability: of each other cell to be ice.
        solvable: draw again until a way leads from S to G.

    Raises:
        ConfigError: if no solvable map turns up.
    """
    for _ in range(MOST_DRAWS):
        ice = rng.random(size * size) < frozen_probability
        letters = "S" + "".join("F" if firm else "H" for firm in ice[1:-1]) + "G"
        if not solvable or distances_on(letters, size)[0] < inf:
            return cut(letters, size)
    raise ConfigError(
        f"no solvable {size}x{size} map in {MOST_DRAWS} draws with frozen_probability = "
        f"{frozen_probability}: raise it, or lower size"
    )


def cut(letters: str, columns: int) -> MapRows:
    """Return a map's letters as rows.

    Example:
        >>> cut("SFFG", 2)
        ('SF', 'FG')
    """
    return tuple(letters[i : i + columns] for i in range(0, len(letters), columns))


def move_start(rows: MapRows, cell: int) -> MapRows:
    """Return the map with its S on another cell; ice is left where it was.

    Example:
        >>> move_start(("SF", "FG"), 1)
        ('FS', 'FG')
    """
    letters = list("".join(rows).replace("S", "F"))
    letters[cell] = "S"
    return cut("".join(letters), len(rows[0]))


def mirror(rows: MapRows, *, upside_down: bool, left_right: bool) -> MapRows:
    """Return the map mirrored, the goal's corner with it.

    Example:
        >>> mirror(("SF", "HG"), upside_down=True, left_right=False)
        ('HG', 'SF')
    """
    turned = rows[::-1] if upside_down else rows
    return tuple(row[::-1] for row in turned) if left_right else turned


@lru_cache(maxsize=4096)
def trap_cells(rows: MapRows) -> tuple[int, ...]:
    """Return the cells where one has to look ahead: a safe step towards the goal may be wrong.

    On all others, any step that is closer to the goal as the crow flies and no hole is the first of
    a shortest way. Traps are forks of which one branch is a dead end, and the dead ends.

    Example:
        >>> trap_cells(("SFF", "FHF", "FHG")), trap_cells(("SFF", "FFF", "FFG"))
        ((0, 3, 6), ())
    """
    lake = lake_of(rows)
    ways, bare = lake.distances, distances_on("".join(rows).replace("H", "F"), len(rows[0]))

    def trapped(cell: int) -> bool:
        closer = [to for to in lake.moves[cell] if bare[to] < bare[cell]]
        safe = [to for to in closer if lake.letters[to] != "H"]
        return not safe or any(ways[to] > ways[cell] for to in safe)

    return tuple(cell for cell, way in enumerate(ways) if 0 < way < inf and trapped(cell))


def layout(rows: Sequence[str]) -> str:
    """Return the layout of holes and goals, the same for all mirror images of a map and any start.

    Example:
        >>> layout(("SF", "HG")) == layout(("FH", "SG")) == layout(("HG", "FS"))
        True
    """
    plain = tuple(row.replace("S", "F") for row in rows)
    images = [
        mirror(image, upside_down=upside_down, left_right=left_right)
        for image in (plain, tuple("".join(column) for column in zip(*plain, strict=True)))
        for upside_down in (False, True)
        for left_right in (False, True)
    ]
    return min("/".join(image) for image in images)


def any_start(rows: MapRows, rng: np.random.Generator, *, reachable: bool) -> int:
    """Return a random cell that is neither hole nor goal, with a way to the goal if `reachable`."""
    lake = lake_of(rows)
    cells = [
        cell
        for cell, (letter, distance) in enumerate(zip(lake.letters, lake.distances, strict=True))
        if letter in "SF" and (distance < inf or not reachable)
    ]
    return cells[rng.integers(len(cells))]
