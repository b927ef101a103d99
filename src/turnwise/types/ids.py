"""Tasks, their visits, and the identities of episodes and turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One problem: an environment's name, the seed it came from and the data that define it.

    `id` is unique within a task source; `data` is JSON-able and holds all that `Env.reset` needs.

    Example:
        >>> Task(id="lake-3f", env="frozen-lake", seed=7, data={"map": ["SF", "FG"]}).env
        'frozen-lake'
    """

    id: str
    env: str
    seed: int
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class VisitId:
    """The identity of one visit of one task in one iteration: two visits are two groups."""

    iteration: int
    visit: int
    task: str

    def __str__(self) -> str:
        """Return the slash-separated form used in logs."""
        return f"{self.iteration}/{self.visit}/{self.task}"


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class EpisodeId:
    """The identity of one episode: the visit of a task, and the member of its group.

    Example:
        >>> one = EpisodeId(iteration=1, visit=0, task="t", member=2)
        >>> str(one), str(one.visit_id)
        ('1/0/t/2', '1/0/t')
    """

    iteration: int
    visit: int
    task: str
    member: int

    @property
    def visit_id(self) -> VisitId:
        """The visit that all members of the group share."""
        return VisitId(iteration=self.iteration, visit=self.visit, task=self.task)

    def __str__(self) -> str:
        """Return the slash-separated form used in logs."""
        return f"{self.iteration}/{self.visit}/{self.task}/{self.member}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Moves:
    """The actions of consecutive env steps of one training episode, from its step 0 on.

    `actions` are (seat, action). The steps have the random draws of `episode`.

    Example:
        >>> episode = EpisodeId(iteration=1, visit=0, task="t", member=2)
        >>> len(Moves(episode=episode, actions=(("player", "UP"), ("player", "UP"))).actions)
        2
    """

    episode: EpisodeId
    actions: tuple[tuple[str, str], ...]


Opening = tuple[Moves, ...]
"""The moves from the first state of a task to the one in which an episode begins, in their order;
empty where it begins in the first one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Player:
    """Who plays a seat in place of its agent's policy: a baseline of the env, or frozen weights.

    `policy` is the engine's name of the frozen weights; empty for the baseline called `name`.

    Example:
        >>> Player(name="minimax-1").policy
        ''
    """

    name: str
    policy: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskVisit:
    """One occurrence of a task in one iteration. Two visits of one task are two groups.

    Its episodes begin in the state that `opening` leads to. `players` are opponents, by seat; the
    agents' policies play the other seats.

    Example:
        >>> task = Task(id="t", env="e", seed=0, data={})
        >>> str(TaskVisit(iteration=3, visit=0, task=task).episode(member=1))
        '3/0/t/1'
    """

    iteration: int
    visit: int
    task: Task
    opening: Opening = ()
    players: Mapping[str, Player] = field(default_factory=dict)

    def episode(self, member: int) -> EpisodeId:
        """Return the identity of one episode of this visit."""
        return EpisodeId(
            iteration=self.iteration, visit=self.visit, task=self.task.id, member=member
        )


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class TurnId:
    """The identity of one model call. It decides the call's random draws (`turnwise.seeding`).

    `role` is the seat that is called: the role itself, or one of its seats such as `ant-3`.
    `turn` counts the seat's calls. `round` counts the episode's rounds: a new one begins when a
    seat acts that has acted in the present one. `branch` numbers siblings of one turn; it is 0
    where a turn has no siblings. `trial` names the trial in which the call is made, "" for calls of
    the played path and their siblings.

    Example:
        >>> episode = EpisodeId(iteration=1, visit=0, task="t", member=2)
        >>> str(TurnId(episode=episode, role="player", turn=3))
        '1/0/t/2/player/3/0'
    """

    episode: EpisodeId
    role: str
    turn: int
    round: int = 0
    branch: int = 0
    trial: str = ""

    def __str__(self) -> str:
        """Return the slash-separated form used in logs; `round` follows from the rest."""
        where = f"{self.episode}/{self.role}/{self.turn}/{self.branch}"
        return f"{where}/{self.trial}" if self.trial else where
