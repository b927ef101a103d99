"""The envs of turnwise's own: Gymnasium's checks, their tables, and players that do well."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from turnwise.search.envs import ENTRIES
from turnwise.search.tasks import TASKS


@pytest.mark.parametrize("name", list(ENTRIES))
def test_gymnasium_accepts_them(name):
    check_env(gymnasium.make(name).unwrapped, skip_render_check=True)


@pytest.mark.parametrize(("task", "optimum"), [("maze", 1 - 0.3 / 9), ("nim", 1.0)])
def test_exact_values_are_those_of_play(task, optimum, problem):
    env = problem(task)
    assert env.optimum() == pytest.approx(optimum)
    rng = np.random.default_rng(0)
    for number in range(20):
        params = env.space.drawn(rng)
        returns = env.play(params, episodes=400, name=str(number)).returns
        error = np.std(returns) / 20 + 1e-9
        assert np.mean(returns) == pytest.approx(env.exact(params), abs=5 * error)


def test_the_best_of_nim_leaves_multiples_of_four(problem):
    best = tuple(max(stones % 4 - 1, 0) for stones in range(11))
    assert problem("nim").exact(best) == 1.0
    assert problem("nim").exact((0,) * 11) < 0.5


def test_a_robot_that_turns_away_from_walls_drives_around(problem):
    env = problem("navigation")
    # right, half right, ahead, half left, left: it turns to the freer side when the way is short
    turns = {
        "ahead": (0, 0, 30, 0, 0),
        "left": (-10, -20, 0, 20, 10),
        "right": (10, 20, 0, -20, -10),
    }
    weights = np.array([turns["ahead"], turns["left"], turns["right"]]).T.ravel()
    played = env.play((*weights.tolist(), 0, 40, 40), episodes=5, name="a")
    assert min(played.returns) > 2000
    assert played.lengths == (1000,) * 5
    ahead = env.play((0,) * 15 + (10, 0, 0), episodes=5, name="a")
    assert max(ahead.returns) < 0


def test_a_paddle_that_follows_the_ball_wins(problem):
    env = problem("pong")
    params = np.zeros((7, 3), dtype=int)
    params[1], params[4] = (0, 60, -60), (0, -60, 60)
    follows = env.play(tuple(params.ravel().tolist()), episodes=40, name="a")
    stays = env.play((0,) * 21, episodes=40, name="a")
    assert np.mean(follows.returns) > 0.5
    assert np.mean(stays.returns) < -0.5
    assert max(follows.lengths) < 2000


def test_tasks_of_mujoco_play(problem):
    pytest.importorskip("mujoco")
    for task in TASKS.values():
        if task.extra:
            env = problem(task.name)
            played = env.play(env.space.drawn(np.random.default_rng(0)), episodes=1, name="a")
            assert played.lengths[0] > 1
