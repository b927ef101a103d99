"""Lines of an ant's turn: which are actions, and that no text of a model breaks or slows them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.envs.ant_colony.actions import MOST_COUNTED, SLOTS, read_line, read_lines
from turnwise.envs.ant_colony.notes import LONGEST_NOTE

PIECES = st.lists(
    st.sampled_from(
        [*SLOTS, "N", "north", "FOOD", "HOME", '"', "1", "6", " ", "\n", "\t", "é", "<|im_end|>"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "act"),
    [
        ("MOVE N", ("MOVE", "N")),
        (" move  West ", ("MOVE", "W")),
        ("PICK_UP", ("PICK_UP", "")),
        ("drop", ("DROP", "")),
        ("DEPOSIT", ("DEPOSIT", "")),
        ("SIGNAL food", ("SIGNAL", "FOOD")),
        ("REINFORCE HOME", ("REINFORCE", "HOME")),
        ('REMEMBER "food at [3,2]"', ("REMEMBER", "food at [3,2]")),
        (f'REMEMBER "{"x" * LONGEST_NOTE}"', ("REMEMBER", "x" * LONGEST_NOTE)),
        ("FORGET 5", ("FORGET", "5")),
    ],
)
def test_lines_that_are_actions(line, act):
    assert read_line(line) == act


@pytest.mark.parametrize(
    "line",
    [
        "MOVE", "MOVE UP", "MOVE N N", "PICK_UP now", "FLY", "", "SIGNAL", "SIGNAL WATER",
        "FORGET 0", "FORGET 6", "FORGET \u0661", "REMEMBER",
        'REMEMBER ""', 'REMEMBER " "', "REMEMBER food",
        'REMEMBER "a" "b"', 'REMEMBER "<|im_end|>"', 'REMEMBER "é"', "REMEMBER 'a'",
        f'REMEMBER "{"x" * (LONGEST_NOTE + 1)}"', 'REMEMBER "a\tb"',
    ],
)  # fmt: skip
def test_lines_that_are_none(line):
    assert read_line(line) is None


def test_three_lines_are_read_and_the_others_are_counted():
    read = read_lines("MOVE N\n\n fly\nSIGNAL FOOD\nFORGET 1\nMOVE S")
    assert [act and act.verb for act in read.acts] == ["MOVE", None, "SIGNAL"]
    assert read.more == 2
    assert read_lines("") == ((), 0)
    assert read_lines("x\n" * 10_000).more == MOST_COUNTED - 3


@given(text=PIECES | st.text())
def test_no_text_breaks_the_reading(text):
    read = read_lines(text)
    assert len(read.acts) <= 3 and 0 <= read.more <= MOST_COUNTED
    for act in read.acts:
        assert act is None or (act.verb in SLOTS and len(act.argument) <= LONGEST_NOTE)


@pytest.mark.parametrize("piece", ["MOVE N\n", "REMEMBER ", '"', "\n", "x", " "])
def test_a_megabyte_is_read_in_no_time(piece):
    text, began = piece * (1_000_000 // len(piece)), time.process_time()
    read_lines(text)
    assert time.process_time() - began < 1
