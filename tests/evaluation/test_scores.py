"""Scores and their errors, what an iteration says about itself, and how exactly a policy sees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from turnwise.agents import AgentConfig
from turnwise.engines import ScriptedEngine
from turnwise.envs import FrozenLake, FrozenLakeConfig, random_walk, score_baselines
from turnwise.errors import EnvError
from turnwise.evaluation import evaluate, perception_accuracy
from turnwise.rollout import rollout_metrics
from turnwise.tasks import GeneratedTasks

WINNING = ("DOWN", "DOWN", "RIGHT", "RIGHT")


def test_a_score_is_the_mean_over_tasks_in_order(make_runner, lake, says, task_of):
    win, lose = says(WINNING), says(["LEFT"] * 8)
    script = lambda request: (lose if request.id.episode.visit == 1 else win)(request)  # noqa: E731
    judge = make_runner(lake, script).runner
    found = evaluate(judge, [task_of(lake, name) for name in "abc"], greedy=True)
    assert found.score == pytest.approx(2 / 3)
    assert found.scores == (1.0, 0.0, 1.0)
    assert [episode.task.id for episode in found.episodes] == ["a", "b", "c"]


def test_of_several_samples_the_mean_counts_and_the_best_is_known(make_runner, lake, says, task_of):
    """Accuracy and pass@3 of scores that are 0 or 1."""
    win, lose = says(WINNING), says(["LEFT"] * 8)
    wins = {(0, 1), (2, 0), (2, 1), (2, 2)}

    def script(request):
        episode = request.id.episode
        return (win if (episode.visit, episode.member) in wins else lose)(request)

    judge = make_runner(lake, script).runner
    tasks = [task_of(lake, name) for name in "abc"]
    found = evaluate(judge, tasks, greedy=False, samples=3)
    assert found.scores == pytest.approx((1 / 3, 0, 1))
    assert found.score == pytest.approx(4 / 9)
    assert found.best == (1, 0, 1)
    assert found.best_score == pytest.approx(2 / 3)
    assert all(measure.episodes == 9 for measure in found.measures.values())
    assert [episode.task.id for episode in found.episodes] == list("aaabbbccc")
    once = evaluate(judge, tasks, greedy=False)
    assert once.scores == once.best == (0, 0, 1)


def test_errors_count_problems_and_not_tasks(make_runner, says):
    """Six maps, each played twice with one result: as if each had been played once."""
    env = FrozenLake(FrozenLakeConfig(size=4))
    made = GeneratedTasks(env, "test", 0).task(0)
    second_rows = ("FFFF", "HFFF", "FHFF", "HHFF", "FFHF", "HFHF")
    tasks = [
        replace(made, data={**made.data, "map": ["SFFF", row, "FFFF", "FFFG"]})
        for row in second_rows * 2
    ]
    won, lost = says(["RIGHT"] * 3 + ["DOWN"] * 3), says(["LEFT"] * 12)
    judge = make_runner(env, lambda r: (won if r.id.episode.visit % 2 else lost)(r)).runner
    found = evaluate(judge, tasks, greedy=True)
    assert found.scores == (0.0, 1.0) * 6
    student = 2.570582 / 1.959964  # of five degrees of freedom
    assert found.stderr == pytest.approx(0.5 / np.sqrt(5) * student, rel=1e-3)


def test_episodes_that_the_env_breaks_are_counted(make_runner, says, task_of):
    class Broken(FrozenLake):
        def step(self, state, role, action, noise):
            if state.left == 1:
                raise OSError("gone")
            return super().step(state, role, action, noise)

    env = Broken(FrozenLakeConfig(map=("SF", "FG")))
    lost, won = says(["DOWN"] * 8), says(["DOWN", "RIGHT"])
    script = lambda request: (won if request.id.episode.visit == 1 else lost)(request)  # noqa: E731
    judge = make_runner(env, script).runner
    found = evaluate(judge, [task_of(env)] * 4, greedy=True)
    assert (found.broken, found.score) == (3, 0.25)
    assert rollout_metrics(found.episodes)["rollout/broken_share"] == 0.75
    broken = make_runner(env, lost).runner
    assert evaluate(broken, [task_of(env)] * 7, greedy=True).broken == 7
    with pytest.raises(EnvError, match="all 8 episodes of the evaluation broke: OSError: gone"):
        evaluate(broken, [task_of(env)] * 8, greedy=True)


def test_mirror_images_are_one_problem(make_runner, says):
    """A map and its mirror image are one problem: the error is over episodes."""
    env = FrozenLake(FrozenLakeConfig(size=4))
    rows = ("SFFF", "HFFF", "FFFF", "FFFG")
    mirrored = tuple("".join(column) for column in zip(*rows, strict=True))
    made = GeneratedTasks(env, "test", 0).task(0)
    tasks = [replace(made, data={**made.data, "map": list(m)}) for m in (rows, mirrored)]
    judge = make_runner(env, says(["RIGHT"] * 3 + ["DOWN"] * 9)).runner
    found = evaluate(judge, tasks, greedy=True)
    assert found.scores == (1.0, 0.0)
    assert found.stderr > 1  # two episodes of one problem say nothing


def test_evaluation_draws_from_its_own_stream(make_runner, slippery, table, task_of):
    drawn = table({"DOWN": 0.5, "RIGHT": 0.5})
    made = make_runner(slippery, drawn)
    tasks = [task_of(slippery)] * 6
    sampled = evaluate(made.runner, tasks, greedy=False, number=3)
    assert {request.stream for request in made.engine.requests} == {"evaluation"}
    trained = make_runner(slippery, drawn).play(visits=6, iteration=3)
    assert [e.turns for e in sampled.episodes] != [e.turns for e in trained]
    again = evaluate(make_runner(slippery, drawn).runner, tasks, greedy=False, number=3)
    assert again == sampled
    other = evaluate(made.runner, tasks, greedy=False, number=4)
    assert [e.turns for e in other.episodes] != [e.turns for e in sampled.episodes]


def test_training_and_evaluation_share_one_core(make_runner, lake, says, task_of):
    """Where nothing is left to chance, both record the same episodes to the letter."""
    trained = make_runner(lake, says(WINNING)).play(visits=2)
    judged = evaluate(make_runner(lake, says(WINNING)).runner, [task_of(lake)] * 2, greedy=False)
    assert list(judged.episodes) == trained


def test_evaluation_meets_the_slips_of_the_baselines(make_runner, slippery, says, task_of):
    """With one seed a model that always goes right scores as `always-right` does, task by task."""
    tasks = [replace(task_of(slippery), data={**task_of(slippery).data, "limit": 20})] * 40
    judge = make_runner(slippery, says(["RIGHT"] * 20), seed=7).runner
    found = evaluate(judge, tasks, greedy=True)
    expected = score_baselines(slippery, tasks, 7, names=["always-right"])["always-right"]
    assert found.scores == expected.scores
    assert 0 < found.score < 1


def test_metrics_are_means_and_shares(make_runner, lake, says, renderer):
    mute = renderer.completion_ids("")
    fall, win = says(["RIGHT", "DOWN"]), says(WINNING)
    scripts = [win, fall, lambda request: mute, says(["LEFT"] * 8)]
    made = make_runner(lake, lambda request: scripts[request.id.episode.member](request))
    played = made.play(samples=4)
    found = rollout_metrics(played)
    turns = 4 + 2 + 1 + 8
    assert found["rollout/episodes"] == 4
    assert found["rollout/turns"] == turns
    assert found["rollout/env_steps"] == turns - 1
    assert found["rollout/score"] == 0.25
    assert found["rollout/terminated_share"] == 0.75
    assert found["rollout/truncated_share"] == 0.25
    assert found["rollout/failed_share"] == 0.25
    assert found["rollout/cut_share"] == 0
    assert found["reward/goal"] == 0.25
    assert found["reward/fall"] == 0.25
    assert found["reward/invalid"] == pytest.approx(1 / turns)
    assert found["action/LEFT"] == pytest.approx(8 / turns)
    assert found["action/RIGHT"] == pytest.approx(3 / turns)
    tokens = sum(len(turn.completion_ids) for episode in played for turn in episode.turns)
    assert found["rollout/completion_tokens"] == pytest.approx(tokens / turns)


def test_metrics_of_nothing_are_zero():
    found = rollout_metrics([])
    assert set(found.values()) == {0.0}


@pytest.fixture
def ask_to_see(renderer):
    """`ask_to_see(describe)`: the exactness of a policy whose thought is `describe(prompt)`."""
    env = FrozenLake(FrozenLakeConfig(start="random"))
    tasks = GeneratedTasks(env, "validation", 0).take(12)

    def measure(describe):
        def script(request):
            thought = describe(renderer.decode(request.prompt_ids))
            return renderer.completion_ids(f"<think> {thought} </think> <answer> UP </answer>")

        engine = ScriptedEngine(script)
        seen = perception_accuracy(
            env, tasks, AgentConfig(max_tokens=64), renderer, engine, number=5
        )
        assert seen.described
        return seen.share, engine.requests

    return measure


def described(prompt):
    """Describe a prompt as the env would, from its text alone."""
    words = prompt.split()
    words = words[words.index("lake") + 1 :]
    here = words[words.index("you") + 1]
    cells = dict(zip(words[:32:2], words[1:32:2], strict=True))
    row, column = int(here[1]), int(here[3])
    offsets = {"LEFT": (0, -1), "DOWN": (1, 0), "RIGHT": (0, 1), "UP": (-1, 0)}
    near = []
    for action, (down, right) in offsets.items():
        name = f"r{row + down}c{column + right}"
        near.append(f"{action} {name} {cells[name]}" if name in cells else f"{action} edge")
    return " ".join(near)


def test_seeing_is_the_share_of_exact_descriptions(ask_to_see, renderer):
    share, requests = ask_to_see(described)
    assert share == 1.0
    assert {request.stream for request in requests} == {"warmup"}
    assert {request.id.episode.iteration for request in requests} == {5}
    assert {request.sampling.temperature for request in requests} == {1.0}
    assert ask_to_see(lambda prompt: described(prompt) + " ice")[0] == 0.0
    on_top = lambda prompt: "you r0" in prompt  # noqa: E731
    share, _ = ask_to_see(lambda prompt: described(prompt) if on_top(prompt) else "")
    places = [on_top(renderer.decode(request.prompt_ids)) for request in requests]
    assert share == pytest.approx(np.mean(places))
    assert 0 < share < 1


def test_seeing_asks_for_states_of_play_and_not_for_starts_only(ask_to_see, renderer):
    _, requests = ask_to_see(described)
    prompts = [renderer.decode(request.prompt_ids) for request in requests]
    away = [p for p in prompts if f"{p.split()[p.split().index('you') + 1]} start" not in p]
    assert 0 < len(away) < len(prompts)


def test_wandering_stays_inside_the_episode_and_within_its_steps(lake, task_of):
    states = [
        random_walk(lake, task_of(lake), np.random.default_rng(seed), 4) for seed in range(300)
    ]
    assert not any(state.ended for state in states)
    assert {state.steps for state in states} == {0, 1, 2, 3, 4}
    assert len({state.position for state in states}) > 3
    again = random_walk(lake, task_of(lake), np.random.default_rng(17), 4)
    assert again == states[17]
    starts = {
        random_walk(lake, task_of(lake), np.random.default_rng(s), 0).steps for s in range(20)
    }
    assert starts == {0}
