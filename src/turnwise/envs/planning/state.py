"""The options, states and potentials of planning envs.

Provides `PlanningConfig`, `PlanState` and `potential`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Generic, Literal

from pydantic import Field

from turnwise.envs.planning.puzzle import P
from turnwise.settings import Settings

DEAD = -1.0
"""The potential of a dead position, and the least potential; the start has 0, a solved one 1."""


class PlanningConfig(Settings):
    """Options of every planning env."""

    roles: Literal["two", "one"] = "two"
    """The roles: `two` has the roles `tool` and `planner`; `one` has the role `player`, which has
    the seats `tool` and `planner`."""
    runner: Literal["call", "sandbox"] = "call"
    """What the tool writes: `call` takes one call of a function, `sandbox` a Python program, which
    runs in the sandbox."""
    rounds: int = Field(default=4, ge=1, le=200)
    """The most rounds of an episode, each a turn of the tool and a turn of the planner."""
    round_limit: float | None = Field(default=None, ge=1, le=100)
    """The rounds of an episode as a multiple of those that the solver needs, rounded up, and at
    most `rounds`; None gives every episode `rounds`."""
    moves_per_turn: int = Field(default=4, ge=1, le=64)
    """The most moves in an answer of the planner."""
    moves_per_call: int = Field(default=4, ge=1, le=64)
    """The most moves in a call of `apply`."""
    hard: bool = False
    """Whether there are only tasks that every reflex fails within the rounds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanState(Generic[P]):
    """A position in an episode.

    `costs` are those of the start, of the team and of a role. `proposed` is the potential of the
    last proposal. `call` and `result` are of this round; `call` is None before it. `last` is the
    last move made. `left` counts the rounds that have not ended, `begun` those that have begun.
    """

    position: P
    left: int
    costs: tuple[float, float]
    begun: int = 0
    proposed: float = 0.0
    call: str | None = None
    result: str = ""
    last: str = ""
    moves: int = 0
    solved: bool = False

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.solved or not self.left


def potential(cost: float, start: float) -> float:
    """Return 1 for cost 0, 0 for the cost at the start, and `DEAD` for twice that or more.

    Example:
        >>> potential(2.0, 8.0), potential(float("inf"), 8.0)
        (0.75, -1.0)
    """
    return DEAD if cost == inf else max(DEAD, 1.0 - cost / start)
