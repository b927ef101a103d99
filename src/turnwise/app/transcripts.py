"""The texts from which the tokenizer of a model made on the spot is built.

Provides `transcripts_of`, what a recipe's agents read and write in random play, and `words_of`,
the words that the tokenizer keeps whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from turnwise.agents import (
    AgentConfig,
    demonstration,
    messages_for,
    observation_text,
    outcome_text,
)
from turnwise.envs import first_turn
from turnwise.envs.base import Env
from turnwise.errors import EnvError, StuckEnvError
from turnwise.evaluation.perception import WALK
from turnwise.recipe.schema import Recipe
from turnwise.rollout.random_play import random_conversation, random_game
from turnwise.seeding import generator
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task


def words_of(recipe: Recipe) -> list[str]:
    """Return the words that a nano tokenizer keeps whole: markers of replies, words of the env."""
    markers = [word for agent in recipe.agents.values() for word in agent.reply_format.markers]
    return [*markers, *recipe.env.make("evaluation").vocabulary()]


def transcripts_of(recipe: Recipe, tasks: int = 16) -> list[str]:
    """Return texts as the recipe's agents read and write them, for a nano model's tokenizer."""
    return [
        text for agent in recipe.agents.values() for text in _transcripts_of(recipe, agent, tasks)
    ]


def _transcripts_of(recipe: Recipe, agent: AgentConfig, tasks: int) -> list[str]:
    """Return texts as one agent reads and writes them.

    Raises:
        EnvError: if the env breaks in the random play of every task, or the role never has a turn.
    """
    env = recipe.env.make("evaluation")
    source = GeneratedTasks(env, "train", recipe.seed)
    transcripts: list[str] = []
    errors: list[EnvError] = []
    for index in range(tasks):
        rng = generator(recipe.seed, "transcript", index)
        try:
            transcripts += _transcript_of(recipe, env, source.task(index), agent, rng)
        except StuckEnvError:
            raise
        except EnvError as error:
            errors.append(error)
    if len(errors) == tasks:
        raise errors[0]
    return transcripts


def _transcript_of(
    recipe: Recipe, env: Env[Any], task: Task, agent: AgentConfig, rng: np.random.Generator
) -> list[str]:
    """Return what one agent reads and writes in the random play of a task."""
    state, seat = first_turn(env, task, agent.role, rng)
    seen = env.observe(state, seat)
    texts = [m.content for m in messages_for(agent, (), observation_text(agent, seen))]
    texts += words_of_tools(env, task, agent, rng) if seen.tools else []
    any_text = [env.random_action(state, seat, rng) for _ in range(4 * (not seen.legal_actions))]
    for action in (*seen.legal_actions, *any_text):
        texts.append(demonstration(agent, seen.description, action))
    if shows_play(recipe):
        game = random_game(env, task, agent, _AsWritten(), rng)
        texts += [text for one in game.past for text in (one.observation, one.reply)]
        if recipe.warmup is not None and recipe.warmup.outcomes:
            texts += [outcome_text(rewards, None) for rewards in game.rewards]
    return texts


def shows_play(recipe: Recipe) -> bool:
    """Whether the warm-up shows every turn of random games, and not first states alone."""
    return recipe.warmup is not None and recipe.warmup.states == "play"


def words_of_tools(
    env: Env[Any], task: Task, agent: AgentConfig, rng: np.random.Generator, walks: int = 8
) -> list[str]:
    """Return the schemas of the tools, and what is said in random calls of them."""
    state, seat = first_turn(env, task, agent.role, rng)
    texts = list(env.observe(state, seat).tools)
    for _ in range(walks):
        for exchange in random_conversation(env, task, agent, _AsWritten(), rng, WALK).past:
            texts += [exchange.reply, *(message.content for message in exchange.messages)]
    return texts


class _AsWritten:
    """Models made on the spot say calls as envs write them."""

    def spoken(self, reply: str) -> str:
        return reply
