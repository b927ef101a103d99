"""The column of some rows whose values are what replies look like."""

from __future__ import annotations

import json
import re
import threading

import numpy as np
import pytest

import turnwise as tw
from turnwise.envs import make_env, score_baselines
from turnwise.envs.rows.baselines import CANDIDATES
from turnwise.envs.rows.reply_column import ASKED, LONGEST, find_reply_column
from turnwise.errors import ConfigError
from turnwise.policies import NanoConfig
from turnwise.recipe.rows_defaults import rows_recipe
from turnwise.tasks import GeneratedTasks

REWARDS = """
import threading
import time

from turnwise.sandbox import runs_programs

calls = []
release = threading.Event()


def spins(completions, **kwargs):
    while not release.is_set():
        try:
            time.sleep(0.001)
        except Exception:
            pass


def sleeps(completions, **kwargs):
    release.wait(60)  # no Python code that can be interrupted
    return [0.0 for said in completions]


def leaves(completions, **kwargs):
    raise SystemExit(3)


def right(completions, answer, **kwargs):
    calls.append(len(completions))
    return [float(said == str(wanted)) for said, wanted in zip(completions, answer)]


def chat(completions, answer, **kwargs):
    return [float(said[0]["content"] == wanted) for said, wanted in zip(completions, answer)]


def near(completions, answer, **kwargs):
    return [0.5 + 0.1 * (said == wanted) for said, wanted in zip(completions, answer)]


def brief(completions, **kwargs):
    return [-float(len(said)) for said in completions]


def sometimes(completions, answer, **kwargs):
    return [None if len(wanted) > 2 else float(said == wanted)
            for said, wanted in zip(completions, answer)]


def never(completions, **kwargs):
    return [None for said in completions]


def later(completions, answer, trainer_state, **kwargs):
    return [1 / len(completion_ids) for completion_ids in kwargs["completion_ids"]]


def breaks(completions, **kwargs):
    raise ValueError("not so")


def wrong(completions, **kwargs):
    return [float("nan") for said in completions]


@runs_programs
def program(completions, answer, **kwargs):
    return right(completions, answer)


def noted(prompts, completions, answer, **kwargs):
    calls.extend(prompts)
    return [float(said == wanted) for said, wanted in zip(completions, answer)]


def graded(completions, answer, hint, **kwargs):
    return [0.8 if said == one else 1.0 if said == two else 0.9 * said.startswith("h")
            for said, one, two in zip(completions, answer, hint)]


def weighed(completions, answer, worth, **kwargs):
    return [of * (said == wanted) for said, wanted, of in zip(completions, answer, worth)]
"""
ROWS = [{"prompt": f"{n} is", "answer": str(n % 7), "hint": str(n % 5), "n": n} for n in range(60)]


@pytest.fixture
def world(tmp_path):
    """`world(rows, "right")`: the env of rows with a reward function of `REWARDS`."""
    (tmp_path / "judge.py").write_text(REWARDS)

    def make(rows, *names, **options):
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        reward = [f"{tmp_path / 'judge.py'}:{name}" for name in names]
        return make_env("rows", path=str(tmp_path / "rows.jsonl"), reward=reward, **options)

    return make


def found(env, **weights):
    return find_reply_column(env.unwrapped, weights, np.random.default_rng(0))


def test_the_column_is_the_one_whose_own_values_earn_more(world):
    column = found(world(ROWS, "right"), right=2.0)
    assert (column.name, column.own, column.others) == ("answer", 2.0, 0.0)
    assert found(world(ROWS, "right", "brief"), right=1.0, brief=0.01).name == "answer"


def test_numbers_and_conversations_are_answered_too(world):
    numbers = [{**row, "answer": n % 7} for n, row in enumerate(ROWS)]
    assert found(world(numbers, "right"), right=1.0).name == "answer"
    asked = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in ROWS]
    assert found(world(asked, "chat"), chat=1.0).name == "answer"


