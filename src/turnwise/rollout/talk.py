"""Conversations as uniform play leads to them: a state, and what was said on the way to it.

Provides `random_game` and `wander_and_talk`, which make a past without a model: for demonstrations
of later turns, for measuring how well one sees there, and for the words of a tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from turnwise.agents import AgentConfig, Exchange, demonstration, observation_text
from turnwise.envs import Env, wander
from turnwise.errors import IllegalActionError
from turnwise.types import Task

MOST_TURNS = 100
"""Actions after which a random game is left."""


class Speaking(Protocol):
    """What is needed of a renderer to say what its model would."""

    def spoken(self, reply: str) -> str:
        """Return a reply whose calls stand in an env's form as the model would say it."""
        ...


def wander_and_talk(
    env: Env[Any],
    task: Task,
    agent: AgentConfig,
    renderer: Speaking,
    rng: np.random.Generator,
    most_steps: int,
) -> tuple[Any, list[Exchange]]:
    """Return a state after 0 to `most_steps` random actions, and the exchanges before it.

    Where there are no tools a prompt shows one state, so the past stays empty. Steps that would end
    the episode, or that the env refuses, are not taken, as in `envs.wander`.
    """
    state = env.reset(task)
    if not env.observe(state, agent.role).tools:
        return wander(env, task, rng, most_steps), []
    past: list[Exchange] = []
    for _ in range(int(rng.integers(most_steps + 1))):
        seen = env.observe(state, agent.role)
        action = env.random_action(state, agent.role, rng)
        try:
            step = env.step(state, agent.role, action, rng)
        except IllegalActionError:
            continue
        if not (step.terminated or step.truncated):
            reply = renderer.spoken(demonstration(seen.description, action, agent.answer))
            shown = observation_text(agent, seen)
            past.append(Exchange(observation=shown, reply=reply, messages=seen.messages))
            state = step.state
    return state, past


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomGame:
    """The turns of one role in one game of uniformly random actions.

    `states[k]` is what its turn k was decided in, and `past[:k]` are the exchanges before it.
    """

    states: tuple[Any, ...]
    past: tuple[Exchange, ...]


def random_game(
    env: Env[Any],
    task: Task,
    agent: AgentConfig,
    renderer: Speaking,
    rng: np.random.Generator,
    most: int = MOST_TURNS,
) -> RandomGame:
    """Play `task` with uniformly random actions of all roles; return the turns of `agent.role`.

    The game ends where the env ends it, after `most` actions, or where the env refuses an action.
    """
    state, states, past = env.reset(task), [], []
    for number in range(most):
        role = env.roles[number % len(env.roles)]
        mine = role == agent.role
        action = env.random_action(state, role, rng)
        if mine:
            states.append(state)
            seen = env.observe(state, role)
            reply = renderer.spoken(demonstration(seen.description, action, agent.answer))
            shown = observation_text(agent, seen)
            past.append(Exchange(observation=shown, reply=reply, messages=seen.messages))
        try:
            step = env.step(state, role, action, rng)
        except IllegalActionError:
            break
        if step.terminated or step.truncated:
            break
        state = step.state
    return RandomGame(states=tuple(states), past=tuple(past))
