"""The table of envs that nothing was tuned for: its optima, and what a score is compared with."""

from __future__ import annotations

import json
import sys
from functools import cache
from statistics import mean

import pytest

import turnwise as tw

from ..conftest import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))
import untuned


def env_of(name):
    world = untuned.BATTERY[name]
    return tw.make_env(world.env, **world.options).unwrapped


def test_the_best_score_of_nim_is_the_optimum():
    @cache
    def best(sticks):
        return max(after(sticks - taken) for taken in range(1, min(3, sticks) + 1))

    def after(left):
        replies = range(1, min(3, left) + 1)
        return mean(best(left - each) if left > each else 0.0 for each in replies) if left else 1.0

    starts = {env_of("nim").generate(Draws(number))["sticks"] for number in range(5, 12)}
    assert untuned.BATTERY["nim"].best == pytest.approx(mean(map(best, starts)))


class Draws:
    """A generator whose first draw is given."""

    def __init__(self, first):
        self.numbers = [first, 0]

    def integers(self, *bounds):
        return self.numbers.pop(0)


@pytest.mark.parametrize("name", ["frozen-lake-slippery", "taxi"])
def test_the_best_score_of_an_env_with_a_table_is_the_optimum(name):
    env = env_of(name)
    returns = env._table.values(env.limit, 1)[-1].max(axis=1)
    scores = (returns - env._worst) / (env._best - env._worst)
    assert untuned.BATTERY[name].best == pytest.approx(env._table.first @ scores, abs=1e-4)


def test_a_constant_is_chosen_on_other_tasks_than_it_is_scored_on(monkeypatch):
    asked = []

    def played(env, tasks, word, split):
        asked.append((word, split, len(tasks)))
        lucky = "7" if split == "test" else "3"
        return [float(word == lucky or number == 0) for number in range(len(tasks))]

    monkeypatch.setattr(untuned, "played", played)
    monkeypatch.setattr(untuned, "TASKS", 100)
    found = untuned.constant("guess")
    assert (found["word"], found["score"]) == ("3", 0.01)
    assert asked[-1] == ("3", "test", 100)
    assert {split for _, split, _ in asked[:-1]} == {"train"}
    assert len(asked) == 17
    assert found["stderr"] > 0.01


@pytest.mark.parametrize(("error", "above"), [(0.01, True), (0.03, False)])
def test_a_score_is_compared_by_the_error_of_the_best_constant(tmp_path, error, above):
    fixed = {"word": "a", "score": 0.5, "stderr": error}
    (tmp_path / "guess-constant.json").write_text(json.dumps(fixed))
    seeds = {"score": 0.55, "stderr": 0.01, "score_greedy": 0.5, "score_sampled": 0.5}
    found = [{**seeds, "random": 0.2, "random_stderr": each} for each in (0.2, 0.0)]
    row = untuned.measured(tmp_path, "guess", found)
    assert (row.trivial, row.above) == (0.5, above)


@pytest.mark.parametrize(("error", "above"), [(0.02, True), (0.06, False)])
def test_a_score_is_compared_by_the_error_of_the_mean_of_random_play(tmp_path, error, above):
    (tmp_path / "guess-constant.json").write_text("{}")
    seeds = {"score": 0.55, "stderr": 0.01, "score_greedy": 0.5, "score_sampled": 0.5}
    found = [{**seeds, "random": 0.5, "random_stderr": error} for _ in range(4)]
    row = untuned.measured(tmp_path, "guess", found)
    assert (row.trivial, row.above) == (0.5, above)


def test_every_line_of_the_results_is_of_a_known_env():
    kept = untuned.kept(BENCHMARKS / "untuned.jsonl")
    assert {name for name, *_ in kept} == set(untuned.BATTERY)
