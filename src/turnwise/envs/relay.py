r"""The `relay` env: a team of two, each of whom sees half of where a treasure is.

Task: a square board of `size` rows and columns hides a treasure in one cell. An episode has `legs`
    legs, each with a treasure of its own.
What each role sees: the seat `scout` sees the leg and the row. The seat `digger` sees the leg, the
    column and the word that the scout has signalled. With `roles = "two"` each seat is a role of
    its own name; with `roles = "one"` both are seats of the role `player`.
Actions: the scout signals one of `size` words without a meaning: the team has to agree on one.
    The digger digs in one of the cells, which are named as in `r2 c1`. In each leg the scout acts
    first. With `exchange = true` the digger signals its column, too, then both dig, the scout
    first, and neither sees where the other digs.
Rewards: `found` (team), 1 for a leg in which everyone who digs does so at the treasure.
End: the last dig terminates the episode. The score is the share of treasures found.
Baselines: random, silent (signals are always the same word, and everyone digs in the half that
    it sees), optimal (word number i stands for row or column i). With `exchange = true` also
    one-way (the scout signals as in optimal, the digger is silent).
Exact scores: random 1 / size**2, silent 1 / size, optimal 1. Without a signal no team scores more
    than 1 / size. With `exchange = true`: random 1 / size**4, silent 1 / size**2, one-way 1 / size,
    optimal 1. Then a role that plays optimally beside a silent one scores no more than 1 / size.

Example:
    >>> env = Relay(RelayConfig(size=4))
    >>> state = env.reset(Task(id="t", env="relay", seed=0, data={"treasures": [[2, 1]]}))
    >>> env.observe(state, "scout").text
    'leg 1 of 1\nrow r2'
    >>> rng = np.random.default_rng(0)
    >>> told = env.step(state, "scout", "fep", rng).state
    >>> env.observe(told, "digger").text
    'leg 1 of 1\ncolumn c1 signal fep'
    >>> dict(env.step(told, "digger", "r2 c1", rng).rewards)
    {'found': 1.0}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from turnwise.envs.base import Baseline, Env, Level, Observation, Step
from turnwise.envs.split import split_of
from turnwise.envs.whose_turn import check_turn
from turnwise.errors import DataError, IllegalActionError
from turnwise.settings import Settings
from turnwise.types import Split, Task

SIGNALS = ("bim", "dov", "fep", "gul", "kag", "lom", "nit", "tuz")
SCOUT, DIGGER = "scout", "digger"
MOST_LISTED = 4096
"""The most problems that are listed; where there are more, tasks are drawn."""


class RelayConfig(Settings):
    """Options of the `relay` env."""

    size: int = Field(default=4, ge=2, le=len(SIGNALS))
    """The number of rows, of columns and of signal words."""
    legs: int = Field(default=1, ge=1, le=50)
    """The number of treasures, which are looked for one after the other."""
    exchange: bool = False
    """Whether both seats signal, and both have to dig at the treasure."""
    roles: Literal["two", "one"] = "two"
    """The roles: `two` has the roles `scout` and `digger`; `one` has the role `player`, which has
    the seats `scout` and `digger`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RelayState:
    """The cells of the treasures, and what was signalled and dug in each leg so far.

    `legs` holds the signals and digs of the legs that are over, and `now` those of the current one,
    each in the order of turns.
    """

    treasures: tuple[tuple[int, int], ...]
    legs: tuple[tuple[str, ...], ...] = ()
    now: tuple[str, ...] = ()

    @property
    def leg(self) -> int:
        """The number of the current leg, from 0."""
        return len(self.legs)

    @property
    def ended(self) -> bool:
        """Whether all legs have been played."""
        return self.leg == len(self.treasures)


