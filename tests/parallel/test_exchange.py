"""What processes send each other arrives, errors too; the group of one sends nothing."""

import subprocess
import sys

import pytest

from turnwise.errors import ConfigError, ProcessError


def test_objects_of_any_size_arrive(pair):
    assert pair("exchange") == {
        "small": [0, 1],
        "large": [3000, 93_000],
        "sent": 50_000,
        "sum": [10, 12, 14, 16, 18],
        "first": True,
        "together": [0, 1],
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