@pytest.mark.parametrize(
    ("rows", "reward"),
    [
        (ROWS, "brief"),  # own values are no better
        (ROWS, "never"),
        (ROWS, "breaks"),  # training reports it
        (ROWS, "wrong"),
        (ROWS, "leaves"),
        ([{**row, "answer": "same"} for row in ROWS], "right"),
        ([{**row, "answer": [row["answer"]]} for row in ROWS], "right"),
        ([{**row, "answer": row["answer"] + "x" * 400} for row in ROWS], "right"),
        ([{"prompt": row["prompt"], "answer": None} for row in ROWS], "right"),
        (ROWS[:1], "right"),
    ],
)
def test_there_is_none_without_a_clear_lead(world, rows, reward):
    assert found(world(rows, reward), **{reward: 1.0}) is None


def test_a_punished_column_is_not_taken(world):
    assert found(world(ROWS, "right"), right=-1.0) is None


def test_rows_without_a_reward_do_not_count(world):
    rows = [{**row, "answer": row["answer"] + "xx" * (n % 2)} for n, row in enumerate(ROWS)]
    column = found(world(rows, "sometimes"), sometimes=1.0)
    assert (column.name, column.own, column.others) == ("answer", 1.0, 0.0)


def test_the_reward_is_called_twice_for_each_column_with_few_rows(world):
    many = [{"prompt": f"{n}?", "answer": f"{n}"} for n in range(500)]
    env = world(many, "right").unwrapped
    (function,) = env.functions.values()
    found(env, right=1.0)
    assert function.__globals__["calls"] == [ASKED, ASKED]


@pytest.mark.parametrize("name", ["spins", "sleeps"])
def test_a_reward_that_does_not_return_ends_the_search_and_keeps_no_process(
    world, monkeypatch, name
):
    monkeypatch.setattr("turnwise.envs.rows.reply_column.PATIENCE", 0.2)
    env = world(ROWS, name).unwrapped
    plain = {"credit": {"rewards": {name: 1.0}}, "trainer": {}}
    before = set(threading.enumerate())
    (function,) = env.functions.values()
    try:
        found = rows_recipe(plain, env, NanoConfig(), {})
        assert all(each.daemon for each in set(threading.enumerate()) - before)
    finally:
        function.__globals__["release"].set()
    assert found.data == plain
    (reason,) = found.reasons.values()
    assert re.fullmatch(
        r"a reward function did not return within 0\.2 s \(.*judge\.py:\d+\), so the search for a "
        r"column of replies gave up, and there is no warm-up",
        reason,
    )


def test_rewards_that_run_programs_are_not_called(world):
    env = world(ROWS, "program").unwrapped
    assert found(env, program=1.0) is None
    (function,) = env.functions.values()
    assert function.__globals__["calls"] == []


def test_the_rows_that_are_answered_are_drawn(world):
    many = [{"prompt": f"{n}?", "answer": f"{n}"} for n in range(500)]
    env = world(many, "noted").unwrapped
    (function,) = env.functions.values()
    found(env, noted=1.0)
    own, others = np.split(np.array(function.__globals__["calls"]), 2)
    assert own.tolist() == others.tolist()
    assert len(set(own)) == ASKED
    first = {row["prompt"] for row in env.tasks("train")[: 2 * ASKED]}
    assert len(first & set(own)) < ASKED / 2


def test_the_column_is_the_one_whose_own_values_earn_most_not_the_one_with_the_largest_lead(world):
    rows = [{**row, "hint": f"h{row['hint']}"} for row in ROWS]
    column = found(world(rows, "graded"), graded=1.0)
    assert (column.name, column.own) == ("hint", 1.0)
    assert column.others == pytest.approx(0.9)


@pytest.mark.parametrize(("length", "name"), [(LONGEST, "answer"), (LONGEST + 1, None)])
def test_a_value_of_the_largest_length_is_a_reply(world, length, name):
    rows = [{"prompt": row["prompt"], "answer": row["answer"] * length} for row in ROWS]
    column = found(world(rows, "right"), right=1.0)
    assert (column and column.name) == name


