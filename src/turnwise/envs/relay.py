r"""The `relay` env: a team of two, each of whom sees half of where a treasure is.

Task: a square board of `size` rows and columns hides a treasure in one cell. An episode has `legs`
    legs, each with a treasure of its own.
What each role sees: the seat `scout` sees the leg and the row. The seat `digger` sees the leg, the
    column and the word that the scout has signalled. With `roles = "two"` each seat is a role of
    its own name; with `roles = "one"` both are seats of the role `player`.
Actions: the scout signals one of `size` words without a meaning: the team has to agree on one.
    The digger digs in one of the cells, which are named as in `r2 c1`. In each leg the scout acts
    first.
Rewards: `found` (team), 1 for a dig at the treasure.
End: the last dig terminates the episode. The score is the share of treasures found.
Baselines: random, silent (the scout always signals the same word, and the digger digs in the right
    column), optimal (word number i stands for row i).
Exact scores: random 1 / size**2, silent 1 / size, optimal 1. Without a signal no team scores more
    than 1 / size.

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
    roles: Literal["two", "one"] = "two"
    """The roles: `two` has the roles `scout` and `digger`; `one` has the role `player`, which has
    the seats `scout` and `digger`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RelayState:
    """The cells of the treasures, and the signals and digs so far, one of each for a leg."""

    treasures: tuple[tuple[int, int], ...]
    signals: tuple[str, ...] = ()
    digs: tuple[str, ...] = ()

    @property
    def leg(self) -> int:
        """The number of the current leg, from 0."""
        return len(self.digs)

    @property
    def ended(self) -> bool:
        """Whether all legs have been played."""
        return self.leg == len(self.treasures)

    @property
    def signal(self) -> str | None:
        """The word that was signalled in the current leg; None before it."""
        return self.signals[self.leg] if len(self.signals) > self.leg else None


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
        self.max_turns = 2 * self.config.legs
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
        """Return the scout before the signal of a leg, the digger after it."""
        return (SCOUT,) if state.signal is None else (DIGGER,)

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
        """Return the half of the current cell that a seat sees; the digger sees the signal too."""
        legal = self._signals if role == SCOUT else tuple(map(_name, self._cells))
        if state.ended:
            return Observation(text="all legs have been played", legal_actions=legal)
        row, column = state.treasures[state.leg]
        half = f"row r{row}"
        if role == DIGGER:
            half = f"column c{column} signal {state.signal or 'none'}"
        return Observation(
            text=f"leg {state.leg + 1} of {len(state.treasures)}\n{half}",
            legal_actions=legal,
            description=half,
        )

    def state_key(self, state: RelayState, role: str) -> str:
        """Return the leg, its treasure and its signal."""
        if state.ended:
            return "end"
        return f"leg {state.leg} {_name(state.treasures[state.leg])} {state.signal or 'none'}"

    def step(
        self, state: RelayState, role: str, action: str, noise: np.random.Generator
    ) -> Step[RelayState]:
        """Return the state after a signal or a dig; nothing is random.

        Raises:
            IllegalActionError: if `action` is no signal of the scout, or no cell of the digger.
            EnvError: if the episode is over, or it is not this seat's turn.
        """
        check_turn(self, state, role, ended=state.ended)
        legal = self.observe(state, role).legal_actions
        if action not in legal:
            raise IllegalActionError(f"{action[:40]!r} is none of {', '.join(legal)}")
        if role == SCOUT:
            after = replace(state, signals=(*state.signals, action))
            return Step(state=after, rewards={}, terminated=False, truncated=False)
        found = action == _name(state.treasures[state.leg])
        after = replace(state, digs=(*state.digs, action))
        return Step(
            state=after, rewards={"found": float(found)}, terminated=after.ended, truncated=False
        )

    def score(self, state: RelayState) -> float:
        """Return the share of treasures found."""
        digs = zip(state.digs, state.treasures, strict=False)  # legs to come have no dig
        return sum(dig == _name(cell) for dig, cell in digs) / len(state.treasures)

    def baselines(self) -> Mapping[str, Baseline]:
        """Return the baselines of the module docstring."""
        return {**super().baselines(), "silent": self._silent, "optimal": self._optimal}

    def _silent(self, state: RelayState, rng: np.random.Generator) -> str:
        if state.signal is None:
            return self._signals[0]
        return _name((0, state.treasures[state.leg][1]))

    def _optimal(self, state: RelayState, rng: np.random.Generator) -> str:
        row, column = state.treasures[state.leg]
        if state.signal is None:
            return self._signals[row]
        return _name((self._signals.index(state.signal), column))

    def vocabulary(self) -> tuple[str, ...]:
        """Return the signals and the names of rows and columns."""
        numbers = range(self.config.size)
        names = (f"{letter}{number}" for letter in "rc" for number in numbers)
        return (*self._signals, *names)

    def render(self, state: RelayState) -> str:
        """Return what was signalled and dug in each leg, beside the treasure."""
        lines = []
        for number, cell in enumerate(state.treasures):
            signal = state.signals[number] if number < len(state.signals) else "none"
            dig = state.digs[number] if number < len(state.digs) else "none"
            lines.append(f"leg {number + 1}: treasure {_name(cell)}, signal {signal}, dig {dig}")
        return "\n".join(lines)


def _name(cell: tuple[int, int]) -> str:
    return f"r{cell[0]} c{cell[1]}"
