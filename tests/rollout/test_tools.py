"""Episodes with tools: calls and an answer, turn by turn, in one training row."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.agents import AgentConfig, demonstration
from turnwise.engines import ScriptedEngine
from turnwise.envs import Treasure, call_text
from turnwise.errors import ConfigError
from turnwise.policies.nano import make_tokenizer
from turnwise.recipe.schema import make_recipe
from turnwise.render import Renderer
from turnwise.rollout import Runner, samples_from_episodes
from turnwise.rollout.random_play import random_conversation
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task, TaskVisit
from turnwise.workflows import turns

COINS = {"amber": 4, "birch": 9, "cedar": 0, "denim": 1, "ember": 2, "flint": 3}
TASK = Task(id="t", env="treasure", seed=0, data={"coins": COINS, "asked": ["amber", "birch"]})
AMBER, BIRCH = (call_text("look", chest=chest) for chest in ("amber", "birch"))


@pytest.fixture(scope="module")
def renderer():
    env = Treasure()
    seen = env.observe(env.reset(TASK), "player")
    return Renderer(
        make_tokenizer([seen.text, *seen.tools, "<think> ? </think>"], env.vocabulary())
    )


def play(renderer, replies, **agent):
    ids = [renderer.completion_ids(reply) for reply in replies]
    runner = Runner(
        env=Treasure(),
        workflow=turns,
        agents={"player": AgentConfig(history="full", **agent)},
        renderers={"main": renderer},
        engine=ScriptedEngine(lambda request: ids[request.id.turn]),
        seed=0,
    )
    (episode,) = runner.collect([TaskVisit(iteration=0, visit=0, task=TASK)], "train")
    return episode


def test_two_looks_and_an_answer_are_three_turns_of_one_row(renderer):
    replies = [
        demonstration(AgentConfig(), "? amber birch", AMBER),
        demonstration(AgentConfig(), "amber 4 ? amber birch", BIRCH),
        demonstration(AgentConfig(), "birch 9 amber 4 ? amber birch", "birch"),
    ]
    episode = play(renderer, replies)
    assert (episode.score, episode.terminated, episode.error) == (1.0, True, None)
    assert [turn.action for turn in episode.turns] == [AMBER, BIRCH, "birch"]
    assert [turn.rewards["perception"] for turn in episode.turns] == [1.0, 1.0, 1.0]
    assert [turn.text for turn in episode.turns] == replies
    last = renderer.tokenizer.decode(episode.turns[-1].prompt_ids)
    assert "<|im_start|>tool\ncoins: amber 4<|im_end|>" in last
    assert "<|im_start|>tool\ncoins: birch 9<|im_end|>" in last
    assert last.count("more coins") == 1
    (row,) = samples_from_episodes([episode], {turn.id: {"": 1.0} for turn in episode.turns})
    for number, turn in enumerate(episode.turns):
        assert tuple(row.token_ids[row.turn_index == number]) == turn.completion_ids
    assert row.sampled_mask.sum() == sum(len(turn.completion_ids) for turn in episode.turns)


def test_both_looks_in_one_reply(renderer):
    episode = play(renderer, [f"{AMBER}\n{BIRCH}", "<answer> birch </answer>"])
    assert (episode.score, len(episode.turns)) == (1.0, 2)
    last = renderer.tokenizer.decode(episode.turns[-1].prompt_ids)
    assert "tool\ncoins: amber 4<|im_end|>\n<|im_start|>tool\ncoins: birch 9<|im_end|>" in last


def test_a_reply_that_calls_does_not_answer(renderer):
    episode = play(renderer, [f"{AMBER} <answer> birch </answer>", "<answer> amber </answer>"])
    assert (len(episode.turns), episode.score) == (2, 0.0)
    assert episode.turns[0].action == AMBER


def test_a_wrong_call_is_told_in_a_message_and_play_goes_on(renderer):
    wrong = '<tool_call>{"name": "__class__", "arguments": {}}</tool_call>'
    episode = play(renderer, [wrong, AMBER, "<answer> birch </answer>"])
    assert (episode.score, episode.error) == (1.0, None)
    text = renderer.tokenizer.decode(episode.turns[1].prompt_ids)
    assert "tool\nerror: there is no tool '__class__': look<|im_end|>" in text


def test_a_third_look_truncates_and_nonsense_is_the_policys_failure(renderer):
    episode = play(renderer, [AMBER, AMBER, AMBER])
    assert (episode.truncated, episode.terminated, episode.error) == (True, False, None)
    for reply, kind in (("amber", "parse"), ("<answer> oak </answer>", "illegal_action")):
        episode = play(renderer, [AMBER, reply])
        assert episode.error.kind == kind
        assert episode.turns[-1].rewards["invalid"] == 1.0


def test_the_whole_reply_may_be_the_answer(renderer):
    episode = play(renderer, [AMBER, BIRCH, "birch"], reply="whole")
    assert (episode.score, episode.turns[0].action) == (1.0, AMBER)


def test_talk_is_random_and_leads_to_what_a_prompt_shows(renderer):
    env = Treasure()
    task = GeneratedTasks(env, "train", seed=0).task(0)
    agent, lengths, called = AgentConfig(history="full"), set(), set()
    for seed in range(200):
        found = random_conversation(env, task, agent, renderer, np.random.default_rng(seed), 4)
        state, past = found.state, found.past
        assert len(past) == len(state.told)
        assert [message.content for exchange in past[1:] for message in exchange.messages] == [
            told.result for told in state.told[:-1]
        ]
        lengths.add(len(past))
        called |= {told.call for told in state.told}
    assert lengths == {0, 1, 2}
    assert len(called) == 6


def test_tools_need_the_whole_history():
    data = {
        "name": "x",
        "env": {"name": "treasure"},
        "policies": {"main": {"model": "nano"}},
        "credit": {"scheme": "grpo", "rewards": {"right": 1.0}},
    }
    with pytest.raises(ConfigError, match="would hide the results of the tools of env"):
        make_recipe(data)
    make_recipe(data, {"agents.player.history": "full"})
