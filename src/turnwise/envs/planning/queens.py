"""The `n-queens` env: complete a partial placement of queens that do not attack each other.

Task: a board of `size` rows with `given` queens that a placement of `size` queens contains. The
    episode, the seats and the rewards are those of `base.py`.
What each role sees: the board, row by row, with `Q` for a queen and `.` for another cell.
Moves: `r1c3` places a queen. A cell that a queen attacks is forbidden. A queen stays, so that a
    wrong one makes the board unsolvable.
Functions: `legal`; `apply MOVES`; `attacked ROW`, the attacked cells of a row; `free ROW`, the
    number of its other cells.
Estimated costs: of the team the number of missing queens; of a role the same, infinite where no
    placement contains the queens.
Baselines: random; always-r0c0; first-legal; first-free, which places a queen on the first free cell
    of the row with the fewest; least-attacking, which takes the cell of that row that leaves the
    most cells free; optimal, a placement.
Splits: tasks that are equal up to the 8 symmetries of the board are in one split.

Example:
    >>> from turnwise.types import Task
    >>> env = Queens(QueensConfig(size=4, given=1))
    >>> state = env.reset(Task(id="t", env="n-queens", seed=0, data={"rows": "1..."}))
    >>> rng = np.random.default_rng(0)
    >>> told = env.step(state, "tool", "attacked r1", rng).state
    >>> print(env.observe(told, "planner").text)
    queens c0 c1 c2 c3
     r0 . Q . .
     r1 . . . .
     r2 . . . .
     r3 . . . .
     call attacked r1
     r1c0 r1c1 r1c2
     your move
    >>> step = env.step(told, "planner", "r1c3 r2c0 r3c2", rng)
    >>> step.rewards["solved"], step.rewards["progress"]
    (1.0, 1.0)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from turnwise.envs.planning import queens_rules as rules
from turnwise.envs.planning.base import PlanningEnv
from turnwise.envs.planning.puzzle import Puzzle, Reflex
from turnwise.envs.planning.queens_rules import NONE, Position, attacks, free_columns, queens
from turnwise.envs.planning.state import PlanningConfig
from turnwise.errors import ConfigError, DataError
from turnwise.settings import Settings


class QueensConfig(PlanningConfig):
    """Options of the `n-queens` env."""

    size: int = Field(default=10, ge=4, le=10)
    """The number of rows, of columns and of queens."""
    given: int = Field(default=3, ge=0, le=9)
    """The number of queens at the start."""

    @model_validator(mode="after")
    def _check_given(self) -> QueensConfig:
        missing, moves = self.size - self.given, self.rounds * self.moves_per_turn
        if missing < 1:
            raise ConfigError(
                f"given = {self.given} with size = {self.size}: give at most {self.size - 1}"
            )
        if missing > moves:
            raise ConfigError(
                f"{missing} queens are missing, and {self.rounds} rounds of {self.moves_per_turn} "
                f"moves place {moves}: raise rounds, moves_per_turn or given"
            )
        return self


class QueensPuzzle(Puzzle[Position]):
    """Boards with some queens of a placement."""

    rules = rules
    constants = ("r0c0",)

    def __init__(self, config: QueensConfig) -> None:
        self.config = config

    def generate(
        self, rng: np.random.Generator, most_moves: int, hard: bool = False
    ) -> dict[str, Any]:
        """Draw a placement, and which of its queens are given."""
        size = self.config.size
        known = placements(NONE * size)
        rows = known[rng.integers(len(known))]
        kept = set(rng.permutation(size)[: self.config.given].tolist())
        return {"rows": "".join(c if row in kept else NONE for row, c in enumerate(rows))}

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the least text of the board over the 8 symmetries."""
        return canonical_rows(self.first(data).rows)

    def first(self, data: Mapping[str, Any]) -> Position:
        """Return the first position of a task.

        Raises:
            DataError: if it is no board with a missing queen that a placement completes.
        """
        rows, size = str(data.get("rows", "")), self.config.size
        known = {NONE, *"0123456789"[:size]}
        if len(rows) != size or not set(rows) <= known or NONE not in rows:
            raise DataError(
                f"rows {rows!r:.40}: give for each of {size} rows the column of its queen, or "
                f"{NONE!r} where it has none, in one row at least"
            )
        if not placements(rows):
            raise DataError(f"no placement of {size} queens contains {rows!r}: give another board")
        return Position(rows)

    def solve(self, position: Position) -> list[str] | None:
        """Return the cells of the missing queens of the first placement, in their order."""
        found = placements(position.rows)
        if not found:
            return None
        pairs = enumerate(zip(position.rows, found[0], strict=True))
        return [f"r{row}c{column}" for row, (here, column) in pairs if here == NONE]

    def reflexes(self) -> Mapping[str, Reflex[Position]]:
        """Return the two players of the module docstring."""
        return {
            "first-free": lambda position, last: _first_free(position.rows),
            "least-attacking": lambda position, last: _least_attacking(position.rows),
        }

    def team_cost(self, position: Position) -> float:
        """Return the number of missing queens."""
        return float(position.rows.count(NONE))

    def role_cost(self, position: Position) -> float:
        """Return the number of missing queens; infinite where the board cannot be completed."""
        return self.team_cost(position) if placements(position.rows) else inf

    def lines(self, position: Position) -> Sequence[str]:
        """Return a line of columns, and the rows."""
        return _lines(position.rows)

    def description(self, position: Position, results: Sequence[str] = ()) -> str:
        """Return the free cells of the first of the rows that have the fewest."""
        return _description(position.rows)

    def render(self, position: Position) -> str:
        """Return the board."""
        return "\n".join(_row_cells(column, len(position.rows)) for column in position.rows)

    def query_words(self, name: str, position: Position, rng: np.random.Generator) -> str:
        """Return a random row."""
        return f"r{rng.integers(len(position.rows))}"

    def vocabulary(self) -> tuple[str, ...]:
        """Return the names of cells, rows and columns, and all other words."""
        numbers = range(self.config.size)
        lines = [f"{letter}{number}" for letter in "rc" for number in numbers]
        words = "queens missing blocked free none full Q ."
        return (*words.split(), *lines, *rules.cells(self.config.size))


