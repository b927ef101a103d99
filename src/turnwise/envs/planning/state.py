"""The options, seats, states and potentials of planning envs.

Provides `PlanningConfig`, `Seating`, `PlanState` and `potential`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Generic, Literal, Self

from pydantic import Field, model_validator

from turnwise.envs.planning.puzzle import P
from turnwise.settings import Settings

TOOL, PLANNER, JUDGE = "tool", "planner", "judge"
DEAD = -1.0
"""The potential of a dead position, and the least potential; the start has 0, a solved one 1."""


class PlanningConfig(Settings):
    """Options of every planning env."""

    can_be_lost: ClassVar[bool] = True
    """Whether some positions cannot be solved any more."""

    roles: Literal["two", "one"] = "two"
    """The roles: `two` has the roles `tool` and `planner`, and `judge` with several planners; `one`
    has the role `player`, which has all seats."""
    tools: int = Field(default=1, ge=1, le=8)
    """The number of tools, each of which makes a call in every round and sees the calls before."""
    planners: int = Field(default=1, ge=1, le=8)
    """The number of planners. One planner moves. Several propose moves, each seeing the proposals
    before, and a judge moves."""
    runner: Literal["call", "sandbox"] = "call"
    """What the tool writes: `call` takes one call of a function, `sandbox` a Python program, which
    runs in the sandbox."""
    rounds: int = Field(default=4, ge=1, le=200)
    """The most rounds of an episode, each a turn of every seat."""
    round_limit: float | None = Field(default=None, ge=1, le=100)
    """The rounds of an episode as a multiple of those that the solver needs, rounded up, and at
    most `rounds`; None gives every episode `rounds`."""
    cut_after: int | None = Field(default=None, ge=1, le=200)
    """Episodes are cut after so many rounds, whether or not the puzzle can be solved in them. For
    training that rewards each turn: an iteration then has more beginnings and fewer ends."""
    waits: int = Field(default=0, ge=0, le=200)
    """How many rounds running the planner, or the judge, may answer `wait`. It makes no move, and
    the calls and results of those rounds stay in the text, so that a team can ask more than once
    before it decides."""
    moves_per_turn: int = Field(default=4, ge=1, le=64)
    """The most moves in an answer of the planner."""
    moves_per_call: int = Field(default=4, ge=1, le=64)
    """The most moves in a call of `apply`."""
    described: bool = False
    """Whether observations say what is beside the player, or the like, in words. A policy then need
    not learn to describe it, and its replies are short."""
    last_moves: int = Field(default=0, ge=0, le=64)
    """How many of the last moves observations tell, the forbidden ones included. A policy that sees
    none of them can move back and forth for ever: it answers one position in one way."""
    cost: Literal["estimate", "moves"] = "estimate"
    """What the potentials measure: an `estimate` of what is left to do, of each puzzle its own, or
    the `moves` of a shortest solution, for the team and the roles alike. A move that lowers an
    estimate can lead away from every solution."""
    hard: bool = False
    """Whether tasks are drawn again until every reflex fails them within the rounds."""
    hard_share: float = Field(default=1.0, gt=0, le=1)
    """With `hard`, the share of tasks for which that holds; the others are taken as they come."""
    end_when_lost: bool = False
    """Whether an episode ends when a role's cost is infinite: the puzzle is then known to be
    unsolvable. Scores are the same, and training does not play on in lost positions."""

    @model_validator(mode="after")
    def _check_end(self) -> Self:
        if self.end_when_lost and not self.can_be_lost:
            raise ValueError(
                "end_when_lost = true: every position of this puzzle can be solved; leave it out"
            )
        return self


@dataclass(frozen=True)
class Seating:
    """Who sits at a puzzle, in the order of a round.

    `tools` call, `planners` propose moves and are none where one planner moves, and `mover` moves.

    Example:
        >>> Seating.of(PlanningConfig(tools=2, planners=2))
        Seating(tools=('tool-1', 'tool-2'), planners=('planner-1', 'planner-2'), mover='judge')
    """

    tools: tuple[str, ...]
    planners: tuple[str, ...]
    mover: str

    @classmethod
    def of(cls, config: PlanningConfig) -> Seating:
        """Return the seats that options ask for."""
        tools = _numbered(TOOL, config.tools)
        if config.planners == 1:
            return cls(tools, (), PLANNER)
        return cls(tools, _numbered(PLANNER, config.planners), JUDGE)

    @property
    def order(self) -> tuple[str, ...]:
        """All seats, in the order of their turns."""
        return (*self.tools, *self.planners, self.mover)

    def kind(self, seat: str) -> str:
        """Return the role of a seat where each kind of seat is a role."""
        if seat in self.tools:
            return TOOL
        return PLANNER if seat in self.planners else self.mover


def _numbered(name: str, count: int) -> tuple[str, ...]:
    if count == 1:
        return (name,)
    return tuple(f"{name}-{number}" for number in range(1, count + 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanState(Generic[P]):
    """A position in an episode.

    `costs` are those of the start, of the team and of a role. `calls` are the calls of this round
    with their results, `earlier_calls` those of the `waited` rounds running before it in which no
    move was made, and `plans` the proposals of its planners. `proposed` are the potentials of where
    each seat's last proposal led, in the order of seats. `last` is the last move made, and `tried`
    are the last moves, made or forbidden, that observations tell. `left` counts the rounds that
    have not ended, `begun` those that have begun. `lost` is whether the episode has ended because
    the puzzle cannot be solved any more.
    """

    position: P
    left: int
    costs: tuple[float, float]
    proposed: tuple[float, ...]
    begun: int = 0
    calls: tuple[tuple[str, str], ...] = ()
    earlier_calls: tuple[tuple[str, str], ...] = ()
    waited: int = 0
    plans: tuple[str, ...] = ()
    last: str = ""
    tried: tuple[str, ...] = ()
    moves: int = 0
    solved: bool = False
    lost: bool = False

    @property
    def turn(self) -> int:
        """The number of turns of this round that are over."""
        return len(self.calls) + len(self.plans)

    @property
    def shown_calls(self) -> tuple[tuple[str, str], ...]:
        """The calls since the last move, with their results."""
        return (*self.earlier_calls, *self.calls)

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.solved or self.lost or not self.left


def potential(cost: float, start: float) -> float:
    """Return 1 for cost 0, 0 for the cost at the start, and `DEAD` for twice that or more.

    Example:
        >>> potential(2.0, 8.0), potential(float("inf"), 8.0)
        (0.75, -1.0)
    """
    return DEAD if cost == inf else max(DEAD, 1.0 - cost / start)
