"""What a model is told."""

from __future__ import annotations

import pytest

from turnwise.errors import ConfigError
from turnwise.search.config import PromptConfig, SearchConfig, ShownConfig
from turnwise.search.cost import estimate
from turnwise.search.history import History, Try
from turnwise.search.prompts import prompt_text
from turnwise.settings import parse


def told(problem, history=None, shown=None, refused="", **prompt):
    return prompt_text(
        problem, history or History(), prompt=PromptConfig(**prompt),
        shown=shown or ShownConfig(), iteration=3, iterations=400, episodes=20, refused=refused,
    )  # fmt: skip


def of_scores(*scores, steps=()):
    history = History()
    for number, score in enumerate(scores):
        params = (number, *(0,) * 15)
        returns = [score, score]
        history.add(Try(slot=number, source="search", params=params, returns=returns, steps=steps))
    return history


def test_props_says_nothing_of_the_task_but_its_scores(problem):
    text = told(problem("frozen-lake"), of_scores(0.25))
    assert "params[0] to params[15]. Each is a whole number from 0 to 3" in text
    assert "iteration 3 of 400" in text
    assert "| score 0.25 +- 0 (2 episodes)" in text
    assert "is about 1." in text
    assert not {"lake", "ice", "state", "goal"} & set(text.lower().replace(".", " ").split())


def test_props_plus_describes_the_env_and_shows_an_episode(problem):
    history = of_scores(0.25, steps=((0, 2, 0.0), (1, 1, 1.0)))
    text = told(problem("frozen-lake"), history, kind="props+")
    assert "The ice is slippery" in text
    assert "params[s] is the action that is taken in state s" in text
    assert "an episode (state, action, reward): (0, 2, 0) (1, 1, 1)" in text
    assert "an episode" not in told(problem("frozen-lake"), history)
    assert "CartPole" not in told(problem("cart-pole"))
    assert "weight of input i in output j" in told(problem("cart-pole"), kind="props+")


def test_options_of_the_prompt_are_in_it(problem):
    lake = problem("frozen-lake")
    assert "about 1." not in told(lake, optimum=False)
    assert "Advice: go right" in told(lake, hints="go right")
    assert "could not be used: it was late." in told(lake, refused="it was late")
    assert "steps of about 1, or further" in told(problem("cart-pole"))


def shown_tries(text):
    return [int(line.split(",")[0].split()[-1]) for line in text.splitlines() if "| score" in line]


def test_history_rules(problem):
    lake, history = problem("frozen-lake"), of_scores(0.1, 0.9, 0.3, 0.8)
    assert shown_tries(told(lake, history)) == [0, 1, 2, 3]
    few = ShownConfig(rule="best", best=2, recent=1)
    assert shown_tries(told(lake, history, few)) == [1, 3, 2]
    assert shown_tries(told(lake, history, ShownConfig(rule="best", best=0, recent=2))) == [2, 3]
    assert shown_tries(told(lake, history, ShownConfig(rule="best", best=2, recent=0))) == [1, 3]


def searching(**settings):
    return parse(SearchConfig, {"task": "frozen-lake", **settings}, "the search")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "one of method, endpoint and run; given: none"),
        ({"method": "cem", "run": "a"}, "given: method and run"),
        ({"method": "cem", "prompt": {"kind": "props+"}}, "prompt applies to an endpoint"),
        ({"method": "cem", "shown": {"best": 3}}, "best would be ignored"),
        ({"method": "cem", "budget": {"recheck": 1}}, "no iteration for new policies"),
        ({"method": "cem", "budget": {"iterations": 3}}, "leaves no new policy"),
        ({"method": "cem", "budgets": {}}, "did you mean 'budget'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        searching(**settings)


def test_the_estimate_counts_calls_and_grows_with_the_history(problem):
    where = {"base_url": "http://localhost/v1", "model": "small"}
    lake = problem("frozen-lake")
    whole = estimate(searching(endpoint=where), lake, History())
    short = estimate(searching(endpoint=where, shown={"rule": "best"}), lake, History())
    assert whole.calls == 400 - 400 // 10 - 2  # the last evaluation is one of the tenths, too
    assert whole.prompt_tokens > 5 * short.prompt_tokens
    never = estimate(searching(endpoint=where, budget={"recheck": 0}), lake, History())
    assert never.calls == 400
