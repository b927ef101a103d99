"""The state in which the episodes of a visit begin, and what their agents remember by then.

Provides `beginning_of` and `Beginning`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.agents import AgentConfig, Exchange
from turnwise.envs.base import Env
from turnwise.rollout.random_play import Speaking, exchange_of
from turnwise.tasks.openings import WorldDraws, replayed
from turnwise.types import TaskVisit


@dataclass(frozen=True, kw_only=True, slots=True)
class Beginning:
    """The state in which an episode begins, and what its agents remember by then, by seat.

    They remember replies as demonstrations have them: those that were sampled are not kept.
    """

    state: Any
    past: Mapping[str, Sequence[Exchange]] = field(default_factory=dict)


def beginning_of(
    visit: TaskVisit,
    env: Env[Any],
    draws: WorldDraws,
    agents: Mapping[str, AgentConfig],
    renderers: Mapping[str, Speaking],
) -> Beginning:
    """Make the moves of a visit's opening.

    Args:
        visit: the visit.
        env: the env.
        draws: the noise of training's env steps.
        agents: role -> agent.
        renderers: policy -> renderer.

    Raises:
        EnvError: if the moves do not lead where they led before (`tasks.openings`).
    """
    past: dict[str, list[Exchange]] = {}

    def watch(state: Any, seat: str, action: str) -> None:
        agent = agents[env.seats[seat]]
        if agent.history != "observation":
            seen, renderer = env.observe(state, seat), renderers[agent.policy]
            past.setdefault(seat, []).append(exchange_of(agent, renderer, seen, action))

    state = replayed(env, visit.task, visit.opening, draws, watch)
    return Beginning(state=state, past=past)
