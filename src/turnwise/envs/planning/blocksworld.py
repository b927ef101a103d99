"""The `blocksworld` env: move blocks, one at a time, until the towers are those of the goal.

Task: `blocks` blocks in random towers on a table with room for `places` towers, and the towers of
    the goal; the shortest solution has at least `least_moves` moves. The episode, the seats and the
    rewards are those of `base.py`.
What each role sees: the number of places, the towers and those of the goal, from the table upwards.
Moves: `b2 on b5` and `b2 on table`. The blocks must be clear, and the table must have a free place.
Functions: `legal`; `apply MOVES`; `clear`, the blocks on which nothing stands; `under BLOCK`, what
    it stands on; `over BLOCK`, what stands on it; `placed BLOCK`, whether it and all below it stand
    as at the goal; `misplaced`, the number of blocks that do not.
Estimated costs: of the team the number of misplaced blocks; of a role the least number of moves
    that a count of blocks that must move twice gives (`blocksworld_solver.fewest_moves`).
Baselines: random; always-b1-on-table; first-legal; stacker, which puts a block where it belongs at
    the goal, for good, if it can, else a clear misplaced block onto the table, else onto another
    block, but not the block that moved last; stacker-last, which takes the last of equal moves;
    count-down, which makes the move after which the role's cost is least, not of the block that
    moved last; optimal, a shortest solution. With as many places as blocks a stacker is hardly ever
    a move too long.
Splits: tasks that are equal up to the names of blocks are in one split.

Example:
    >>> from turnwise.types import Task
    >>> env = Blocksworld(BlocksworldConfig(blocks=3))
    >>> data = {"on": "010", "goal": "001"}
    >>> state = env.reset(Task(id="t", env="blocksworld", seed=0, data=data))
    >>> rng = np.random.default_rng(0)
    >>> told = env.step(state, "tool", "placed b3", rng).state
    >>> print(env.observe(told, "planner").text)
    places 3
     now b1 b2
     now b3
     goal b1 b3
     goal b2
     call placed b3
     b3 no
     your move
    >>> env.observe(told, "planner").description
    'clear b2 b3 placed b1'
    >>> step = env.step(told, "planner", "b2 on table b3 on b1", rng)
    >>> step.rewards["solved"], step.rewards["progress"]
    (1.0, 1.0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from turnwise.envs.planning import blocksworld_rules as rules
from turnwise.envs.planning.base import PlanningEnv
from turnwise.envs.planning.blocksworld_rules import TABLE, Position, below, is_clear, misplaced
from turnwise.envs.planning.blocksworld_solver import (
    canonical_towers,
    draw_towers,
    fewest_moves,
    shortest_plan,
)
from turnwise.envs.planning.puzzle import Puzzle, Reflex
from turnwise.envs.planning.state import PlanningConfig
from turnwise.errors import ConfigError, DataError
from turnwise.settings import Settings

DRAWS = 2000
"""The most pairs of arrangements drawn for one that is far enough apart."""


class BlocksworldConfig(PlanningConfig):
    """Options of the `blocksworld` env."""

    can_be_lost: ClassVar[bool] = False

    blocks: int = Field(default=6, ge=3, le=8)
    """The number of blocks."""
    places: int = Field(default=3, ge=3, le=8)
    """The most towers. With fewer than 3 some goals could not be reached."""
    least_moves: int = Field(default=2, ge=1)
    """The least number of moves of a shortest solution."""
    rounds: int = Field(default=6, ge=1, le=200)
    """The most rounds of an episode, each a turn of the tool and a turn of the planner."""
    round_limit: float | None = Field(default=1.0, ge=1, le=100)
    """The rounds of an episode as a multiple of those that the solver needs, rounded up, and at
    most `rounds`; None gives every episode `rounds`."""
    moves_per_turn: int = Field(default=2, ge=1, le=64)
    """The most moves in an answer of the planner."""


class BlocksworldPuzzle(Puzzle[Position]):
    """Towers of blocks, now and at the goal."""

    rules = rules
    constants = ("b1 on table",)

    def __init__(self, config: BlocksworldConfig) -> None:
        self.config = config

    def generate(
        self, rng: np.random.Generator, most_moves: int, hard: bool = False
    ) -> dict[str, Any]:
        """Draw two arrangements that are far enough apart, and near enough.

        Raises:
            ConfigError: if the options hardly ever give such a pair.
        """
        count, places, least = self.config.blocks, self.config.places, self.config.least_moves
        for _ in range(DRAWS):
            on, goal = draw_towers(count, places, rng), draw_towers(count, places, rng)
            if not 0 < fewest_moves(on, goal) <= most_moves:
                continue
            plan = shortest_plan(on, goal, places)
            if plan is not None and least <= len(plan) <= most_moves:
                return {"on": on, "goal": goal}
        raise ConfigError(
            f"no task of {count} blocks in {DRAWS} draws has a solution of {least} to {most_moves} "
            "moves: lower least_moves, allow more moves, or change blocks"
        )

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return a text that is equal for tasks that are equal up to the names of blocks."""
        first = self.first(data)
        return canonical_towers(first.on, first.goal)

    def first(self, data: Mapping[str, Any]) -> Position:
        """Return the first position of a task.

        Raises:
            DataError: if the data are not two different arrangements.
        """
        on, goal = str(data.get("on", "")), str(data.get("goal", ""))
        for text in (on, goal):
            if not _is_arrangement(text, self.config.blocks, self.config.places):
                raise DataError(
                    f"{text!r:.40} is no arrangement of {self.config.blocks} blocks in at most "
                    f"{self.config.places} towers: give for each block the number of the block "
                    f"below it, or {TABLE!r} for the table"
                )
        if on == goal:
            raise DataError(f"the blocks {on!r} stand as at the goal: give another goal")
        return Position(on, goal, self.config.places)

    def solve(self, position: Position) -> Sequence[str] | None:
        """Return a shortest solution; None if the search is too long."""
        return shortest_plan(*position)

    def reflexes(self) -> Mapping[str, Reflex[Position]]:
        """Return the two players of the module docstring."""
        return {
            "stacker": lambda position, last: _stack(position, last, 0),
            "stacker-last": lambda position, last: _stack(position, last, -1),
            "count-down": _count_down,
        }

    def team_cost(self, position: Position) -> float:
        """Return the number of misplaced blocks."""
        return float(len(misplaced(position.on, position.goal)))

    def role_cost(self, position: Position) -> float:
        """Return a lower bound of the number of moves to the goal."""
        return float(fewest_moves(position.on, position.goal))

    def lines(self, position: Position) -> Sequence[str]:
        """Return the towers, and the towers of the goal."""
        now, then = _towers(position.on), _towers(position.goal)
        towers = (*(f"now {tower}" for tower in now), *(f"goal {tower}" for tower in then))
        return (f"places {position.places}", *towers)

    def description(self, position: Position, results: Sequence[str] = ()) -> str:
        """Return which blocks are clear, and which stand as at the goal."""
        return _description(position.on, position.goal)

    def render(self, position: Position) -> str:
        """Return the towers, and those of the goal, each from the table upwards."""
        shown = (("now", _towers(position.on)), ("goal", _towers(position.goal)))
        return "\n".join(f"{name:5}{' | '.join(towers)}" for name, towers in shown)

    def query_words(self, name: str, position: Position, rng: np.random.Generator) -> str:
        """Return a random block, if the query asks of one."""
        if name in ("clear", "misplaced"):
            return ""
        return f"b{rng.integers(len(position.on)) + 1}"

    def vocabulary(self) -> tuple[str, ...]:
        """Return the names of blocks, and all other words."""
        names = [f"b{block}" for block in range(1, self.config.blocks + 1)]
        words = "places now goal on table clear placed misplaced yes no none"
        return (*words.split(), *names)


