"""One seat of an episode: it observes, samples, parses, steps the env and records the turn.

Provides `RolloutAgent` and `EpisodeAgents`. After an invalid reply the episode ends, or the agent
is asked again (`AgentConfig.invalid_reply`). `EpisodeOver` never leaves `rollout.runner`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from turnwise.agents import (
    AgentConfig,
    Exchange,
    observation_text,
    prompt_for,
)
from turnwise.credit.config import StateKeyRule
from turnwise.engines.base import Engine, Request
from turnwise.envs.base import Env, Observation, Step
from turnwise.errors import EnvError, IllegalActionError
from turnwise.formats import Reply, ReplyFormat, reply_rewards
from turnwise.rollout.baseline_agent import BaselineAgent
from turnwise.rollout.counter import EpisodeCounter
from turnwise.rollout.draws import Draws as Draws
from turnwise.rollout.env_step import step_env
from turnwise.rollout.failures import GOES_ON, check_question, env_failure, no_seat
from turnwise.rollout.seat_rewards import SeatRewards
from turnwise.types import (
    EpisodeId,
    Failure,
    Message,
    Player,
    Prompt,
    Sampling,
    Span,
    Trajectory,
    Turn,
    TurnId,
)
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


class RendererLike(Protocol):
    """The part of a policy's renderer that a seat calls."""

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

    def spans(self, completion_ids: tuple[int, ...], reply_format: ReplyFormat) -> tuple[Span, ...]:
        """Return the named parts of a completion."""
        ...

    def calls(self, reply: str) -> str | None:
        """Return the calls of tools in a reply as an action, None if it calls nothing."""
        ...

    def spoken(self, reply: str) -> str:
        """Return a reply whose calls stand in an env's form as the model would say it."""
        ...


class RolloutAgent:
    """One seat in one episode under the `independent` topology.

    The random draws of the env depend on the number of the env step, not on the seat that takes it
    or on the model calls before it. The step that reaches the cap on turns is truncated. With
    `falls_back` a random action stands in for a reply that is no action: an opponent never ends an
    episode by it.
    """

    def __init__(
        self,
        *,
        seat: str,
        config: AgentConfig,
        sampling: Sampling,
        env: Env[Any],
        engine: Engine,
        renderer: RendererLike,
        episode: EpisodeId,
        draws: Draws,
        counter: EpisodeCounter,
        rewards: SeatRewards,
        state_key: StateKeyRule = "env",
        falls_back: bool = False,
    ) -> None:
        self.turns: list[Turn] = []
        self.past: list[Exchange] = []
        self._state_key: StateKeyRule = state_key
        self._rewards, self._falls_back = rewards, falls_back
        self._seat, self._config, self._sampling = seat, config, sampling
        self._env, self._engine, self._renderer = env, engine, renderer
        self._episode, self._draws, self._counter = episode, draws, counter
        self._said: tuple[Prompt, tuple[int, ...], str] | None = None  # prompt, ids, reply
        self._calls = self._invalid = 0

    async def act(self, state: Any) -> Step[Any]:
        """Observe `state`, sample a reply, step the env with its action and record the turn.

        With `invalid_reply = "continue"` a reply that is no action is recorded too, and the agent
        is asked again, until the cap on turns truncates the episode or `invalid_limit` ends it.

        Raises:
            EnvError: if the workflow goes on after the cap on turns.
        """
        if self._counter.turns >= self._counter.limit(self._env):
            raise EnvError(GOES_ON)
        self._counter.begin_act(self._seat)
        step = None
        while step is None:
            step = await self._turn(state)
        return step

    async def _turn(self, state: Any) -> Step[Any] | None:
        """Play one turn; return None if its reply is no action and the agent is asked again."""
        observation = self._env.observe(state, self._seat)
        prompt = prompt_for(self._config, self.past, observation)
        prompt_ids = self._ids_of(prompt)
        turn = await self._reply_to(prompt, prompt_ids)
        self._said = (prompt, prompt_ids + turn.completion_ids, turn.text)
        action: str | Failure = _FULL
        if turn.completion_ids or turn.finish_reason != "context":
            action = action_of(turn.text, observation, self._config, self._renderer)
        reply = Reply(
            text=turn.text,
            reply_format=self._config.reply_format,
            description=observation.description,
            valid=isinstance(action, str),
        )
        turn = replace(
            turn,
            rewards=reply_rewards(reply),
            state_key=self._key_of(state, observation),
            seen=short_hash(observation.text),
            forced=len(observation.legal_actions) == 1,
        )
        number, step = self._counter.next_turn(), None
        if isinstance(action, Failure) and self._falls_back:
            rng = self._draws.of_fallback(turn.id)
            action = self._env.random_action(state, self._seat, rng)
        if isinstance(action, str):
            try:
                step = await self._step(state, action, number)
            except IllegalActionError as refusal:
                self._counter.refuse_step()
                action = Failure(kind="illegal_action", message=str(refusal))
            except Exception as cause:  # recorded, so that what led to it can be read; then on
                self.turns.append(replace(turn, action=action, error=env_failure(cause)))
                raise
        if isinstance(action, Failure):
            failure = _FULL if turn.finish_reason == "context" else action  # it led to the other
            rewards = reply_rewards(replace(reply, valid=False))
            self.turns.append(replace(turn, rewards=rewards, error=failure))
            if self._ends(failure):
                raise EpisodeOver(failure)
        else:
            assert step is not None
            self._invalid = 0
            self.turns.append(
                replace(turn, action=action, rewards={**turn.rewards, **step.rewards})
            )
        self._rewards.played(self._seat)
        if step is not None:
            self._rewards.give(step.others)
        seen = observation_text(self._config, observation)
        messages, media = observation.messages, observation.media
        self.past.append(
            Exchange(observation=seen, reply=turn.text, messages=messages, media=media)
        )
        return step or self._cut(state, number)

    def _ends(self, failure: Failure) -> bool:
        """Count an invalid reply; return whether it ends the episode."""
        self._invalid += 1
        config = self._config
        ends = config.invalid_reply == "end" or self._invalid == config.invalid_limit
        return ends or failure.kind == "context"

    def _cut(self, state: Any, number: int) -> Step[Any] | None:
        """Return the end of an episode whose last turn was an invalid reply; None before that."""
        if not self._counter.is_cut(self._env, number):
            return None
        return Step(state=state, rewards={}, terminated=False, truncated=True)

    async def ask(self, messages: Sequence[Message]) -> str:
        """Put one question to the policy, record the turn, step nothing.

        Raises:
            EnvError: if the messages are none, or the workflow asks without end.
        """
        check_question(messages, self._counter.asked)
        self._counter.asked += 1
        prompt = Prompt(messages=tuple(messages))
        prompt_ids = self._renderer.prompt_ids(prompt)
        turn = await self._reply_to(prompt, prompt_ids)
        self.turns.append(replace(turn, phase="ask"))
        return turn.text

    def _ids_of(self, prompt: Prompt) -> tuple[int, ...]:
        """Return a prompt's ids, with the replies that it holds as they were sampled."""
        if self._said is not None and self._config.history == "full":
            before, ids, reply = self._said
            continued = self._renderer.continued_ids(before, ids, reply, prompt)
            if continued is not None:
                return continued
        return self._renderer.prompt_ids(prompt)

    async def _reply_to(self, prompt: Prompt, prompt_ids: tuple[int, ...]) -> Turn:
        """Sample a reply; return its turn, which has no action and no reward yet."""
        identity = TurnId(
            episode=self._episode, role=self._seat, turn=self._calls, round=self._counter.round
        )
        order = self._counter.next_call()
        self._calls += 1
        request = Request(
            id=identity,
            stream=self._draws.stream,
            policy=self._config.policy,
            prompt_ids=prompt_ids,
            sampling=self._sampling,
            media=prompt.media_key,
            prompt=prompt,
            goes_on=self._config.history == "full",
        )
        drawn = await self._engine.generate(request)
        ids, served = drawn.token_ids, drawn.text
        return Turn(
            id=identity,
            order=order,
            policy=self._config.policy,
            policy_version=drawn.policy_version,
            prompt_ids=prompt_ids,
            completion_ids=ids,
            logprobs=drawn.logprobs,
            sampling=self._sampling,
            finish_reason=drawn.finish_reason,
            text=self._renderer.decode(ids) if served is None else served,
            spans=self._renderer.spans(ids, self._config.reply_format),
            media=prompt.media_key,
            prompt_text="" if served is None else prompt.transcript,
        )

    async def _step(self, state: Any, action: str, number: int) -> Step[Any]:
        """Step the env in turn `number` of the episode, counted from 1."""
        noise = self._draws.of_step(self._episode, self._counter.next_step())
        step = await step_env(self._env, state, self._seat, action, noise)
        if not isinstance(step, Step):
            raise EnvError(_NO_STEP.format(self._env.name, type(step).__name__))
        return self._counter.cut(self._env, step, number)

    def next_key(self, state: Any) -> str | None:
        """Return the key of a state in which the seat would go on; None if it has no turn."""
        return self._key_of(state, self._env.observe(state, self._seat)) if self.turns else None

    def _key_of(self, state: Any, observation: Observation) -> str:
        """Return the key of a state, by which turns are compared."""
        if self._state_key == "observation":
            return observation_text(self._config, observation)
        return self._env.state_key(state, self._seat)


