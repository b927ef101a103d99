"""The `sokoban` env: push every box onto a goal.

Task: a square board with an outer wall, walls, boxes and goals, made by pulling boxes from their
    goals. The episode, the seats and the rewards are those of `base.py`.
What each role sees: the cells of inner walls (or of all without a wall, with `listed = "floor"`),
    boxes, goals and the player, as in `r2c3`, or a map with the signs of `sokoban_levels.SIGNS`,
    where `_` is a free cell.
Moves: UP, DOWN, LEFT, RIGHT; a step into a box pushes it. A step into a wall is forbidden, and a
    push into a wall or another box.
Functions: `legal`; `apply MOVES` says where they lead; `distance CELL` is the number of steps to a
    cell without walls; `deadlock MOVES` says whether the position after them is known to be
    unsolvable.
Estimated costs: of the team the boxes off the goals; of a role the fewest pushes that bring each
    box, if it were alone, to a goal of its own, infinite in a known deadlock. With `cost = "moves"`
    both are infinite where there is no solution or the search for one is too long
    (`sokoban_solver.MOST_NODES`), which can be on boards of more than 6 rows alone.
Baselines: random; always-up, -down, -left, -right; greedy-pusher, which walks to the nearest of the
    pushes after which the role's cost is least; optimal, a solution of the fewest moves.

Example:
    >>> from turnwise.types import Task
    >>> env = Sokoban(SokobanConfig(size=5, boxes=1))
    >>> rows = ["#####", "#@$.#", "#   #", "#   #", "#####"]
    >>> state = env.reset(Task(id="t", env="sokoban", seed=0, data={"rows": rows}))
    >>> rng = np.random.default_rng(0)
    >>> told = env.step(state, "tool", "deadlock RIGHT", rng).state
    >>> print(env.observe(told, "planner").text)
    size 5
     walls none
     boxes r1c2
     goals r1c3
     you r1c1
     call deadlock RIGHT
     alive
     your move
    >>> env.observe(told, "planner").description
    'UP r0c1 wall DOWN r2c1 free LEFT r1c0 wall RIGHT r1c2 box r1c2 you RIGHT goal RIGHT'
    >>> step = env.step(told, "planner", "RIGHT", rng)
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

from turnwise.envs.planning import sokoban_rules as rules
from turnwise.envs.planning.base import PlanningEnv
from turnwise.envs.planning.puzzle import Puzzle, Reflex
from turnwise.envs.planning.sokoban_levels import (
    SIGNS,
    canonical_level,
    draw_level,
    level_of,
    rows_of,
)
from turnwise.envs.planning.sokoban_rules import MOVES, WALL, Position
from turnwise.envs.planning.sokoban_solver import MOST_NODES, greedy_move, solve
from turnwise.envs.planning.squares import LISTING, SquaresConfig, map_around
from turnwise.errors import ConfigError, DataError
from turnwise.settings import Settings

DRAWS = 1000
"""The most levels drawn for one that is solved within the moves."""
WORDS = ("size", *LISTING, "boxes", "goals", "you", "box", "goal", "wall", "free", "here")
FLOOR = "_"
"""A free cell without goal on a map, where a space divides cells."""
RESULTS = ("distance", "on", "dead", "alive")


class SokobanConfig(SquaresConfig):
    """Options of the `sokoban` env."""

    size: int = Field(default=6, ge=5, le=10)
    """The number of rows and of columns, the outer wall included."""
    boxes: int = Field(default=2, ge=1, le=3)
    """The number of boxes."""
    walls: float = Field(default=0.1, ge=0, le=0.5)
    """The probability that an inner cell is a wall."""
    pulls: int = Field(default=12, ge=1, le=200)
    """The number of pulls that make a level."""
    least_pushes: int = Field(default=2, ge=1)
    """The least number of pushes that bring each box, if it were alone, to a goal of its own."""


class SokobanPuzzle(Puzzle[Position]):
    """Levels of boxes and goals."""

    rules = rules
    constants = MOVES

    def __init__(self, config: SokobanConfig) -> None:
        self.config = config

    def generate(
        self, rng: np.random.Generator, most_moves: int, hard: bool = False
    ) -> dict[str, Any]:
        """Draw a level by playing backwards.

        Levels whose shortest solution takes more than half of the solver's work are drawn again.
        Those that the greedy pusher solves are left to the env, which knows how many moves it has.

        Raises:
            ConfigError: if the options hardly ever give a level that few enough moves solve.
        """
        config = self.config
        for _ in range(DRAWS):
            found = draw_level(rng, config.size, config.boxes, config.walls, config.pulls)
            if found is None or not config.least_pushes <= pushes_of(found) < inf:
                continue
            moves = solve(found, MOST_NODES // 2)
            if moves is not None and len(moves) <= most_moves:
                return {"rows": rows_of(found)}
        raise ConfigError(
            f"no level of {DRAWS} draws with {config.boxes} boxes on a board of size {config.size} "
            f"takes {config.least_pushes} pushes and at most {most_moves} moves: lower walls or "
            "least_pushes, or allow more pulls or moves"
        )

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the least text of the level over the 8 symmetries."""
        return canonical_level(self.first(data))

    def first(self, data: Mapping[str, Any]) -> Position:
        """Return the first position of a task.

        Raises:
            DataError: if there is no level, or it is solved or known to be unsolvable.
        """
        rows = data.get("rows")
        if not isinstance(rows, list | tuple):
            raise DataError("a task has rows, the level as text: give them")
        found = level_of([str(row) for row in rows])
        if rules.solved(found) or rules.deadlock(found):
            raise DataError(f"the level {list(rows)!r:.60} is solved, or dead: give another")
        return found

    def solve(self, position: Position) -> Sequence[str] | None:
        """Return a shortest solution; None in a deadlock, or where the search is too long."""
        return solve(position)

    def reflexes(self) -> Mapping[str, Reflex[Position]]:
        """Return the greedy pusher of the module docstring."""
        return {"greedy-pusher": lambda position, last: greedy_move(position)}

    def team_cost(self, position: Position) -> float:
        """Return the number of boxes off the goals."""
        return float(sum(box not in position.goals for box in position.boxes))

    def role_cost(self, position: Position) -> float:
        """Return the pushes left if each box were alone; infinite in a known deadlock."""
        return pushes_of(position)

    def lines(self, position: Position) -> Sequence[str]:
        """Return the size, the walls or the floor, boxes, goals and the player, or a map of them.

        The map reaches all cells inside the outer wall from each of them.
        """
        columns = position.columns
        if self.config.drawn:
            signs = "".join(rows_of(position)).replace(" ", FLOOR)
            drawn = map_around(signs, columns, position.at, columns - 3)
            return (f"size {columns}", f"you {rules.name(position, position.at)}", *drawn)
        names = self.config.names(columns, position.at)
        return (
            f"size {columns}",
            self.config.listing(names, position.board, _inner_walls(position.board, columns)),
            " ".join(["boxes", *(names[box] for box in position.boxes)]),
            " ".join(["goals", *(names[goal] for goal in position.goals)]),
            f"you {rules.name(position, position.at)}",
        )

    def description(self, position: Position, results: Sequence[str] = ()) -> str:
        """Return what is beside the player, and the ways to each box and to its nearest goal."""
        said, names = list[str](), self.config.names(position.columns, position.at)
        for move, step in rules.offsets(position.columns).items():
            cell = position.at + step
            wall = position.board[cell] == WALL
            what = "wall" if wall else "box" if cell in position.boxes else "free"
            named = "" if self.config.relative else f" {names[cell]}"
            said.append(f"{move}{named} {what}")
        for box in position.boxes:
            goal = min(
                position.goals, key=lambda each: rules.walk_length(position.columns, box, each)
            )
            to_box, to_goal = (
                _directions(position.columns, position.at, box),
                _directions(position.columns, box, goal),
            )
            said.append(f"{names[box]} you {to_box} goal {to_goal}")
        return " ".join(said)

    def render(self, position: Position) -> str:
        """Return the level as text."""
        return "\n".join(rows_of(position))

    def query_words(self, name: str, position: Position, rng: np.random.Generator) -> str:
        """Return a random cell for `distance`, and up to 4 random moves for `deadlock`."""
        if name == "distance":
            return rules.name(position, int(rng.integers(len(position.board))))
        return " ".join(MOVES[i] for i in rng.integers(len(MOVES), size=rng.integers(5)).tolist())

    def vocabulary(self) -> tuple[str, ...]:
        """Return the names of cells, and all other words."""
        return (*WORDS, *RESULTS, *MOVES, *SIGNS, FLOOR, *self.config.cell_words(self.config.size))


