"""The `sudoku` env: fill a board so that every row, column and box has each digit once.

Task: a board of `size` rows (4, 6 or 9) with `clues` digits and one solution. The episode, the
    seats and the rewards are those of `base.py`.
What each role sees: the board, row by row, with `.` for an empty cell. With `described = true` also
    the 4 shortest lists of fills of which one is right: the candidates of a cell, or the places of
    a digit in a unit that a call has asked for. Such calls are shown without their results, and
    with `waits` those of earlier rounds to the tool alone.
Moves: `r0c1=3` fills an empty cell. A digit that its row, column or box has is forbidden. A wrong
    digit that is not forbidden stays, and the board then cannot be solved any more.
Functions: `legal`; `apply MOVES`; `candidates CELL`, the fills that it may have; `conflicts
    CELL=DIGIT`, the cells that forbid it; `places UNIT DIGIT`, the fills with a digit that a row
    (`r0`), column (`c0`) or box (`b0`) may have, or `places UNIT` with those of each digit that it
    lacks; `consistent`, whether every empty cell has a candidate.
Estimated costs: of the team the number of cells that are empty or wrong; of a role the same,
    infinite with a wrong cell.
Baselines: random; always-r0c0-1; first-legal; random-legal; random-narrow, a random candidate of
    one of the 4 shortest lists that a described position names, and with `waits` also `wait` in a
    quarter of the rounds that allow it, while its tool proposes such a candidate or asks for the
    places of a random unit; naked-single, which fills the first cell that has one candidate as long
    as there is one; guesser, which then draws one of the candidates of the first of the cells with
    the fewest; reader, whose tool asks for the places of a random unit, and which draws a fill of
    the shortest list that is known, of a cell or of a result; asker, which waits as long as it may
    before it draws one of two or more; singles, which fills a cell that is the only place of a unit
    for a digit before it guesses; optimal, the solution.
    With `hard = true` naked-single solves no task.
Splits: puzzles of 9 rows are divided by their solutions up to symmetry
    (`sudoku_symmetry.grid_class`): no test puzzle has the solution of a training puzzle. The 288
    solutions of 4 rows are 2 up to symmetry, the 28,200,960 of 6 rows are 49, too few to be
    divided. So puzzles of 4 and 6 rows are divided by the pattern of their clues up to symmetry: no
    test puzzle has the pattern of a training puzzle. Naked singles solve all puzzles of 4 rows, so
    `hard = true` needs 6 or 9.

Example:
    >>> from turnwise.types import Task
    >>> env = Sudoku(SudokuConfig(size=4, clues=14))
    >>> data = {"rows": ["12.4", "3412", "2143", "432."]}
    >>> state = env.reset(Task(id="t", env="sudoku", seed=0, data=data))
    >>> rng = np.random.default_rng(0)
    >>> told = env.step(state, "tool", "candidates r0c2", rng).state
    >>> print(env.observe(told, "planner").text)
    sudoku c0 c1 c2 c3
     r0 1 2 . 4
     r1 3 4 1 2
     r2 2 1 4 3
     r3 4 3 2 .
     call candidates r0c2
     one r0c2=3
     your move
    >>> step = env.step(told, "planner", "r0c2=3 r3c3=1", rng)
    >>> step.rewards["solved"], step.rewards["progress"]
    (1.0, 1.0)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from turnwise.envs.base import Baseline
from turnwise.envs.planning import sudoku_rules as rules
from turnwise.envs.planning.base import PlanningEnv
from turnwise.envs.planning.library import WAIT
from turnwise.envs.planning.puzzle import Puzzle, Reflex
from turnwise.envs.planning.state import PlanningConfig, PlanState
from turnwise.envs.planning.sudoku_rules import BOXES, EMPTY, Position, candidates, shape_of
from turnwise.envs.planning.sudoku_solver import (
    FEWEST_CLUES,
    count_solutions,
    draw_puzzle,
    hidden_single,
    naked_single,
    solution_of,
)
from turnwise.envs.planning.sudoku_symmetry import grid_class, pattern_class
from turnwise.errors import ConfigError, DataError
from turnwise.settings import Settings

Finder = Callable[[str], tuple[int, str] | None]
"""A cell of a board and the digit to fill it with, if there is one to be found."""
DESCRIBED = 4
"""The most lists of fills in a description."""
WAITED = 4
"""Of so many random replies one is `wait`, where that is allowed."""


class SudokuConfig(PlanningConfig):
    """Options of the `sudoku` env."""

    size: Literal[4, 6, 9] = 6
    """The number of rows: 4 with boxes of 2x2, 6 with boxes of 2x3, 9 with boxes of 3x3."""
    clues: int = Field(default=12, ge=1, le=80)
    """The number of digits at the start: from 4 of 16 cells, 10 of 36, or 28 of 81."""
    rounds: int = Field(default=8, ge=1, le=200)
    """The most rounds of an episode, each a turn of the tool and a turn of the planner."""
    stuck_share: float = Field(default=0.0, ge=0, le=1)
    """The share of tasks that begin where no cell has one candidate: a puzzle that naked singles do
    not solve, with those filled. In training such positions are else few of all positions."""

    @model_validator(mode="after")
    def _check_size(self) -> SudokuConfig:
        least, most = FEWEST_CLUES[self.size], self.size**2 - 1
        empty, moves = self.size**2 - self.clues, self.rounds * self.moves_per_turn
        if not least <= self.clues <= most:
            raise ConfigError(
                f"clues = {self.clues} with size = {self.size}: give {least} to {most}"
            )
        if empty > moves:
            raise ConfigError(
                f"{empty} cells are empty, and {self.rounds} rounds of {self.moves_per_turn} moves "
                f"fill {moves}: raise rounds, moves_per_turn or clues"
            )
        if (self.hard or self.stuck_share) and self.size == 4:
            wanted = "hard = true" if self.hard else f"stuck_share = {self.stuck_share}"
            raise ConfigError(
                f"{wanted} with size = 4: a reflex solves all puzzles of 4 rows; set size = 6"
            )
        return self


class SudokuPuzzle(Puzzle[Position]):
    """Boards with one solution."""

    rules = rules
    constants = ("r0c0=1",)

    def __init__(self, config: SudokuConfig) -> None:
        self.config = config

    def generate(
        self, rng: np.random.Generator, most_moves: int, hard: bool = False
    ) -> dict[str, Any]:
        """Draw a board with one solution.

        Raises:
            ConfigError: if the options hardly ever give one.
        """
        size, share = self.config.size, self.config.stuck_share
        stuck = share > 0 and rng.random() < share
        board = draw_puzzle(size, self.config.clues, rng, hard=hard or stuck)
        while stuck and (single := naked_single(board)) is not None:
            board = rules.filled(board, *single)
        return {"rows": [board[i : i + size] for i in range(0, len(board), size)]}

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the class of the clues' pattern; for 9 rows that of the solution."""
        clues = self.first(data).clues
        return grid_class(_solution(clues)) if len(clues) == 81 else pattern_class(clues)

    def first(self, data: Mapping[str, Any]) -> Position:
        """Return the first position of a task.

        Raises:
            DataError: if it is no board with an empty cell and one solution.
        """
        rows, size = data.get("rows", ()), self.config.size
        rows = rows if isinstance(rows, list | tuple) else [rows]
        board = "".join(map(str, rows))
        square = len(rows) == size and all(len(str(row)) == size for row in rows)
        if not square or not set(board) <= {EMPTY, *"123456789"[:size]} or EMPTY not in board:
            raise DataError(
                f"rows {list(rows)!r:.80}: give {size} rows of {size} digits from 1 to {size}, or "
                f"{EMPTY!r} for an empty cell, of which there must be one"
            )
        if _solutions_of(board) != 1:
            raise DataError(f"the board {board!r} has not exactly one solution: add or drop digits")
        return Position(board, board)

    def solve(self, position: Position) -> list[str] | None:
        """Return the fills of the empty cells in their order; None if a cell is wrong."""
        board, solution = position.board, _solution(position.clues)
        if _wrong(board, solution):
            return None
        names = shape_of(len(board)).names
        empty = (cell for cell, digit in enumerate(board) if digit == EMPTY)
        return [rules.fill(names[cell], solution[cell]) for cell in empty]

    def reflexes(self) -> Mapping[str, Reflex[Position]]:
        """Return the player of naked singles, which makes a forbidden move where there is none."""
        return {
            "naked-single": lambda position, last: _fill(position, naked_single(position.board))
        }

    def team_cost(self, position: Position) -> float:
        """Return the number of cells that are empty or wrong."""
        board, solution = position.board, _solution(position.clues)
        return float(board.count(EMPTY) + _wrong(board, solution))

    def role_cost(self, position: Position) -> float:
        """Return the number of empty cells; infinite with a wrong one."""
        board, solution = position.board, _solution(position.clues)
        return inf if _wrong(board, solution) else float(board.count(EMPTY))

    def lines(self, position: Position) -> Sequence[str]:
        """Return a line of columns, and the rows."""
        return _lines(position.board)

    def description(self, position: Position, results: Sequence[str] = ()) -> str:
        """Return the `DESCRIBED` shortest lists of fills, of cells and from `results`, counted."""
        return _description(position, tuple(results))

    def takes_in(self, result: str) -> bool:
        """Whether a result is counted lists of fills, such as places."""
        return result.split(" ")[0] in rules.COUNTS[1:]

    def render(self, position: Position) -> str:
        """Return the board with lines between boxes."""
        board, size = position.board, round(len(position.board) ** 0.5)
        tall, wide = BOXES[size]
        shown = []
        for row in range(size):
            cells = board[row * size : (row + 1) * size]
            parts = [" ".join(cells[i : i + wide]) for i in range(0, size, wide)]
            if row and not row % tall:
                shown.append("-+-".join("-" * len(part) for part in parts))
            shown.append(" | ".join(parts))
        return "\n".join(shown)

    def query_words(self, name: str, position: Position, rng: np.random.Generator) -> str:
        """Return a random cell, cell and digit, or unit with or without a digit."""
        shape = shape_of(len(position.board))
        if name == "consistent":
            return ""
        subjects = tuple(shape.lines) if name == "places" else shape.names
        subject = subjects[rng.integers(len(subjects))]
        if name == "candidates":
            return subject
        digit = shape.digits[rng.integers(shape.size)]
        if name == "places":
            return f"{subject} {digit}" if rng.integers(2) else subject
        return rules.fill(subject, digit)

    def vocabulary(self) -> tuple[str, ...]:
        """Return the names of cells and of units, the digits, all fills, and all other words."""
        shape = shape_of(self.config.size**2)
        words = ("sudoku", "narrow", "full", "empty", "consistent", "yes", "no", "has")
        counts = rules.COUNTS[: self.config.size + 1]
        fills = rules.fills(self.config.size**2)
        return (*words, *counts, EMPTY, *shape.digits, *shape.names, *shape.lines, *fills)


