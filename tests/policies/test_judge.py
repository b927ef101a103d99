"""The verdict on one update: its exact limits."""

import pytest

from turnwise.policies.auto_rate import LARGEST_LOSS, judge


@pytest.mark.parametrize(("share", "factor"), [(1.0, 0.5), (0.01, 0.5), (16.0, 0.25)])
@pytest.mark.parametrize("first", [True, False])
def test_after_a_loss_of_replies_the_rate_is_halved_at_least(share, factor, first):
    found = judge(share, first=first, lost=LARGEST_LOSS + 1e-9)
    assert not found.stands
    assert found.factor == pytest.approx(factor)


def test_the_largest_loss_itself_stands():
    assert judge(1.0, first=False, lost=LARGEST_LOSS).stands


def test_an_update_that_stands_changes_the_rate_by_a_quarter_at_most():
    assert judge(0.3, first=True).factor == 1.25
    assert judge(4.0, first=False).factor == pytest.approx(0.8)
