"""The nouns of turnwise: tasks, prompts, turns, trajectories, episodes and training rows.

Provides the frozen dataclasses that all other packages exchange. They are plain values, which
compare by content and can be written as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from turnwise.types.prompts import Media as Media
from turnwise.types.prompts import MediaKey as MediaKey
from turnwise.types.prompts import Message as Message
from turnwise.types.prompts import MessageRole as MessageRole
from turnwise.types.prompts import Prompt as Prompt

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

Split = Literal["train", "validation", "test"]
Decoding = Literal["greedy", "sampled"]
"""The rule that chooses a policy's tokens: the most probable ones, or draws at its temperature."""
Stream = Literal["train", "warmup", "evaluation"]
FinishReason = Literal["stop", "length", "context"]
Phase = Literal["act", "ask"]
Level = Literal["process", "agent", "team"]
"""Whom a reward component rewards: one turn of one role, one role, or all roles."""
FailureKind = Literal["parse", "illegal_action", "context", "env", "engine"]


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
class TaskVisit:
    """One occurrence of a task in one iteration. Two visits of one task are two groups.

    Its episodes begin in the state that `opening` leads to.

    Example:
        >>> task = Task(id="t", env="e", seed=0, data={})
        >>> str(TaskVisit(iteration=3, visit=0, task=task).episode(member=1))
        '3/0/t/1'
    """

    iteration: int
    visit: int
    task: Task
    opening: Opening = ()

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
    where a turn has no siblings.

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

    def __str__(self) -> str:
        """Return the slash-separated form used in logs; `round` follows from the rest."""
        return f"{self.episode}/{self.role}/{self.turn}/{self.branch}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """The sampling parameters: draws from softmax(logits / temperature), greedy at temperature 0.

    Training sampling has no top-p, top-k, min-p or penalties: the distribution sampled is the
    distribution scored.

    Example:
        >>> Sampling(temperature=0.0, max_tokens=8).greedy
        True
    """

    temperature: float = 1.0
    max_tokens: int = 64

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken instead of a draw."""
        return self.temperature == 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A named part of a completion, as token positions [start, end) in `completion_ids`.

    Example:
        >>> Span(name="answer", start=20, end=21).name
        'answer'
    """

    name: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """The failure of a turn or an episode, as data: a failed rollout never ends its siblings.

    Example:
        >>> Failure(kind="parse", message="no <answer> tag").kind
        'parse'
    """

    kind: FailureKind
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One model call, exactly as sampled: ids and log-probabilities are never re-tokenised.

    Shapes: `prompt_ids` [prompt], `completion_ids` [completion], `logprobs` [completion]; the end
    token is a sampled token and part of the completion. `logprobs` are of the distribution sampled,
    softmax(logits / sampling.temperature). `state_key` is the environment's key of the state acted
    in (everything Markov); `rewards` are the step's named components, not yet weighted.

    `phase` says what the call was for: `act` steps the env, `ask` steps nothing. `chosen` says
    whether the episode went on with this branch; siblings that were not chosen never enter the
    episode's return. `order` counts the calls of all seats of the episode as they were made.

    Example:
        >>> episode = EpisodeId(iteration=0, visit=0, task="t", member=0)
        >>> turn = Turn(
        ...     id=TurnId(episode=episode, role="player", turn=0), order=0,
        ...     policy="main", policy_version=3, prompt_ids=(5, 6), completion_ids=(7, 2),
        ...     logprobs=(-0.1, -0.2), sampling=Sampling(), finish_reason="stop",
        ...     text="<answer> DOWN </answer>", action="DOWN", rewards={"goal": 1.0})
        >>> len(turn.completion_ids) == len(turn.logprobs)
        True
    """

    id: TurnId
    order: int
    phase: Phase = "act"
    chosen: bool = True
    policy: str
    policy_version: int
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    sampling: Sampling
    finish_reason: FinishReason
    text: str
    spans: tuple[Span, ...] = ()
    action: str | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)
    state_key: str | None = None
    seen: str = ""
    """A hash of the observation that it answers, equal for equal ones; empty for a question."""
    error: Failure | None = None
    media: MediaKey = ()
    """The hashes of what the prompt showed beside its tokens."""
    prompt_text: str = ""
    """The text of the prompt where it has no ids: that of a policy at a server."""

    @property
    def text_only(self) -> bool:
        """Whether a server wrote it, which tells neither ids nor log-probabilities."""
        return bool(self.prompt_text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """The turns of one seat in one episode, in order.

    `role` is the agent's role and `seat` its seat; both are equal where a role has one seat.
    `siblings` are branches of turns that were not chosen. `next_key` is the key of the state in
    which the seat would have gone on, where the trainer left the episode before its end
    (`trainer.max_turns`).

    Example:
        >>> Trajectory(role="ant", seat="ant-3", turns=()).seat
        'ant-3'
    """

    role: str
    seat: str
    turns: tuple[Turn, ...]
    siblings: tuple[Turn, ...] = ()
    next_key: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """The trajectories of all seats in one episode of one task, and how it ended.

    `terminated` (the world ended it) and `truncated` (a limit cut it) are never merged. `score` is
    the environment's own success measure in [0, 1], apart from any training reward; or, where the
    env says `scored_by = "return"`, the weighted sum of its rewards. `measures` are what else the
    env measured in the final state (`Env.measures`); empty where there was none. `notes` are
    JSON-able remarks of those who found the rewards, for people who read the episode. `opening`
    leads from the task's first state to the one in which the episode begins. An episode that the
    trainer left before its end has the score 0 and no measures.

    Example:
        >>> task = Task(id="t", env="e", seed=0, data={})
        >>> one = EpisodeId(iteration=0, visit=0, task="t", member=1)
        >>> Episode(id=one, task=task, trajectories=(), terminated=True, truncated=False,
        ...         score=1.0).score
        1.0
    """

    id: EpisodeId
    task: Task
    trajectories: tuple[Trajectory, ...]
    terminated: bool
    truncated: bool
    score: float
    measures: Mapping[str, float] = field(default_factory=dict)
    error: Failure | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    opening: Opening = ()

    @property
    def broken(self) -> bool:
        """Whether the world or the engine failed, so that the policy did not decide the score."""
        return self.error is not None and self.error.kind in ("env", "engine")

    @property
    def left(self) -> bool:
        """Whether the trainer left it before its end."""
        return any(each.next_key is not None for each in self.trajectories)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Every turn of every seat, seat by seat."""
        return tuple(turn for trajectory in self.trajectories for turn in trajectory.turns)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrainingSample:
    """One token row for training, with one value a token in every stream (all of shape [tokens]).

    `sampled_mask` marks what the engine drew; `rl_weight`, a part of it, what carries policy
    gradient; `ce_weight`, `ref_kl_weight` and `entropy_weight` weigh the other parts of the loss.
    `logprobs` are the behaviour's, 0.0 where nothing was sampled. `turn_index` is the position in
    `turns` of the turn that sampled the token, -1 elsewhere: losses aggregate by turn and episode,
    never by row. Position 0 is never a target: nothing predicts it. `media` are the hashes of what
    the prompts showed: rows with different media share no prefix.

    Raises:
        ValueError: if the streams differ in length.

    Example:
        >>> episode = EpisodeId(iteration=0, visit=0, task="t", member=0)
        >>> turn = TurnId(episode=episode, role="player", turn=0)
        >>> row = TrainingSample.of(policy="main", turns=(turn,), token_ids=[5, 6, 7],
        ...                 turn_index=[-1, -1, 0], logprobs=[0.0, 0.0, -0.7])
        >>> row.sampled_mask.tolist(), row.targets.tolist()
        ([False, False, True], [2])
    """

    policy: str
    policy_version: int
    turns: tuple[TurnId, ...]
    token_ids: IntArray
    turn_index: IntArray
    sampled_mask: BoolArray
    rl_weight: FloatArray
    logprobs: FloatArray
    temperature: FloatArray
    advantages: FloatArray
    ce_weight: FloatArray
    ref_kl_weight: FloatArray
    entropy_weight: FloatArray
    media: MediaKey = ()

    def __post_init__(self) -> None:
        """Check that all streams have one length."""
        lengths = {name: len(getattr(self, name)) for name in STREAMS}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"a sample's streams must have one length, got {lengths}")

    @property
    def targets(self) -> IntArray:
        """Positions whose log-probability some part of the loss or a metric needs, ascending."""
        wanted = (self.sampled_mask | (self.ce_weight != 0)) | (self.ref_kl_weight != 0)
        return np.flatnonzero(wanted)

    @classmethod
    def of(
        cls,
        *,
        policy: str,
        turns: tuple[TurnId, ...],
        token_ids: Sequence[int] | IntArray,
        turn_index: Sequence[int] | IntArray,
        policy_version: int = 0,
        media: MediaKey = (),
        **streams: Any,
    ) -> TrainingSample:
        """Build a row from whatever streams are given; the others take their neutral values.

        `sampled_mask` defaults to `turn_index >= 0`, `rl_weight` to that mask, temperature to 1,
        everything else to 0.
        """
        index = np.asarray(turn_index, dtype=np.int64)
        sampled = np.asarray(streams.pop("sampled_mask", index >= 0), dtype=bool)
        values: dict[str, Any] = {
            name: np.zeros(len(index), dtype=np.float32) for name in STREAMS[3:]
        }
        values |= {
            "rl_weight": sampled.astype(np.float32),
            "temperature": np.ones(len(index), dtype=np.float32),
        }
        values |= {name: np.asarray(value, dtype=np.float32) for name, value in streams.items()}
        return cls(
            policy=policy,
            policy_version=policy_version,
            turns=turns,
            token_ids=np.asarray(token_ids, dtype=np.int64),
            turn_index=index,
            sampled_mask=sampled,
            media=media,
            **values,
        )


STREAMS = (
    *("token_ids", "turn_index", "sampled_mask", "rl_weight", "logprobs", "temperature"),
    *("advantages", "ce_weight", "ref_kl_weight", "entropy_weight"),
)
