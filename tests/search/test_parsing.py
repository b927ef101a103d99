"""Parameters in replies, which may hold anything."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.search.parsing import MOST_CHARACTERS, UnreadableError, read_params
from turnwise.search.space import ParamSpace

WEIGHTS = ParamSpace(count=3, low=-60, high=60, decimals=1)
ACTIONS = ParamSpace(count=3, low=0, high=3, choices=True)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("params[0]: 1.2, params[1]: -0.3, params[2]: 6.0\nBecause.", (12, -3, 60)),
        ("params[0]=1, params[1]=2; params[2]= +3.", (10, 20, 30)),
        ("**params[0]**: 1\nparams[1]: 2\nparams[2]: 3", (10, 20, 30)),
        ("params[0]: 1\nparams[1]: 2\nparams[2]: 3", (10, 20, 30)),
        ("`params[0]: 0.14, params[1]: 0.15, params[2]: -0.15`", (1, 2, -2)),
        ("params[0]: 1, params[1]: 1, params[2]: 1\nno, better\n"
         "params[0]: 2, params[1]: 2, params[2]: 2", (20, 20, 20)),
        ("params[0]: 9, params[0]: 1, params[1]: 2, params[2]: 3", (10, 20, 30)),
        ("params[0]: \N{MINUS SIGN}1, params[1]: 2, params[2]: 3", (-10, 20, 30)),
        ("I choose\n[1.2, -0.3, 6]\nas they are new", (12, -3, 60)),
        ("1.2 -0.3 6", (12, -3, 60)),
        ("params[0]:1,params[1]:2.,params[2]:3.", (10, 20, 30)),
        ("1,2,3", (10, 20, 30)),
        ("params: (1, 2, 3)", (10, 20, 30)),
    ],
)  # fmt: skip
def test_parameters_are_read(reply, expected):
    assert read_params(reply, WEIGHTS) == expected


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("", "no line of parameters"),
        ("I would go left.", "no line of parameters"),
        ("params[0]: 1, params[1]: 2", "gave 2 parameters in order, and 3 are needed"),
        ("params[0]: 1, params[2]: 2, params[1]: 3", "gave 1 parameters"),
        ("params[0]: 1e1, params[1]: 2, params[2]: 3", "no line|gave"),
        ("params[0]: 1/3, params[1]: 2, params[2]: 3", "no line|gave"),
        ("params[0]: 1,5, params[1]: 2, params[2]: 3", "no line|gave"),
        ("params[0]: 1.2.3, params[1]: 2, params[2]: 3", "no line|gave"),
        ("params[0]: 1, params[1]: 2, params[2]: 50%", "gave 2"),
        ("params[0]: nan, params[1]: 2, params[2]: 3", "no line|gave"),
        ("params[0]: 6.1, params[1]: 2, params[2]: 3", r"params\[0\] is not from -6.0 to 6.0"),
        ("params[0]: 1, params[1]: 2, params[2]: 9999999999999999999", "gave 2"),
        ("params[0]: __import__('os'), params[1]: 2, params[2]: 3", "no line|gave"),
        ("params[0]: \N{ARABIC-INDIC DIGIT THREE}, params[1]: 2, params[2]: 3", "no line|gave"),
        ("1, 2", "no line of parameters"),
        ("1, 2, 3, 4", "no line of parameters"),
    ],
)
def test_other_replies_are_refused_in_our_own_words(reply, words):
    with pytest.raises(UnreadableError, match=words) as refused:
        read_params(reply, WEIGHTS)
    assert "import" not in str(refused.value)


def test_actions_are_whole_numbers():
    assert read_params("params[0]: 3, params[1]: 0, params[2]: 2.0", ACTIONS) == (3, 0, 2)
    with pytest.raises(UnreadableError, match=r"params\[1\] is not a whole number from 0 to 3"):
        read_params("params[0]: 3, params[1]: 1.5, params[2]: 2", ACTIONS)
    with pytest.raises(UnreadableError, match=r"params\[2\]"):
        read_params("params[0]: 3, params[1]: 1, params[2]: 4", ACTIONS)


@given(st.text(alphabet="params[]:=0123456789.-+, \n*x\N{MINUS SIGN}", max_size=300))
def test_any_text_is_parameters_or_a_named_failure(text):
    try:
        params = read_params(text, WEIGHTS)
    except UnreadableError:
        return
    assert len(params) == 3
    assert all(-60 <= value <= 60 for value in params)


@given(st.lists(st.integers(-60, 60), min_size=3, max_size=3))
def test_what_is_written_is_read(values):
    params = tuple(values)
    assert read_params(WEIGHTS.text(params), WEIGHTS) == params
    assert WEIGHTS.read(WEIGHTS.plain(params)) == params


@pytest.mark.parametrize(
    "piece",
    ["params[", "params[0]", "params[0]:", "params[0]: 1 ", "params[0]:-", "9", "-", "[", "1 ",
     " ", "\n", "params[0]: " + "1" * 50, "params[0]" + " " * 500, "params[0]: 1, params[1]: 2, "],
)  # fmt: skip
def test_the_work_is_linear_in_the_length(piece):
    text = piece * (4 * MOST_CHARACTERS // len(piece))
    began = time.process_time()
    for space in (WEIGHTS, ParamSpace(count=2000, low=-60, high=60, decimals=1)):
        with pytest.raises(UnreadableError):
            read_params(text, space)
    assert time.process_time() - began < 2.0


def test_what_lies_beyond_the_bound_is_not_read():
    with pytest.raises(UnreadableError):
        read_params("x" * MOST_CHARACTERS + "\nparams[0]: 1, params[1]: 1, params[2]: 1", WEIGHTS)
