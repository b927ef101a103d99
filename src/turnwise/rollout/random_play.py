"""Conversations as uniform play leads to them: a state, and what was said on the way to it.

Provides `random_game` and `random_conversation`, which make a past without a model: for
demonstrations of later turns, for measuring how well one sees there, and for the words of a
tokenizer. `what_follows` continues from a state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from turnwise.agents import AgentConfig, Exchange, demonstration, observation_text
from turnwise.envs import Baseline, Env, Observation, first_turn, random_walk
from turnwise.envs.opponents import rewards_of
from turnwise.errors import EnvError, IllegalActionError, StuckEnvError
from turnwise.types import Task

MOST_TURNS = 100
"""Actions after which a random game is left."""


class Speaking(Protocol):
    """The part of a renderer that writes the replies of random play."""

    def spoken(self, reply: str) -> str:
        """Return a reply whose calls stand in an env's form as the model would say it."""
        ...


def random_conversation(
    env: Env[Any],
    task: Task,
    agent: AgentConfig,
    renderer: Speaking,
    rng: np.random.Generator,
    most_steps: int,
) -> Conversation:
    """Return a turn of a seat of `agent.role` after 0 to `most_steps` random actions of its own.

    Where there are no tools a prompt shows one state, so the past stays empty. Steps that would end
    the episode, or that the env refuses, are not taken, as in `envs.random_walk`. In between the
    other seats act at random. In an env without tools and with several seats, the turn is the first
    one of the seat.
    """
    state, seat = first_turn(env, task, agent.role, rng)
    if not env.observe(state, seat).tools:
        if len(env.seats) == 1:
            state = random_walk(env, task, rng, most_steps)
        return Conversation(state=state, seat=seat, past=())
    past: list[Exchange] = []
    for _ in range(int(rng.integers(most_steps + 1))):
        seen = env.observe(state, seat)
        action = env.random_action(state, seat, rng)
        try:
            step = env.step(state, seat, action, rng)
        except IllegalActionError:
            continue
        if step.terminated or step.truncated:
            continue
        if env.acting(step.state)[0] != seat:
            break
        past.append(exchange_of(agent, renderer, seen, action))
        state = step.state
    return Conversation(state=state, seat=seat, past=tuple(past))


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """A state in which `seat` acts next, and its exchanges before."""

    state: Any
    seat: str
    past: tuple[Exchange, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomGame:
    """The turns of one seat in one game of uniformly random actions.

    `states[k]` is the state of its turn k, `past[:k]` are the exchanges before it, and `rewards[k]`
    are the reward components between that turn and the next one of the seat, or the end. `ended`
    says whether the env ended the game after the last turn, and `error` is the env's error if it
    broke then.
    """

    seat: str
    states: tuple[Any, ...]
    past: tuple[Exchange, ...]
    rewards: tuple[Mapping[str, float], ...]
    ended: bool
    error: EnvError | None = None


def random_game(
    env: Env[Any],
    task: Task,
    agent: AgentConfig,
    renderer: Speaking,
    rng: np.random.Generator,
    *,
    most: int = MOST_TURNS,
    begins: Any = None,
    player: Baseline | None = None,
) -> RandomGame:
    """Play `task` with uniformly random actions of all seats; return the turns of one of them.

    It is the seat of `agent.role` that acts first. The game ends where the env ends it, after
    `most` actions or the env's cap on turns, or where the env refuses an action or breaks after the
    seat's first turn. A game that ends before the seat's first turn is played again, as in
    `envs.first_turn`. `begins` is a state in which a seat of `agent.role` acts first, in place of
    the task's first one. `player` acts in place of random actions.
    """
    if begins is None:
        state, mine = first_turn(env, task, agent.role, rng)
    else:
        state, mine = begins, env.acting(begins)[0]
    states: list[Any] = []
    past: list[Exchange] = []
    rewards: list[dict[str, float]] = []
    ended, error = False, None
    for _ in range(min(most, env.turn_cap())):
        try:
            seat = env.acting(state)[0]
            action = player(state, rng) if player else env.random_action(state, seat, rng)
            if seat == mine:
                past.append(exchange_of(agent, renderer, env.observe(state, seat), action))
                states.append(state)
                rewards.append({})
            step = env.step(state, seat, action, rng)
        except StuckEnvError:
            raise
        except EnvError as broken:
            if not states:
                raise
            error = broken
            break
        except IllegalActionError:
            break
        if rewards:
            _add(rewards[-1], rewards_of(env, step, seat, mine))
        ended = step.terminated or step.truncated
        if ended:
            break
        state = step.state
    return RandomGame(
        seat=mine,
        states=tuple(states),
        past=tuple(past),
        rewards=tuple(rewards),
        ended=ended,
        error=error,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Followed:
    """What followed a seat's action: rewards, and the seat's next observation; None is the end."""

    rewards: Mapping[str, float]
    observation: Observation | None


def what_follows(
    env: Env[Any], state: Any, seat: str, action: str, rng: np.random.Generator
) -> Followed | None:
    """Take an action of a seat, let the others act uniformly at random until its next turn.

    `rng` draws their actions, and the env's randomness. The result is None where the env refuses an
    action or breaks, or where the seat has no turn again within `MOST_TURNS` actions.
    """
    rewards: dict[str, float] = {}
    acts = seat
    try:
        for _ in range(MOST_TURNS):
            step = env.step(state, acts, action, rng)
            _add(rewards, rewards_of(env, step, acts, seat))
            if step.terminated or step.truncated:
                return Followed(rewards=rewards, observation=None)
            state, acts = step.state, env.acting(step.state)[0]
            if acts == seat:
                return Followed(rewards=rewards, observation=env.observe(state, seat))
            action = env.random_action(state, acts, rng)
    except StuckEnvError:
        raise
    except (EnvError, IllegalActionError):
        pass
    return None


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    """Add reward components to a total."""
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + value


def exchange_of(agent: AgentConfig, renderer: Speaking, seen: Observation, action: str) -> Exchange:
    """Return the exchange in which an agent answers an observation with an action."""
    reply = renderer.spoken(demonstration(agent, seen.description, action))
    shown = observation_text(agent, seen)
    return Exchange(observation=shown, reply=reply, messages=seen.messages, media=seen.media)
