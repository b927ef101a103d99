"""A scheme of credit assignment: its options, and what it compares by which formula.

Provides `Scheme`, `Comparison` and the keys by which units are grouped. A comparison is a key, a
unit and an estimator (docs/math.md 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.credit.config import CreditConfig
from turnwise.credit.groups import GroupKey, KeyFunction, Unit
from turnwise.credit.returns import Floats, Payments
from turnwise.types import EpisodeId, Trajectory, TurnId

UnitFunction = Callable[[Sequence[Trajectory], Mapping[str, float], Payments, Any], list[Unit]]
"""From trajectories, reward weights, payments and the scheme's options to the units compared."""
Estimator = Callable[[Floats, Sequence[EpisodeId], Any], Floats]
"""From the values of a group, the episodes of its units and the scheme's options to advantages,
each [members]. One with a baseline is called for groups of two or more members whose values
differ."""
TurnFunction = Callable[
    [Sequence[Trajectory], Mapping[str, float], Payments, Any], Mapping[TurnId, float]
]
"""From trajectories, reward weights, payments and the scheme's options to advantages, by turn."""


def batch_key(unit: Unit) -> GroupKey:
    """Group all episodes of a role in the batch."""
    return GroupKey(role=unit.role)


def visit_key(unit: Unit) -> GroupKey:
    """Group a seat's episodes of one visit of one task.

    Seats of one role are not compared with each other: what one earns depends on what the others
    of its episode did, so that their returns are no baseline for it.
    """
    return GroupKey(role=unit.role, seat=unit.id.role, visit=unit.episode.visit_id)


def state_key(unit: Unit) -> GroupKey:
    """Group a role's turns taken in the same state, within one visit of one task."""
    return GroupKey(role=unit.role, visit=unit.episode.visit_id, state=unit.state)


def question_key(unit: Unit) -> GroupKey:
    """Group a seat's answers to one question in one round of one visit of one task."""
    return GroupKey(
        role=unit.role,
        seat=unit.id.role,
        visit=unit.episode.visit_id,
        round=unit.id.round,
        observation=unit.observation,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A comparison: units, the key that groups them, and the estimator.

    `has_baseline` says that equal values have advantage 0.
    """

    key: KeyFunction
    unit: UnitFunction
    estimator: Estimator
    has_baseline: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheme:
    """A row of the table of schemes: the class of its options, and its comparisons.

    `compare` is the comparison whose groups are logged and filtered. `add` is a second one, whose
    advantages times `CreditConfig.weight_of_second` are added turn by turn; None is none.
    `by_turn` replaces the advantages of both: those of a turn depend on the turns after it.
    `topologies` are those that sample what it compares; `needs_cross_tables` says that its groups
    are those of a cross table alone. `needs_states` says that every turn must have a state, which
    the answer to a question has not.
    """

    config: type[CreditConfig]
    compare: Comparison
    add: Comparison | None = None
    by_turn: TurnFunction | None = None
    topologies: tuple[str, ...] = ("independent",)
    needs_cross_tables: bool = False
    needs_states: bool = False

    @property
    def by_sibling(self) -> bool:
        """Whether siblings are compared, and not episodes."""
        return "independent" not in self.topologies

    @property
    def by_visit(self) -> bool:
        """Whether groups are visits of a task, and not the whole batch."""
        return self.compare.key is not batch_key
