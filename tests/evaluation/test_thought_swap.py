"""Swapped thoughts: a policy that reads its thought follows it, one that does not stays."""

from __future__ import annotations

import pytest

from turnwise.agents import AgentConfig
from turnwise.envs import FrozenLake, FrozenLakeConfig
from turnwise.evaluation import evaluate, swap_thoughts
from turnwise.tasks import GeneratedTasks

WORDS = {"r0": "DOWN", "r1": "RIGHT"}


def thinker(renderer, reads: str):
    """A model that names its row in a thought and answers by the thought, or by the prompt."""

    def script(request):
        text = renderer.decode(request.prompt_ids)
        row = "r0" if "you r0" in text else "r1"
        if "<think>" not in text.rpartition("you r")[2]:
            answer = WORDS[row]
            return renderer.completion_ids(
                f"<think> {row}c0 ice </think> <answer> {answer} </answer>"
            )
        thought = "r0" if "<think> r0" in text.rpartition("you r")[2] else "r1"
        answer = WORDS[thought if reads == "thought" else row]
        return renderer.completion_ids(f" <answer> {answer} </answer>")

    return script


@pytest.mark.parametrize(
    ("reads", "followed", "kept"), [("thought", 1.0, 0.0), ("prompt", 0.0, 1.0)]
)
def test_whose_answer_is_given_says_what_is_read(make_runner, renderer, reads, followed, kept):
    env = FrozenLake(FrozenLakeConfig(start="random", steps=1))
    maker = make_runner(env, thinker(renderer, reads))
    tasks = GeneratedTasks(env, "test", seed=0).take(40)
    episodes = evaluate(maker.runner, tasks, greedy=True).episodes
    assert {turn.action for episode in episodes for turn in episode.turns} == {"DOWN", "RIGHT"}
    found = swap_thoughts(episodes, AgentConfig(), renderer, maker.engine, seed=0)
    assert found.pairs > 5
    assert (found.followed, found.kept, found.again) == (followed, kept, 1.0)


def test_a_thought_that_fills_the_reply_leaves_room_for_one_token(make_runner, renderer):
    """The reply goes on for what the thought leaves of `max_tokens`."""
    asked = []

    def script(request):
        asked.append(request)
        return thinker(renderer, "thought")(request)

    env = FrozenLake(FrozenLakeConfig(start="random", steps=1))
    maker = make_runner(env, script)
    episodes = evaluate(maker.runner, GeneratedTasks(env, "test", seed=0).take(40), greedy=True)
    (end, *others) = {
        span.end for e in episodes.episodes for t in e.turns for span in t.spans
        if span.name == "think"
    }  # fmt: skip
    assert not others
    for most, left in ((end - 1, 1), (end, 1), (end + 1, 1), (end + 7, 7)):
        asked.clear()
        agent = AgentConfig(max_tokens=most)
        swap_thoughts(episodes.episodes, agent, renderer, maker.engine, seed=0)
        assert {request.sampling.max_tokens for request in asked} == {left}


def test_answers_are_words_however_they_are_written(make_runner, renderer):
    """A model may write what its policy's env reads as DOWN in small letters."""

    class Small:
        def decode(self, ids):
            return renderer.decode(ids).replace("DOWN", "down").replace("RIGHT", "Right")

    env = FrozenLake(FrozenLakeConfig(start="random", steps=1))
    maker = make_runner(env, thinker(renderer, "thought"))
    episodes = evaluate(maker.runner, GeneratedTasks(env, "test", seed=0).take(40), greedy=True)
    found = swap_thoughts(episodes.episodes, AgentConfig(), Small(), maker.engine, seed=0)
    assert (found.followed, found.kept, found.again) == (1.0, 0.0, 1.0)


def test_without_thoughts_there_is_nothing_to_swap(make_runner, lake, says, renderer):
    maker = make_runner(lake, says(["DOWN", "RIGHT"] * 4))
    episodes = maker.play(4)
    assert swap_thoughts(episodes, AgentConfig(), renderer, maker.engine, seed=0) is None
