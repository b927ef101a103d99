"""The player that takes the action whose own step pays most."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import numpy as np
import pytest

from turnwise.envs import myopic
from turnwise.envs.base import Env, Observation, Step
from turnwise.envs.myopic import FIRST, MOST_TRIED, MyopicPlayer, score_myopic
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


def score_with(weights):
    tasks = list(GeneratedTasks(Bait(), "test", 0).take(20))
    return score_myopic(Bait(), tasks, 0, weights)


def test_it_takes_what_pays_most_now_whatever_follows():
    assert score_with({"paid": 1.0, "work": 0.4}).scores == (0.0,) * 20
    assert score_with({"paid": 1.0, "work": 0.6}).scores == (1.0,) * 20


def test_of_equal_actions_a_random_one_is_taken_and_a_refused_one_never():
    play, rng = MyopicPlayer(Bait(), {"work": 0.0}), np.random.default_rng(0)
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
    play = MyopicPlayer(env, {"work": 1.0})
    best = [int(play(0, rng)[1:]) for _ in range(20)]
    assert env.tried == 20 * MOST_TRIED
    assert len(set(best)) > 5
    assert min(best) > 5 * MOST_TRIED


def test_a_low_score_of_some_of_the_actions_tells_nothing():
    tasks = list(GeneratedTasks(Bait(), "test", 0).take(20))
    assert score_myopic(Many(), tasks, 0, {"work": 1.0}) is None


def test_as_many_tasks_are_played_as_the_steps_allow(monkeypatch):
    tasks = list(GeneratedTasks(Bait(), "test", 0).take(40))
    steps = 2 * len(Bait.legal)  # of an episode

    def played(most):
        monkeypatch.setattr(myopic, "MOST_STEPS", most)
        return len(score_myopic(Bait(), tasks, 0, {"work": 1.0}).scores)

    assert played(25 * steps) == 25
    assert played(1000 * steps) == 40
    assert played(steps) == FIRST


@pytest.mark.parametrize(("cost", "least", "most"), [("moves", 1.0, 1.0), ("estimate", 0.0, 0.9)])
def test_the_estimates_of_sokoban_lead_away_from_solutions(cost, least, most):
    recipe = load_recipe("sokoban-two-policy", overrides=[f"env.options.cost={cost}"])
    env = recipe.env.make("evaluation")
    tasks = list(GeneratedTasks(env, "test", 0).take(FIRST))
    assert least <= score_myopic(env, tasks, 0, recipe.credit.rewards).mean <= most


@pytest.mark.parametrize(
    ("setting", "compares"),
    [
        ("preset=shared", True),
        ("preset=grpo", False),
        ("preset=turns", False),
        ("preset=outcome", False),
        ("topology.score=turn_end", False),
    ],
)
def test_a_recipe_says_whether_single_steps_are_compared(setting, compares):
    assert load_recipe("sokoban-two-policy", overrides=[setting]).compares_steps == compares