class Sokoban(PlanningEnv[Position]):
    """The env described in the docstring of this module."""

    name: ClassVar[str] = "sokoban"
    config_class: ClassVar[type[Settings]] = SokobanConfig

    def __init__(self, config: SokobanConfig | None = None) -> None:
        config = config or SokobanConfig()
        super().__init__(config, SokobanPuzzle(config))


def pushes_of(position: Position) -> float:
    """Return the fewest pushes that bring each box, if it were alone, to a goal of its own.

    They are infinite in a known deadlock.
    """
    if rules.deadlock(position):
        return inf
    return rules.pushes_left(position.board, position.columns, position.boxes, position.goals)


@lru_cache(maxsize=4096)
def _inner_walls(board: str, columns: int) -> tuple[int, ...]:
    """Return the cells of the walls inside the outer wall."""
    inner = range(1, columns - 1)
    return tuple(
        cell
        for cell, sign in enumerate(board)
        if sign == WALL and cell // columns in inner and cell % columns in inner
    )


def _directions(columns: int, cell: int, target: int) -> str:
    """Return the directions from one cell to another; "here" if they are the same."""
    row, column = divmod(cell, columns)
    to_row, to_column = divmod(target, columns)
    found = []
    if to_row != row:
        found.append("DOWN" if to_row > row else "UP")
    if to_column != column:
        found.append("RIGHT" if to_column > column else "LEFT")
    return " ".join(found or ["here"])
