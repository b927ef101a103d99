"""The prompt of one turn, and a reply to it with the env step that it led to.

Provides `Question` and `Branch`. Where a turn has siblings, several branches answer one question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnwise.envs.base import Observation, Step
from turnwise.formats import Reply
from turnwise.types import Prompt, Sampling, Turn, TurnId


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """The question that an agent is asked in one turn, and the places of what follows.

    `id` has the branch 0. `order` counts the model calls of the episode, `number` its turns from 1,
    and `step` the env steps.
    """

    id: TurnId
    order: int
    number: int
    step: int
    state: Any
    observation: Observation
    prompt: Prompt
    prompt_ids: tuple[int, ...]
    sampling: Sampling


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """One reply to a question, and its outcome.

    `action` is None where the reply is no action, which `turn.error` explains. `step` is where the
    action led, None before the env is stepped. `cause` is what the env raised.
    """

    question: Question
    turn: Turn
    reply: Reply
    action: str | None
    step: Step[Any] | None = None
    cause: Exception | None = None

    @property
    def valid(self) -> bool:
        """Whether the reply is an action, which the env has not refused."""
        return self.turn.error is None

    @property
    def ended(self) -> bool:
        """Whether its step ended the episode."""
        return self.step is not None and (self.step.terminated or self.step.truncated)

    @property
    def trials(self) -> tuple[Mapping[str, float], ...]:
        """The rewards of its trials (`Turn.trials`)."""
        return self.turn.trials

    def judged(self, *trials: Mapping[str, float]) -> Branch:
        """Return the branch with the rewards of its trials."""
        return replace(self, turn=replace(self.turn, trials=trials))
