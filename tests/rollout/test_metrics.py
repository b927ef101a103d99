"""The metrics of episodes of which some begin later, and some are left before their end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnwise.envs.measures import TAKEN
from turnwise.rollout import rollout_metrics
from turnwise.types import Episode, EpisodeId, Moves, Task, Trajectory

TASK = Task(id="t", env="e", seed=0, data={})


def episode(score, *, later=False, left=False):
    """Return an episode without turns, which begins in a later state and is left, or not."""
    one = EpisodeId(iteration=1, visit=0, task="t", member=0)
    moves = Moves(episode=replace(one, iteration=0), actions=(("player", "UP"),))
    key = "there" if left else None
    return Episode(
        id=one,
        task=TASK,
        trajectories=(Trajectory(role="player", seat="player", turns=(), next_key=key),),
        terminated=not left,
        truncated=left,
        score=score,
        opening=(moves,) if later else (),
    )


def test_the_score_is_that_of_episodes_that_begin_in_the_first_state():
    played = [episode(1.0), episode(0.0), episode(0.0, later=True), episode(0.0, later=True)]
    found = rollout_metrics(played)
    assert found["rollout/score"] == 0.5
    assert found["rollout/restarted_share"] == 0.5
    assert found["rollout/episodes"] == 4


def test_there_is_no_score_where_one_of_them_was_left():
    played = [episode(1.0), episode(0.0, left=True), episode(1.0, later=True)]
    found = rollout_metrics(played)
    assert "rollout/score" not in found
    assert found["rollout/restarted_share"] == pytest.approx(1 / 3)
    assert found["rollout/truncated_share"] == pytest.approx(1 / 3)


def test_whether_later_ones_were_left_does_not_matter():
    played = [episode(1.0), episode(0.0, later=True, left=True)]
    assert rollout_metrics(played)["rollout/score"] == 1.0


def test_without_later_ones_there_is_no_share_of_them():
    assert "rollout/restarted_share" not in rollout_metrics([episode(1.0), episode(0.0)])
    assert "rollout/restarted_share" not in rollout_metrics([])


def test_there_is_no_score_where_all_begin_later():
    found = rollout_metrics([episode(1.0, later=True), episode(1.0, later=True)])
    assert found["rollout/restarted_share"] == 1.0
    assert "rollout/score" not in found


def test_no_measure_may_take_the_name_of_the_share():
    found = rollout_metrics([episode(1.0), episode(1.0, later=True)])
    assert {name.partition("/")[2] for name in found if name.startswith("rollout/")} <= TAKEN
