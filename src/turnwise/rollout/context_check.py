"""Checks of an env's first states before anything is trained: lengths of prompts, and actions.

Provides `first_states`, `prompt_lengths`, `check_context`, `check_actions` and `expected_tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.agents import AgentConfig, demonstration, prompt_for
from turnwise.engines.model_calls import RendererLike
from turnwise.envs import Env, Observation, first_turn
from turnwise.errors import ConfigError, EnvError, ModelError, StuckEnvError
from turnwise.seeding import generator
from turnwise.types import Task

MOST_CHECKED = 200
"""The most actions of a state whose replies are checked."""


def first_states(env: Env[Any], tasks: Sequence[Task], role: str) -> list[Observation]:
    """Return what a role observes in its first turn of each of `tasks`.

    Tasks in which it has no turn, or the env breaks, are left out.

    Raises:
        EnvError: if none is left.
    """
    found: list[Observation] = []
    errors: list[EnvError] = []
    for task in tasks:
        try:
            state, seat = first_turn(env, task, role, generator(task.seed, "first turn"))
            found.append(env.observe(state, seat))
        except StuckEnvError:
            raise
        except EnvError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found


def prompt_lengths(
    firsts: Sequence[Observation], agent: AgentConfig, renderer: RendererLike
) -> list[int]:
    """Return the number of tokens of the agent's first prompt for each observation."""
    return [len(renderer.prompt_ids(prompt_for(agent, (), seen))) for seen in firsts]


def check_actions(firsts: Sequence[Observation], agent: AgentConfig, name: str) -> None:
    """Raise if a reply with a legal action is not read as that action.

    Args:
        firsts: observations of the env.
        agent: replies to them.
        name: the name of the env.

    Raises:
        ConfigError: with the action and what is read in its place.
    """
    for seen in firsts:
        for action in () if seen.tools else seen.legal_actions[:MOST_CHECKED]:
            reply = demonstration(agent, seen.description, action)
            read = agent.reply_format.parse(reply, seen.legal_actions)
            if read != action:
                what = f"read as {read!r}" if isinstance(read, str) else "not an answer"
                raise ConfigError(
                    f"env {name!r}: the reply {reply!r:.120} with the legal action {action!r:.60} "
                    f"is {what}: name actions without {', '.join(agent.reply_format.markers)}, "
                    "without blanks at their ends, and so that they differ in more than upper and "
                    "lower case"
                )


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
