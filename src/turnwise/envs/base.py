"""The contract of envs: `reset`, `observe`, `step`, `score` and `baselines`.

Provides `Env` and the values it exchanges. Envs show text and take action words. States are
immutable, so any state can be stepped repeatedly (`branching = "pure"`), and all randomness comes
from the generator given to `step`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np

from turnwise.envs.frames import Frame
from turnwise.errors import EnvError
from turnwise.settings import Settings, parse
from turnwise.types import Episode, Level, Media, Message, Split, Task

RewardTiming = Literal["dense", "terminal"]
Branching = Literal["pure", "copy", "replay", "none"]
ScoredBy = Literal["score", "return"]
S = TypeVar("S")
MAX_TURNS = 100
"""The most turns of an episode where an env declares no maximum."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """The observation of one role: the text, the legal actions, and the true description.

    A legal action may have several words. A reply is compared with the legal actions without regard
    to case and to blanks at its ends, and `step` is given the action as it stands in the tuple.
    `legal_actions` is empty where any text may be an answer (a number, a program): there `step` is
    given the text as the model wrote it, without blanks at its ends, and says what is no action by
    raising `IllegalActionError`; and the env overrides `random_action`.
    `description` is a true, checkable description of what matters in `text`, in the env's own
    words and free of any advice. Warm-up teaches a model to write it; empty where there is none.
    `messages` say the same as `text` where that is not one message of the user's: a conversation
    so far, or a tool's result. `raw` text reaches the model as it stands, without a chat template.
    `tools` are the JSON schemas of what may be called (`envs.tools`), beside answering. `media` are
    pictures and the like that belong to the text; a policy's renderer that has no use for them
    refuses the prompt.

    Example:
        >>> Observation(text="you r0c0", legal_actions=("LEFT", "DOWN")).legal_actions
        ('LEFT', 'DOWN')
    """

    text: str
    legal_actions: tuple[str, ...]
    description: str = ""
    messages: tuple[Message, ...] = ()
    raw: bool = False
    tools: tuple[str, ...] = ()
    media: tuple[Media, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that it holds."""
        said = (message.content for message in self.messages)
        return (self.text, self.description, *self.legal_actions, *said, *self.tools)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step(Generic[S]):
    """The outcome of one action. `rewards` are named components; absent means 0.

    `rewards` are those of the seat that acted, `others` those of other seats, by seat. `terminated`
    says that the episode has come to its end, `truncated` that its time is up; the env sets them,
    at most one of them to True. An episode that reaches `Env.max_turns` is truncated by the
    rollout: an env does not count turns for it.

    Example:
        >>> Step(state=3, rewards={"goal": 1.0}, terminated=True, truncated=False).rewards["goal"]
        1.0
    """

    state: S
    rewards: Mapping[str, float]
    terminated: bool
    truncated: bool
    info: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRewards:
    """The result of `Env.score_batch`: one entry for each episode, in their order.

    `rewards` are components; `None` stands for an episode that nothing could judge. `notes` are
    JSON-able remarks; `metrics` are numbers of the whole batch.

    Example:
        >>> BatchRewards(rewards=({"length": 3.0}, None)).rewards[0]
        {'length': 3.0}
    """

    rewards: tuple[Mapping[str, float] | None, ...]
    notes: tuple[Mapping[str, Any], ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Relabelled:
    """A task that an episode's actions solve, whatever was asked (hindsight, arXiv:1707.01495).

    `data` is the data of the task, and `actions` solve it: the episode's, or fewer that come to the
    same. `closeness` says in [0, 1] how near the outcome is to the one that was asked.

    Example:
        >>> Relabelled(data={"goal": 3}, actions=("RIGHT",), closeness=0.5).data
        {'goal': 3}
    """

    data: Mapping[str, Any]
    actions: tuple[str, ...]
    closeness: float


class Baseline(Protocol):
    """A policy that needs no model: it may look at the full state."""

    def __call__(self, state: Any, rng: np.random.Generator) -> str:
        """Return the action to take in `state`."""
        ...


ActionProbabilities = Mapping[str, Mapping[str, float]]
"""Decision -> action -> probability; what is missing to 1 answers nothing legal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exact(Generic[S]):
    """A task with so few states that what a policy is worth can be computed, without sampling.

    `role` decides. `decisions` are all states in which it does, by name; what the role sees there
    must be all that its choice depends on. `players` are policies without a model with known
    probabilities; `measure` takes a policy's probabilities and returns the exact measures of it,
    first of all its expected score.

    Example:
        >>> coin = Exact(decisions={"toss": 0}, players={}, measure=lambda c: dict(c["toss"]))
        >>> coin.measure({"toss": {"heads": 0.5}})
        {'heads': 0.5}
    """

    decisions: Mapping[str, S]
    players: Mapping[str, ActionProbabilities]
    measure: Callable[[ActionProbabilities], Mapping[str, float]]
    role: str = "player"


class Env(ABC, Generic[S]):
    """One world: states, observations, actions and rewards.

    Attributes:
        name: the env's name.
        config_class: the options, a class derived from `Settings`. Instances hold the options as
            `config`, and no episode: all of an episode is in `S`.
        roles: the roles; an instance may set them by its options.
        components: reward component -> level, which says whom it rewards: "process" one turn of one
            role, "agent" the result of one role, "team" the common result of all roles.
        reward_timing: "dense" where rewards come at every step, "terminal" where at the end only.
        branching: the way back to an earlier state: "pure" where any state can be stepped again,
            else "copy", "replay" or "none". Adapters set it, and `reward_timing`, on the instance.
        scored_by: "score" where `score` is the success, "return" where the weighted sum of the
            rewards is (`credit.rewards`; weight 1 each for `evaluate_baselines`).
        files: the options that name a file.
        blocking: whether `step` waits for something outside, a program or a server: then steps of
            several episodes are made side by side on threads, and must bear it.
        runs_programs: whether it runs programs in `turnwise.sandbox`: then no run begins where that
            cannot be.
        max_turns: the most turns of an episode, all roles' together: the rollout truncates one
            that gets there. None is `MAX_TURNS`; declare it where episodes may be longer.

    `reset`, `observe`, `step` and `score` must be written. The rest has defaults that are right for
    an env whose tasks differ by their seed, whose text shows all of the state and whose answers are
    words: override what is not so.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[Settings]] = Settings
    roles: tuple[str, ...] = ("player",)
    components: ClassVar[Mapping[str, Level]]
    reward_timing: RewardTiming = "dense"
    branching: Branching = "pure"
    scored_by: ClassVar[ScoredBy] = "score"
    files: ClassVar[tuple[str, ...]] = ()
    blocking: bool = False
    runs_programs: bool = False
    max_turns: int | None = None
    opponents: tuple[str, ...] = ()
    config: Any = None

    def __init__(self, config: Any = None) -> None:
        """Hold the options: `config`, a mapping of them, or their defaults if it is None.

        Raises:
            ConfigError: if an option is unknown, wrong or missing.
        """
        kind: Any = self.config_class  # an env may declare anything; `check_env` says what is wrong
        if isinstance(kind, type) and issubclass(kind, Settings) and kind is not Settings:
            given = {} if config is None else config
            if isinstance(given, Mapping):
                config = parse(kind, given, f"env {type(self).__name__}")
        self.config = config

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw the JSON-able data of one random solvable task; by default a seed."""
        return {"seed": int(rng.integers(2**31))}

    def tasks(self, split: Split) -> Sequence[Mapping[str, Any]] | None:
        """Return the data of all tasks of a split, where they are a list; None if they are drawn.

        An env that lists its tasks splits them itself, by `envs.split.split_of`.
        """
        return None

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the string whose hash puts a task into a split: equal for equal problems."""
        return json.dumps(data, sort_keys=True)

    @abstractmethod
    def reset(self, task: Task) -> S:
        """Return the first state of `task`."""

    @abstractmethod
    def observe(self, state: S, role: str) -> Observation:
        """Return what `role` sees in `state`."""

    @property
    def seats(self) -> Mapping[str, str]:
        """Seat -> its role, in the order of play; by default each role has one seat of its name.

        Override it where a role has several seats, as in `{"ant-1": "ant", "ant-2": "ant"}`. All
        methods that take a `role` are given the seat.
        """
        return {role: role for role in self.roles}

    def acting(self, state: S) -> tuple[str, ...]:
        """Return the seats whose turn it is in `state`, the next one to act first.

        Seats that move at the same time are all returned. `step` keeps their actions in the state
        until the last one has acted.

        Raises:
            EnvError: if there are several seats and this is not overridden.
        """
        seats = tuple(self.seats)
        if len(seats) > 1:
            raise EnvError(
                f"{self.name} has the seats {', '.join(seats)}: override acting(state), which "
                "returns the seats whose turn it is"
            )
        return seats

    @abstractmethod
    def step(self, state: S, role: str, action: str, noise: np.random.Generator) -> Step[S]:
        """Return what `action` leads to.

        Raises:
            IllegalActionError: for an answer that is no action; it ends the episode, as the
                policy's failure.
        """

    @abstractmethod
    def score(self, state: S) -> float:
        """Return the success of an episode that ended in `state`, in [0, 1].

        With `scored_by = "return"` the weighted sum of the rewards is the score instead. The value
        of this method is then not used, and may be any finite number, such as 0.0.
        """

    def seat_score(self, state: S, seat: str) -> float:
        """Return the success of one seat, in [0, 1]: the score where others play against it."""
        return self.score(state)

    def measures(self, state: S) -> Mapping[str, float]:
        """Return what else is measured of an episode that ended in `state`, by name.

        There is nothing by default. Measures are reported beside the score, as means over episodes,
        and are no rewards. The names are the same for every state, and the values are finite and at
        most 1e18 in size.
        """
        return {}

    async def score_batch(
        self, episodes: Sequence[Episode], iterations: int
    ) -> BatchRewards | None:
        """Find rewards for all episodes of a batch at once; None if `step` gave them all.

        For judges that are asked in batches or wait for a service. The rewards found are added to
        the last turn of every seat; components of level `team` are added once, to the episode's
        last turn. What it raises stops the run.

        Args:
            episodes: those that came to an end without an error, in the order of the batch.
            iterations: how many iterations the run is to have.
        """
        return None

    def state_key(self, state: S, role: str) -> str:
        """Return all that decides the future of `state` for `role`; by default the text it sees.

        GiGPO (arXiv:2505.10978) compares actions that were taken at equal keys, and `gae` estimates
        the value of a state from the turns with its key. Override it where states with equal texts
        have different futures. No model is shown a key, so it may say what the text hides.
        """
        return self.observe(state, role).text

    def baselines(self) -> Mapping[str, Baseline]:
        """Return named policies without a model: random, constants, reflexes, the optimum.

        Each is asked for the action of the first of the seats that `acting(state)` returns. By
        default `random`.
        """
        return {"random": lambda state, rng: self.random_action(state, self.acting(state)[0], rng)}

    def random_action(self, state: S, role: str, rng: np.random.Generator) -> str:
        """Return a uniformly random action, for demonstrations and for the baseline `random`.

        Raises:
            EnvError: if there are no legal words to choose from and this is not overridden.
        """
        legal = self.observe(state, role).legal_actions
        if not legal:
            raise EnvError(f"{self.name}: any text may be an answer: override random_action")
        return legal[rng.integers(len(legal))]

    def relabel(self, task: Task, actions: Sequence[str]) -> Relabelled | None:
        """Return a task that an episode's actions solve; None if there is none, as by default.

        Hindsight learns from it (`trainer.kind = "hindsight"`): the actions are imitated on the
        returned task, whose steps have the draws that they had in the episode. `relabel` itself is
        given no draws, so it is for envs whose steps draw nothing. `check_env` plays the returned
        tasks.

        Args:
            task: the task that was played.
            actions: the actions of the only seat, in their order.

        Example:
            A walk along cells, of which one is the goal, can say that where it ended was the goal::

                def relabel(self, task, actions):
                    end = sum(1 if action == "RIGHT" else -1 for action in actions)
                    near = 1 / (1 + abs(task.data["goal"] - end))
                    return Relabelled(data={"goal": end}, actions=tuple(actions), closeness=near)
        """
        return None

    def exact(self, task: Task) -> Exact[S] | None:
        """Return how to compute what a policy is worth on `task`; None where that is not known."""
        return None

    def vocabulary(self) -> tuple[str, ...]:
        """Return words a nano tokenizer keeps whole even if no transcript shows them.

        Random play and its replies are transcripts. Other words are read and written in parts.
        """
        return ()

    def render(self, state: S) -> str:
        """Return a picture of `state` for people; the first seat's text if not overridden."""
        return self.observe(state, next(iter(self.seats))).text

    def frame(self, state: S) -> Frame | None:
        """Return a coloured picture of `state`; None for none, as by default."""
        return None

    def turn_cap(self) -> int:
        """Return the most turns of an episode: `max_turns`, or `MAX_TURNS` where that is None."""
        return MAX_TURNS if self.max_turns is None else self.max_turns

    @property
    def unwrapped(self) -> Env[Any]:
        """The env itself, where this is a wrapper around it: the one whose class can be asked."""
        return self

    @property
    def single_task(self) -> bool:
        """Whether all tasks are one problem, which is then in every split: no test is unseen."""
        return False


def scores_batches(env: Env[Any]) -> bool:
    """Return whether an env finds rewards for a whole batch, by a `score_batch` of its own."""
    return type(env.unwrapped).score_batch is not Env.score_batch


def score_span(env: Env[Any]) -> float | None:
    """Return how far two scores can be apart: 1, or None where the score is a return."""
    return 1.0 if env.scored_by == "score" else None
