"""What processes send each other arrives, errors too; the group of one sends nothing."""

import subprocess
import sys

import numpy as np
import pytest

from turnwise.errors import ConfigError, ProcessError
from turnwise.trainers.exchange import Share, joined_metrics


def test_objects_of_any_size_arrive(pair):
    assert pair("exchange") == {
        "small": [0, 1],
        "large": [3000, 93_000],
        "sent": 50_000,
        "sum": [10, 12, 14, 16, 18],
        "first": True,
        "together": [0, 1],
    }


def test_gradients_of_every_type_are_added_and_missing_ones_stay_missing(pair):
    first, second, third, fourth, fifth = pair("add_up")
    assert first == [2 + 1e-12] * 4, "float64 is added in float64"
    assert second == [0, 11, 22, 33]
    assert third == fourth == [5] * 4
    assert fifth is None


def test_metrics_of_shares_are_added_but_for_maxima_and_the_ratio():
    forest = {"forest/tokens_flat": 30.0, "forest/tokens_distinct": 10.0, "forest/sharing": 3.0}
    one = Share(
        loss={"loss/rl": 1.0, "policy/ratio_max": 4.0}, forest=forest, span_entropy=0.5,
        drawn=np.zeros(2),
    )  # fmt: skip
    other = Share(
        loss={"loss/rl": 0.5, "policy/ratio_max": 3.0, "loss/ce": 2.0},
        forest=dict.fromkeys(forest, 0.0) | {"forest/tokens_flat": 10.0}, span_entropy=0.25,
        drawn=np.zeros(3),
    )  # fmt: skip
    assert joined_metrics([one, other]) == {
        "loss/rl": 1.5,
        "policy/ratio_max": 4.0,
        "loss/ce": 2.0,
        "forest/tokens_flat": 40.0,
        "forest/tokens_distinct": 10.0,
        "forest/sharing": 4.0,
        "policy/span_entropy": 0.75,
    }


def test_an_error_of_one_process_is_raised_in_all(pair):
    with pytest.raises(ConfigError, match="^give 3$"):
        pair("fail", where=1, kind="own")
    with pytest.raises(ProcessError, match="process 2 of 2 raised KeyError: 'a bug'"):
        pair("fail", where=1, kind="foreign")
    with pytest.raises(KeyError, match="a bug"):
        pair("fail", where=0, kind="foreign")
    assert pair("exchange")["small"] == [0, 1], "the exchange goes on"


def test_what_cannot_be_sent_says_so(pair):
    with pytest.raises(ProcessError, match="process 2 of 2 cannot send .* set processes = 1"):
        pair("send_what_cannot_be")


def test_what_cannot_be_read_says_so(pair):
    with pytest.raises(ProcessError, match=r"process 2 of 2 .*no number.* set processes = 1"):
        pair("send_what_cannot_be_read")
    assert pair("exchange")["first"], "the processes go on"


def test_a_group_of_one_imports_no_torch():
    code = (
        "import sys; from turnwise.parallel import ALONE; "
        "assert ALONE.together(lambda: 1) == [1]; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
