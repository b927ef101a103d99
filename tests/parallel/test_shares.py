"""Episodes and rows are divided completely, evenly and repeatably."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.parallel import divide_rows, share_of_episodes


@given(visits=st.integers(0, 30), group=st.integers(1, 9), size=st.integers(1, 6))
def test_every_episode_is_played_once_and_evenly(visits, group, size):
    shares = [share_of_episodes(visits, group, rank, size) for rank in range(size)]
    assert sorted(place for share in shares for place in share) == list(range(visits * group))
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1
    assert all(share == sorted(share) for share in shares)


def test_groups_stay_whole_where_that_is_even():
    for rank in range(3):
        visits = {place // 8 for place in share_of_episodes(6, 8, rank, 3)}
        assert len(visits) == 2


tokens = st.lists(st.integers(0, 2), max_size=12).map(np.array)


@given(rows=st.lists(tokens, max_size=20), size=st.integers(1, 5))
def test_every_row_is_computed_once(rows, size):
    shares = divide_rows(rows, size)
    assert len(shares) == size
    assert sorted(row for share in shares for row in share) == list(range(len(rows)))


def distinct(rows):
    return len({tuple(row[:end]) for row in rows for end in range(1, len(row) + 1)})


@pytest.mark.parametrize("size", [2, 3, 4])
def test_shares_have_about_equally_many_distinct_tokens_and_prompts_stay_together(size):
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 99, 40) for _ in range(12)]
    rows = [np.concatenate([p, rng.integers(0, 99, 10)]) for p in prompts for _ in range(8)]
    order = rng.permutation(len(rows))
    shares = divide_rows([rows[i] for i in order], size)
    counts = [distinct([rows[order[i]] for i in share]) for share in shares]
    assert sum(counts) <= distinct(rows) + (size - 1) * 40, "at most one prompt at each cut"
    assert max(counts) <= 1.2 * distinct(rows) / size


def test_processes_without_rows_get_none():
    same = [np.array([1, 2, 3])] * 4
    assert divide_rows(same, 3) == [[0, 1, 2, 3], [], []]