@pytest.mark.parametrize(("least", "name"), [(0.4, "answer"), (0.25, None)])
def test_the_error_of_a_lead_is_that_of_a_sample(world, least, name):
    """Of leads 1 and b, 2 errors are 1 - b: less than their mean if b > 1/3, by n - 1."""
    rows = [
        {"prompt": "a", "answer": "x", "worth": 1.0},
        {"prompt": "b", "answer": "y", "worth": least},
    ]
    column = found(world(rows, "weighed"), weighed=1.0)
    assert (column and column.name) == name


def test_random_replies_are_values_of_the_column(world):
    env = world(ROWS, "right", replies="answer")
    task = GeneratedTasks(env, "train", seed=0).task(0)
    state, rng = env.reset(task), np.random.default_rng(0)
    drawn = [env.random_action(state, "player", rng) for _ in range(700)]
    assert sorted(set(drawn)) == list("0123456")
    assert min(drawn.count(each) for each in "0123456") > 60


@pytest.mark.parametrize("name", ["amswer", "prompts"])
def test_a_column_without_replies_is_refused(world, name):
    with pytest.raises(ConfigError, match=rf"replies = '{name}': no row has .*answer, hint, n"):
        world(ROWS, "right", replies=name)


SKEWED = [{"prompt": f"{n}?", "answer": "no" if n % 10 == 7 else "yes"} for n in range(200)]


def test_a_constant_reply_and_other_rows_replies_are_baselines(world):
    """Labels that no prompt tells: always saying the commoner one is the best there is."""
    env = world(SKEWED, "right", replies="answer")
    tasks = GeneratedTasks(env, "test", seed=0).take(100)
    share = np.mean([task.data["answer"] == "yes" for task in tasks])
    for given in (env, env.unwrapped):
        found = score_baselines(given, tasks, seed=0, weights={"right": 2.0})
        assert list(found) == ["random", "constant"]
        assert found["constant"].mean == pytest.approx(2 * share)
        assert found["constant"].scores == tuple(
            2.0 * (task.data["answer"] == "yes") for task in tasks
        )
        assert found["random"].mean == pytest.approx(2 * (share**2 + (1 - share) ** 2), abs=0.25)
    twice = score_baselines(env, tasks, seed=0, repeats=2, weights={"right": 2.0})
    assert twice["constant"] == found["constant"]
    printed = str(tw.evaluate_baselines(env, tasks=50))
    assert "constant" in printed and "random" in printed


def test_the_constant_is_the_one_that_rewards_favour_among_few(world):
    rows = [{"prompt": f"{n}?", "answer": "long" if n % 3 else "x"} for n in range(90)]
    env = world(rows, "brief", replies="answer")
    assert env.unwrapped.frequent_replies(1) == ("long",)
    found = score_baselines(env, GeneratedTasks(env, "test", seed=0).take(9), seed=0)
    assert found["constant"].mean == -1.0
    many = [{"prompt": f"{n}?", "answer": f"{n}"} for n in range(100)]
    env = world(many, "right", replies="answer").unwrapped
    (function,) = env.functions.values()
    score_baselines(env, GeneratedTasks(env, "test", seed=0).take(9), seed=0)
    assert len(function.__globals__["calls"]) == 1 + CANDIDATES


@pytest.mark.parametrize("reward", ["breaks", "wrong", "later"])
def test_a_baseline_that_a_reward_cannot_judge_is_left_out(world, reward):
    env = world(SKEWED, reward, replies="answer")
    assert score_baselines(env, GeneratedTasks(env, "test", seed=0).take(5), seed=0) == {}


def test_a_reply_without_a_reward_is_broken(world):
    env = world(SKEWED, "never", replies="answer")
    found = score_baselines(env, GeneratedTasks(env, "test", seed=0).take(5), seed=0)
    assert (found["constant"].mean, found["constant"].broken) == (0.0, 5)


def test_random_replies_are_those_of_other_rows(world):
    rows = [{"prompt": f"{n}?", "answer": str(n)} for n in range(3)]
    env = world(rows, "right", replies="answer").unwrapped
    tasks = GeneratedTasks(env, "test", seed=0).take(3)
    found = score_baselines(env, tasks, seed=0, repeats=20)
    assert found["random"].mean == 0.0
    assert score_baselines(world(rows, "right"), tasks, seed=0) == {}
