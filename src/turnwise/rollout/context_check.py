"""The lengths of an env's first prompts, known before anything is trained.

Provides `first_prompt_lengths`, `check_context` and `expected_tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.agents import AgentConfig, prompt_for
from turnwise.envs import Env, first_turn
from turnwise.errors import ModelError
from turnwise.rollout.agent import RendererLike
from turnwise.seeding import generator
from turnwise.types import Task


def first_prompt_lengths(
    env: Env[Any], tasks: Sequence[Task], agent: AgentConfig, renderer: RendererLike
) -> list[int]:
    """Return the number of tokens of the agent's first prompt in each of `tasks`."""
    firsts = [
        first_turn(env, task, agent.role, generator(task.seed, "first turn")) for task in tasks
    ]
    return [
        len(renderer.prompt_ids(prompt_for(agent, (), env.observe(state, seat))))
        for state, seat in firsts
    ]


def expected_tokens(lengths: Sequence[int], agent: AgentConfig, context: int) -> int:
    """Return the length of the longest sequence to expect of an agent, at most `context`.

    It is the longest first prompt and a reply, as often as the history holds turns. With a full
    history it is the context.
    """
    if agent.history == "full":
        return context
    turns = 1 + (agent.kept_turns if agent.history == "last_n" else 0)
    return min(context, turns * (max(lengths) + agent.max_tokens))


def check_context(env: Env[Any], lengths: Sequence[int], agent: AgentConfig, context: int) -> None:
    """Raise if none of the agent's first prompts leaves room for a reply of one token.

    Single tasks that are too long are data: they end as truncated, and are counted.

    Args:
        env: showed the states of the prompts.
        lengths: tokens of some first prompts.
        agent: got the prompts.
        context: tokens that a prompt and its reply may have together.

    Raises:
        ModelError: with the length of the shortest prompt.
    """
    shortest = min(lengths)
    if shortest >= context:
        raise ModelError(
            f"the shortest of {len(lengths)} first prompts has {shortest} tokens, but policy "
            f"{agent.policy!r} has a context of {context}: use one with a longer context, or "
            f"shorten agents.{agent.role}.system or what env {env.name!r} shows"
        )
