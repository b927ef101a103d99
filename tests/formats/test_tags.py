"""Replies in tags: an action or a named failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.formats import Tags
from turnwise.types import Failure

TAGS = Tags()
LEGAL = ("LEFT", "DOWN", "RIGHT", "UP")


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
    assert TAGS.parse(reply, LEGAL) == action


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
    found = TAGS.parse(reply, LEGAL)
    assert isinstance(found, Failure)
    assert found.kind == kind


@given(st.text() | st.text(alphabet="<answer>/ DOWN"))
def test_no_reply_crashes_the_parser_or_gives_an_illegal_action(text):
    found = TAGS.parse(text, LEGAL)
    assert isinstance(found, Failure) or found in LEGAL


def test_a_failure_quotes_at_most_a_few_words():
    failure = TAGS.parse(f"<answer>{'x' * 9999}</answer>", LEGAL)
    assert isinstance(failure, Failure)
    assert len(failure.message) < 120
