"""The prompts of the ant colony: their length in tokens of a nano model, and its words."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.agents import AgentConfig, prompt_for
from turnwise.envs import make_env
from turnwise.policies.nano import NanoConfig, make_tokenizer
from turnwise.render import Renderer
from turnwise.rollout.random_play import random_game
from turnwise.tasks import GeneratedTasks

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("tier", range(7))
def test_a_prompt_has_about_100_tokens_of_a_nano_tokenizer(tier):
    env = make_env("ant-colony", tier=tier)
    agent = AgentConfig(role="ant", reply="lines")
    renderer = Renderer(make_tokenizer([], [*env.vocabulary(), *agent.reply_format.markers]))
    player = env.baselines()["scent-user"]
    task = GeneratedTasks(env, "train", 0).task(0)
    game = random_game(env, task, agent, renderer, RNG, most=400, player=player)
    seen = [prompt_for(agent, (), env.observe(state, game.seat)) for state in game.states]
    lengths = [len(renderer.prompt_ids(prompt)) for prompt in seen]
    assert 80 < np.mean(lengths) < 125 and max(lengths) < 150


def test_every_word_of_an_observation_is_one_token():
    env = make_env("ant-colony")
    tokenizer = make_tokenizer((), env.vocabulary(), NanoConfig())
    for word in env.vocabulary():
        assert len(tokenizer.encode(f" {word}")) == 1
