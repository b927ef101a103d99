"""A search by the policy of a run of `policy-search`, however badly it is trained."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from turnwise.app.loading import LoadedRun
from turnwise.app.search import search_policy
from turnwise.app.search_models import RUN_ATTEMPTS, TOGETHER, RunModel
from turnwise.envs.policy_search.env import PolicySearchConfig
from turnwise.errors import ConfigError, RunError
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run
from turnwise.search.config import SearchConfig
from turnwise.search.history import History, Try
from turnwise.search.levels import Labels, LevelSpace, check_size, task_data
from turnwise.search.prompted import FAILED_APART
from turnwise.search.space import ParamSpace
from turnwise.settings import parse
from turnwise.types import Task

from ..cli.conftest import invoke, with_sets
from ..conftest import TINY

PLAIN = Labels(places=(0, 1, 2), levels=tuple(range(9)))
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


def test_the_policy_that_training_began_with_searches_too(searcher, tmp_path, monkeypatch):
    used = []
    real = LoadedRun._use
    monkeypatch.setattr(LoadedRun, "_use", lambda self, at: (used.append(at), real(self, at))[1])
    found = search_policy(searching(searcher, start=True), tmp_path / "a")
    assert found.result.calls >= 2
    assert used[-1]["main"] == Run.open(searcher).start("main")
    monkeypatch.setattr(LoadedRun, "use_start", lambda self: False)
    with pytest.raises(RunError, match="has no weights of its start"):
        search_policy(searching(searcher, start=True), tmp_path / "b")
    with pytest.raises(ConfigError, match="start = True applies to a run, but method is given"):
        parse(SearchConfig, {"task": "maze", "method": "cem", "start": True}, "the search")


def test_replies_after_the_first_ones_are_drawn_at_a_higher_temperature(searcher):
    model = RunModel(str(searcher), 0, WEIGHTS, "t", "none")
    temperatures = []
    for attempt in (0, TOGETHER - 1, TOGETHER, RUN_ATTEMPTS - 1):
        model.ask(of_weights(), 3, attempt)
        (_, batch), played = model._sampled
        assert batch == attempt // TOGETHER
        temperatures += [turn.sampling.temperature for each in played for turn in each.turns[:1]]
    apart = 2 * FAILED_APART + TOGETHER  # after a request that failed, draws are others
    assert model.ask(of_weights(), 3, apart).completion_tokens
    assert model._sampled[1][0].turns[0].sampling.temperature == 2.0
    model.close()
    assert temperatures == [1.0] * 2 * TOGETHER + [2.0] * 2 * TOGETHER


def of_weights():
    history = History()
    for slot, params in enumerate([(-60, 0, 60), (8, -8, 22), (15, 15, 15)]):
        history.add(Try(slot=slot, source="search", params=params, returns=[float(slot)] * 2))
    return history


def test_levels_of_weights_by_hand():
    data = task_data(LevelSpace(space=WEIGHTS), PLAIN, of_weights(), "none", 0, 0)
    assert (data["count"], data["levels"], data["ordered"]) == (3, 9, True)
    assert data["tries"] == [[[0, 4, 8], 0.0], [[5, 3, 5], 1.0], [[5, 5, 5], 2.0]]


def test_labels_are_drawn_evenly_and_taken_back():
    rng = np.random.default_rng(0)
    seen = {True: Counter(), False: Counter()}
    for ordered, counts in seen.items():
        for _ in range(600):
            labels = Labels.drawn(3, 4, ordered, rng)
            params = tuple(rng.integers(4, size=3).tolist())
            shown = labels.shown(params)
            assert labels.meant(shown) == params
            if ordered:  # neighbours stay neighbours
                assert labels.levels in ((0, 1, 2, 3), (3, 2, 1, 0))
            counts[labels.places.index(0), labels.levels[3]] += 1
    assert len(seen[False]) == 12 and min(seen[False].values()) > 25
    assert len(seen[True]) == 6 and min(seen[True].values()) > 60


def test_a_prompt_has_the_labels():
    labels = Labels(places=(2, 0, 1), levels=tuple(range(9))[::-1])
    data = task_data(LevelSpace(space=WEIGHTS), labels, of_weights(), "none", 0, 0)
    assert data["tries"] == [[[0, 8, 4], 0.0], [[3, 3, 5], 1.0], [[3, 3, 3], 2.0]]


def test_an_answer_is_read_by_the_labels_of_its_prompt(searcher):
    space = ParamSpace(count=9, low=0, high=3, choices=True)
    model = RunModel(str(searcher), 0, space, "t", "none")
    history = History()
    for slot in range(3):
        history.add(Try(slot=slot, source="search", params=(slot,) * 9, returns=[float(slot)] * 2))
    found = set()
    for slot in range(6):
        labels = model._labels(slot, 0)
        data = task_data(model.levels, labels, history, "none", 0, slot)
        task = Task(id="t", env="policy-search", seed=0, data=data)
        best, answer = [2] * 9, {4: labels.levels[1], 7: labels.levels[3]}
        best[labels.places[4]], best[labels.places[7]] = 1, 3
        words = " ".join(f"p{place}={level}" for place, level in answer.items())
        assert model._levels(task, labels, words) == " ".join(map(str, best))
        found.add(labels)
    model.close()
    assert len(found) == 6


def test_controls_hide_the_scores():
    levels = LevelSpace(space=WEIGHTS)
    assert task_data(levels, PLAIN, of_weights(), "blank", 0, 0)["tries"] == []
    orders = set()
    for slot in range(20):
        tries = task_data(levels, PLAIN, of_weights(), "shuffled", 0, slot)["tries"]
        assert sorted(score for _, score in tries) == [0.0, 1.0, 2.0]
        assert [params for params, _ in tries] == [[0, 4, 8], [5, 3, 5], [5, 5, 5]]
        orders.add(tuple(score for _, score in tries))
    assert len(orders) > 3


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (ParamSpace(count=2, low=0, high=3, choices=True), "has 2 parameters.*least_params=2`"),
        (ParamSpace(count=17, low=0, high=3, choices=True), "has 17 parameters.*most_params=17`"),
        (ParamSpace(count=8, low=0, high=6, choices=True), "has 7 actions"),
        (ParamSpace(count=8, low=0, high=0, choices=True), "has 1 actions"),
    ],
)
def test_a_searcher_searches_what_it_was_trained_on(space, said):
    with pytest.raises(ConfigError, match=said):
        check_size(space, PolicySearchConfig(), "t", "runs/x")
    for fits in (WEIGHTS, ParamSpace(count=16, low=0, high=3, choices=True)):
        check_size(fits, PolicySearchConfig(), "t", "runs/x")
