"""Rows as an env: what a file may hold, how it is divided, and the contract."""

from __future__ import annotations

import asyncio
import json

import pytest

from turnwise.envs import check_env, make_env
from turnwise.errors import ConfigError, DataError
from turnwise.tasks import GeneratedTasks
from turnwise.types import Message, Task

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]


@pytest.fixture
def rows(tmp_path):
    """`rows([...])`: the env over rows; other files as `eval_rows`."""
    (tmp_path / "judge.py").write_text(
        "def length(completions, **kwargs):\n    return [float(len(c)) for c in completions]\n"
    )

    def make(table, eval_rows=None):
        files = {"path": table, "eval_path": eval_rows}
        options = {}
        for name, content in files.items():
            if content is not None:
                options[name] = str(tmp_path / f"{name}.jsonl")
                lines = [r if isinstance(r, str) else json.dumps(r) for r in content]
                (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
        return make_env("rows", reward=[f"{tmp_path / 'judge.py'}:length"], **options)

    return make


def prompts(count, first=0):
    return [{"prompt": f"number {n} is"} for n in range(first, first + count)]


def test_rows_keep_the_contract(rows):
    assert check_env(rows([*prompts(3), {"prompt": CHAT, "answer": "4"}])).longest == 1


def test_text_is_raw_and_messages_are_a_conversation(rows):
    env = rows(prompts(1))
    raw, chat = (
        env.observe(env.reset(Task(id="t", env="rows", seed=0, data={"prompt": p})), "player")
        for p in ("1 + 1 =", CHAT)
    )
    assert (raw.text, raw.raw, raw.messages) == ("1 + 1 =", True, ())
    assert not chat.raw
    assert chat.messages[1] == Message(role="user", content="2 + 2?")


def test_every_row_is_in_one_split_by_its_prompt(rows):
    env = rows([{"prompt": f"number {n % 60}", "n": n} for n in range(120)])
    parts = {s: GeneratedTasks(env, s, seed=0) for s in ("train", "validation", "test")}
    assert sum(part.count for part in parts.values()) == 120
    seen = {s: {t.data["prompt"] for t in part.take(1000)} for s, part in parts.items()}
    assert sum(map(len, seen.values())) == 60  # rows that ask the same are together
    assert not parts["test"].seen


def test_a_pass_meets_every_row_once_in_an_order_of_its_own(rows):
    tasks = GeneratedTasks(rows(prompts(5)), "train", seed=0)
    said = [tasks.task(index).data["prompt"] for index in range(15)]
    passes = [said[:5], said[5:10], said[10:]]
    assert all(len(set(each)) == 5 for each in passes)
    assert passes[0] != passes[1] or passes[1] != passes[2]
    assert said[7] == GeneratedTasks(rows(prompts(5)), "train", seed=0).task(7).data["prompt"]
    assert len(tasks.take(500)) == 5


def test_few_rows_are_in_every_split_and_said_to_be_seen(rows):
    tasks = GeneratedTasks(rows(prompts(19)), "test", seed=0)
    assert (tasks.count, tasks.seen) == (19, True)


def test_rows_for_evaluation_are_apart(rows):
    many = rows(prompts(30), prompts(40, first=100))
    assert len(many.tasks("train")) == 30
    halves = [many.tasks("validation"), many.tasks("test")]
    assert sum(map(len, halves)) == 40
    assert not many.single_task
    few = rows(prompts(30), prompts(3, first=100))
    assert few.tasks("validation") == few.tasks("test") == tuple(prompts(3, first=100))
    assert not few.single_task
    assert rows(prompts(30), prompts(3)).single_task


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 2, column 2: not JSON"),
        ('{"question": "?"}', r"line 2: has no column 'prompt' \(columns: question\)"),
        ('{"prompt": ""}', "line 2: the prompt is empty"),
        ('{"prompt": 3}', "line 2: prompt is int, expected text or a list of messages"),
        ('{"prompt": [{"role": "user"}]}', "line 2, message 1: got .* role and content only"),
        ('{"prompt": [{"role": "us", "content": "?"}]}', "message 1: role 'us' is none of system"),
        ('{"prompt": [{"role": "user", "content": 3}]}', "message 1: content 3 must be text"),
        (
            '{"prompt": [{"role": "assistant", "content": "So"}]}',
            "line 2: the prompt ends with the assistant's message",
        ),
    ],
)
def test_malformed_rows_name_the_line(rows, line, sentence):
    with pytest.raises(DataError, match=sentence):
        rows([*prompts(1), line])


def test_rows_without_a_file_or_a_reward_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"give path = 'rows\.jsonl'"):
        make_env("rows", reward=["turnwise.rewards:runs"])
    with pytest.raises(ConfigError, match=r"give reward = \['file\.py:name'\]"):
        make_env("rows", path=str(tmp_path))
    with pytest.raises(DataError, match="has no rows"):
        (tmp_path / "none.jsonl").write_text("\n")
        make_env("rows", path=str(tmp_path / "none.jsonl"), reward=["turnwise.rewards:runs"])


def test_nothing_played_needs_no_judge(rows):
    assert asyncio.run(rows(prompts(1)).score_batch([], 10)).rewards == ()


def test_a_judge_that_extends_its_prompts_changes_no_row(rows, tmp_path):
    path = rows([{"prompt": CHAT, "tests": [[1]]}]).unwrapped.config.path
    (tmp_path / "extends.py").write_text(
        "def extend(prompts, completions, tests, **kwargs):\n"
        "    for prompt, said, own in zip(prompts, completions, tests):\n"
        "        prompt += said\n"
        "        own[0].append(2)\n"
        "    return [float(len(prompt)) for prompt in prompts]\n"
    )
    env = make_env("rows", path=path, reward=[f"{tmp_path / 'extends.py'}:extend"])
    table = env.unwrapped.tasks("train")
    for _ in range(2):
        judged = asyncio.run(env.unwrapped.judge([table[0], table[0]], ["4", "5"]))
        assert judged.rewards == ({"extend": 3.0},) * 2
    assert table == ({"prompt": CHAT, "tests": [[1]]},)
