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

from turnwise.types.ids import EpisodeId as EpisodeId
from turnwise.types.ids import Moves as Moves
from turnwise.types.ids import Opening as Opening
from turnwise.types.ids import Player as Player
from turnwise.types.ids import Task as Task
from turnwise.types.ids import TaskVisit as TaskVisit
from turnwise.types.ids import TurnId as TurnId
from turnwise.types.ids import VisitId as VisitId
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
    forced: bool = False
    """Whether a single action was legal there."""
    error: Failure | None = None
    media: MediaKey = ()
    """The hashes of what the prompt showed beside its tokens."""
    prompt_text: str = ""
    """The text of the prompt where it has no ids: that of a policy at a server."""
    trials: tuple[Mapping[str, float], ...] = ()
    """The reward components that the seat earned in each trial of the turn, by which the turn is
    compared with its siblings; empty where it has none. A trial is the turn's own step, and what
    was played after it to judge it (docs/math.md 2)."""

    @property
    def text_only(self) -> bool:
        """Whether a server wrote it, which tells neither ids nor log-probabilities."""
        return bool(self.prompt_text)

    @property
    def shown(self) -> tuple[tuple[int, ...], str, MediaKey]:
        """What identifies the prompt: its ids, its text where it has no ids, and its media."""
        return self.prompt_ids, self.prompt_text, self.media


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """The turns of one seat in one episode, in order.

    `role` is the agent's role and `seat` its seat; both are equal where a role has one seat.
    `siblings` are branches of turns that were not chosen. `next_key` is the key of the state in
    which the seat would have gone on, where the trainer left the episode before its end
    (`trainer.max_turns`). `player` is the name of the opponent that played the seat, empty for the
    agent's policy: its turns are neither trained nor measured.

    Example:
        >>> Trajectory(role="ant", seat="ant-3", turns=()).seat
        'ant-3'
    """

    role: str
    seat: str
    turns: tuple[Turn, ...]
    siblings: tuple[Turn, ...] = ()
    next_key: str | None = None
    player: str = ""

    @property
    def sampled(self) -> tuple[Turn, ...]:
        """The turns and the siblings."""
        return self.turns + self.siblings


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """The trajectories of all seats in one episode of one task, and how it ended.

    `terminated` (the world ended it) and `truncated` (a limit cut it) are never merged. `score` is
    the environment's own success measure in [0, 1], apart from any training reward; or, where the
    env says `scored_by = "return"`, the weighted sum of its rewards. `measures` are what else the
    env measured in the final state (`Env.measures`); empty where there was none. `notes` are
    JSON-able remarks of those who found the rewards, for people who read the episode. `opening`
    leads from the task's first state to the one in which the episode begins. An episode that the
    trainer left before its end has no measures, and the score 0 or its return so far. `resets`
    counts how often its env went back to an earlier state to try a sibling, and `trial_steps` the
    env steps of trials beyond those of recorded turns.

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
    resets: int = 0
    trial_steps: int = 0

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
        """Every turn of every seat on the played path, seat by seat."""
        return tuple(turn for trajectory in self.trajectories for turn in trajectory.turns)

    @property
    def sampled(self) -> tuple[Turn, ...]:
        """Every turn of every seat, and the siblings with which the episode did not go on."""
        return tuple(turn for trajectory in self.trajectories for turn in trajectory.sampled)

    @property
    def own_turns(self) -> tuple[Turn, ...]:
        """The turns of all seats but those that opponents played."""
        own = (trajectory for trajectory in self.trajectories if not trajectory.player)
        return tuple(turn for trajectory in own for turn in trajectory.turns)

    @property
    def opponent(self) -> str:
        """The name of the opponent that played in it; empty where there was none."""
        return next((each.player for each in self.trajectories if each.player), "")


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
        zero = np.zeros(len(index))
        given = dict.fromkeys(STREAMS[3:], zero) | {"rl_weight": sampled, "temperature": zero + 1}
        values: dict[str, Any] = {
            name: np.asarray(value, dtype=np.float32) for name, value in (given | streams).items()
        }
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
