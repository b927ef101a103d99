from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from turnwise.envs import (
    FrozenLake,
    FrozenLakeConfig,
    Step,
    guarded,
    make_env,
    random_walk,
    score_baselines,
)
from turnwise.envs.base import MAX_TURNS
from turnwise.errors import IllegalActionError, UnknownNameError
from turnwise.seeding import world_generator
from turnwise.tasks import GeneratedTasks


def test_baselines_of_small_lakes_score_what_is_known():
    env = make_env("frozen-lake")
    found = score_baselines(env, GeneratedTasks(env, "test", seed=1).take(600), seed=0)
    known = {"random": 0.025, "safe-walk": 0.13, "reflex": 0.92}
    for name, value in known.items():
        assert abs(found[name].mean - value) < 4 * found[name].stderr + 0.01, name
    assert found["shortest-path"].mean == found["optimal"].mean == 1.0
    assert [found[f"always-{way}"].mean for way in ("left", "up")] == [0.0, 0.0]
    assert found["random"].n < 600, "4x4 lakes repeat, and the error counts distinct ones"
    assert len(found["random"].scores) == 600


def test_optimal_is_best_on_slippery_ice_and_reaches_its_own_forecast():
    env = make_env("frozen-lake", map=("SFFF", "FHFH", "FFFH", "HFFG"), slippery=True, step_limit=9)
    tasks = GeneratedTasks(env, "test", seed=0).take(400)
    found = score_baselines(env, tasks, seed=0, names=["optimal", "shortest-path", "random"])
    from turnwise.envs.frozen_lake.solver import success_chances

    state = env.reset(tasks[0])
    forecast = success_chances(state.map, True, state.limit)[state.limit, 0].max()
    error = np.sqrt(forecast * (1 - forecast) / 400)
    assert abs(found["optimal"].mean - forecast) < 4 * error
    assert found["optimal"].mean > found["shortest-path"].mean > found["random"].mean


def test_scores_are_repeatable_and_a_task_keeps_its_chance_among_fewer():
    env = make_env("frozen-lake", slippery=True)
    tasks = GeneratedTasks(env, "test", seed=0).take(20)
    names = ["random", "optimal"]
    all_of = score_baselines(env, tasks, seed=3, repeats=2, names=names)
    assert all_of == score_baselines(env, tasks, seed=3, repeats=2, names=names)
    first = score_baselines(env, tasks[:5], seed=3, repeats=2, names=["optimal"])
    assert first["optimal"].scores == all_of["optimal"].scores[:5]
    assert all_of != score_baselines(env, tasks, seed=4, repeats=2, names=names)


def test_the_worlds_chance_is_where_the_rollout_puts_it():
    env = make_env("frozen-lake", slippery=True, step_limit=5)
    tasks = GeneratedTasks(env, "test", seed=0).take(8)
    found = score_baselines(env, tasks, seed=7, names=["shortest-path"])["shortest-path"]
    for visit, task in enumerate(tasks):
        state, number = env.reset(task), 0
        while not state.ended:
            noise = world_generator(7, "evaluation", 0, visit, number, None)
            state = env.step(state, "player", env.shortest_path(state)[0], noise).state
            number += 1
        assert env.score(state) == found.scores[visit]


def test_unknown_names_and_no_tasks_are_refused():
    env = make_env("frozen-lake")
    tasks = GeneratedTasks(env, "test", seed=0).take(1)
    with pytest.raises(UnknownNameError, match="did you mean 'optimal'"):
        score_baselines(env, tasks, seed=0, names=["optimum"])
    with pytest.raises(ValueError, match="give one or more"):
        score_baselines(env, [], seed=0)


class Endless(FrozenLake):
    """Never ends; counts its steps."""

    taken = 0

    def step(self, state, role, action, noise):
        self.taken += 1
        return Step(state=state, rewards={}, terminated=False, truncated=False)


def test_endless_episodes_are_cut_at_the_envs_cap():
    tasks = GeneratedTasks(make_env("frozen-lake"), "test", seed=0).take(2)
    for declared, cap in ((7, 7), (None, MAX_TURNS)):
        env = Endless()
        env.max_turns = declared
        assert score_baselines(env, tasks, seed=0, names=["random"])["random"].mean == 0.0
        assert env.taken == 2 * cap


class Fussy(FrozenLake):
    """Offers all four ways and refuses LEFT."""

    def step(self, state, role, action, noise):
        if action == "LEFT":
            raise IllegalActionError("no way to the left")
        return super().step(state, role, action, noise)


def test_a_refused_action_ends_a_baselines_episode_with_score_0():
    tasks = GeneratedTasks(make_env("frozen-lake"), "test", seed=0).take(30)
    for env in (Fussy(), guarded(Fussy(), timeout=60)):
        found = score_baselines(env, tasks, seed=0)
        assert found["always-left"].mean == 0.0
        assert found["always-left"].broken == found["random"].broken == 0
        assert found["shortest-path"].mean > 0, "paths without LEFT still reach the goal"


def test_random_play_goes_past_refused_actions():
    env = Fussy()
    for number, task in enumerate(GeneratedTasks(env, "train", seed=0).take(20)):
        state = random_walk(env, task, np.random.default_rng(number), 8)
        assert env.observe(state, "player").legal_actions


class Paid(FrozenLake):
    """Every step costs 1 and is counted; its return is its score, and `score` says nothing."""

    components: ClassVar = {"cost": "agent", "count": "agent"}
    scored_by = "return"

    def step(self, state, role, action, noise):
        if action == "UP" and state.steps == 2:
            raise IllegalActionError("no way up after two steps")
        step = super().step(state, role, action, noise)
        return replace(step, rewards={"cost": -1.0, "count": 0.25})

    def score(self, state):
        return 0.5


def test_the_return_is_the_score_where_the_env_says_so():
    lake = FrozenLakeConfig(map=("SFF", "FFF", "FFG"))
    tasks = GeneratedTasks(Paid(lake), "test", seed=0).take(3)
    names = ["shortest-path", "always-up", "always-left"]
    for env in (Paid(lake), guarded(Paid(lake), timeout=60)):
        env.max_turns = 5
        found = score_baselines(env, tasks, seed=0, names=names)
        assert found["shortest-path"].mean == 4 * -0.75
        assert found["always-up"].mean == 2 * -0.75, "what it had earned when it was refused"
        assert found["always-left"].mean == 5 * -0.75, "cut at the env's cap"
        found = score_baselines(env, tasks, seed=0, names=names, weights={"cost": 2.0})
        assert found["shortest-path"].scores == (-8.0,) * 3
        assert found["shortest-path"].stderr == 0.0


class PaidAndBroken(Paid):
    def step(self, state, role, action, noise):
        step = super().step(state, role, action, noise)
        if step.state.steps == 3:
            raise OSError("cracked")
        return step


def test_a_broken_episode_has_no_return():
    env = guarded(PaidAndBroken(FrozenLakeConfig(map=("SFF", "FFF", "FFG"))), timeout=60)
    tasks = GeneratedTasks(env, "test", seed=0).take(3)
    found = score_baselines(env, tasks, seed=0, names=["shortest-path"])["shortest-path"]
    assert (found.mean, found.broken) == (0.0, 3)
