"""The rule of the automatic learning rate, on policies whose movement is known."""

import math

import pytest

from turnwise.policies.auto_rate import DRIFT, LARGEST_CHANGE, MOST_TRIES, judge

WANTED = 0.01


@pytest.mark.parametrize(
    ("moved", "factor"),
    [
        (WANTED, 1.0),
        (WANTED * 1.21, 1 / 1.1),
        (WANTED / 1.21, 1.1),
        (WANTED * 3.9, 1 / DRIFT),
        (WANTED / 100, DRIFT),
        (0.0, DRIFT),
    ],
)
def test_an_update_in_the_band_stands(moved, factor):
    found = judge(moved / WANTED, first=False)
    assert found.stands
    assert found.factor == pytest.approx(factor)


@pytest.mark.parametrize(
    ("moved", "factor"),
    [
        (WANTED * 4.41, 1 / 2.1),
        (WANTED * 1e6, 1 / LARGEST_CHANGE),
        (math.inf, 1 / LARGEST_CHANGE),
        (math.nan, 1 / LARGEST_CHANGE),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_one_that_goes_too_far_is_undone(moved, factor, first):
    found = judge(moved / WANTED, first=first)
    assert not found.stands
    assert found.factor == pytest.approx(factor)


def test_the_first_update_is_also_undone_if_it_hardly_moves():
    assert not judge(1 / 4.1, first=True).stands
    assert judge(1 / 3.9, first=True).stands
    assert judge(1 / 3.9, first=True).factor == DRIFT


@pytest.mark.parametrize("start", [1e-5, 1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("steepness", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_a_rate_is_found_from_every_start(start, steepness, power):
    """A movement of steepness x rate^power; the rule assumes a power of 2."""
    rate = start
    for _ in range(MOST_TRIES + 1):
        verdict = judge(steepness * rate**power / WANTED, first=True)
        rate *= verdict.factor
        if verdict.stands:
            break
    assert verdict.stands, (start, steepness, power, rate)
    assert WANTED / 4 <= steepness * rate**power <= 4 * WANTED
