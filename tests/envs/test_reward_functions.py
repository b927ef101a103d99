"""Reward functions as TRL documents them: its kinds of examples, unchanged, and what is refused."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import re
import sys

import numpy as np
import pytest
import torch

from turnwise.envs.rows.reward_functions import (
    TrainerState,
    call_functions,
    check_function,
    load_functions,
    name_of,
)
from turnwise.errors import ConfigError, RewardError
from turnwise.utils.user_code import hand_over


def called(*functions, prompts=(), completions, completion_ids=None, step=0, **columns):
    """Return the settlement of a batch."""
    return asyncio.run(
        call_functions(
            {name_of(function): function for function in functions},
            prompts=prompts or ["?"] * len(completions),
            completions=completions,
            completion_ids=completion_ids or [(1,)] * len(completions),
            columns=columns,
            state=TrainerState(global_step=step, max_steps=10),
        )
    )


def rewards(*functions, **batch):
    """Return the rewards of a batch with one function."""
    (name,) = map(name_of, functions)
    return [found and found[name] for found in called(*functions, **batch).rewards]


def by_tokens(completion_ids, **kwargs):
    return [float(len(ids)) for ids in completion_ids]


def by_characters(completions, **kwargs):
    return [float(len(text)) for text in completions]


def has_format(completions, **kwargs):
    """Judge a conversation's replies: each completion is a list of one message."""
    shape = re.compile(r"<think>.*?</think><answer>.*?</answer>", re.DOTALL)
    return [float(bool(shape.fullmatch(reply[0]["content"]))) for reply in completions]


def is_right(completions, ground_truth, **kwargs):
    found = [re.search(r"\\boxed\{(.*?)\}", text) for text in completions]
    said = [match[1] if match else "" for match in found]
    return [float(a == b) for a, b in zip(said, ground_truth, strict=True)]


def math_only(prompts, completions, task, **kwargs):
    return [1.0 if kind == "math" else None for kind in task]


def code_only(prompts, completions, task, **kwargs):
    return [-1.0 if kind == "code" else None for kind in task]


def test_completions_come_as_ids_and_as_text():
    batch = {"completions": [" blue.", " in the sky."], "completion_ids": [(6, 1), (3, 2, 8, 1)]}
    assert rewards(by_tokens, **batch) == [2.0, 4.0]
    assert rewards(by_characters, **batch) == [6.0, 12.0]


def test_a_conversations_reply_is_a_list_of_one_message():
    good = "<think>1 + 2 is 3</think><answer>3</answer>"
    replies = [[{"role": "assistant", "content": text}] for text in (good, "It is 3.")]
    assert rewards(has_format, completions=replies) == [1.0, 0.0]


def test_columns_are_keyword_arguments():
    said = [r" The solution is \boxed{2}.", r" The solution is \boxed{6}."]
    assert rewards(is_right, completions=said, ground_truth=["2", "5"]) == [1.0, 0.0]


def test_none_means_that_a_function_does_not_apply():
    found = called(math_only, code_only, completions=["a"] * 3, task=["math", "code", "poem"])
    assert found.rewards == ({"math_only": 1.0}, {"code_only": -1.0}, None)


def test_a_function_changes_only_its_own_copies():
    chat = [{"role": "user", "content": "2 + 2?"}]
    tests, ids = [[1]], [(1,), (2,)]
    reply = [{"role": "assistant", "content": "4"}]
    seen = []

    def judge(prompts, completions, completion_ids, tests, **kwargs):
        seen.append([len(each) for each in (*prompts, *completions, *completion_ids, *tests)])
        for prompt, said, each, own in zip(
            prompts, completions, completion_ids, tests, strict=True
        ):
            prompt += said
            said[0]["content"] = ""
            each.append(0)
            own[0].append(2)
        return [float(len(prompt)) for prompt in prompts]

    def again(**arguments):
        return judge(**arguments)

    batch = {"prompts": [chat, chat], "completions": [reply, reply], "completion_ids": ids}
    found = called(judge, again, **batch, tests=[tests, tests])
    assert found.rewards == ({"judge": 2.0, "again": 2.0},) * 2  # the same row twice, as in a group
    assert seen == [[1] * 8] * 2
    assert (chat, tests) == ([{"role": "user", "content": "2 + 2?"}], [[1]])
    assert reply == [{"role": "assistant", "content": "4"}]