SeatAgent = RolloutAgent | BaselineAgent
"""Who plays a seat: a policy, or a baseline of the env."""


class EpisodeAgents(Mapping[str, SeatAgent]):
    """The agents of one episode by seat, as a workflow is given them."""

    def __init__(
        self,
        env: Env[Any],
        agents: Mapping[str, SeatAgent],
        rewards: SeatRewards,
        players: Mapping[str, Player],
    ) -> None:
        self._env, self._agents = env, agents
        self._rewards, self._players = rewards, players

    def __getitem__(self, seat: str) -> SeatAgent:
        if seat not in self._agents:
            raise KeyError(no_seat(seat, self._agents))
        return self._agents[seat]

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    def acting(self, state: Any) -> tuple[str, ...]:
        """Return the seats whose turn it is in `state`, the next one to act first."""
        return self._env.acting(state)

    def remember(self, past: Mapping[str, Sequence[Exchange]]) -> None:
        """Begin with exchanges from before the episode, by seat."""
        for seat, exchanges in past.items():
            self._agents[seat].past = list(exchanges)

    def trajectories(self, next_keys: Mapping[str, str | None]) -> tuple[Trajectory, ...]:
        """Return what every seat has done; `next_keys` are by seat (`Trajectory.next_key`)."""
        return tuple(
            Trajectory(
                role=self._env.seats[seat],
                seat=seat,
                turns=self._rewards.added(seat, agent.turns),
                next_key=next_keys.get(seat),
                player=self._players[seat].name if seat in self._players else "",
            )
            for seat, agent in self._agents.items()
        )


def action_of(
    text: str, observation: Observation, agent: AgentConfig, renderer: RendererLike
) -> str | Failure:
    """Return what a reply does: the calls it makes where there are tools, or else its answer."""
    calls = renderer.calls(text) if observation.tools else None
    return calls or agent.reply_format.parse(text, observation.legal_actions)
