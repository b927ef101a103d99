"""A search by the policy of a run of `policy-search`, however badly it is trained."""

from __future__ import annotations

import json

import pytest

from turnwise.app.search import search_policy
from turnwise.envs.policy_search.env import PolicySearchConfig
from turnwise.errors import ConfigError, RunError
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run
from turnwise.search.config import SearchConfig
from turnwise.search.history import History, Try
from turnwise.search.levels import LevelSpace, check_size, task_data
from turnwise.search.space import ParamSpace
from turnwise.settings import parse

from ..cli.conftest import invoke, with_sets
from ..conftest import TINY

WEIGHTS = ParamSpace(count=3, low=-60, high=60, decimals=1)


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    """A run whose warm-up was too short to teach more than the form of an answer."""
    run = tmp_path_factory.mktemp("runs") / "searcher"
    more = (
        *("warmup.steps=8", "warmup.eval_every=8", "trainer.iterations=1"),
        *("env.options.most_params=9", "evaluation.test_tasks=4", "agents.player.max_tokens=20"),
    )
    result = invoke("train", "policy-search", *with_sets(*TINY, *more), "--run", run)
    assert result.exit_code == 0, result.output
    return run


def searching(run, task="maze", **more):
    budget = {"iterations": 2, "episodes": 2, "warmup": 3, "recheck": 0, "fresh": 4, "lost": 50}
    data = {"task": task, "run": str(run), "budget": budget, **more}
    return parse(SearchConfig, data, "the search")


def test_a_run_searches_and_says_what_it_was_trained_on(searcher, tmp_path):
    found = search_policy(searching(searcher), tmp_path / "a")
    assert found.result.evaluations == 2
    assert found.result.calls >= 2
    assert found.result.prompt_tokens > found.result.calls
    told = json.loads((found.folder / "manifest.json").read_text())
    names = [each["name"] for each in told["functions"]]
    assert names == ["bandit", "chain", "product", "pairs", "quadratic", "ridge", "ackley"]
    assert told["tasks_of_search_in_training"] == []
    again = search_policy(searching(searcher), tmp_path / "b")
    files = [(each.folder / "history.jsonl").read_bytes() for each in (found, again)]
    assert files[0] == files[1]


def test_runs_and_tasks_that_do_not_fit_are_refused(searcher, tmp_path):
    lake = Run.create(tmp_path, "lake", load_recipe("frozen-lake", TINY).to_toml()).path
    with pytest.raises(RunError, match="is a run of the env 'frozen-lake'"):
        search_policy(searching(lake), tmp_path / "a")
    with pytest.raises(ConfigError, match="least_params = 3 to most_params = 9"):
        search_policy(searching(searcher, "frozen-lake"), tmp_path / "a")
    with pytest.raises(ConfigError, match="control = 'blank' applies to a run"):
        parse(SearchConfig, {"task": "maze", "method": "cem", "control": "blank"}, "the search")
    assert not (tmp_path / "a").exists()


def of_weights():
    history = History()
    for slot, params in enumerate([(-60, 0, 60), (8, -8, 22), (15, 15, 15)]):
        history.add(Try(slot=slot, source="search", params=params, returns=[float(slot)] * 2))
    return history


def test_levels_of_weights_by_hand():
    data = task_data(LevelSpace(space=WEIGHTS), of_weights(), "none", 0, 0)
    assert (data["count"], data["levels"], data["ordered"]) == (3, 9, True)
    assert data["tries"] == [[[0, 4, 8], 0.0], [[5, 3, 5], 1.0], [[5, 5, 5], 2.0]]


def test_controls_hide_the_scores():
    levels = LevelSpace(space=WEIGHTS)
    assert task_data(levels, of_weights(), "blank", 0, 0)["tries"] == []
    orders = set()
    for slot in range(20):
        tries = task_data(levels, of_weights(), "shuffled", 0, slot)["tries"]
        assert sorted(score for _, score in tries) == [0.0, 1.0, 2.0]
        assert [params for params, _ in tries] == [[0, 4, 8], [5, 3, 5], [5, 5, 5]]
        orders.add(tuple(score for _, score in tries))
    assert len(orders) > 3


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (ParamSpace(count=2, low=0, high=3, choices=True), "has 2 parameters"),
        (ParamSpace(count=17, low=0, high=3, choices=True), "has 17 parameters"),
        (ParamSpace(count=8, low=0, high=6, choices=True), "has 7 actions"),
        (ParamSpace(count=8, low=0, high=0, choices=True), "has 1 actions"),
    ],
)
def test_a_searcher_searches_what_it_was_trained_on(space, said):
    with pytest.raises(ConfigError, match=said):
        check_size(space, PolicySearchConfig(), "t", "runs/x")
    for fits in (WEIGHTS, ParamSpace(count=16, low=0, high=3, choices=True)):
        check_size(fits, PolicySearchConfig(), "t", "runs/x")
