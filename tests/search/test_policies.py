"""Policies from spaces, and the episodes that they play."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from turnwise.app.search import search_policy
from turnwise.errors import ConfigError, UnknownNameError
from turnwise.report.search import lost_iterations
from turnwise.search.config import SearchConfig
from turnwise.search.policies import TablePolicy, policy_for
from turnwise.search.problem import Problem
from turnwise.search.published import PUBLISHED
from turnwise.search.tasks import TASKS, find_task
from turnwise.settings import parse

SAFE = (0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0)
"""The policy of the 4x4 lake that no other beats without a limit of steps."""


def test_a_table_counts_states_and_actions_from_where_they_begin():
    policy = policy_for(spaces.Discrete(3, start=5), spaces.Discrete(2, start=7), "odd")
    assert policy.actor((0, 1, 0))(6) == 8
    assert policy.batch((0, 1, 0))(np.array([5, 6, 7])).tolist() == [7, 8, 7]


@pytest.mark.parametrize(
    "actions",
    [spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (1, 2))],
)
def test_one_observation_and_a_batch_have_equal_actions(actions):
    policy = policy_for(spaces.Box(-9, 9, (4,)), actions, "any")
    rng = np.random.default_rng(0)
    params = policy.space.drawn(rng)
    assert len(params) == 5 * (3 if isinstance(actions, spaces.Discrete) else 2)
    seen = rng.normal(size=(6, 4))
    one = [policy.actor(params)(each) for each in seen]
    assert np.allclose(policy.batch(params)(seen), one)
    assert all(actions.contains(each) for each in one)


def test_a_linear_policy_by_hand():
    policy = policy_for(spaces.Box(-9, 9, (2,)), spaces.Box(-1, 1, (1,)), "any")
    action = policy.actor((10, -20, 5))(np.array([0.5, 0.3]))  # 0.5 - 0.6 + 0.5
    assert action == pytest.approx(np.array([0.4]))
    assert policy.actor((60, 60, 60))(np.array([1.0, 1.0])) == np.array([1.0])


def test_spaces_that_no_policy_fits_are_refused():
    with pytest.raises(ConfigError, match="a search needs discrete observations"):
        policy_for(spaces.Discrete(3), spaces.Box(-1, 1, (1,)), "odd")
    with pytest.raises(ConfigError, match="the most is 2,000"):
        policy_for(spaces.Box(0, 255, (84, 84)), spaces.Discrete(4), "pictures")


def test_equal_names_have_equal_episodes(problem):
    here, there = problem("frozen-lake"), problem("frozen-lake", seed=1)
    first = here.play(SAFE, episodes=30, name="a")
    assert here.play(SAFE, episodes=30, name="a") == first
    assert here.play(SAFE, episodes=30, name="b") != first
    assert there.play(SAFE, episodes=30, name="a") != first


def test_steps_of_the_first_episode_are_kept_if_asked_for(problem):
    played = problem("frozen-lake").play(SAFE, episodes=3, name="a", first_steps=5)
    assert len(played.steps) == min(5, played.lengths[0])
    assert played.steps[0][:2] == (0, 0)


def test_the_exact_return_is_the_mean_of_many_episodes(problem):
    lake = problem("frozen-lake")
    exact = lake.exact(SAFE)
    assert exact == pytest.approx(0.7402, abs=1e-4)
    assert lake.optimum() == pytest.approx(0.7442, abs=1e-4)
    returns = lake.play(SAFE, episodes=2000, name="many").returns
    assert np.mean(returns) == pytest.approx(exact, abs=4 * np.std(returns) / 2000**0.5)


def test_the_exact_return_counts_the_steps_of_the_limit(problem):
    cliff = problem("cliff-walking")
    up = (0,) * 48
    assert cliff.exact(up) == -100.0  # the walker stays at the upper edge, to the limit
    assert cliff.play(up, episodes=2, name="a").returns == (-100.0, -100.0)
    assert cliff.optimum() == -13.0


def test_a_vector_env_plays_as_single_envs_do(problem):
    pole = problem("cart-pole")
    params = (0, 0, 0, 0, -30, 30, -30, 30, 0, 0)  # pushes to where the pole leans
    side_by_side = pole.play(params, episodes=200, name="a")
    seeds = pole.fresh_seeds(200)
    one_by_one = pole.play_actor(pole.policy.actor(params), seeds)
    error = np.hypot(np.std(side_by_side.returns), np.std(one_by_one.returns)) / 200**0.5
    assert len(side_by_side.returns) == 200
    assert abs(np.mean(side_by_side.returns) - np.mean(one_by_one.returns)) < 4 * error
    always = pole.play((0,) * 10, episodes=50, name="b")
    assert set(always.returns) <= {8.0, 9.0, 10.0, 11.0}
    assert always.returns == tuple(map(float, always.lengths))


def test_tasks_are_found_by_name_and_by_id():
    assert find_task("FrozenLake-v1") is TASKS["frozen-lake"]
    assert find_task("Pendulum-v1").env == "Pendulum-v1"
    with pytest.raises(UnknownNameError, match="did you mean 'frozen-lake'"):
        find_task("frozen-lak")
    assert all(gymnasium.spec(task.env) for task in TASKS.values())
    assert set(TASKS) == set(PUBLISHED)


def test_a_relabelled_task_is_the_same_task(problem):
    lake, other = problem("frozen-lake"), Problem(find_task("frozen-lake"), 0, relabel=3)
    assert isinstance(other.policy, TablePolicy)
    params = other.policy.params_of(SAFE)
    assert params != SAFE
    assert other.policy.actions_of(params) == SAFE
    assert other.exact(params) == lake.exact(SAFE)
    played = other.play(params, episodes=5, name="a", first_steps=4)
    assert played.returns == lake.play(SAFE, episodes=5, name="a").returns
    assert [params[state] for state, _, _ in played.steps] == [a for _, a, _ in played.steps]
    other.close()
    with pytest.raises(ConfigError, match="observations of task 'cart-pole' are vectors"):
        Problem(find_task("cart-pole"), 0, relabel=3)


def test_the_policy_of_a_relabelled_search_has_the_numbers_of_the_env(problem, tmp_path):
    budget = {"iterations": 30, "episodes": 4, "fresh": 4}
    data = {"task": "frozen-lake", "method": "hill-climbing", "relabel": 3, "budget": budget}
    found = search_policy(parse(SearchConfig, data, "the search"), tmp_path / "a")
    lake, params = problem("frozen-lake"), tuple(found.result.params or ())
    assert found.result.exact
    assert lake.exact(params) == pytest.approx(found.result.exact)
    assert found.result.proposer == "hill-climbing, relabelled by 3"
    report = (found.folder / "report.md").read_text()
    assert report.startswith("# frozen-lake by hill-climbing, relabelled by 3")
    assert f"| {' '.join(map(str, params))} |" in report


def test_iterations_without_a_policy_are_told_where_they_are_many():
    assert lost_iterations(10, 4) == ""
    assert lost_iterations(10, 5).startswith("5 of 10 iterations brought no policy")
    assert lost_iterations(10, 10).startswith("No reply gave a policy that could be played")
