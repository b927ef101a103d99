"""Methods without a model: what they find, and that they go on as they would have."""

from __future__ import annotations

import json
import shutil
import sys

import gymnasium
import numpy as np
import pytest

from turnwise.app.search import search_policy
from turnwise.errors import ConfigError, MissingDependencyError, RunError
from turnwise.search.config import SearchConfig
from turnwise.search.history import HISTORY, HistoryLog, Try
from turnwise.search.methods import METHODS
from turnwise.search.methods.cem import POPULATION
from turnwise.search.methods.cma import CovarianceAdaptation
from turnwise.settings import parse

NUMERIC = ("random", "hill-climbing", "evolution", "guided", "cem", "cma-es", "q-learning")

WARMED = ("evolution", "guided")
"""Methods that begin with random policies of one episode each, as a model does."""


def searching(method, task="frozen-lake", seed=0, iterations=30, **budget):
    data = {
        "task": task, "method": method, "seed": seed,
        "budget": {"iterations": iterations, "episodes": 5, "fresh": 10, **budget},
    }  # fmt: skip
    return parse(SearchConfig, data, "the search")


def needs(method):
    if method == "cma-es":
        pytest.importorskip("cma")


def lines(folder):
    return [json.loads(line) for line in (folder / HISTORY).read_text().splitlines()]


@pytest.mark.parametrize("method", NUMERIC)
def test_a_search_goes_on_as_it_would_have(method, tmp_path):
    needs(method)
    config = searching(method, iterations=2 * POPULATION + 5)
    whole = search_policy(config, tmp_path / "whole")
    cut = tmp_path / "cut"
    for kept in (0, 1, POPULATION + 3, len(lines(tmp_path / "whole")) - 1):
        shutil.copytree(tmp_path / "whole", cut)
        (cut / "result.json").unlink()
        written = (cut / HISTORY).read_bytes().splitlines(keepends=True)
        (cut / HISTORY).write_bytes(b"".join(written[:kept]) + b'{"kind": "tr')
        again = search_policy(config, cut)
        assert (cut / HISTORY).read_bytes() == b"".join(written)
        assert again.result.params == whole.result.params
        assert again.result.fresh == whole.result.fresh
        shutil.rmtree(cut)


def test_cma_es_goes_on_as_it_would_have_after_policies_were_played_again(problem, tmp_path):
    pytest.importorskip("cma")
    car = problem("mountain-car-continuous")
    log, method = HistoryLog(tmp_path, car.space), CovarianceAdaptation(car, 0)
    rng = np.random.default_rng(0)
    for slot in range(20):
        if slot == 12:  # the best of the first generation turns out to be the worst
            best = max(log.history.tries[:6], key=lambda tried: tried.mean)
            log.play_again(slot, best.params, [-9999.0] * 5)
            continue
        params = method.propose(log, slot)
        returns = (rng.normal(0, 5, 5) - np.square(params).sum()).tolist()
        log.add(Try(slot=slot, source="search", params=params, returns=returns))
    after_a_kill = CovarianceAdaptation(car, 0).propose(HistoryLog(tmp_path, car.space), 20)
    assert after_a_kill == method.propose(log, 20)


@pytest.mark.parametrize("method", NUMERIC)
def test_no_policy_is_proposed_twice_and_seeds_differ(method, tmp_path):
    needs(method)
    here = search_policy(searching(method), tmp_path / "a").folder
    there = search_policy(searching(method, seed=1), tmp_path / "b").folder
    assert lines(here) != lines(there)
    params = [tuple(line["params"]) for line in lines(here) if line["kind"] == "try"]
    if method != "q-learning":
        assert len(set(params)) == len(params)
        again = [line["slot"] for line in lines(here) if line["kind"] == "again"]
        last = 30 if method in WARMED else 34
        assert again == [9, 19, *[29] * (last > 30), last - 3, last - 2, last - 1]


