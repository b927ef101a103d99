"""Standard errors: over distinct problems, or over episodes where those are few."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.envs import clustered_stderr, error_unit, make_env, score_baselines, standard_error
from turnwise.envs.standard_errors import degrees_of_freedom
from turnwise.runs.results import Difference
from turnwise.tasks import GeneratedTasks

from ..conftest import load_benchmark


@pytest.fixture(scope="module")
def simulation():
    return load_benchmark("error_coverage")


def spread(values):
    """The standard error of a mean, scaled by Student's t; not for lopsided values."""
    t = {3: 3.182446, 4: 2.776445, 5: 2.570582, 59: 2.000995, 199: 1.971957}[len(values) - 1]
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) * t / 1.959964


@pytest.mark.parametrize("problems", [1, 2, 4])
def test_few_problems_have_errors_over_episodes(problems):
    values = [float(number % 2 == 0) for number in range(200)]
    names = [str(number // 3 % problems) for number in range(200)]
    assert error_unit(names) == "episodes"
    assert standard_error(values, names) == pytest.approx(spread(values), rel=1e-3)


def test_more_problems_have_errors_over_problems():
    values = [1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    names = [name for name in "abcdef" for _ in range(2)]
    assert error_unit(names) == "problems"
    alone = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    assert standard_error(values, names) == pytest.approx(spread(alone), rel=1e-3)


def test_many_problems_of_which_one_is_nearly_every_episode_have_errors_over_episodes():
    assert error_unit(["a"] * 180 + [str(number) for number in range(20)]) == "episodes"
    assert error_unit([str(number) for number in range(20)] * 10) == "problems"


def test_degrees_of_freedom_are_satterthwaites():
    """Against the matrix of Bell and McCaffrey (2002), written out."""
    sizes = np.array([60, 25, 9, 5, 1])
    names = [str(place) for place, size in enumerate(sizes) for _ in range(size)]
    members = np.eye(len(sizes))[[int(name) for name in names]]
    residuals = (members - sizes / sizes.sum()) / np.sqrt(1 - sizes / sizes.sum())
    found = []
    for covariance in (np.eye(len(names)), members @ members.T):
        matrix = residuals.T @ covariance @ residuals
        found.append(np.trace(matrix) ** 2 / np.trace(matrix @ matrix))
    assert degrees_of_freedom(names) == pytest.approx(min(found))


@pytest.mark.parametrize(
    ("drawn", "problems", "rate", "between"),
    [
        ("equal", 5, 0.5, 0.0),
        ("equal", 8, 0.5, 0.2),
        ("equal", 20, 0.02, 0.0),
        ("root", 20, 0.5, 0.2),
        ("root", 100, 0.1, 0.2),
        ("zipf", 20, 0.5, 1.0),
        ("dominant", 6, 0.5, 0.0),
        ("dominant", 100, 0.1, 0.2),
    ],
)
def test_95_percent_intervals_hold_the_truth_nearly_as_often(
    simulation, drawn, problems, rate, between
):
    weights = simulation.shares(drawn, problems)
    found = simulation.coverage(weights, rate, between, episodes=200, repeats=300)
    assert found.ours >= 0.92
    assert found.plain <= 0.94


@pytest.mark.parametrize("names", [["a"] * 60, [str(number % 20) for number in range(60)]])
def test_equal_scores_have_the_error_that_a_rare_other_one_leaves_open(names):
    """With 3 / n of the units differing, n units are all alike in 5 % of draws."""
    units = 60 if error_unit(names) == "episodes" else 20
    for value in (0.0, 1.0):
        assert 3 / units < 1.96 * standard_error([value] * 60, names, span=1.0) < 4.6 / units


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1 / 3])
@pytest.mark.parametrize("problems", [1, 7, 200])
def test_equal_values_have_exactly_no_error(value, problems):
    assert standard_error([value] * 200, [str(n % problems) for n in range(200)]) == 0.0


def test_problems_of_equal_means_do_not_hide_the_spread_within_them():
    values, names = [0.0, 1.0] * 30, [str(number // 2) for number in range(60)]
    assert clustered_stderr(values, names) == 0.0
    assert standard_error(values, names) == pytest.approx(spread(values), rel=1e-3)


def test_baselines_on_one_slippery_map_have_an_error():
    env = make_env("frozen-lake", map=["SFFF", "FHFH", "FFFH", "HFFG"], slippery=True)
    tasks = GeneratedTasks(env, "test", seed=0).take(60)
    found = score_baselines(env, tasks, 0, names=["optimal"])["optimal"]
    assert (found.n, len(set(found.scores))) == (1, 2)
    plain = float(np.std(found.scores, ddof=1) / np.sqrt(60))
    assert plain < found.stderr < 1.2 * plain


def test_differences_on_one_problem_have_an_error():
    lead = Difference.of([1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], ["a"] * 4)
    assert (lead.difference, lead.stderr) == (0.5, pytest.approx(spread([1, 0, 1, 0]), rel=1e-3))


@pytest.mark.parametrize(("wins", "shown"), [(4, False), (5, False), (7, True), (9, True)])
@pytest.mark.parametrize("name", ["a", "{}"], ids=["one problem", "a problem each"])
def test_a_few_wins_without_a_loss_are_no_proof(name, wins, shown):
    """A sign test calls 6 of 6 significant, and no fewer."""
    ours = [1.0] * wins + [0.0] * (200 - wins)
    problems = [name.format(number) for number in range(200)]
    lead = Difference.of(ours, [0.0] * 200, problems, span=1.0)
    assert (lead.difference > 1.96 * lead.stderr) == shown


@pytest.mark.parametrize(("episodes", "shown"), [(2, False), (4, False), (9, True)])
def test_equal_differences_of_few_episodes_are_no_proof(episodes, shown):
    for size in (1.0, 30.0):
        lead = Difference.of([size] * episodes, [0.0] * episodes, ["a"] * episodes)
        assert (lead.difference > 2 * lead.stderr) == shown


def test_two_policies_that_never_differ_may_differ_elsewhere():
    scores, names = [0.0, 1.0] * 50, [str(number) for number in range(100)]
    assert 0.015 < Difference.of(scores, scores, names, span=1.0).stderr < 0.025
    assert Difference.of(scores, scores, names).stderr == 0.0  # of returns nothing is known
