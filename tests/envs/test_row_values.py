"""Values of rows' columns: what JSON keeps, how deep it may be, and what is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from turnwise.envs.rows.values import decode, encode, encode_row
from turnwise.errors import DataError
from turnwise.utils.data_files import check_value


@pytest.mark.parametrize(
    "wrap",
    [
        lambda part: [part],
        lambda part: (part,),
        lambda part: {"key": part},
        lambda part: {1: part},
        lambda part: {1: (part,)},
    ],
)
@pytest.mark.parametrize(
    "core", [0, (1, 2j), {b"x", Decimal("1.5")}, np.zeros((1, 2)), np.complex64(1 + 2j)]
)
def test_what_is_nested_as_deeply_as_is_kept_is_read_again(wrap, core):
    value, kept = core, None
    for _ in range(300):
        try:
            kept = encode(value, "row 0")
        except DataError as error:
            assert "row 0: is nested deeper than 200" in str(error)
            break
        value = wrap(value)
    else:
        pytest.fail("any depth is kept")
    again = json.loads(json.dumps(kept))
    check_value(again, "row 0")
    assert encode(decode(again, "row 0"), "row 0") == kept


def test_values_that_hold_themselves_are_refused():
    around: list[object] = []
    around.append(around)
    held = np.empty((), dtype=object)
    held[()] = held
    for value in (around, held):
        with pytest.raises(DataError, match="nested deeper"):
            encode(value, "row 0")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (float("nan"), "column 'x': nan cannot be kept: use finite numbers"),
        (np.array([1.0, np.inf]), "column 'x': inf cannot be kept"),
        ([complex(0, float("inf"))], "column 'x': inf cannot be kept"),
        (["\ud800"], "column 'x': text holds half of a surrogate pair"),
        ({"\ud800": 1}, "column 'x': text holds half of a surrogate pair"),
        ([-(10**4300)], "column 'x': a whole number of more than 4300 digits"),
        (Fraction(1, 10**4300), "column 'x': a whole number of more than 4300 digits"),
        (object(), "column 'x': a value of type object cannot be kept"),
    ],
)
def test_values_that_no_file_keeps_are_refused(value, sentence):
    with pytest.raises(DataError, match=sentence):
        encode_row({"x": value}, "row 0")


def test_names_of_columns_are_text():
    with pytest.raises(DataError, match="column 3 is not text"):
        encode_row({3: 1}, "row 0")
    with pytest.raises(DataError, match=r"the name of column '\\ud800': text holds half"):
        encode_row({"\ud800": 1}, "row 0")
