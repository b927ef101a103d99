"""The rule of the automatic learning rate, on policies whose movement is known."""

import math

import pytest

from turnwise.policies.auto_rate import (
    DRIFT,
    LARGEST_CHANGE,
    LARGEST_RATE,
    MOST_TRIES,
    RateSearch,
    judge,
)

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


def searched(start, moves, found=None):
    """The search for the rate of an update that moves a policy by `moves(rate)`, and its rates."""
    search = RateSearch(start, found)
    tried = []
    while True:
        tried.append(search.peak)
        last = search.is_last
        nats = moves(search.peak)
        if search.stands(nats / WANTED, nats, skipped=False):
            return search, tried
        assert not last, tried


@pytest.mark.parametrize("start", [1e-6, 1e-4, 3e-3])
@pytest.mark.parametrize("most", [WANTED / 5, WANTED / 100])
def test_a_rate_beyond_which_nothing_moves_further_is_not_searched(start, most):
    """An adapter may never move as far as wanted: the rate before the flat region is taken."""
    search, tried = searched(start, lambda rate: min(most, 100 * rate**2))
    edge = (most / 100) ** 0.5
    assert tried[-1] == tried[-3] < tried[-2], "it went back by one attempt"
    assert tried[-1] <= 12 * edge
    assert search.found == tried[-1]


def test_a_search_that_begins_below_rounding_goes_on():
    search, tried = searched(1e-12, lambda rate: 1e-14 if rate < 1e-6 else 1e4 * rate**2)
    assert len(tried) == MOST_TRIES + 1
    assert search.found is None, "the last attempt is no evidence"
    search, _ = searched(search.peak, lambda rate: 1e4 * rate**2)
    assert WANTED / 4 <= 1e4 * search.found**2 <= 4 * WANTED


def test_what_hardly_moves_at_a_large_rate_stands():
    search, tried = searched(LARGEST_RATE / 30, lambda rate: 1e-9 * rate**2)
    assert tried == pytest.approx([LARGEST_RATE / 30, LARGEST_RATE / 3, LARGEST_RATE * 10 / 3])
    assert search.found == tried[-1]
