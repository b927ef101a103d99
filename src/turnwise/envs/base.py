"""The contract with env authors: five words (reset, observe, step, score, baselines).

Owns `Env` and the values it exchanges. Worlds know nothing of models, prompts or tokens: they show
text and take an action word. States are immutable, so any state can be stepped again and again
(`branching = "pure"`), and all chance comes from the generator that `step` is handed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np

from turnwise.types import Task

Level = Literal["process", "agent", "team"]
RewardTiming = Literal["dense", "terminal"]
Branching = Literal["pure", "copy", "replay", "none"]
S = TypeVar("S")


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What one role sees: the text, the words it may answer with, and the truth about the text.

    `description` is a true, checkable description of what matters in `text`, in the env's own
    words and free of any advice. Warm-up teaches a model to write it; empty where there is none.

    Example:
        >>> Observation(text="you r0c0", legal=("LEFT", "DOWN")).legal
        ('LEFT', 'DOWN')
    """

    text: str
    legal: tuple[str, ...]
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step(Generic[S]):
    """The outcome of one action. `rewards` are named components; absent means 0.

    Example:
        >>> Step(state=3, rewards={"goal": 1.0}, terminated=True, truncated=False).rewards["goal"]
        1.0
    """

    state: S
    rewards: Mapping[str, float]
    terminated: bool
    truncated: bool
    info: Mapping[str, Any] = field(default_factory=dict)


class Baseline(Protocol):
    """A policy that needs no model: it may look at the full state."""

    def __call__(self, state: Any, rng: np.random.Generator) -> str:
        """Return the action to take in `state`."""
        ...


class Env(ABC, Generic[S]):
    """One world: states, observations, actions and rewards.

    Class attributes: `name`; `roles`; `components`, reward component -> level; `reward_timing`;
    `branching`. Instances hold the env's options and no episode: all of an episode is in `S`.
    """

    name: ClassVar[str]
    roles: ClassVar[tuple[str, ...]] = ("player",)
    components: ClassVar[Mapping[str, Level]]
    reward_timing: ClassVar[RewardTiming] = "dense"
    branching: ClassVar[Branching] = "pure"

    def __init__(self, config: Any = None) -> None:
        self.config = config

    @abstractmethod
    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw the JSON-able data of one random solvable task."""

    @abstractmethod
    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the string whose hash puts a task into a split: equal for equal problems."""

    @abstractmethod
    def reset(self, task: Task) -> S:
        """Return the first state of `task`."""

    @abstractmethod
    def observe(self, state: S, role: str) -> Observation:
        """Return what `role` sees in `state`."""

    @abstractmethod
    def step(self, state: S, role: str, action: str, noise: np.random.Generator) -> Step[S]:
        """Return what `action` leads to. Raise `ValueError` for a word that is not legal."""

    @abstractmethod
    def score(self, state: S) -> float:
        """Return the success of an episode that ended in `state`, in [0, 1]."""

    @abstractmethod
    def state_key(self, state: S, role: str) -> str:
        """Return everything Markov about `state` for `role` as a string (MATH 2, gigpo)."""

    @abstractmethod
    def baselines(self) -> Mapping[str, Baseline]:
        """Return named policies without a model: random, constants, reflexes, the optimum."""

    def words(self) -> tuple[str, ...]:
        """Return words a nano tokenizer keeps whole even if no transcript shows them."""
        return ()

    def render(self, state: S) -> str:
        """Return a picture of `state` for people; the first role's text if not overridden."""
        return self.observe(state, self.roles[0]).text

    @property
    def fixed(self) -> bool:
        """Whether all tasks are one problem, which is then in every split: no test is unseen."""
        return False
