"""The table of credit schemes: what is compared with what, by which formula, with which options.

Owns `Scheme` and `SCHEMES`. To add a scheme: write its estimator, add a line here and a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from turnwise.credit import estimators
from turnwise.credit.groups import GroupKey, KeyFunction, Unit, Visit
from turnwise.credit.returns import Floats

Std = Literal["group", "batch_returns", "batch_advantages", "none"]
"""What an advantage is divided by: the std of its group's returns; that of all returns of its role
in the batch, before any baseline; that of all its role's advantages in the batch; or nothing."""


def batch_key(unit: Unit) -> GroupKey:
    """Group all episodes of a role in the batch."""
    return GroupKey(role=unit.role)


def visit_key(unit: Unit) -> GroupKey:
    """Group a role's episodes of one visit of one task."""
    return GroupKey(role=unit.role, visit=Visit.of(unit.id))


def state_key(unit: Unit) -> GroupKey:
    """Group a role's turns taken in the same state, within one visit of one task."""
    return GroupKey(role=unit.role, visit=Visit.of(unit.id), state=unit.state)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheme:
    """A key, an estimator over whole episodes, and the options that mean something to it.

    `std` lists what the scheme may divide by, its default first. `has_baseline` says that equal
    returns have advantage 0. `compares_states` adds the turn-level part of GiGPO. `options` are
    fields of `CreditConfig` that belong to this scheme, with their defaults.
    """

    key: KeyFunction
    advantages: Callable[[Floats], Floats]
    std: tuple[Std, ...] = ("none",)
    has_baseline: bool = True
    compares_states: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def by_visit(self) -> bool:
        """Whether groups are visits of a task, and not the whole batch."""
        return self.key is not batch_key


SCHEMES: dict[str, Scheme] = {
    "reinforce": Scheme(key=batch_key, advantages=estimators.reinforce, has_baseline=False),
    "reinforce++": Scheme(
        key=batch_key, advantages=estimators.mean_centred, std=("batch_returns",)
    ),
    "rloo": Scheme(key=visit_key, advantages=estimators.rloo),
    "grpo": Scheme(
        key=visit_key,
        advantages=estimators.mean_centred,
        std=("batch_returns", "batch_advantages", "group", "none"),
    ),
    "dr_grpo": Scheme(key=visit_key, advantages=estimators.mean_centred),
    "maxrl": Scheme(key=visit_key, advantages=estimators.maxrl),
    "gigpo": Scheme(
        key=visit_key,
        advantages=estimators.mean_centred,
        std=("none", "group", "batch_returns", "batch_advantages"),
        compares_states=True,
        options={"gamma": 0.95, "weight": 1.0, "own_episode": "exclude"},
    ),
}