class Blocksworld(PlanningEnv[Position]):
    """The env described in the docstring of this module."""

    name: ClassVar[str] = "blocksworld"
    config_class: ClassVar[type[Settings]] = BlocksworldConfig

    def __init__(self, config: BlocksworldConfig | None = None) -> None:
        config = config or BlocksworldConfig()
        super().__init__(config, BlocksworldPuzzle(config))


def _is_arrangement(on: str, count: int, places: int) -> bool:
    """Whether `on` says of `count` blocks what each stands on, without a circle."""
    supports = [block for block in on if block != TABLE]
    known = set("0123456789"[: count + 1])
    if len(on) != count or not set(on) <= known or len(set(supports)) < len(supports):
        return False
    if on.count(TABLE) > places:
        return False
    resting, grown = {TABLE}, True
    while grown:
        more = {str(place + 1) for place, support in enumerate(on) if support in resting}
        grown, resting = not more <= resting, resting | more
    return len(resting) == count + 1


def _stack(position: Position, last: str, which: int) -> str:
    """Return the move of a stacker: the first or the last of equal ones."""
    on, goal, places = position
    wrong = misplaced(on, goal)
    clear = [block for block in wrong if is_clear(on, block)]
    free = on.count(TABLE) < places
    home = [b for b in clear if _is_ready(on, goal[int(b) - 1], wrong, free)]
    if home:
        block = home[which]
        return _move(block, goal[int(block) - 1])
    if free and (off := [b for b in clear if on[int(b) - 1] != TABLE]):
        return _move(off[which], TABLE)
    names = [str(number) for number in range(1, len(on) + 1)]
    onto = [
        move
        for block in clear
        for to in names
        if to != block and is_clear(on, to) and not last.startswith(f"b{block} ")
        if (move := _move(block, to))
    ]
    return onto[which] if onto else "b1 on table"


def _move(block: str, to: str) -> str:
    return f"b{block} on {'table' if to == TABLE else f'b{to}'}"


def _is_ready(on: str, to: str, wrong: tuple[str, ...], free: bool) -> bool:
    """Whether a block may be put on `to`, for good."""
    return free if to == TABLE else to not in wrong and is_clear(on, to)


def _count_down(position: Position, last: str) -> str:
    """Return the move after which the lower bound is least, not of the block that moved last."""
    found = [
        (fewest_moves(after.on, after.goal), number, move)
        for number, move in enumerate(rules.moves(position))
        if not last or not move.startswith(f"{last.split()[0]} ")
        if (after := rules.apply(position, move)) is not None
    ]
    return min(found)[2] if found else "b1 on table"


@lru_cache(maxsize=16384)
def _towers(on: str) -> tuple[str, ...]:
    """Return each tower from the table upwards."""
    found = []
    for place, support in enumerate(on):
        if support == TABLE:
            tower = [place + 1]
            while (above := on.find(str(tower[-1]))) >= 0:
                tower.append(above + 1)
            found.append(" ".join(f"b{block}" for block in tower))
    return tuple(found)


@lru_cache(maxsize=16384)
def _description(on: str, goal: str) -> str:
    numbers = range(1, len(on) + 1)
    clear = [f"b{block}" for block in numbers if is_clear(on, str(block))]
    placed = [f"b{block}" for block in numbers if below(on, block - 1) == below(goal, block - 1)]
    return " ".join(["clear", *clear, "placed", *(placed or ["none"])])