class Sudoku(PlanningEnv[Position]):
    """The env described in the docstring of this module."""

    name: ClassVar[str] = "sudoku"
    config_class: ClassVar[type[Settings]] = SudokuConfig

    def __init__(self, config: SudokuConfig | None = None) -> None:
        config = config or SudokuConfig()
        super().__init__(config, SudokuPuzzle(config))

    def baselines(self) -> Mapping[str, Baseline]:
        """Return the baselines of the module docstring."""
        found = dict(super().baselines())
        optimal = found.pop("optimal")
        players = {"guesser": (naked_single,), "singles": (naked_single, hidden_single)}
        guessers = {name: partial(self._guess, finders) for name, finders in players.items()}
        askers = {name: partial(self._ask, name == "asker") for name in ("reader", "asker")}
        narrow = {"random-narrow": self._random_narrow}
        return {**found, **narrow, **guessers, **askers, "optimal": optimal}

    def _random_narrow(self, state: PlanState[Position], rng: np.random.Generator) -> str:
        """Return a random fill of a random list that is shown, a question, or `wait`."""
        calls = self.calls_next(state)
        if calls and self.config.waits and rng.integers(2):
            return self._question(state, rng)
        if self.may_wait(state, *self.acting(state)) and not rng.integers(WAITED):
            return WAIT
        lists = _known(state)[:DESCRIBED]
        chosen = lists[rng.integers(len(lists))]
        move = chosen[rng.integers(len(chosen))]
        return self.calls.propose([move]) if calls else move

    def _question(self, state: PlanState[Position], rng: np.random.Generator) -> str:
        """Return a call for the places of a random unit, of those that no known call names."""
        units = tuple(shape_of(len(state.position.board)).lines)
        asked = {call for call, _ in state.shown_calls}
        new = [unit for unit in units if self.calls.ask("places", unit) not in asked] or units
        return self.calls.ask("places", new[rng.integers(len(new))])

    def _ask(self, patient: bool, state: PlanState[Position], rng: np.random.Generator) -> str:
        """Return a question, or a fill that is sure, or `wait` if `patient`, or a guess."""
        if self.calls_next(state):
            return self._question(state, rng)
        fewest = _known(state)[0]
        if len(fewest) > 1 and patient and self.may_wait(state, *self.acting(state)):
            return WAIT
        return fewest[rng.integers(len(fewest))]

    def _guess(
        self, finders: Sequence[Finder], state: PlanState[Position], rng: np.random.Generator
    ) -> str:
        """Return fills that the first finder with one gives, or guesses where none has one."""
        if self.calls_next(state):
            return self.calls.ask("consistent")
        position, moves = state.position, list[str]()
        while len(moves) < self.config.moves_per_turn:
            sure = (fill for find in finders if (fill := find(position.board)) is not None)
            moves.append(_fill(position, next(sure, None) or _guess(position.board, rng)))
            after = rules.apply(position, moves[-1])
            if after is None or rules.solved(after):
                break
            position = after
        return " ".join(moves)


