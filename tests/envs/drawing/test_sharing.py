"""Rewards of programs by the cells that few others have right."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import turnwise as tw
from turnwise.envs.drawing import python_programs
from turnwise.envs.drawing.sharing import shared_rewards
from turnwise.errors import SandboxError
from turnwise.types import Episode, EpisodeId, Sampling, Task, Trajectory, Turn, TurnId


def test_a_right_cell_counts_by_the_share_that_has_it_right():
    right = np.array([[1, 1, 0, 0], [1, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 0]], dtype=bool)
    rewards = shared_rewards(right)
    assert rewards * 4 == pytest.approx([4 / 3 + 4, 4 / 3 + 2, 4 / 3 + 2, 0])
    assert rewards.mean() == pytest.approx(3 / 4), "three of the cells are right in some program"
    assert not shared_rewards(np.zeros((3, 5), dtype=bool)).any()


def test_the_gradient_is_that_of_the_log_probabilities_of_the_cells():
    """Programs as often as a softmax policy draws them: REINFORCE against finite differences."""
    counts, rng = np.array([5, 3, 1, 7]), np.random.default_rng(0)
    right = rng.random((4, 6)) < 0.5
    right[0] = True  # every cell is right in some program
    logits = np.log(counts / counts.sum())

    def objective(logits):
        chances = np.exp(logits) / np.exp(logits).sum()
        return np.log(chances @ right).mean()

    drawn = np.repeat(np.arange(4), counts)
    rewards = shared_rewards(right[drawn])
    scores = np.eye(4)[drawn] - counts / counts.sum()
    found = (rewards[:, None] * scores).mean(axis=0)
    steps = 1e-6 * np.eye(4)
    wanted = [(objective(logits + s) - objective(logits - s)) / 2e-6 for s in steps]
    assert found == pytest.approx(wanted, abs=1e-8)


def test_the_expected_gradient_of_small_batches_is_that_of_a_series_of_the_logarithm():
    """Over all batches of n programs: log p = - sum of (1 - p)^k / k, cut off after k = n."""
    count, chances = 4, np.array([0.6, 0.3, 0.1])
    right = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]], dtype=bool)
    logits, scores = np.log(chances), np.eye(3) - chances

    def objective(logits):
        wrong = 1 - np.exp(logits) / np.exp(logits).sum() @ right
        return -sum(wrong**k / k for k in range(1, count + 1)).mean()

    found = np.zeros(3)
    for batch in map(list, product(range(3), repeat=count)):
        found += np.prod(chances[batch]) * (shared_rewards(right[batch]) @ scores[batch]) / count
    steps = 1e-6 * np.eye(3)
    wanted = [(objective(logits + s) - objective(logits - s)) / 2e-6 for s in steps]
    assert found == pytest.approx(wanted, abs=1e-8)


def played(env, task, member, action):
    identity = EpisodeId(iteration=0, visit=0, task=task.id, member=member)
    turn = Turn(
        id=TurnId(episode=identity, role="player", turn=0),
        order=0,
        policy="main",
        policy_version=0,
        prompt_ids=(1,),
        completion_ids=(2,),
        logprobs=(0.0,),
        sampling=Sampling(),
        finish_reason="stop",
        text=action or "",
        action=action,
    )
    return Episode(
        id=identity,
        task=task,
        trajectories=(Trajectory(role="player", seat="player", turns=(turn,)),),
        terminated=True,
        truncated=False,
        score=0.0,
    )


def drawing(number):
    """A task of two rows: one is of the colour `number`, as is one of its columns."""
    target = [f"{number}{number}", f"{number}0"]
    return Task(id=str(number), env="arc-draw", seed=0, data={"pairs": [[["00", "00"], target]]})


def test_programs_share_with_those_of_the_same_task():
    env = tw.make_env("arc-draw", sharing=True)
    tasks = drawing(1), drawing(2)
    row, dot = "draw_horizontal_line(img, 0, {})", "draw_pixel(img, (1, 0), {})"
    programs = [
        *((tasks[0], text.format(1)) for text in (row, row, dot)),
        *(
            (tasks[1], text and text.format(2))
            for text in (dot, None, "img = create_img((3, 3), 2)")
        ),
    ]
    episodes = [played(env, task, n, action) for n, (task, action) in enumerate(programs)]
    found = asyncio.run(env.score_batch(episodes, 1))
    # the first task: two of three have both cells of the row, one the dot, all the empty cell
    row_each = (2 * 3 / 2 + 1) / 4
    assert [each["shared"] for each in found.rewards] == pytest.approx(
        [row_each, row_each, (3 + 1) / 4, (3 + 3) / 4, 0, 0]
    )
    assert env.components["shared"] == "agent"
    tw.check_env(env)


def test_programs_in_the_sandbox_run_once(monkeypatch):
    """The reward of the batch and hindsight take what the step drew, and a failure likewise."""
    env, ran, run = tw.make_env("arc-draw", sharing=True, runner="sandbox"), [], python_programs.run
    monkeypatch.setattr(python_programs, "run", lambda *a, **k: ran.append(a) or run(*a, **k))
    task = drawing(1)
    programs = ["draw_horizontal_line(img, 0, 1)", "draw_pixel(img, (1, 0), 1)\nnothing()"]
    for program in programs:
        env.step(env.reset(task), "player", program, np.random.default_rng(0))
    episodes = [played(env, task, n, action) for n, action in enumerate(programs)]
    found = asyncio.run(env.score_batch(episodes, 1))
    assert [each["shared"] for each in found.rewards] == [3 * 2 / 4, 0]
    assert env.relabel(task, [programs[0]]).closeness == 3 / 4
    assert env.relabel(task, [programs[1]]).actions == ("draw_pixel(img, (1, 0), 1)",)
    assert len(ran) == 2


def test_a_program_for_which_the_sandbox_fails_has_no_reward_and_counts_for_no_other(monkeypatch):
    run = python_programs.run

    def fails(program, *args, **options):
        if "(1, 0)" in program:
            raise SandboxError("a worker was lost")
        return run(program, *args, **options)

    monkeypatch.setattr(python_programs, "run", fails)
    env, task = tw.make_env("arc-draw", sharing=True, runner="sandbox"), drawing(1)
    programs = ["draw_horizontal_line(img, 0, 1)", "draw_pixel(img, (1, 0), 1)"]
    episodes = [played(env, task, n, action) for n, action in enumerate(programs)]
    found = asyncio.run(env.score_batch(episodes, 1))
    assert found.rewards == ({"shared": 3 / 4}, None)
    with pytest.raises(SandboxError, match="a worker was lost"):
        asyncio.run(env.score_batch(episodes[1:], 1))
    assert asyncio.run(env.score_batch([], 1)).rewards == ()


def test_questions_after_the_program_do_not_count():
    env, task = tw.make_env("arc-draw", sharing=True), drawing(1)
    one = played(env, task, 0, "draw_horizontal_line(img, 0, 1)")
    (trajectory,) = one.trajectories
    asked = replace(trajectory.turns[0], phase="ask", action=None, text="was it right?")
    both = replace(trajectory, turns=(*trajectory.turns, asked))
    found = asyncio.run(env.score_batch([replace(one, trajectories=(both,))], 1))
    assert found.rewards == ({"shared": 3 / 4},)


def test_tasks_that_look_alike_are_one_whatever_their_names():
    env = tw.make_env("arc-draw", sharing=True)
    tasks = drawing(1), replace(drawing(1), id="again")
    row, dot = "draw_horizontal_line(img, 0, 1)", "draw_pixel(img, (1, 0), 1)"
    programs = [(tasks[0], row), (tasks[1], dot)]
    episodes = [played(env, task, n, action) for n, (task, action) in enumerate(programs)]
    found = asyncio.run(env.score_batch(episodes, 1))
    assert [each["shared"] for each in found.rewards] == pytest.approx([(4 + 1) / 4, (2 + 1) / 4])


def test_it_is_earned_only_if_it_is_asked_for():
    env = tw.make_env("arc-draw")
    assert "shared" not in env.components
    assert asyncio.run(env.score_batch([], 1)) is None