def test_async_functions_wait_side_by_side():
    together = asyncio.Barrier(2)

    async def first(completions, **kwargs):
        await together.wait()  # would wait for ever if the other came after
        return [1.0 for _ in completions]

    async def second(completions, **kwargs):
        await together.wait()
        return [2.0 for _ in completions]

    found = called(first, by_characters, second, completions=["abc"])
    assert found.rewards == ({"first": 1.0, "by_characters": 3.0, "second": 2.0},)


def test_functions_see_how_far_training_is_and_make_remarks():
    def later(completions, trainer_state, log_extra, log_metric, **kwargs):
        log_extra("said", completions)
        log_metric("share", trainer_state.global_step / trainer_state.max_steps)
        return [float(trainer_state.global_step)] * len(completions)

    found = called(later, completions=["a", "b"], step=3)
    assert found.rewards == ({"later": 3.0}, {"later": 3.0})
    assert found.notes == ({"said": "a"}, {"said": "b"})
    assert found.metrics == {"reward_metric/share": 0.3}


def test_remarks_that_no_file_stores_become_text():
    def remarks(completions, log_extra, log_metric, **kwargs):
        log_extra("odd", [float("nan"), "\ud800", -math.inf, {"\udfff"}])
        log_extra("plain", [None, True, 2**70, 0.5])
        log_extra("\ud800", [1] * 4)
        log_metric("\ud800", 1.0)
        log_metric("nan", np.float32("nan"))
        return [0.0 for _ in completions]

    found = called(remarks, completions=["a"] * 4)
    assert [note["odd"] for note in found.notes] == ["nan", "\\ud800", "-inf", "{'\\udfff'}"]
    assert [note["plain"] for note in found.notes] == [None, True, 2**70, 0.5]
    assert [note["\\ud800"] for note in found.notes] == [1] * 4
    assert found.metrics.keys() == {"reward_metric/\\ud800", "reward_metric/nan"}
    json.dumps(found.notes, allow_nan=False, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("remark", "sentence"),
    [
        (lambda extra, metric: extra("x", [1]), r"log_extra\('x', ...\) got 1 values for 2 compl"),
        (lambda extra, metric: extra(("x", 1), [1, 2]), "a name of type tuple: give text"),
        (lambda extra, metric: metric(1, 1.0), "log_metric.* a name of type int: give text"),
        (lambda extra, metric: metric("x", "abc"), "raised ValueError: .*abc"),
        (lambda extra, metric: extra("x", [10**5000, 1]), "raised ValueError: .*4300 digits"),
    ],
)
def test_remarks_that_are_wrong_name_the_function(remark, sentence):
    def judge(completions, log_extra, log_metric, **kwargs):
        remark(log_extra, log_metric)
        return [0.0 for _ in completions]

    with pytest.raises(RewardError, match=rf"reward function 'judge':? .*{sentence}"):
        called(judge, completions=["a", "b"])


def test_notes_are_plain_json():
    def judge(completions, log_extra, **kwargs):
        log_extra("x", [float("nan"), 1.5])
        return [0.0, 0.0]

    assert called(judge, completions=["a", "b"]).notes == ({"x": "nan"}, {"x": 1.5})


@pytest.mark.parametrize(
    "values", [np.array([1.0, 0.5]), torch.tensor([1.0, 0.5]), (True, np.float32(0.5))]
)
def test_arrays_and_scalars_are_numbers(values):
    assert rewards(lambda **kwargs: values, completions=["a", "b"]) == [1.0, 0.5]


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        ([1.0], "'lambda' returned 1 rewards for 2 completions: return a list of 2 numbers"),
        (1.0, "'lambda' returned float: return a list of 2 numbers"),
        (None, "'lambda' returned NoneType"),
        ("ab", "'lambda' returned str"),
        (["1", 2.0], "'lambda' returned '1' for completion 0: return a finite number"),
        ([10**400, 2.0], "for completion 0: return a finite number"),
        ([-1.7e308, 2.0], r"for completion 0: return a finite number, of at most 1e\+18 in size"),
        ([2.0, 1.1e18], r"for completion 1: return a finite number, of at most 1e\+18 in size"),
        ({1.0, 2.0}, "'lambda' returned set: return a list of 2 numbers"),
        ({1.0: "a", 2.0: "b"}.keys(), "'lambda' returned dict_keys: return a list"),
        ([1.0, float("nan")], "'lambda' returned nan for completion 1"),
        ([1.0, [2.0]], r"'lambda' returned \[2.0\] for completion 1"),
    ],
)
def test_what_is_no_list_of_numbers_is_one_sentence(returned, sentence):
    with pytest.raises(RewardError, match=sentence):
        called(lambda **kwargs: returned, completions=["a", "b"])


