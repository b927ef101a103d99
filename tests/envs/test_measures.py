"""Measures of an episode: what an env may return, their means, and the shipped envs' own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from turnwise.envs import (
    Env,
    Observation,
    Step,
    check_env,
    guarded,
    make_env,
    score_baselines,
    standard_error,
)
from turnwise.envs.measures import TAKEN, expected_measures, mean_measures
from turnwise.envs.treasure import Treasure
from turnwise.errors import BrokenEnvError, EnvError, IllegalActionError
from turnwise.rollout import rollout_metrics
from turnwise.tasks import GeneratedTasks
from turnwise.types import Episode, EpisodeId, Task

NAN = float("nan")
WRONG = {
    "text": ({"heads": "3"}, "a dict of name and finite float"),
    "a bool": ({"heads": True}, "a dict of name and finite float"),
    "nan": ({"heads": NAN}, "a dict of name and finite float"),
    "too large": ({"heads": -1e308}, r"finite float of at most 1e[+]18 in size"),
    "a list": ([1.0], "a dict of name and finite float"),
    "none": (None, "a dict of name and finite float"),
    "a path": ({"a/b": 1.0}, "at most 40 letters, digits"),
    "a number's name": ({3: 1.0}, "at most 40 letters, digits"),
    "a metric's name": ({"score": 1.0}, "another name than 'score', which a metric has already"),
}


@dataclass(frozen=True)
class Thrown:
    seed: int
    thrown: int = 0


class Measured(Env[Thrown]):
    """Two throws of a coin, whose measures are as told."""

    name = "coins"
    components: ClassVar = {"heads": "agent"}
    found: object = None

    def reset(self, task):
        return Thrown(task.data["seed"])

    def observe(self, state, role):
        return Observation(text=f"{state.seed} {state.thrown}", legal_actions=("HEADS", "TAILS"))

    def step(self, state, role, action, noise):
        if action not in ("HEADS", "TAILS"):
            raise IllegalActionError("say HEADS or TAILS")
        after = Thrown(state.seed, state.thrown + 1)
        return Step(state=after, rewards={}, terminated=after.thrown > 1, truncated=False)

    def score(self, state):
        return 0.0

    def measures(self, state):
        return self.found(state) if callable(self.found) else self.found


@pytest.mark.parametrize("case", WRONG)
def test_wrong_measures_are_refused_before_training_and_in_a_run(case):
    env, words = Measured(), WRONG[case][1]
    env.found = WRONG[case][0]
    with pytest.raises(EnvError, match=words) as refused:
        check_env(env, tasks=1)
    assert "measures" in str(refused.value) and "test_measures.py" in str(refused.value)
    watched = guarded(env, timeout=60)
    with pytest.raises(BrokenEnvError, match=words):
        watched.measures(watched.reset(GeneratedTasks(env, "test", 0).task(0)))


def test_names_that_change_are_refused():
    env = Measured()
    env.found = lambda state: {f"throw_{state.thrown}": 1.0}
    with pytest.raises(EnvError, match="the same names in every state, which were throw_0"):
        check_env(env, tasks=1)
    watched = guarded(env, timeout=60)
    first = watched.reset(GeneratedTasks(env, "test", 0).task(0))
    assert watched.measures(first) == {"throw_0": 1.0}
    after = watched.step(first, "player", "HEADS", np.random.default_rng(0)).state
    with pytest.raises(BrokenEnvError, match="the same names in every state"):
        watched.measures(after)


def test_measures_that_change_the_state_are_refused():
    env = Measured()
    env.found = lambda state: {"draw": float(np.random.default_rng().random())}
    with pytest.raises(EnvError):
        check_env(env, tasks=1)


def test_no_metric_of_a_rollout_has_a_name_that_a_measure_may_take():
    names = {name.partition("/")[2] for name in rollout_metrics([]) if name.startswith("rollout/")}
    assert names <= TAKEN
    assert expected_measures({"pass@8": 0.5, "food": 3}) == ""


def test_means_are_over_the_episodes_that_have_the_measure():
    found = mean_measures([{"a": 1.0}, {}, {"a": 3.0}, {"a": 2.0}], ["p", "q", "r", "s"])["a"]
    assert (found.mean, found.episodes) == (2.0, 3)
    assert found.stderr > 0
    assert mean_measures([{}, {}], ["p", "q"]) == {}


def test_training_metrics_have_means_of_measures():
    task = Task(id="t", env="e", seed=0, data={})
    episodes = [
        Episode(
            id=EpisodeId(iteration=0, visit=0, task="t", member=member),
            task=task,
            trajectories=(),
            terminated=True,
            truncated=False,
            score=0.0,
            measures=measures,
        )
        for member, measures in enumerate([{"food": 1.0}, {}, {"food": 4.0}])
    ]
    assert rollout_metrics(episodes)["rollout/food"] == 2.5


def test_the_lakes_measures():
    """The shortest path takes as many steps as it is long, and a fall is what ends short walks."""
    env = make_env("frozen-lake")
    tasks = GeneratedTasks(env, "test", 0).take(40)
    found = score_baselines(env, tasks, 0, names=["shortest-path", "random"])
    assert found["shortest-path"].measures["falls"].mean == 0
    ways = [len(env.shortest_path(env.reset(task))) for task in tasks]
    assert found["shortest-path"].measures["steps"].mean == pytest.approx(np.mean(ways))
    falls = found["random"].measures["falls"]
    assert 0 < falls.mean <= 1 - found["random"].mean
    assert falls.episodes == 40


def test_the_treasures_measures():
    env = Treasure()
    tasks = GeneratedTasks(env, "test", 0).take(20)
    found = score_baselines(env, tasks, 0, names=["optimal", "one look", "first"])
    looks = {name: score.measures["looks"].mean for name, score in found.items()}
    assert looks == {"optimal": 2, "one look": 1, "first": 0}
    assert {n: s.measures["seen"].mean for n, s in found.items()} == {
        "optimal": 1, "one look": 0.5, "first": 0,
    }  # fmt: skip


def test_refused_and_broken_episodes_of_baselines_have_no_measures():
    env = make_env("frozen-lake")
    tasks = GeneratedTasks(env, "test", 0).take(3)
    env.baselines = lambda: {"silly": lambda state, rng: "FLY"}
    (found,) = score_baselines(env, tasks, 0).values()
    assert (found.mean, found.broken, dict(found.measures)) == (0.0, 0, {})


def test_the_error_of_a_measure_is_over_the_problems_of_the_episodes_that_have_it():
    values = [float(n) for n in (1, 9, 2, 8, 3, 9, 4, 6, 5, 7, 1, 3)]
    problems = [name for name in "abcdef" for _ in range(2)]
    found = mean_measures([{}, *({"steps": v} for v in values)], ["z", *problems])["steps"]
    assert found.stderr == standard_error(values, problems)
    assert found.stderr != standard_error(values, ["z", *problems[:-1]])
    assert (found.mean, found.episodes) == (sum(values) / 12, 12)