class Queens(PlanningEnv[Position]):
    """The env described in the docstring of this module."""

    name: ClassVar[str] = "n-queens"
    config_class: ClassVar[type[Settings]] = QueensConfig

    def __init__(self, config: QueensConfig | None = None) -> None:
        config = config or QueensConfig()
        super().__init__(config, QueensPuzzle(config))
        self._alike = config.given == 0 or (config.size, config.given) in ((4, 1), (4, 3))

    @property
    def single_task(self) -> bool:
        """Whether all tasks are equal up to symmetry: the empty board, and 1 or 3 queens of 4."""
        return self._alike


@lru_cache(maxsize=65536)
def placements(rows: str) -> tuple[str, ...]:
    """Return all placements that contain the given queens.

    Example:
        >>> placements("...."), len(placements("." * 8))
        (('1302', '2031'), 92)
    """
    taken = queens(rows)
    if any(attacks(*a, *b) for i, a in enumerate(taken) for b in taken[i + 1 :]):
        return ()
    if NONE not in rows[1:] and NONE not in rows:
        return (rows,)
    if rows.count(NONE) < len(rows):  # the list of the empty board is short: at most 724
        return tuple(
            whole
            for whole in placements(NONE * len(rows))
            if all(whole[row] == str(column) for row, column in taken)
        )
    return tuple(_complete((), len(rows)))


def _complete(columns: tuple[int, ...], size: int) -> Iterator[str]:
    if len(columns) == size:
        yield "".join(map(str, columns))
        return
    row = len(columns)
    for column in range(size):
        if not any(attacks(row, column, *queen) for queen in enumerate(columns)):
            yield from _complete((*columns, column), size)


@lru_cache(maxsize=65536)
def canonical_rows(rows: str) -> str:
    """Return the first of the 8 boards that are equal to `rows` up to symmetry.

    Example:
        >>> canonical_rows("1..."), canonical_rows(".3..")
        ('...1', '...1')
    """
    size, found, taken = len(rows), [], queens(rows)
    for _ in range(4):
        taken = [(column, size - 1 - row) for row, column in taken]
        for placed in (taken, [(row, size - 1 - column) for row, column in taken]):
            columns = {row: str(column) for row, column in placed}
            found.append("".join(columns.get(row, NONE) for row in range(size)))
    return min(found)


def _narrowest(rows: str) -> tuple[int, list[int]] | None:
    """Return the row without a queen that has the fewest free cells, but some, and these."""
    empty = [(row, free_columns(rows, row)) for row, column in enumerate(rows) if column == NONE]
    found = [(len(free), row, free) for row, free in empty if free]
    return min(found)[1:] if found else None


def _first_free(rows: str) -> str:
    found = _narrowest(rows)
    return f"r{found[0]}c{found[1][0]}" if found else "r0c0"


def _least_attacking(rows: str) -> str:
    found = _narrowest(rows)
    if found is None:
        return "r0c0"
    row, columns = found

    def left(column: int) -> int:
        after = f"{rows[:row]}{column}{rows[row + 1 :]}"
        others = [other for other, queen in enumerate(after) if queen == NONE]
        return sum(len(free_columns(after, other)) for other in others)

    return f"r{row}c{max(columns, key=left)}"


def _row_cells(column: str, size: int) -> str:
    return " ".join("Q" if column == str(number) else "." for number in range(size))


@lru_cache(maxsize=16384)
def _lines(rows: str) -> tuple[str, ...]:
    size = len(rows)
    head = " ".join(["queens", *(f"c{column}" for column in range(size))])
    return (head, *(f"r{row} {_row_cells(column, size)}" for row, column in enumerate(rows)))


@lru_cache(maxsize=16384)
def _description(rows: str) -> str:
    empty = [row for row, column in enumerate(rows) if column == NONE]
    if not empty:
        return "full"
    found = [(len(free), row, free) for row in empty for free in [free_columns(rows, row)]]
    _, row, free = min(found)
    cells = [f"r{row}c{column}" for column in free]
    return " ".join([f"r{row}", "free", *(cells or ["none"])])
