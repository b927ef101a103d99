"""A seat that a baseline of the env plays: an opponent without a model.

Provides `BaselineAgent`. Its turns are recorded as text, with the action as the reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.agents import Exchange
from turnwise.envs.base import Baseline, Env, Step
from turnwise.errors import EnvError
from turnwise.rollout.counter import EpisodeCounter
from turnwise.rollout.draws import Draws
from turnwise.rollout.env_step import step_env
from turnwise.rollout.failures import GOES_ON
from turnwise.rollout.seat_rewards import SeatRewards
from turnwise.types import EpisodeId, Message, Sampling, Turn, TurnId


@dataclass(kw_only=True)
class BaselineAgent:
    """One seat in one episode, played by the baseline called `name`.

    Its random draws are shared by the episodes of a group where the env's are.
    """

    name: str
    seat: str
    env: Env[Any]
    baseline: Baseline
    episode: EpisodeId
    draws: Draws
    counter: EpisodeCounter
    rewards: SeatRewards
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
        if self.counter.turns >= self.counter.limit(self.env):
            raise EnvError(GOES_ON)
        self.counter.begin_act(self.seat)
        shown = self.env.observe(state, self.seat).text
        order, number, place = self.counter.calls, self.counter.turns + 1, self.counter.steps
        self.counter.take_turn()
        action = self.baseline(state, self.draws.of_opponent(self.episode, place, self.seat))
        noise = self.draws.of_step(self.episode, place)
        step = await step_env(self.env, state, self.seat, action, noise)
        self.turns.append(self._turn(shown, action, step, order))
        self.rewards.played(self.seat)
        self.rewards.give(step.others)
        return self.counter.cut(self.env, step, number)

    def _turn(self, shown: str, action: str, step: Step[Any], order: int) -> Turn:
        round_ = self.counter.round
        return Turn(
            id=TurnId(episode=self.episode, role=self.seat, turn=len(self.turns), round=round_),
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
