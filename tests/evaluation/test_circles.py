"""Episodes in which a greedy policy goes round in circles until they are cut."""

from __future__ import annotations

import pytest

from turnwise.evaluation import evaluate
from turnwise.evaluation.circles import circling

WINNING = ("DOWN", "DOWN", "RIGHT", "RIGHT")
FALLING = ("RIGHT", "DOWN")
BACK_AND_FORTH = ("RIGHT", "LEFT") * 4
LONG_WAY = ("LEFT", "LEFT", "DOWN", "DOWN", "LEFT", "LEFT", "RIGHT", "UP")


@pytest.fixture
def circles(make_runner, lake, says, task_of):
    """`circles(*scripts)`: what is found in greedy episodes of these answers."""

    def found(*scripts):
        told = [says(script) for script in scripts]
        judge = make_runner(lake, lambda request: told[request.id.episode.visit](request)).runner
        tasks = [task_of(lake, str(number)) for number in range(len(scripts))]
        return circling(evaluate(judge, tasks, greedy=True).episodes)

    return found


def test_episodes_are_counted_that_repeat_a_prompt_until_they_are_cut(circles):
    assert circles(WINNING, BACK_AND_FORTH) == {"player": 1}
    assert circles(BACK_AND_FORTH, WINNING, ["LEFT"] * 8, FALLING) == {"player": 2}
    assert circles(WINNING, FALLING) == {}


def test_a_prompt_that_comes_twice_or_comes_earlier_is_no_circle(circles):
    assert circles(WINNING, LONG_WAY) == {}


def test_where_no_other_episode_ends_better_repeating_may_be_right(circles):
    assert circles(BACK_AND_FORTH, FALLING) == {}
    assert circles(BACK_AND_FORTH) == {}