class Relay(Env[RelayState]):
    """A team of two that has to agree on a signal for each row.

    Example:
        >>> dict(Relay(RelayConfig(roles="one")).seats)
        {'scout': 'player', 'digger': 'player'}
    """

    name: ClassVar[str] = "relay"
    config_class: ClassVar[type[Settings]] = RelayConfig
    roles: tuple[str, ...] = (SCOUT, DIGGER)
    components: ClassVar[Mapping[str, Level]] = {"found": "team"}

    def __init__(self, config: RelayConfig | None = None) -> None:
        super().__init__(config or RelayConfig())
        if self.config.roles == "one":
            self.roles = ("player",)
        self._turns = (SCOUT, DIGGER) * (2 if self.config.exchange else 1)
        self._signalled = len(self._turns) // 2
        self.max_turns = len(self._turns) * self.config.legs
        self._signals = SIGNALS[: self.config.size]
        numbers = range(self.config.size)
        self._cells = tuple((row, column) for row in numbers for column in numbers)

    @property
    def seats(self) -> Mapping[str, str]:
        """The seats `scout` and `digger` and their roles."""
        if self.config.roles == "one":
            return {SCOUT: "player", DIGGER: "player"}
        return {SCOUT: SCOUT, DIGGER: DIGGER}

    def acting(self, state: RelayState) -> tuple[str, ...]:
        """Return the seat whose turn it is in the leg."""
        return (self._turns[len(state.now)],)

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a cell for the treasure of each leg."""
        return {"treasures": rng.integers(self.config.size, size=(self.config.legs, 2)).tolist()}

    def tasks(self, split: Split) -> list[dict[str, Any]] | None:
        """Return all problems of a split; None where there are more than `MOST_LISTED`."""
        if len(self._cells) ** self.config.legs > MOST_LISTED:
            return None
        problems = product(self._cells, repeat=self.config.legs)
        listed = [{"treasures": [list(cell) for cell in problem]} for problem in problems]
        return [data for data in listed if split_of(self.canonical(data)) == split]

    def reset(self, task: Task) -> RelayState:
        """Return the first state of `task`.

        Raises:
            DataError: if the task has a treasure outside the board, or not one for each leg.
        """
        given = task.data.get("treasures", ())
        treasures = tuple((int(row), int(column)) for row, column in given)
        if len(treasures) != self.config.legs or not set(treasures) <= set(self._cells):
            raise DataError(
                f"task {task.id!r} has the treasures {list(treasures)}: give {self.config.legs}, "
                f"each as [row, column] from 0 to {self.config.size - 1}"
            )
        return RelayState(treasures=treasures)

    def observe(self, state: RelayState, role: str) -> Observation:
        """Return the half of the current cell that a seat sees, and the signals that it knows.

        `signal` is the other seat's word, and `told` is the seat's own.
        """
        legal = self._legal(len(state.now) if role in self.acting(state) else self._first(role))
        if state.ended:
            return Observation(text="all legs have been played", legal_actions=legal)
        row, column = state.treasures[state.leg]
        half = f"row r{row}" if role == SCOUT else f"column c{column}"
        signals: dict[str, str] = dict(zip(self._turns, state.now[: self._signalled], strict=False))
        other = signals.get(_other(role))
        shown = half
        if role == DIGGER or other is not None:
            shown += f" signal {other or 'none'}"
        if self.config.exchange and role in signals:
            shown += f" told {signals[role]}"
        return Observation(
            text=f"leg {state.leg + 1} of {len(state.treasures)}\n{shown}",
            legal_actions=legal,
            description=shown,
        )

    def _first(self, role: str) -> int:
        """Return the number of a seat's first turn in a leg."""
        return self._turns.index(role)

    def _legal(self, turn: int) -> tuple[str, ...]:
        """Return the actions of a turn of a leg."""
        return self._signals if turn < self._signalled else tuple(map(_name, self._cells))

    def state_key(self, state: RelayState, role: str) -> str:
        """Return the leg, its treasure, and what was signalled and dug."""
        if state.ended:
            return "end"
        cell = _name(state.treasures[state.leg])
        return f"leg {state.leg} {cell} {' '.join(state.now) or 'none'}"

    def step(
        self, state: RelayState, role: str, action: str, noise: np.random.Generator
    ) -> Step[RelayState]:
        """Return the state after a signal or a dig; nothing is random.

        Raises:
            IllegalActionError: if `action` is no signal where the seat signals, or no cell.
            EnvError: if the episode is over, or it is not this seat's turn.
        """
        check_turn(self, state, role, ended=state.ended)
        legal = self._legal(len(state.now))
        if action not in legal:
            raise IllegalActionError(f"{action[:40]!r} is none of {', '.join(legal)}")
        now = (*state.now, action)
        if len(now) < len(self._turns):
            after = replace(state, now=now)
            return Step(state=after, rewards={}, terminated=False, truncated=False)
        found = self._found(now, state.treasures[state.leg])
        after = replace(state, legs=(*state.legs, now), now=())
        return Step(
            state=after, rewards={"found": float(found)}, terminated=after.ended, truncated=False
        )

    def _found(self, leg: tuple[str, ...], cell: tuple[int, int]) -> bool:
        """Return whether everyone dug at the treasure of a leg that is over."""
        return set(leg[self._signalled :]) == {_name(cell)}

    def score(self, state: RelayState) -> float:
        """Return the share of treasures found."""
        legs = zip(state.legs, state.treasures, strict=False)  # those to come are not found
        return sum(self._found(leg, cell) for leg, cell in legs) / len(state.treasures)

    def baselines(self) -> Mapping[str, Baseline]:
        """Return the baselines of the module docstring."""
        speaking = {"silent": (), "one-way": (SCOUT,), "optimal": (SCOUT, DIGGER)}
        found = {name: self._player(frozenset(seats)) for name, seats in speaking.items()}
        if not self.config.exchange:
            del found["one-way"]
        return {**super().baselines(), **found}

    def _player(self, speaking: frozenset[str]) -> Baseline:
        """Return a team in which some seats signal their half, and the others one word."""

        def play(state: RelayState, rng: np.random.Generator) -> str:
            (seat,) = self.acting(state)
            known = seat == DIGGER  # the part of the cell that the seat sees
            cell = state.treasures[state.leg]
            if len(state.now) < self._signalled:
                return self._signals[cell[known] if seat in speaking else 0]
            other = self._signals.index(state.now[self._turns.index(_other(seat))])
            return _name((other, cell[1]) if known else (cell[0], other))

        return play

    def vocabulary(self) -> tuple[str, ...]:
        """Return the signals and the names of rows and columns."""
        numbers = range(self.config.size)
        names = (f"{letter}{number}" for letter in "rc" for number in numbers)
        told = ("told",) if self.config.exchange else ()
        return (*self._signals, *names, *told)

    def render(self, state: RelayState) -> str:
        """Return what was signalled and dug in each leg, beside the treasure."""
        lines = []
        played = [*state.legs, state.now, *[()] * len(state.treasures)]
        for number, (cell, leg) in enumerate(zip(state.treasures, played, strict=False)):
            said = ", ".join(leg[: self._signalled]) or "none"
            dug = ", ".join(leg[self._signalled :]) or "none"
            lines.append(f"leg {number + 1}: treasure {_name(cell)}, signal {said}, dig {dug}")
        return "\n".join(lines)


def _name(cell: tuple[int, int]) -> str:
    return f"r{cell[0]} c{cell[1]}"


def _other(seat: str) -> str:
    return DIGGER if seat == SCOUT else SCOUT
