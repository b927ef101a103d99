"""The env of games in which two players place stones on a board in turn.

Provides `BoardGame`, which `tic_tac_toe` and `connect_four` complete by their rules, and its
options and states. Seats, observations, rewards and scores are the same in all of them.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from turnwise.envs.base import Baseline, Env, Level, Observation, RewardTiming, Step
from turnwise.envs.board_games.minimax import Minimax
from turnwise.envs.board_games.rules import Rules
from turnwise.envs.whose_turn import check_turn
from turnwise.errors import ConfigError, DataError, EnvError, IllegalActionError
from turnwise.settings import Settings
from turnwise.types import Task

FIRST, SECOND = SEATS = ("first", "second")
OWN, OTHER, FREE = "x", "o", "."
ATTEMPTS = 100
"""Draws of an opening, of which one must not end the game."""


class BoardGameConfig(Settings):
    """Options of a board game."""

    opening: int = Field(default=0, ge=0)
    """The most plies that are played at random before an episode begins. Their number is drawn
    uniformly from 0 to this, and none of them ends the game."""
    roles: Literal["one", "two"] = "one"
    """The roles: with `one` both seats have the role `player`; with `two` each seat is a role of
    its own name, `first` or `second`."""


@dataclass(frozen=True, slots=True)
class Board:
    """The stones of both players as bit masks (`rules`), the plies, and the winner's number."""

    stones: tuple[int, int] = (0, 0)
    plies: int = 0
    winner: int | None = None
    full: bool = False

    @property
    def ended(self) -> bool:
        """Whether the game is over."""
        return self.full or self.winner is not None

    @property
    def turn(self) -> int:
        """The number of the player who moves next: 0 or 1."""
        return self.plies % 2