@pytest.mark.parametrize("method", NUMERIC)
def test_methods_play_equally_many_episodes(method, tmp_path):
    needs(method)
    found = search_policy(searching(method), tmp_path / "a").result
    assert found.episodes == (30 + 20 // 5) * 5
    assert found.evaluations == (30 if method in WARMED else 34)
    assert found.exact is not None
    assert found.optimum == pytest.approx(0.7442, abs=1e-4)


@pytest.mark.parametrize("method", ["hill-climbing", "evolution", "guided", "cem", "cma-es"])
def test_weights_are_searched_with_success(method, tmp_path):
    needs(method)
    found = search_policy(
        searching(method, "cart-pole", iterations=60, episodes=20), tmp_path / "a"
    ).result
    chance = search_policy(searching("random", "cart-pole", iterations=4), tmp_path / "b").result
    assert found.fresh > max(100.0, chance.fresh)
    assert np.abs(found.params).max() <= 6.0


def test_q_learning_learns_the_lake(tmp_path):
    found = search_policy(searching("q-learning", iterations=200, episodes=10), tmp_path / "a")
    assert found.result.exact > 0.6
    report = (tmp_path / "a" / "report.md").read_text()
    rows = [line for line in report.splitlines() if line.startswith("| ") and " 10 | " in line]
    assert 1 < len(rows) == len({row.split("|")[4] for row in rows})  # equal policies have one row


def test_a_policy_is_played_again_with_new_episodes(tmp_path):
    folder = search_policy(searching("random", recheck=2, best=1), tmp_path / "a").folder
    again = [line for line in lines(folder) if line["kind"] == "again"]
    tries = {tuple(line["params"]): line for line in lines(folder) if line["kind"] == "try"}
    assert len(again) == 17
    assert all(tuple(line["params"]) in tries for line in again)
    never = search_policy(searching("random", recheck=0), tmp_path / "b").folder
    assert {line["kind"] for line in lines(never)} == {"try"}


def test_methods_that_do_not_fit_are_refused_before_a_folder_is_made(tmp_path):
    for config, words in (
        (searching("q-learning", "cart-pole"), "needs discrete observations"),
        (searching("random-search"), "did you mean 'random'"),
    ):
        with pytest.raises(ConfigError, match=words):
            search_policy(config, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_folder_of_another_search_is_refused(tmp_path):
    search_policy(searching("random"), tmp_path / "a")
    with pytest.raises(RunError, match="is a search with seed = 0, and this command asks for 1"):
        search_policy(searching("random", seed=1), tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "other").touch()
    with pytest.raises(RunError, match="is not empty"):
        search_policy(searching("random"), tmp_path / "b")


def test_learning_anew_that_differs_from_the_log_is_refused(tmp_path):
    config = searching("q-learning")
    folder = search_policy(config, tmp_path / "a").folder
    (folder / "result.json").unlink()
    text = (folder / HISTORY).read_text().splitlines(keepends=True)
    changed = json.loads(text[3])
    changed["returns"][0] += 1.0
    (folder / HISTORY).write_text("".join([*text[:3], json.dumps(changed) + "\n", *text[4:]]))
    with pytest.raises(RunError, match="other episodes than the log has in evaluation 3"):
        search_policy(config, folder)


@pytest.mark.parametrize(("method", "package"), [("ppo", "stable_baselines3"), ("cma-es", "cma")])
def test_a_missing_package_is_named_with_its_cure(method, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match="pip install 'turnwise"):
        search_policy(searching(method), tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_ppo_learns_in_the_budget(tmp_path):
    pytest.importorskip("stable_baselines3")
    found = search_policy(searching("ppo", "cart-pole", iterations=8), tmp_path / "a").result
    assert found.params is None
    assert found.episodes == (8 + 4) * 5


def test_the_table_of_methods_makes_all_of_them(problem):
    for name, make in METHODS.items():
        if name not in ("ppo", "cma-es"):
            assert make(problem("frozen-lake"), 0)
    assert isinstance(problem("frozen-lake").env, gymnasium.Env)
