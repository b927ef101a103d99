"""Whether a policy's context has room for what an env asks: known before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.agents import AgentConfig, prompt_for
from turnwise.envs import Env, first_turn
from turnwise.errors import ModelError
from turnwise.rollout.agent import RendererLike
from turnwise.seeding import generator
from turnwise.types import Task


def check_context(
    env: Env[Any], tasks: Sequence[Task], agent: AgentConfig, renderer: RendererLike, context: int
) -> None:
    """Raise if the first prompt of none of `tasks` leaves room for a reply of one token.

    Single tasks that are too long are data: they end as truncated, and are counted.

    Args:
        env: observes.
        tasks: some tasks.
        agent: whose prompts they are.
        renderer: of the agent's policy.
        context: tokens that a prompt and its reply may have together.

    Raises:
        ModelError: with the length of the shortest prompt.
    """
    firsts = [
        first_turn(env, task, agent.role, generator(task.seed, "first turn")) for task in tasks
    ]
    prompts = [
        renderer.prompt_ids(prompt_for(agent, (), env.observe(state, seat)))
        for state, seat in firsts
    ]
    shortest = min(len(prompt) for prompt in prompts)
    if shortest >= context:
        raise ModelError(
            f"the shortest of {len(tasks)} first prompts has {shortest} tokens, but policy "
            f"{agent.policy!r} has a context of {context}: take one with a longer context, or "
            f"shorten agents.{agent.role}.system or what env {env.name!r} shows"
        )
