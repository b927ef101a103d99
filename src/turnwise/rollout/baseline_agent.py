"""A seat that a baseline of the env plays: an opponent without a model.

Provides `BaselineAgent`. Its turns are recorded as text, with the action as the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.agents import Exchange
from turnwise.envs.base import Baseline, Step
from turnwise.errors import EnvError
from turnwise.rollout.context import EpisodeContext
from turnwise.rollout.env_step import step_env
from turnwise.rollout.failures import GOES_ON
from turnwise.types import Message, Sampling, Turn, TurnId


@dataclass(kw_only=True)
class BaselineAgent:
    """One seat in one episode, played by the baseline called `name`.

    Its random draws are shared by the episodes of a group where the env's are.
    """

    name: str
    seat: str
    baseline: Baseline
    context: EpisodeContext
    turns: list[Turn] = field(default_factory=list)
    siblings: tuple[Turn, ...] = ()
    past: list[Exchange] = field(default_factory=list)

    async def act(
        self, state: Any, *, temperature: float | None = None, max_tokens: int | None = None
    ) -> Step[Any]:
        """Step the env with the baseline's action and record the turn.

        A workflow's settings of sampling are for models; a baseline samples no tokens.

        Raises:
            EnvError: if the workflow goes on after the cap on turns.
        """
        context, env, counter = self.context, self.context.env, self.context.counter
        if counter.turns >= counter.limit(env):
            raise EnvError(GOES_ON)
        counter.begin_act(self.seat)
        shown = env.observe(state, self.seat).text
        order, number, place = counter.calls, counter.turns + 1, counter.steps
        counter.take_turn()
        action = self.baseline(state, context.draws.of_opponent(context.episode, place, self.seat))
        noise = context.draws.of_step(context.episode, place)
        step = await step_env(env, state, self.seat, action, noise)
        self.turns.append(self._turn(shown, action, step, order))
        context.rewards.played(self.seat)
        context.rewards.give(step.others)
        return counter.cut(env, step, number)

    def _turn(self, shown: str, action: str, step: Step[Any], order: int) -> Turn:
        return Turn(
            id=TurnId(
                episode=self.context.episode,
                role=self.seat,
                turn=len(self.turns),
                round=self.context.counter.round,
            ),
            order=order,
            policy=self.name,
            policy_version=0,
            prompt_ids=(),
            completion_ids=(),
            logprobs=(),
            sampling=Sampling(),
            finish_reason="stop",
            text=action,
            action=action,
            rewards=dict(step.rewards),
            prompt_text=shown,
        )

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        score: Callable[[str], float] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> str:
        """Refuse to answer.

        Raises:
            EnvError: always.
        """
        raise EnvError(
            f"{self.seat!r} is played by the baseline {self.name!r}, which answers no questions: "
            "let the workflow ask none of opponents"
        )

    def next_key(self, state: Any) -> str | None:
        """Return nothing: the turns of opponents are not trained."""
        return None
