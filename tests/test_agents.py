"""What an agent is shown, and what its replies parse to: an action or a named failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.agents import AgentConfig, Exchange, demonstration, messages_for, parse_answer
from turnwise.types import Failure

LEGAL = ("LEFT", "DOWN", "RIGHT", "UP")
PAST = [Exchange(observation=f"see {n}", reply=f"say {n}") for n in range(4)]


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("<answer> DOWN </answer>", "DOWN"),
        ("<answer>down</answer>", "DOWN"),
        ("<answer>\n Up\n</answer> and so on", "UP"),
        ("<answer> DOWN </answer> no, <answer> UP </answer>", "UP"),
        ("<think> <answer> LEFT </answer> </think> <answer> RIGHT </answer>", "RIGHT"),
        ("<answer> DOWN </answer> <answer> UP", "DOWN"),
    ],
)
def test_the_last_closed_answer_counts(reply, action):
    assert parse_answer(reply, LEGAL) == action


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("", "parse"),
        ("DOWN", "parse"),
        ("<answer> DOWN", "parse"),
        ("</answer> DOWN <answer>", "parse"),
        ("<answer></answer>", "illegal_action"),
        ("<answer> DOWN LEFT </answer>", "illegal_action"),
        ("<answer> DOWN </answer> <answer> JUMP </answer>", "illegal_action"),
        ("<ANSWER> DOWN </ANSWER>", "parse"),
    ],
)
def test_anything_else_is_a_named_failure(reply, kind):
    found = parse_answer(reply, LEGAL)
    assert isinstance(found, Failure)
    assert found.kind == kind


@given(st.text() | st.text(alphabet="<answer>/ DOWN"))
def test_no_reply_crashes_the_parser_or_gives_an_illegal_action(text):
    found = parse_answer(text, LEGAL)
    assert isinstance(found, Failure) or found in LEGAL


def test_a_failure_quotes_at_most_a_few_words():
    failure = parse_answer(f"<answer>{'x' * 9999}</answer>", LEGAL)
    assert isinstance(failure, Failure)
    assert len(failure.message) < 120


@pytest.mark.parametrize(
    ("options", "contents"),
    [
        ({"history": "observation"}, ["now"]),
        ({"history": "last_n", "last_n": 2}, ["see 2", "say 2", "see 3", "say 3", "now"]),
        ({"history": "last_n", "last_n": 9}, [f"{w} {n}" for n in range(4) for w in ("see", "say")]
         + ["now"]),
        ({"history": "full"}, [f"{w} {n}" for n in range(4) for w in ("see", "say")] + ["now"]),
    ],
)  # fmt: skip
def test_history_is_what_the_agent_says(options, contents):
    messages = messages_for(AgentConfig(**options), PAST, "now")
    assert [message.content for message in messages] == contents
    assert [message.role for message in messages] == ["user", "assistant"] * (
        len(contents) // 2
    ) + ["user"]


def test_the_system_message_comes_first_whatever_the_history():
    for history in ("full", "last_n", "observation"):
        first, *_ = messages_for(AgentConfig(system="be brief", history=history), PAST, "now")
        assert (first.role, first.content) == ("system", "be brief")


def test_a_demonstration_parses_to_its_action():
    for description in ("", "LEFT edge"):
        for action in LEGAL:
            assert parse_answer(demonstration(description, action), LEGAL) == action
