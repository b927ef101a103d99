"""One seat of an episode: it observes, samples, parses, steps the env and records the turn.

Provides `RolloutAgent`. A turn is a question, one reply or several siblings (`rollout.siblings`),
and the branch with which the episode goes on. After an invalid reply the episode ends, or the agent
is asked again (`AgentConfig.invalid_reply`). `EpisodeOver` never leaves `rollout`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from turnwise.agents import AgentConfig, Exchange, observation_text, prompt_for
from turnwise.engines.base import Engine
from turnwise.engines.model_calls import ModelCalls, RendererLike, Said, without_failures
from turnwise.envs.base import Observation, Step
from turnwise.errors import EnvError, IllegalActionError, StuckEnvError
from turnwise.formats import Reply, reply_rewards
from turnwise.rollout.branch import Branch, Question
from turnwise.rollout.context import EpisodeContext
from turnwise.rollout.env_step import step_env
from turnwise.rollout.failures import (
    GOES_ON,
    NotRepeated,
    OthersRewarded,
    check_question,
    env_failure,
)
from turnwise.rollout.turn_rule import Score, TurnRule
from turnwise.types import Failure, Message, Prompt, Sampling, Turn, TurnId
from turnwise.utils.hashes import short_hash

_FULL = Failure(kind="context", message="the context is full: the reply was cut or never begun")
_NO_STEP = (
    "{}.step must return a Step, got {}: write "
    "return tw.Step(state=..., rewards=..., terminated=..., truncated=...)"
)


class EpisodeOver(Exception):
    """The episode cannot go on; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(kw_only=True)
