"""What is compared with what: units, keys and the one grouping function of all schemes.

Owns `Unit`, `GroupKey`, `Group` and the invariants of groups (docs/math.md 2), each a bug found in
a published system. Knows nothing of estimators. Output goes to `credit.assign`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from turnwise.errors import TrainingError
from turnwise.types import TurnId


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Visit:
    """One visit of one task: 128 visits of one prompt are 128 groups.

    Example:
        >>> Visit(iteration=0, visit=3, task="t").visit
        3
    """

    iteration: int
    visit: int
    task: str

    @classmethod
    def of(cls, turn: TurnId) -> Visit:
        """Return the visit that a turn belongs to."""
        return cls(iteration=turn.iteration, visit=turn.visit, task=turn.task)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupKey:
    """What the members of a group have in common: the role; maybe the visit; maybe the state.

    `visit = None` means the whole batch.

    Example:
        >>> str(GroupKey(role="player", visit=Visit(iteration=0, visit=3, task="t")))
        'player 0/3/t'
    """

    role: str
    visit: Visit | None = None
    state: str | None = None

    def __str__(self) -> str:
        """Return the short form used in logs and messages."""
        visit = self.visit
        where = f"{visit.iteration}/{visit.visit}/{visit.task}" if visit else "batch"
        return " ".join(part for part in (self.role, where, self.state) if part is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """What a scheme compares: a role's whole episode, or one of its turns, and its return.

    `turns` are the turns that carry the unit's advantage; `first_prompt` the ids before the first.

    Example:
        >>> turn = TurnId(iteration=0, visit=0, task="t", sample=2, role="player", turn=0)
        >>> unit = Unit(turns=(turn,), policy="main", first_prompt=(5, 6), value=1.0)
        >>> unit.episode
        (0, 0, 't', 2)
    """

    turns: tuple[TurnId, ...]
    policy: str
    first_prompt: tuple[int, ...]
    value: float
    state: str | None = None
    is_episode: bool = True

    @property
    def id(self) -> TurnId:
        """The first turn's identity, which is the unit's own."""
        return self.turns[0]

    @property
    def role(self) -> str:
        """The role that acted."""
        return self.id.role

    @property
    def episode(self) -> tuple[int, int, str, int]:
        """Which episode the unit is of, or a part of."""
        return (self.id.iteration, self.id.visit, self.id.task, self.id.sample)


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One group after the comparison, as logs show it. Sequences are parallel to `units`.

    `std` is the group's own (ddof = 1; 0 for a group of one), whatever the scheme divides by.
    `zero_variance`: two or more members, all of one return.
    """

    key: GroupKey
    units: tuple[Unit, ...]
    returns: tuple[float, ...]
    advantages: tuple[float, ...]
    mean: float
    std: float
    zero_variance: bool

    @property
    def singleton(self) -> bool:
        """Whether nothing was there to compare with."""
        return len(self.units) == 1


KeyFunction = Callable[[Unit], GroupKey]


def group(units: Iterable[Unit], key: KeyFunction) -> dict[GroupKey, tuple[Unit, ...]]:
    """Group units by key, in the order of their ids, whatever order they come in.

    Raises:
        TrainingError: if a unit occurs twice; if members differ in policy or role; if a group with
            a visit in its key spans another visit; if its episodes differ in their first prompt.
    """
    members: dict[GroupKey, list[Unit]] = {}
    for unit in sorted(units, key=lambda unit: unit.id):
        members.setdefault(key(unit), []).append(unit)
    grouped = {name: tuple(found) for name, found in members.items()}
    for name, found in grouped.items():
        _check_group(name, found)
    return grouped


def _check_group(key: GroupKey, units: tuple[Unit, ...]) -> None:
    if len({unit.id for unit in units}) != len(units):
        raise TrainingError(f"group {key} holds a unit twice: identities must be unique")
    policies = sorted({unit.policy for unit in units})
    if len(policies) > 1:
        raise TrainingError(f"group {key} mixes the policies {', '.join(policies)}")
    roles = sorted({unit.role for unit in units} | {key.role})
    if len(roles) > 1:
        raise TrainingError(f"group {key} mixes the roles {', '.join(roles)}")
    if key.visit is None:
        return
    if {Visit.of(turn) for unit in units for turn in unit.turns} != {key.visit}:
        raise TrainingError(f"group {key} spans two visits: each visit of a task is its own group")
    if all(unit.is_episode for unit in units) and len({u.first_prompt for u in units}) > 1:
        raise TrainingError(
            f"group {key} holds episodes with different first prompts: they did not answer the "
            "same question, so their returns cannot be compared"
        )