class BoardGame(Env[Board], ABC):
    """Two players, `first` and `second`, place stones in turn until one has a line."""

    config_class: ClassVar[type[Settings]] = BoardGameConfig
    components: ClassVar[Mapping[str, Level]] = {"win": "agent", "loss": "agent"}
    reward_timing: RewardTiming = "terminal"
    rules: ClassVar[Rules]
    depths: ClassVar[Mapping[str, int]]
    """The minimax players among the baselines, by name, with their depths."""

    def __init__(self, config: BoardGameConfig | None = None) -> None:
        super().__init__(config or BoardGameConfig())
        most = self.rules.cells - 2
        if self.config.opening > most:
            raise ConfigError(
                f"opening = {self.config.opening} leaves no game on the {self.rules.cells} cells "
                f"of {self.name}: give at most {most}"
            )
        if self.config.roles == "two":
            self.roles = SEATS
        self.max_turns = self.rules.cells
        self._names = tuple(str(number) for number in range(1, self.rules.actions + 1))
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._rows = [
            [self.rules.bit(row, column) for column in range(self.rules.columns)]
            for row in range(self.rules.rows)
        ]

    @property
    def seats(self) -> Mapping[str, str]:
        """The seats `first` and `second` and their roles."""
        two = self.config.roles == "two"
        return {seat: seat if two else self.roles[0] for seat in SEATS}

    def acting(self, state: Board) -> tuple[str, ...]:
        """Return the seat that moves next."""
        return (SEATS[state.turn],)

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw the random plies that the game begins with."""
        count = int(rng.integers(self.config.opening + 1))
        for _ in range(ATTEMPTS):
            state, moves = Board(), list[str]()
            for _ in range(count):
                legal = self.rules.legal(*state.stones)
                if state.ended or not legal:
                    break
                moves.append(self._names[legal[rng.integers(len(legal))]])
                state = self._moved(state, moves[-1])
            if len(moves) == count and not state.ended:
                return {"moves": moves}
        return {"moves": []}

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the position after the opening, equal for positions that are symmetric."""
        state = self._opened(data["moves"])
        return f"{self.rules.canonical(*state.stones)}"

    @property
    def single_task(self) -> bool:
        """Whether all games begin with the empty board."""
        return self.config.opening == 0

    def reset(self, task: Task) -> Board:
        """Return the position after the opening.

        Raises:
            DataError: if a move of the opening is illegal, or ends the game.
        """
        moves = task.data.get("moves", ())
        try:
            state = self._opened(moves)
        except (EnvError, IllegalActionError) as error:
            raise DataError(
                f"task {task.id!r} has moves = {moves!r:.80}: {error}: give legal actions"
            ) from error
        if state.ended:
            raise DataError(
                f"task {task.id!r} has moves = {moves!r:.80}, which end the game: leave some out"
            )
        return state

    def _opened(self, moves: Any) -> Board:
        state = Board()
        for move in moves:
            state = self._moved(state, move)
        return state

    def _moved(self, state: Board, action: str) -> Board:
        """Return the position after an action of the player whose turn it is."""
        if state.ended:
            raise EnvError(f"{self.name}: the game is over, so it takes no step: reset a task")
        own, other = state.stones[state.turn], state.stones[1 - state.turn]
        number = self._numbers.get(action)
        bit = 0 if number is None else self.rules.landing(own | other, number)
        if not bit:
            legal = ", ".join(self._names[n] for n in self.rules.legal(own, other))
            raise IllegalActionError(f"{action[:40]!r} is none of {legal}")
        own |= bit
        return Board(
            stones=(own, other) if state.turn == 0 else (other, own),
            plies=state.plies + 1,
            winner=state.turn if self.rules.wins(own, bit) else None,
            full=own | other == self.rules.full,
        )

    def observe(self, state: Board, role: str) -> Observation:
        """Return the board as a seat sees it: its stones are x, the other's o."""
        player = SEATS.index(role)
        own, other = state.stones[player], state.stones[1 - player]
        landings = {} if state.ended else dict(self.rules.landings(own, other))
        threats = [self._threats(stones, landings) for stones in (own, other)]
        return Observation(
            text=self._text(own, other, landings, (OWN, OTHER)),
            legal_actions=tuple(self._names[n] for n in landings) or self._names,
            description=f"{OWN} {threats[0]} {OTHER} {threats[1]}",
        )

    def _text(
        self, own: int, other: int, landings: Mapping[int, int], marks: tuple[str, str]
    ) -> str:
        """Return the board: a mark for each stone, an action's name for the cell that it fills."""
        shown = {bit: self._names[number] for number, bit in landings.items()}
        return "\n".join(
            " ".join(
                marks[0] if own & bit else marks[1] if other & bit else shown.get(bit, FREE)
                for bit in row
            )
            for row in self._rows
        )

    def _threats(self, stones: int, landings: Mapping[int, int]) -> str:
        """Return the actions that would complete a line of `stones`."""
        rules = self.rules
        found = [self._names[n] for n, bit in landings.items() if rules.wins(stones | bit, bit)]
        return " ".join(found) or "none"

    def step(self, state: Board, role: str, action: str, noise: np.random.Generator) -> Step[Board]:
        """Return the position after a move; nothing is random.

        Raises:
            IllegalActionError: if `action` is no free cell or column.
            EnvError: if the game is over, or it is not this seat's turn.
        """
        check_turn(self, state, role, ended=state.ended)
        after = self._moved(state, action)
        won = after.winner is not None
        return Step(
            state=after,
            rewards={"win": 1.0} if won else {},
            others={SEATS[after.turn]: {"loss": -1.0}} if won else {},
            terminated=after.ended,
            truncated=False,
        )

    def score(self, state: Board) -> float:
        """Return the score of the seat `first`."""
        return self.seat_score(state, FIRST)

    def seat_score(self, state: Board, seat: str) -> float:
        """Return 1 for a game that the seat won, 0 for one that it lost, else 0.5."""
        if state.winner is None:
            return 0.5
        return float(SEATS[state.winner] == seat)

    def measures(self, state: Board) -> dict[str, float]:
        """Return whether the game was a draw, and its plies."""
        return {"draw": float(state.full and state.winner is None), "plies": float(state.plies)}

    def baselines(self) -> Mapping[str, Baseline]:
        """Return random play and the minimax players."""
        players = {name: partial(self._minimax, name) for name in self.depths}
        return {**super().baselines(), **players}

    @cached_property
    def _searches(self) -> dict[str, Minimax]:
        return {name: Minimax(self.rules, depth) for name, depth in self.depths.items()}

    def _minimax(self, name: str, state: Board, rng: np.random.Generator) -> str:
        own, other = state.stones[state.turn], state.stones[1 - state.turn]
        return self._names[self._searches[name].play(own, other, rng)]

    def vocabulary(self) -> tuple[str, ...]:
        """Return the marks, the names of the actions and the word for no threat."""
        return (OWN, OTHER, FREE, *self._names, "none")

    def render(self, state: Board) -> str:
        """Return the board with X for the first player's stones and O for the second's."""
        first, second = state.stones
        landings = {} if state.ended else dict(self.rules.landings(first, second))
        return self._text(first, second, landings, ("X", "O"))
