"""The player that takes the action whose own step pays most."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import numpy as np
import pytest

from turnwise.envs import make_env, score_baselines
from turnwise.envs.base import Env, Observation, Step
from turnwise.envs.myopic import MOST_TRIED, MYOPIC, myopic_player
from turnwise.errors import IllegalActionError
from turnwise.recipe.schema import load_recipe
from turnwise.tasks import GeneratedTasks


class Bait(Env):
    """Two steps of WORK win; BAIT pays at once and ends the episode."""

    name = "bait"
    components: ClassVar[dict[str, str]] = {"paid": "agent", "work": "agent"}
    legal = ("BAIT", "WORK", "WAIT")

    def generate(self, rng):
        return {"number": int(rng.integers(1000))}

    def reset(self, task):
        return 0

    def observe(self, state, role):
        return Observation(text=f"worked {state}", legal_actions=self.legal)

    def step(self, state, role, action, noise):
        if action == "WAIT":
            raise IllegalActionError("there is no time")
        drawn = float(noise.random())  # an equal draw for all actions of a state
        if action == "BAIT":
            return Step(state=-1, rewards={"paid": drawn + 0.5}, terminated=True, truncated=False)
        rewards = {"paid": drawn, "work": 1.0}
        return Step(state=state + 1, rewards=rewards, terminated=state == 1, truncated=False)

    def score(self, state):
        return float(state == 2)


def score_with(weights, env=None):
    env = env or Bait()
    tasks = list(GeneratedTasks(env, "test", 0).take(20))
    others = {MYOPIC: myopic_player(env, weights)}
    found = score_baselines(env, tasks, seed=0, names=[MYOPIC], weights=weights, others=others)
    return found[MYOPIC].mean


def test_it_takes_what_pays_most_now_whatever_follows():
    assert score_with({"paid": 1.0, "work": 0.4}) == 0.0
    assert score_with({"paid": 1.0, "work": 0.6}) == 1.0


def test_of_equal_actions_a_random_one_is_taken_and_a_refused_one_never():
    play, rng = myopic_player(Bait(), {"work": 0.0}), np.random.default_rng(0)
    taken = Counter(play(0, rng) for _ in range(300))
    assert set(taken) == {"BAIT", "WORK"}
    assert min(taken.values()) > 100


class Many(Bait):
    """As many legal actions as nobody tries."""

    name = "many"
    legal = tuple(f"A{number}" for number in range(10 * MOST_TRIED))
    tried = 0

    def step(self, state, role, action, noise):
        self.tried += 1
        rewards = {"paid": 0.0, "work": float(action[1:])}
        return Step(state=2, rewards=rewards, terminated=True, truncated=False)


def test_of_many_actions_some_are_tried():
    env, rng = Many(), np.random.default_rng(0)
    play = myopic_player(env, {"work": 1.0})
    best = [int(play(0, rng)[1:]) for _ in range(20)]
    assert env.tried == 20 * MOST_TRIED
    assert len(set(best)) > 5
    assert min(best) > 5 * MOST_TRIED


@pytest.mark.parametrize(("cost", "least", "most"), [("moves", 1.0, 1.0), ("estimate", 0.0, 0.9)])
def test_a_recipe_that_compares_own_steps_has_it_among_its_baselines(cost, least, most):
    recipe = load_recipe("sokoban-two-policy", overrides=[f"env.options.cost={cost}"])
    env = recipe.env.make("evaluation")
    others = recipe.other_players(env)
    tasks = list(GeneratedTasks(env, "test", 0).take(20))
    found = score_baselines(env, tasks, 0, names=others, others=others)
    assert set(found) == {MYOPIC}
    assert least <= found[MYOPIC].mean <= most


@pytest.mark.parametrize("preset", ["grpo", "turns", "outcome"])
def test_where_whole_episodes_are_compared_there_is_none(preset):
    recipe = load_recipe("sokoban-two-policy", overrides=[f"preset={preset}"])
    assert not recipe.other_players(make_env("sokoban"))


def test_an_env_that_cannot_go_back_has_none():
    recipe = load_recipe("sokoban-two-policy")
    env = make_env("sokoban").unwrapped
    assert recipe.other_players(env)
    env.branching = "none"
    assert not recipe.other_players(env)
