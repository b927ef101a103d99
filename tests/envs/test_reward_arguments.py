"""Which arguments reward functions are given, and what is refused before a model is loaded."""

from __future__ import annotations

import asyncio
import functools
import json
import math

import pytest

import turnwise as tw
from turnwise.envs import make_env
from turnwise.envs.rows.reward_arguments import arguments_of, check_columns
from turnwise.envs.rows.reward_functions import TrainerState, call_functions, name_of
from turnwise.errors import ConfigError
from turnwise.rewards import solves
from turnwise.utils.user_code import hand_over


def rewards(function, **columns):
    settled = asyncio.run(
        call_functions(
            {"it": function},
            prompts=["?", "?"],
            completions=["a", "bcd"],
            completion_ids=[[1], [2, 3]],
            columns=columns,
            state=TrainerState(global_step=2, max_steps=10),
        )
    )
    return [found and found["it"] for found in settled.rewards]


def lengths(completions):
    return [float(len(text)) for text in completions]


def two(completions, prompts, *, trainer_state):
    return [float(trainer_state.global_step)] * len(completions)


def by_position(completions, /, answer):
    return lengths(answer)


def by_position_with_rest(completions, /, **kwargs):
    return [float("completions" in kwargs)] * len(completions)


def with_default(completions, weight=2.0):
    return [weight] * len(completions)


async def later(completions, answer):
    return lengths(answer)


def starred(*args, **kwargs):
    return [float(len(args))] * len(kwargs["completions"])


class Judge:
    def __call__(self, completions, answer):
        return lengths(answer)

    def method(self, completions):
        return lengths(completions)

    @staticmethod
    def static(completions):
        return lengths(completions)


class AsyncJudge:
    async def __call__(self, completions, **kwargs):
        return lengths(kwargs.get("self", completions))


def logged(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


ANSWERS = {"answer": ["xx", "yyyy"]}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lengths, [1.0, 3.0]),
        (lambda completions: lengths(completions), [1.0, 3.0]),
        (two, [2.0, 2.0]),
        (by_position, [2.0, 4.0]),
        (by_position_with_rest, [0.0, 0.0]),
        (with_default, [2.0, 2.0]),
        (later, [2.0, 4.0]),
        (starred, [0.0, 0.0]),
        (Judge(), [2.0, 4.0]),
        (Judge().method, [1.0, 3.0]),
        (Judge.static, [1.0, 3.0]),
        (AsyncJudge(), [1.0, 3.0]),
        (functools.partial(with_default, weight=3.0), [3.0, 3.0]),
        (functools.partial(by_position, answer=["x", "x"]), [2.0, 4.0]),
        (logged(lengths), [1.0, 3.0]),
        (math.fsum, None),
    ],
)
def test_a_function_is_given_what_it_takes(function, expected):
    if expected is None:  # written in C, with a signature that no row can meet
        with pytest.raises(ConfigError):
            check_columns("it", function, ["answer"])
        return
    check_columns(name_of(function), function, ["answer"])
    assert rewards(function, **ANSWERS) == expected


def test_a_column_called_self_reaches_functions_and_spares_methods():
    own = {"self": ["a", "b"]}
    assert rewards(lambda **kwargs: lengths(kwargs["self"]), **own) == [1.0, 1.0]
    assert rewards(AsyncJudge(), **own) == [1.0, 3.0]


def test_a_function_without_a_signature_is_given_everything():
    assert arguments_of(dict, {"a": 1}) == ([], {"a": 1})


def needs(completions, ground_truth, **kwargs):
    return [0.0 for _ in completions]


def test_a_missing_column_is_named_before_a_model_is_loaded(tmp_path):
    rows = [{"prompt": "p", "truth": "x", "level": 1}]
    sentence = (
        r"reward function 'needs' needs the argument 'ground_truth', and the rows have no such "
        r"column \(columns: truth, level\): add the column, or give the argument a default"
    )
    with pytest.raises(ConfigError, match=sentence):
        tw.train("there-is-no-such-model", rows, reward=needs, root=tmp_path)
    with pytest.raises(ConfigError, match="did you mean 'prompts'"):
        tw.train("nano", rows, reward=lambda prompt, completions: [], root=tmp_path)
    with pytest.raises(ConfigError, match=r"needs the argument 'texts'.*columns: none beside"):
        tw.train("nano", [{"prompt": "p"}], reward=lambda texts: [], root=tmp_path)
    with pytest.raises(ConfigError, match=r"'solves' needs the argument 'tests'"):
        tw.train("nano", rows, reward=solves, root=tmp_path)
    with pytest.raises(ConfigError, match=r"'solves' needs the argument 'tests'"):
        tw.train("nano", rows, reward=functools.partial(solves, before=None), root=tmp_path)
    assert not list(tmp_path.iterdir())


def test_rows_for_evaluation_need_the_columns_too(tmp_path):
    good, bad = [{"prompt": "p", "ground_truth": 1}], [{"prompt": "q", "truth": 1}]
    with pytest.raises(ConfigError, match=r"the rows for evaluation have no such column \(columns"):
        tw.train("nano", good, eval_rows=bad, reward=needs, root=tmp_path)


def test_columns_that_only_some_rows_have_are_none_elsewhere(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "a", "answer": "1"}) + '\n{"prompt": "b"}\n')
    seen = []

    def look(completions, answer):
        seen.append(answer)
        return [0.0 for _ in completions]

    tiny = {"trainer.iterations": 1, "trainer.group_size": 2, "agents.player.max_tokens": 2}
    assert tw.train("nano", path, reward=look, settings=tiny, root=tmp_path).finished
    assert {each for answers in seen for each in answers} == {"1", None}


@pytest.mark.parametrize("name", ["prompts", "completions", "trainer_state", "log_extra"])
def test_columns_with_the_name_of_an_argument_are_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=f"have a column '{name}', the name of an argument"):
        tw.train("nano", [{"prompt": "p", name: 1}], reward=lengths, root=tmp_path)


def test_a_partial_of_a_function_that_runs_programs_runs_them(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a", "tests": []}\n')
    name = hand_over(functools.partial(solves, before=None), "bound")
    assert make_env("rows", path=str(path), reward=[name]).runs_programs
