"""Conversations as uniform play leads to them: a state, and what was said on the way to it.

Owns the making of a past without a model: for demonstrations of later turns, for measuring how well
one sees there, and for the words of a tokenizer.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from turnwise.agents import AgentConfig, Exchange, demonstration
from turnwise.envs import Env, wander
from turnwise.types import Task


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
    the episode are not taken, as in `envs.wander`.
    """
    state = env.reset(task)
    if not env.observe(state, agent.role).tools:
        return wander(env, task, rng, most_steps), []
    past: list[Exchange] = []
    for _ in range(int(rng.integers(most_steps + 1))):
        seen = env.observe(state, agent.role)
        action = env.random_action(state, agent.role, rng)
        step = env.step(state, agent.role, action, rng)
        if not (step.terminated or step.truncated):
            reply = renderer.spoken(demonstration(seen.description, action, agent.answer))
            past.append(Exchange(observation=seen.text, reply=reply, messages=seen.messages))
            state = step.state
    return state, past