class RolloutAgent:
    """One seat in one episode.

    The random draws of the env depend on the number of the env step, not on the seat that takes it
    or on the model calls before it. The step that reaches the cap on turns is truncated. With
    `falls_back` a random action stands in for a reply that is no action: an opponent never ends an
    episode by it.

    Attributes:
        sampling: how its model is sampled.
        turns: the seat's turns on the played path, `siblings` the others.
        past: what it remembers.
        rule: samples its turns; None samples one reply to each question.
    """

    seat: str
    config: AgentConfig
    sampling: Sampling
    engine: Engine
    renderer: RendererLike
    context: EpisodeContext
    falls_back: bool = False
    turns: list[Turn] = field(default_factory=list[Turn])
    siblings: list[Turn] = field(default_factory=list[Turn])
    past: list[Exchange] = field(default_factory=list[Exchange])
    rule: TurnRule | None = None
    _said: Said | None = None
    _calls: int = 0
    _invalid: int = 0
    _trial: str = ""
    _draw: str = ""
    _results: list[Step[Any] | str] = field(default_factory=list[Step[Any] | str])
    _replayed: deque[Step[Any] | str] = field(default_factory=deque[Step[Any] | str])
    _asked_again: bool = False

    @cached_property
    def _model(self) -> ModelCalls:
        return ModelCalls(
            policy=self.config.policy,
            reply_format=self.config.reply_format,
            goes_on=self.config.history == "full",
            engine=self.engine,
            renderer=self.renderer,
            stream=self.context.draws.stream,
        )

    async def act(
        self, state: Any, *, temperature: float | None = None, max_tokens: int | None = None
    ) -> Step[Any]:
        """Observe `state`, sample a reply, step the env with its action and record the turn.

        With `invalid_reply = "continue"` a reply that is no action is recorded too, and the agent
        is asked again, until the cap on turns truncates the episode or `invalid_limit` ends it.

        Raises:
            EnvError: if the workflow goes on after the cap on turns.
        """
        if self._replayed:
            found = self._replayed.popleft()
            if not isinstance(found, Step):
                raise NotRepeated(self.seat)
            return found
        if not self._asked_again:
            self.context.counter.begin_act(self.seat)
        self._asked_again = False
        sampling = self._sampling_with(temperature, max_tokens)
        step = None
        while step is None:
            if self.rule is None:
                question = self.question(state, sampling)
                self.take(question)
                branch, others = await self.stepped(await self.reply(question)), ()
            else:
                branch, others = await self.rule.of_turn(self.seat, state, sampling)
            step = self.go_on(branch, others)
        if self.rule is not None:  # for trials; without them states are not kept
            self._results.append(step)
        return step

    def question(self, state: Any, sampling: Sampling, ahead: int = 0) -> Question:
        """Return what the agent is asked in `state`.

        It is the agent's next turn, after `ahead` turns of others, which see the same state.

        Raises:
            EnvError: if the cap on turns has been reached.
        """
        counter = self.context.counter
        if counter.turns + ahead >= counter.limit(self.context.env):
            raise EnvError(GOES_ON)
        observation = self.context.env.observe(state, self.seat)
        prompt = prompt_for(self.config, self.past, observation)
        return Question(
            id=self._next_id(),
            order=counter.calls + ahead,
            number=counter.turns + ahead + 1,
            step=counter.steps + ahead,
            state=state,
            observation=observation,
            prompt=prompt,
            prompt_ids=self._model.ids_of(prompt, self._said),
            sampling=sampling,
        )

    def take(self, question: Question) -> None:
        """Count a question as the agent's turn."""
        self.context.counter.take_turn()
        self._calls += 1

    async def reply(self, question: Question, branch: int = 0) -> Branch:
        """Sample a reply and read its action; the env is not stepped yet."""
        identity = replace(question.id, branch=branch)
        prompt, ids, observation = question.prompt, question.prompt_ids, question.observation
        turn = await self._model.turn(identity, question.order, prompt, ids, question.sampling)
        action: str | Failure = _FULL
        if turn.completion_ids or turn.finish_reason != "context":
            action = action_of(turn.text, observation, self.config, self.renderer)
        reply = Reply(
            text=turn.text,
            reply_format=self.config.reply_format,
            description=observation.description,
            valid=isinstance(action, str),
        )
        turn = replace(
            turn,
            rewards=reply_rewards(reply),
            state_key=self._key_of(question.state, observation),
            seen=short_hash(observation.text),
            forced=len(observation.legal_actions) == 1,
        )
        if isinstance(action, Failure) and self.falls_back:
            rng = self.context.draws.of_fallback(identity)
            action = self.context.env.random_action(question.state, self.seat, rng)
        valid = action if isinstance(action, str) else None
        found = Branch(question=question, turn=turn, reply=reply, action=valid)
        return found if isinstance(action, str) else _refused(found, action)

    async def stepped(self, branch: Branch, *, draw: str = "", state: Any = None) -> Branch:
        """Step the env with a branch's action, from `state` in place of the one it was asked in.

        `draw` names the draw of the step, where it is made more than once.
        """
        question, action = branch.question, branch.action
        if action is None:
            return branch
        noise = self.context.draws.of_step(self.context.episode, question.step, draw or self._draw)
        begins = question.state if state is None else state
        try:
            step = await step_env(self.context.env, begins, self.seat, action, noise)
            if not isinstance(step, Step):
                raise EnvError(_NO_STEP.format(self.context.env.name, type(step).__name__))
        except IllegalActionError as refusal:
            return _refused(branch, Failure(kind="illegal_action", message=str(refusal)))
        except StuckEnvError:  # every further step would wait as long
            raise
        except Exception as cause:  # recorded, so that what led to it can be read; then on
            turn = replace(branch.turn, action=action, error=env_failure(cause))
            return replace(branch, turn=turn, cause=cause)
        if step.others and (self.rule is not None or self._trial):
            raise OthersRewarded(self.seat, step.others)
        step = self.context.counter.cut(self.context.env, step, question.number)
        rewards = {**reply_rewards(branch.reply), **step.rewards}
        return replace(branch, turn=replace(branch.turn, action=action, rewards=rewards), step=step)

    def go_on(self, branch: Branch, others: Sequence[Turn] = ()) -> Step[Any] | None:
        """Record a branch as the agent's turn, beside its siblings; return its step.

        None is for a reply that is no action, after which the agent is asked again.

        Raises:
            EpisodeOver: if such a reply ends the episode.
            Exception: what the env raised in the branch's step.
        """
        turn, question = branch.turn, branch.question
        self.turns.append(turn)
        self.siblings += others
        self._said = (question.prompt, question.prompt_ids + turn.completion_ids, turn.text)
        if branch.cause is not None:
            raise branch.cause
        if turn.error is not None:
            self.context.counter.refuse_step()
            if self._ends(turn.error):
                raise EpisodeOver(turn.error)
        else:
            self._invalid = 0
        self.context.rewards.played(self.seat)
        if branch.step is not None and branch.step.others:
            self.context.rewards.give(branch.step.others)
        observation = question.observation
        self.past.append(
            Exchange(
                observation=observation_text(self.config, observation),
                reply=turn.text,
                messages=observation.messages,
                media=observation.media,
            )
        )
        return branch.step or self._cut(question.state, question.number)

    def _ends(self, failure: Failure) -> bool:
        """Count an invalid reply; return whether it ends the episode."""
        self._invalid += 1
        config = self.config
        ends = config.invalid_reply == "end" or self._invalid == config.invalid_limit
        return ends or failure.kind == "context"

    def _cut(self, state: Any, number: int) -> Step[Any] | None:
        """Return the end of an episode whose last turn was an invalid reply; None before that."""
        if not self.context.counter.is_cut(self.context.env, number):
            return None
        return Step(state=state, rewards={}, terminated=False, truncated=True)

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        score: Score | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> str:
        """Put one question to the policy, record the turn, step nothing.

        Args:
            messages: the question.
            score: judges an answer; where turns have siblings, the one to go on with is chosen by
                it. One answer is not judged.
            temperature: in place of the agent's, where the policy is not greedy.
            max_tokens: in place of the agent's.

        Raises:
            EnvError: if the messages are none, if the workflow asks without end, or if turns have
                siblings and no score judges them.
        """
        if self._replayed:
            found = self._replayed.popleft()
            if not isinstance(found, str):
                raise NotRepeated(self.seat)
            return found
        check_question(messages, self.context.counter.asked)
        self.context.counter.asked += 1
        prompt = Prompt(messages=tuple(messages))
        sampling = self._sampling_with(temperature, max_tokens)
        if self.rule is None:
            (turn,), others = await self.answers(prompt, sampling, 1), ()
        else:
            turn, others = await self.rule.of_question(self.seat, prompt, sampling, score)
        self.turns.append(turn)
        self.siblings += others
        self.context.rewards.played(self.seat)
        if self.rule is not None:
            self._results.append(turn.text)
        return turn.text

    async def answers(self, prompt: Prompt, sampling: Sampling, count: int) -> list[Turn]:
        """Return `count` answers to a question that steps nothing."""
        identity, order = self._next_id(), self.context.counter.next_call()
        self._calls += 1
        ids = self._model.ids_of(prompt)

        async def one(branch: int) -> Turn:
            own = replace(identity, branch=branch)
            return replace(await self._model.turn(own, order, prompt, ids, sampling), phase="ask")

        return await without_failures([one(branch) for branch in range(count)])

    def _next_id(self) -> TurnId:
        """Return the identity of the agent's next call."""
        return TurnId(
            episode=self.context.episode,
            role=self.seat,
            turn=self._calls,
            round=self.context.counter.round,
            trial=self._trial,
        )

    def _sampling_with(self, temperature: float | None, max_tokens: int | None) -> Sampling:
        """Return the agent's sampling with what a workflow asks for; greedy stays greedy."""
        own = self.sampling
        if temperature is not None and not own.greedy:
            own = replace(own, temperature=temperature)
        return own if max_tokens is None else replace(own, max_tokens=max_tokens)

    def forked(self, context: EpisodeContext, trial: str, draw: str) -> RolloutAgent:
        """Return an agent that goes on from here by itself, in a trial.

        What it has returned so far is returned again first, to a workflow that is called anew.
        """
        other = copy(self)
        other.turns, other.siblings, other.past = [], [], list(self.past)
        other._results, other._replayed = [], deque(self._results)
        other.context, other._trial, other._draw, other.rule = context, trial, draw, None
        return other

    def goes_on_in_trial(self, branch: Branch) -> bool:
        """Record a branch as the first turn of a trial; return whether anything follows it."""
        step = self.go_on(branch)
        if step is None:
            self._asked_again = True
        else:
            self._replayed.append(step)
        return step is None or not (step.terminated or step.truncated)

    def next_key(self, state: Any) -> str | None:
        """Return the key of a state in which the seat would go on; None if it has no turn."""
        return (
            self._key_of(state, self.context.env.observe(state, self.seat)) if self.turns else None
        )

    def _key_of(self, state: Any, observation: Observation) -> str:
        """Return the key of a state, by which turns are compared."""
        if self.context.state_key == "observation":
            return observation_text(self.config, observation)
        return self.context.env.state_key(state, self.seat)


def _refused(branch: Branch, failure: Failure) -> Branch:
    """Return a branch whose reply is no action."""
    turn = branch.turn
    failed = _FULL if turn.finish_reason == "context" else failure  # it led to the other
    rewards = reply_rewards(replace(branch.reply, valid=False))
    return replace(branch, turn=replace(turn, rewards=rewards, error=failed), action=None)


def action_of(
    text: str, observation: Observation, agent: AgentConfig, renderer: RendererLike
) -> str | Failure:
    """Return what a reply does: the calls it makes where there are tools, or else its answer."""
    calls = renderer.calls(text) if observation.tools else None
    return calls or agent.reply_format.parse(text, observation.legal_actions)
