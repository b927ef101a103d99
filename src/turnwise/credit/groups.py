"""Units, group keys, and the grouping function of all schemes.

Provides `Unit`, `GroupKey`, `Group` and `group`, which checks the invariants of groups
(docs/math.md 2). Each invariant prevents a bug that was found in a published system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from turnwise.errors import TrainingError
from turnwise.types import EpisodeId, TurnId, VisitId

ALL_ROLES = "all roles"
"""The role of a group that holds units of several roles (`credit.statistics = "all"`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupKey:
    """The common properties of a group's members: the role; maybe the seat, visit, state and more.

    `visit = None` means the whole batch, `seat = None` all seats of the role. `round` is the round
    of the episode, and `observation` a hash of the question: of all that the prompt says, and of
    the phase.

    Example:
        >>> str(GroupKey(role="player", visit=VisitId(iteration=0, visit=3, task="t")))
        'player 0/3/t'
    """

    role: str
    visit: VisitId | None = None
    state: str | None = None
    seat: str | None = None
    round: int | None = None
    observation: str | None = None

    def __str__(self) -> str:
        """Return the short form used in logs and messages."""
        where = "batch" if self.visit is None else str(self.visit)
        turn = None if self.round is None else f"round {self.round}"
        parts = (self.seat or self.role, where, self.state, turn, self.observation)
        return " ".join(part for part in parts if part is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A unit of comparison: a seat's whole episode, or one of its turns, with its return.

    `turns` are the turns that carry the unit's advantage; `first_prompt` the ids before the first.
    `opens` says whether nothing was said in the episode before the unit.

    Example:
        >>> episode = EpisodeId(iteration=0, visit=0, task="t", member=2)
        >>> turn = TurnId(episode=episode, role="ant-3", turn=0)
        >>> unit = Unit(role="ant", turns=(turn,), policy="main", first_prompt=(5, 6), value=1.0)
        >>> unit.episode == episode
        True
    """

    role: str
    turns: tuple[TurnId, ...]
    policy: str
    first_prompt: tuple[int, ...]
    value: float
    state: str | None = None
    observation: str | None = None
    is_episode: bool = True
    opens: bool = True

    @property
    def id(self) -> TurnId:
        """The first turn's identity, which is the unit's own."""
        return self.turns[0]

    @property
    def episode(self) -> EpisodeId:
        """The episode that the unit is of, or a part of."""
        return self.id.episode


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

    @property
    def mixed(self) -> bool:
        """Whether the members' returns differ."""
        return not self.zero_variance and not self.singleton


KeyFunction = Callable[[Unit], GroupKey]


def group(units: Iterable[Unit], key: KeyFunction) -> dict[GroupKey, tuple[Unit, ...]]:
    """Group units by key, in the order of their ids, whatever order they come in.

    Raises:
        TrainingError: if a unit occurs twice; if members differ in policy or role; if a group with
            a visit in its key spans another visit; if episodes differ in the first prompt of the
            seat that speaks first; if turns that were compared as answers to one question differ in
            their prompts.
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
    if key.role != ALL_ROLES:
        policies = sorted({unit.policy for unit in units})
        if len(policies) > 1:
            raise TrainingError(f"group {key} mixes the policies {', '.join(policies)}")
        roles = sorted({unit.role for unit in units} | {key.role})
        if len(roles) > 1:
            raise TrainingError(f"group {key} mixes the roles {', '.join(roles)}")
    if key.visit is None:
        return
    if {turn.episode.visit_id for unit in units for turn in unit.turns} != {key.visit}:
        raise TrainingError(f"group {key} spans two visits: each visit of a task is its own group")
    prompts = {unit.first_prompt for unit in units}
    if key.observation is not None and len(prompts) > 1:
        raise TrainingError(
            f"group {key} holds turns with different prompts: they did not answer the same "
            "question, so their scores cannot be compared"
        )
    same_question = all(unit.is_episode and unit.opens for unit in units)
    if same_question and len(prompts) > 1:
        raise TrainingError(
            f"group {key} holds episodes with different first prompts: they did not answer the "
            "same question, so their returns cannot be compared"
        )
