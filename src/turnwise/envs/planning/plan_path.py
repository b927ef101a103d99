"""The `plan-path` env: walk from a start to a goal around walls.

Task: a square board of `size` rows with walls, a start and a goal. The episode, the seats and the
    rewards are those of `base.py`.
What each role sees: the cells that are walls (or all others, with `listed = "floor"`), the
    player's cell and the goal, as in `r2c3`, or a map with `#` for a wall or a cell beyond the
    edge, `Y` for the player and `G` for the goal.
Moves: UP, DOWN, LEFT, RIGHT. A step into a wall or off the board is forbidden.
Functions: `legal`; `apply MOVES` says where they lead and how far the goal then is without walls;
    `distance CELL` is the number of steps to a cell without walls.
Estimated costs: of the team and of a role the length of the shortest path to the goal.
Baselines: random; always-up, -down, -left, -right; greedy-walker and greedy-walker-columns, which
    take the step that ends nearest to the goal without walls, and turn back only in dead ends (of
    equal steps one takes that along the column, the other that along the row); optimal, a shortest
    path.

Example:
    >>> from turnwise.types import Task
    >>> env = PlanPath(PlanPathConfig(size=3))
    >>> data = {"rows": ["...", ".#.", "..."], "start": [0, 0], "goal": [1, 2]}
    >>> state = env.reset(Task(id="t", env="plan-path", seed=0, data=data))
    >>> rng = np.random.default_rng(0)
    >>> told = env.step(state, "tool", "apply RIGHT DOWN", rng).state
    >>> print(env.observe(told, "planner").text)
    size 3
     walls r1c1
     you r0c0
     goal r1c2
     call apply RIGHT DOWN
     ran 1 r0c1 distance 2
     your move
    >>> env.observe(told, "planner").description
    'UP edge DOWN r1c0 free LEFT edge RIGHT r0c1 free goal DOWN RIGHT'
    >>> step = env.step(told, "planner", "RIGHT RIGHT DOWN", rng)
    >>> step.rewards["solved"], step.rewards["progress"]
    (1.0, 1.0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from turnwise.envs.planning import plan_path_rules as rules
from turnwise.envs.planning.base import PlanningEnv
from turnwise.envs.planning.plan_path_rules import MOVES, WALL, Position
from turnwise.envs.planning.puzzle import Puzzle, Reflex
from turnwise.envs.planning.squares import LISTING, SquaresConfig, map_around, symmetries
from turnwise.errors import ConfigError, DataError
from turnwise.settings import Settings

DRAWS = 1000
"""The most boards drawn for one with a path that is long enough."""
WORDS = ("size", *LISTING, "you", "goal", "edge", "wall", "free", "here", "distance")
PLAYER, GOAL = "Y", "G"
SIGNS = (WALL, ".", PLAYER, GOAL)
BACK = {"UP": "DOWN", "DOWN": "UP", "LEFT": "RIGHT", "RIGHT": "LEFT"}


class PlanPathConfig(SquaresConfig):
    """Options of the `plan-path` env."""

    can_be_lost: ClassVar[bool] = False

    size: int = Field(default=10, ge=3, le=20)
    """The number of rows and of columns."""
    walls: float = Field(default=0.22, ge=0, le=0.6)
    """The probability that a cell is a wall."""
    least_path: int = Field(default=2, ge=1)
    """The least length of the shortest path from the start to the goal."""
    least_detour: int = Field(default=0, ge=0)
    """The least number of steps by which the shortest path is longer than one without walls."""


class PlanPathPuzzle(Puzzle[Position]):
    """Boards with walls, a start and a goal."""

    rules = rules
    constants = MOVES

    def __init__(self, config: PlanPathConfig) -> None:
        self.config = config

    def generate(
        self, rng: np.random.Generator, most_moves: int, hard: bool = False
    ) -> dict[str, Any]:
        """Draw a board, its goal, and a start from which the goal is near enough.

        Raises:
            ConfigError: if the options hardly ever give such a board.
        """
        size, least, detour = self.config.size, self.config.least_path, self.config.least_detour
        for _ in range(DRAWS):
            cells = rng.random(size * size) < self.config.walls
            board = "".join(WALL if wall else "." for wall in cells.tolist())
            goal = int(rng.integers(len(board)))
            if board[goal] == WALL:
                continue
            lengths = path_lengths(board, size, goal)
            starts = [cell for cell, length in enumerate(lengths) if least <= length <= most_moves]
            if detour:
                straight = walk_lengths(size, goal)
                starts = [cell for cell in starts if lengths[cell] - straight[cell] >= detour]
            if starts:
                start = starts[rng.integers(len(starts))]
                return {
                    "rows": [board[i : i + size] for i in range(0, len(board), size)],
                    "start": list(divmod(start, size)),
                    "goal": list(divmod(goal, size)),
                }
        raise ConfigError(
            f"no {size}x{size} board in {DRAWS} draws has a path of {least} to {most_moves} steps, "
            f"{detour} more than without walls: change walls, lower least_path or least_detour, or "
            "allow more moves"
        )

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the least text of the board, start and goal over the 8 symmetries."""
        first = self.first(data)
        marks = {first.at: "s", first.goal: "g"}
        cells = [marks.get(cell, letter) for cell, letter in enumerate(first.board)]
        return min("".join(cells[i] for i in order) for order in symmetries(first.columns))

    def first(self, data: Mapping[str, Any]) -> Position:
        """Return the first position of a task.

        Raises:
            DataError: if there is no board, or no path from the start to the goal.
        """
        rows, start, goal = (data.get(name, ()) for name in ("rows", "start", "goal"))
        cells = all(
            isinstance(cell, list | tuple) and [type(part) for part in cell] == [int, int]
            for cell in (start, goal)
        )
        if not isinstance(rows, list | tuple) or not cells:
            raise DataError(
                f"a task of plan-path has rows, start and goal, got {dict(data)!r:.80}: give a "
                "list of texts and two cells, as in start = [0, 0]"
            )
        rows = [str(row) for row in rows]
        row, column, to_row, to_column = (*start, *goal)
        size, board = len(rows), "".join(rows)
        square = all(len(each) == size for each in rows) and set(board) <= {".", WALL}
        inside = all(0 <= number < size for number in (row, column, to_row, to_column))
        if not square or not inside:
            raise DataError(f"rows {rows!r:.60}: give a square of `.` and `#`, and cells inside it")
        position = Position(board, size, row * size + column, to_row * size + to_column)
        length = path_lengths(board, size, position.goal)[position.at]
        if board[position.goal] == WALL or not 0 < length < inf:
            raise DataError("no path leads from the start to another cell, the goal: give one")
        return position

    def solve(self, position: Position) -> list[str] | None:
        """Return a shortest path."""
        found: list[str] = []
        lengths = path_lengths(position.board, position.columns, position.goal)
        while lengths[position.at]:
            for move in MOVES:
                after = rules.apply(position, move)
                if after is not None and lengths[after.at] < lengths[position.at]:
                    found.append(move)
                    position = after
                    break
            else:
                return None
        return found

    def reflexes(self) -> Mapping[str, Reflex[Position]]:
        """Return the two greedy walkers of the module docstring."""
        return {
            "greedy-walker": lambda position, last: greedy_step(position, last, MOVES),
            "greedy-walker-columns": lambda position, last: greedy_step(
                position, last, (*MOVES[2:], *MOVES[:2])
            ),
        }

    def team_cost(self, position: Position) -> float:
        """Return the length of the shortest path to the goal."""
        return path_lengths(position.board, position.columns, position.goal)[position.at]

    def lines(self, position: Position) -> Sequence[str]:
        """Return the size, the walls or the floor, the player's cell and the goal, or a map."""
        if self.config.drawn:
            columns = position.columns
            drawn = map_around(_signs(position), columns, position.at, columns - 1)
            return (f"size {columns}", f"you {rules.name(position, position.at)}", *drawn)
        names = self.config.names(position.columns, position.at)
        walls = (cell for cell, sign in enumerate(position.board) if sign == WALL)
        return (
            f"size {position.columns}",
            self.config.listing(names, position.board, walls),
            f"you {rules.name(position, position.at)}",
            f"goal {names[position.goal]}",
        )

    def description(self, position: Position, results: Sequence[str] = ()) -> str:
        """Return what is beside the player, and in which directions the goal lies."""
        said, near = [], rules.beside(len(position.board), position.columns)[position.at]
        for move in MOVES:
            cell = near.get(move)
            if cell is None:
                said.append(f"{move} edge")
            else:
                free = "wall" if position.board[cell] == WALL else "free"
                named = "" if self.config.relative else f" {rules.name(position, cell)}"
                said.append(f"{move}{named} {free}")
        return " ".join([*said, "goal", *_directions(position)])

    def render(self, position: Position) -> str:
        """Return the board with `Y` for the player and `G` for the goal."""
        cells, size = _signs(position), position.columns
        return "\n".join("".join(cells[i : i + size]) for i in range(0, len(cells), size))

    def query_words(self, name: str, position: Position, rng: np.random.Generator) -> str:
        """Return the name of a random cell, which `distance` asks for."""
        return rules.name(position, int(rng.integers(len(position.board))))

    def vocabulary(self) -> tuple[str, ...]:
        """Return the names of cells, and all other words."""
        return (
            *WORDS,
            *SIGNS,
            *MOVES,
            *self.config.cell_words(self.config.size),
        )