def _known(state: PlanState[Position]) -> list[list[str]]:
    """Return the lists of possible fills of cells and of results, the shortest first.

    Where no fill is possible, there is one list with a forbidden one.
    """
    results = [result for _, result in state.shown_calls]
    lists = [fills for _, fills in _lists(state.position, results) if fills]
    return lists or [[_fill(state.position, None)]]


def _lists(position: Position, results: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return lists of which one fill is right, each with the cell whose candidates they are.

    The lists of results have "" for the cell. Those with the fewest fills come first.
    """
    board, names = position.board, shape_of(len(position.board)).names
    of_cells = [(names[c], [rules.fill(names[c], d) for d in digits]) for c, digits in _free(board)]
    of_units = [("", fills) for result in results for fills in _lists_of(position, result)]
    known = dict[tuple[str, ...], tuple[str, list[str]]]()
    for cell, fills in (*of_cells, *of_units):
        known.setdefault(tuple(fills) or (cell,), (cell, fills))
    return sorted(known.values(), key=lambda each: len(each[1]))


def _lists_of(position: Position, result: str) -> list[list[str]]:
    """Return the fills of each counted list in a result, of the lists that have any."""
    lists = list[list[str]]()
    for word in result.split():
        if word in rules.COUNTS:
            lists.append([])
        elif lists and rules.apply(position, word) is not None:
            lists[-1].append(word)
    return [fills for fills in lists if fills]


def _solution(clues: str) -> str:
    solution = solution_of(clues)
    assert solution is not None, "a task's board has one solution: `first` checks it"
    return solution


@lru_cache(maxsize=4096)
def _solutions_of(board: str) -> int:
    return count_solutions(board)


def _wrong(board: str, solution: str) -> int:
    """Return the number of filled cells that differ from the solution."""
    return sum(digit not in (EMPTY, right) for digit, right in zip(board, solution, strict=True))


def _fill(position: Position, found: tuple[int, str] | None) -> str:
    """Return the move that fills a cell; a forbidden move if there is none to fill."""
    board, names = position.board, shape_of(len(position.board)).names
    if found is None:
        cell = next((c for c, digit in enumerate(board) if digit != EMPTY), 0)
        return rules.fill(names[cell], board[cell])
    return rules.fill(names[found[0]], found[1])


def _guess(board: str, rng: np.random.Generator) -> tuple[int, str] | None:
    """Draw a candidate of the first cell with the fewest; None if no cell has any."""
    found = [(len(digits), cell, digits) for cell, digits in _free(board) if digits]
    if not found:
        return None
    _, cell, digits = min(found)
    return cell, digits[rng.integers(len(digits))]


def _free(board: str) -> list[tuple[int, str]]:
    """Return the empty cells with their candidates."""
    return [(c, candidates(board, c)) for c, digit in enumerate(board) if digit == EMPTY]


@lru_cache(maxsize=16384)
def _lines(board: str) -> tuple[str, ...]:
    size = round(len(board) ** 0.5)
    head = " ".join(["sudoku", *(f"c{column}" for column in range(size))])
    rows = [board[row * size : (row + 1) * size] for row in range(size)]
    return (head, *(" ".join([f"r{number}", *row]) for number, row in enumerate(rows)))


@lru_cache(maxsize=16384)
def _description(position: Position, results: tuple[str, ...]) -> str:
    lists = _lists(position, results)[:DESCRIBED]
    said = (rules.counted(fills, cell) for cell, fills in lists)
    return " ".join(("narrow", *said)) if lists else "full"
