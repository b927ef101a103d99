"""The nouns of turnwise: what a task, a turn, an episode and a training row are.

Owns the frozen dataclasses that every other package passes around. Knows nothing of torch, files,
models or environments. Output: plain values that compare by content and can be written as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

Split = Literal["train", "validation", "test"]
Decoding = Literal["greedy", "sampled"]
"""How a policy's tokens are chosen: the most probable ones, or draws at its temperature."""
Stream = Literal["train", "warmup", "evaluation"]
FinishReason = Literal["stop", "length", "context"]
FailureKind = Literal["parse", "illegal_action", "context", "env", "engine"]
MessageRole = Literal["system", "user", "assistant", "tool"]


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One chat message, as a chat template takes it.

    Example:
        >>> Message(role="user", content="r0c0 start").as_dict()
        {'role': 'user', 'content': 'r0c0 start'}
    """

    role: MessageRole
    content: str

    def as_dict(self) -> dict[str, str]:
        """Return the `{"role", "content"}` dict that tokenizers' chat templates expect."""
        return {"role": self.role, "content": self.content}


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolChat:
    """Messages, and the JSON schemas of the tools that the chat template is to offer with them.

    Example:
        >>> ToolChat(messages=(Message(role="user", content="2+2"),), tools=()).messages[0].role
        'user'
    """

    messages: tuple[Message, ...]
    tools: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class TurnId:
    """Where a model call belongs. Identity is a type: nothing is ever divided to find it.

    `visit` counts how often tasks occur in one iteration: two visits of one task are two groups.
    `branch` numbers siblings of one turn; it is 0 where a turn has no siblings.

    Example:
        >>> a = TurnId(iteration=1, visit=0, task="t", sample=2, role="player", turn=3)
        >>> str(a)
        '1/0/t/2/player/3/0'
    """

    iteration: int
    visit: int
    task: str
    sample: int
    role: str
    turn: int
    branch: int = 0

    def __str__(self) -> str:
        """Return the slash-separated form used in logs."""
        parts = (self.iteration, self.visit, self.task, self.sample, self.role)
        return "/".join(str(part) for part in (*parts, self.turn, self.branch))


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How tokens are drawn: from softmax(logits / temperature), or greedily at temperature 0.

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
    """What went wrong in a turn or an episode, as data: a failed rollout never kills its siblings.

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

    Example:
        >>> turn = Turn(
        ...     id=TurnId(iteration=0, visit=0, task="t", sample=0, role="player", turn=0),
        ...     policy="main", policy_version=3, prompt_ids=(5, 6), completion_ids=(7, 2),
        ...     logprobs=(-0.1, -0.2), sampling=Sampling(), finish_reason="stop",
        ...     text="<answer> DOWN </answer>", action="DOWN", rewards={"goal": 1.0})
        >>> len(turn.completion_ids) == len(turn.logprobs)
        True
    """

    id: TurnId
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
    error: Failure | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """One role's turns in one episode, in order.

    Example:
        >>> Trajectory(role="player", turns=()).role
        'player'
    """

    role: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """All roles' trajectories of one play of one task, and how it ended.

    `terminated` (the world ended it) and `truncated` (a limit cut it) are never merged. `score` is
    the environment's own success measure in [0, 1], apart from any training reward; or, where the
    env says `scored_by = "return"`, the weighted sum of its rewards. `notes` are JSON-able remarks
    of those who found the rewards, for people who read the episode.

    Example:
        >>> task = Task(id="t", env="e", seed=0, data={})
        >>> e = Episode(task=task, iteration=0, visit=0, sample=1, trajectories=(),
        ...             terminated=True, truncated=False, score=1.0)
        >>> e.score
        1.0
    """

    task: Task
    iteration: int
    visit: int
    sample: int
    trajectories: tuple[Trajectory, ...]
    terminated: bool
    truncated: bool
    score: float
    error: Failure | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        """Whether the world or the engine failed, so that the policy did not decide the score."""
        return self.error is not None and self.error.kind in ("env", "engine")

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Every turn of every role, role by role."""
        return tuple(turn for trajectory in self.trajectories for turn in trajectory.turns)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sample:
    """One token row for training, with one value a token in every stream (all of shape [tokens]).

    `sampled_mask` marks what the engine drew; `rl_weight`, a part of it, what carries policy
    gradient; `ce_weight`, `ref_kl_weight` and `entropy_weight` weigh the other parts of the loss.
    `logprobs` are the behaviour's, 0.0 where nothing was sampled. `turn_index` is the position in
    `turns` of the turn that sampled the token, -1 elsewhere: losses aggregate by turn and episode,
    never by row. Position 0 is never a target: nothing predicts it.

    Raises:
        ValueError: if the streams differ in length.

    Example:
        >>> turn = TurnId(iteration=0, visit=0, task="t", sample=0, role="player", turn=0)
        >>> row = Sample.of(policy="main", turns=(turn,), token_ids=[5, 6, 7],
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
        **streams: Any,
    ) -> Sample:
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
            **values,
        )


STREAMS = (
    "token_ids",
    "turn_index",
    "sampled_mask",
    "rl_weight",
    "logprobs",
    "temperature",
    "advantages",
    "ce_weight",
    "ref_kl_weight",
    "entropy_weight",
)
