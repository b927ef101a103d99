"""A role's seat in one episode: it observes, samples, parses, steps the world and records the turn.

Owns the recording of turns. Knows nothing of groups, advantages or training. A model that answers
nonsense ends its own episode, as data: `EpisodeOver` never leaves `rollout.runner`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from turnwise.agents import (
    AgentConfig,
    Exchange,
    Prompt,
    observation_text,
    parse_answer,
    prompt_for,
)
from turnwise.engines.base import Completion, Engine, Request
from turnwise.envs.base import Env, Observation, Step
from turnwise.errors import BrokenEnvError, EnvError, IllegalActionError
from turnwise.noise import world_generator
from turnwise.rollout.guard import stepped
from turnwise.types import Failure, Message, Sampling, Span, Stream, Turn, TurnId

_FULL = Failure(kind="context", message="the context is full: the reply was cut or never begun")


class EpisodeOver(Exception):
    """The episode cannot go on; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class RendererLike(Protocol):
    """What a seat needs of a policy's renderer."""

    def prompt_ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the ids of a prompt."""
        ...

    def continued_ids(
        self, before: Prompt, ids: tuple[int, ...], reply: str, prompt: Prompt
    ) -> tuple[int, ...] | None:
        """Return the ids of a prompt that goes on from an earlier one, or None if it does not."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return a completion's text."""
        ...

    def spans(self, completion_ids: tuple[int, ...]) -> tuple[Span, ...]:
        """Return the named parts of a completion."""
        ...

    def calls(self, reply: str) -> str | None:
        """Return the calls of tools in a reply as an action, None if it calls nothing."""
        ...

    def spoken(self, reply: str) -> str:
        """Return a reply whose calls stand in an env's form as the model would say it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where an episode belongs, for identity and for chance (docs/math.md 1)."""

    seed: int
    stream: Stream
    iteration: int
    visit: int
    task: str
    sample: int
    common_noise: bool

    def turn(self, role: str, number: int) -> TurnId:
        """Return the identity of a turn at this place."""
        return TurnId(
            iteration=self.iteration,
            visit=self.visit,
            task=self.task,
            sample=self.sample,
            role=role,
            turn=number,
        )


