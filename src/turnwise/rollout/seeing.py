"""How exactly a policy sees: the share of unseen states whose description it writes to the letter.

Owns that one measurement. Replies are greedy; no answer is scored and nothing is stepped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from turnwise.agents import AgentConfig, messages_for
from turnwise.engines import Engine, Request, run
from turnwise.envs.base import Env
from turnwise.rollout.seat import RendererLike, thought_of
from turnwise.types import Task, TurnId


def exactness_of_seeing(
    env: Env[Any],
    tasks: Sequence[Task],
    agent: AgentConfig,
    renderer: RendererLike,
    engine: Engine,
    *,
    number: int,
) -> float:
    """Return the share of first states of `tasks` that are described exactly, in [0, 1]."""

    async def sees(place: int, task: Task) -> bool:
        observation = env.observe(env.reset(task), agent.role)
        request = Request(
            id=TurnId(
                iteration=number, visit=place, task=task.id, sample=0, role=agent.role, turn=0
            ),
            stream="warmup",
            policy=agent.policy,
            prompt_ids=renderer.prompt_ids(messages_for(agent, (), observation.text)),
            sampling=agent.sampling(greedy=True),
        )
        completion = await engine.sample(request)
        return thought_of(renderer.decode(completion.token_ids)) == observation.description

    async def everything() -> list[bool]:
        return await asyncio.gather(*(sees(i, task) for i, task in enumerate(tasks)))

    found = run(everything(), engine)
    return sum(found) / len(found)