class PlanPath(PlanningEnv[Position]):
    """The env described in the docstring of this module."""

    name: ClassVar[str] = "plan-path"
    config_class: ClassVar[type[Settings]] = PlanPathConfig

    def __init__(self, config: PlanPathConfig | None = None) -> None:
        config = config or PlanPathConfig()
        super().__init__(config, PlanPathPuzzle(config))


def greedy_step(position: Position, last: str, order: Sequence[str]) -> str:
    """Return the step that ends nearest to the goal without walls, turning back in dead ends only.

    Args:
        position: where the player is.
        last: the step before, "" at first.
        order: the directions; the first of equal ones is taken.
    """
    board, back, best, found = position.board, BACK.get(last), inf, ""
    lengths = walk_lengths(position.columns, position.goal)
    near = rules.beside(len(board), position.columns)[position.at]
    for move in order:
        cell = near.get(move)
        if cell is not None and board[cell] != WALL and move != back and lengths[cell] < best:
            best, found = lengths[cell], move
    return found or back or order[0]


@lru_cache(maxsize=4096)
def path_lengths(board: str, columns: int, goal: int) -> tuple[float, ...]:
    """Return the length of the shortest path from each cell to the goal; infinite where none is."""
    lengths, near = [inf] * len(board), rules.beside(len(board), columns)
    lengths[goal] = 0
    waiting = [goal]
    for cell in waiting:  # it grows
        length = lengths[cell] + 1
        for other in near[cell].values():
            if lengths[other] == inf and board[other] != WALL:
                lengths[other] = length
                waiting.append(other)
    return tuple(lengths)


@lru_cache(maxsize=512)
def walk_lengths(size: int, goal: int) -> tuple[int, ...]:
    """Return the number of steps from each cell to the goal without walls."""
    row, column = divmod(goal, size)
    return tuple(abs(r - row) + abs(c - column) for r in range(size) for c in range(size))


def _signs(position: Position) -> list[str]:
    """Return the sign of each cell: `#` or `.`, `Y` for the player and `G` for the goal."""
    cells = list(position.board)
    cells[position.goal] = GOAL
    cells[position.at] = PLAYER
    return cells


def _directions(position: Position) -> list[str]:
    """Return the directions in which the goal lies; "here" at the goal."""
    row, column = divmod(position.at, position.columns)
    to_row, to_column = divmod(position.goal, position.columns)
    found = []
    if to_row != row:
        found.append("DOWN" if to_row > row else "UP")
    if to_column != column:
        found.append("RIGHT" if to_column > column else "LEFT")
    return found or ["here"]