class NotAnException(BaseException):
    pass


class NoNumber:
    def __float__(self):
        raise KeyError("no number")


def generated(completions, **kwargs):
    yield from (1.0 for _ in completions)
    raise ValueError("late")


def raises(error):
    def raising(completions, **kwargs):
        raise error

    return raising


async def raises_later(completions, **kwargs):
    await asyncio.sleep(0)
    sys.exit(3)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (raises(ValueError("two\nlines")), "'raising' raised ValueError: two lines"),
        (raises(SystemExit(3)), "'raising' raised SystemExit: 3"),
        (raises(SystemExit()), r"'raising' raised SystemExit \("),
        (raises(NotAnException("x")), "'raising' raised NotAnException: x"),
        (raises(StopIteration()), r"'raising' raised StopIteration \("),
        (raises(asyncio.CancelledError()), r"'raising' raised CancelledError \("),
        (raises_later, "'raises_later' raised SystemExit: 3"),
        (generated, "'generated' raised ValueError: late"),
        (lambda **kwargs: [NoNumber()], "'lambda' raised KeyError: 'no number'"),
    ],
)
def test_what_a_function_raises_names_it_and_the_line(function, sentence):
    with pytest.raises(RewardError, match=rf"{sentence}.*test_reward_functions\.py:\d+\): fix it"):
        called(function, completions=["a"])


def test_what_stops_a_function_from_outside_passes():
    with pytest.raises(KeyboardInterrupt):
        called(raises(KeyboardInterrupt()), completions=["a"])
    with pytest.raises(RewardError, match="a sentence"):
        called(raises(RewardError("a sentence")), completions=["a"])

    async def waits(completions, **kwargs):
        await asyncio.sleep(60)

    async def limited():
        state = TrainerState(global_step=0, max_steps=1)
        batch = {"prompts": ["?"], "completions": ["a"], "completion_ids": [()], "columns": {}}
        await asyncio.wait_for(call_functions({"waits": waits}, **batch, state=state), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(limited())


class Judge:
    def __call__(self, completions, **kwargs):
        return [0.0 for _ in completions]


def test_components_are_called_after_their_functions():
    assert name_of(functools.partial(by_tokens, scale=2)) == "by_tokens"
    assert name_of(Judge()) == "Judge"
    names = [hand_over(function, f"f{i}") for i, function in enumerate([by_tokens, by_tokens])]
    assert list(load_functions(names)) == ["by_tokens", "by_tokens-2"]


@pytest.mark.parametrize(
    ("thing", "sentence"),
    [
        (torch.nn.Linear(1, 1), r"a reward model \(Linear\) is not taken"),
        (Judge, "is not a reward function"),
        (3, "is not a reward function"),
    ],
)
def test_what_cannot_be_called_for_rewards_is_refused(thing, sentence):
    with pytest.raises(ConfigError, match=sentence):
        check_function(thing)


def test_names_that_are_no_function_are_refused():
    with pytest.raises(ConfigError, match="a reward model is not taken: give a function"):
        load_functions(["some/reward-model"])

    def invalid(completions, **kwargs):
        return [0.0 for _ in completions]

    with pytest.raises(ConfigError, match="'invalid' is reserved"):
        load_functions([hand_over(invalid, "invalid")])
    with pytest.raises(ConfigError, match=r"'gone' was handed over in Python .*'file\.py:Name'"):
        load_functions(["session:gone"])