class RolloutSeat:
    """The seat of one role in one episode under the `independent` topology.

    `steps` numbers the world's steps and is one for all seats of an episode: what the world draws
    depends on the step, not on who takes it or on what was asked before. The step that reaches the
    env's cap on turns is truncated, and sets `capped`.
    """

    def __init__(
        self,
        *,
        role: str,
        config: AgentConfig,
        sampling: Sampling,
        env: Env[Any],
        engine: Engine,
        renderer: RendererLike,
        place: Place,
        steps: Iterator[int],
    ) -> None:
        self.turns: list[Turn] = []
        self.capped = False
        self._role, self._config, self._sampling = role, config, sampling
        self._env, self._engine, self._renderer, self._place = env, engine, renderer, place
        self._steps = steps
        self._past: list[Exchange] = []
        self._said: tuple[Prompt, tuple[int, ...], str] | None = None  # prompt, ids, reply
        self._calls = 0

    async def act(self, state: Any) -> Step[Any]:
        """Observe `state`, sample an answer, step the world with it and record the turn."""
        observation = self._env.observe(state, self._role)
        prompt = prompt_for(self._config, self._past, observation)
        prompt_ids = self._ids_of(prompt)
        identity, completion = await self._sample(prompt_ids)
        text = self._renderer.decode(completion.token_ids)
        self._said = (prompt, prompt_ids + completion.token_ids, text)
        action: str | Failure = _FULL
        if completion.token_ids or completion.finish_reason != "context":
            action = action_of(text, observation, self._config, self._renderer)
        rewards = {"invalid": 0.0}
        if observation.description:
            rewards["seeing"] = float(thought_of(text) == observation.description)
        recorded: dict[str, Any] = {
            "identity": identity,
            "prompt_ids": prompt_ids,
            "completion": completion,
            "text": text,
            "rewards": rewards,
            "state_key": self._env.state_key(state, self._role),
        }
        step: Step[Any] | None = None
        if isinstance(action, str):
            try:
                step = await self._step(state, action)
            except IllegalActionError as refusal:
                action = Failure(kind="illegal_action", message=str(refusal))
            except Exception as cause:  # recorded, so that what led to it can be read; then on
                self._record(**recorded, action=action, error=env_failure(cause))
                raise
        if isinstance(action, Failure) or step is None:
            assert isinstance(action, Failure)
            rewards["invalid"] = 1.0
            failure = _failure_of(completion, action)
            self._record(**recorded, error=failure)
            raise EpisodeOver(failure)
        recorded["rewards"] = rewards | dict(step.rewards)
        self._record(**recorded, action=action)
        shown = observation_text(self._config, observation)
        self._past.append(Exchange(observation=shown, reply=text, messages=observation.messages))
        return step

    async def ask(self, messages: Sequence[Message]) -> str:
        """Put one question to the policy, record the turn, step nothing."""
        prompt_ids = self._renderer.prompt_ids(tuple(messages))
        identity, completion = await self._sample(prompt_ids)
        text = self._renderer.decode(completion.token_ids)
        self._record(
            identity=identity, prompt_ids=prompt_ids, completion=completion, text=text, rewards={}
        )
        return text

    def _ids_of(self, prompt: Prompt) -> tuple[int, ...]:
        """Return a prompt's ids, with the replies that it holds as they were sampled."""
        if self._said is not None and self._config.history == "full":
            before, ids, reply = self._said
            continued = self._renderer.continued_ids(before, ids, reply, prompt)
            if continued is not None:
                return continued
        return self._renderer.prompt_ids(prompt)

    async def _sample(self, prompt_ids: tuple[int, ...]) -> tuple[TurnId, Completion]:
        identity = self._place.turn(self._role, self._calls)
        self._calls += 1
        request = Request(
            id=identity,
            stream=self._place.stream,
            policy=self._config.policy,
            prompt_ids=prompt_ids,
            sampling=self._sampling,
            goes_on=self._config.history == "full",
        )
        return identity, await self._engine.sample(request)

    async def _step(self, state: Any, action: str) -> Step[Any]:
        place, number = self._place, next(self._steps)
        noise = world_generator(
            place.seed,
            place.stream,
            place.iteration,
            place.visit,
            number,
            None if place.common_noise else place.sample,
        )
        step = await stepped(self._env, state, self._role, action, noise)
        if not isinstance(step, Step):
            raise EnvError(f"{self._env.name}.step must return a Step, got {type(step).__name__}")
        if number + 1 < self._env.turn_cap() or step.terminated or step.truncated:
            return step
        self.capped = True
        return replace(step, truncated=True)

    def _record(
        self,
        *,
        identity: TurnId,
        prompt_ids: tuple[int, ...],
        completion: Completion,
        text: str,
        rewards: Mapping[str, float],
        state_key: str | None = None,
        action: str | None = None,
        error: Failure | None = None,
    ) -> None:
        self.turns.append(
            Turn(
                id=identity,
                policy=self._config.policy,
                policy_version=completion.policy_version,
                prompt_ids=prompt_ids,
                completion_ids=completion.token_ids,
                logprobs=completion.logprobs,
                sampling=self._sampling,
                finish_reason=completion.finish_reason,
                text=text,
                spans=self._renderer.spans(completion.token_ids),
                action=action,
                rewards=rewards,
                state_key=state_key,
                error=error,
            )
        )


def action_of(
    text: str, observation: Observation, agent: AgentConfig, renderer: RendererLike
) -> str | Failure:
    """Return what a reply does: the calls it makes where there are tools, or else its answer."""
    calls = renderer.calls(text) if observation.tools else None
    return calls or parse_answer(text, observation.legal, agent.answer)


def thought_of(text: str) -> str:
    """Return what stands in the first thought block of `text`, blanks trimmed; empty if none."""
    _, _, rest = text.partition("<think>")
    return rest.partition("</think>")[0].strip()


def env_failure(cause: Exception) -> Failure:
    """Return the failure of an env that raised; one under guard has said all in one sentence."""
    said = str(cause) if isinstance(cause, BrokenEnvError) else f"{type(cause).__name__}: {cause}"
    return Failure(kind="env", message=said)


def _failure_of(completion: Completion, parsed: Failure) -> Failure:
    """Name the cause of a reply without an action: a full context outranks what it led to."""
    return _FULL if completion.finish_reason == "context" else parsed
