"""Steps that reward other seats (`Step.others`), where turns have siblings: they are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnwise.rollout.workflow_check import TURN_END, check_workflow


@pytest.fixture
def paying(echo):
    """The game, in which the last step costs the speaker something."""

    class Paying(echo):
        name = "paying"

        def step(self, state, role, action, noise):
            step = super().step(state, role, action, noise)
            others = {"speaker": {"own": -1.0}} if step.terminated else {}
            return replace(step, others=others)

    return Paying()


def test_the_check_of_a_workflow_refuses_siblings(paying):
    found = check_workflow("turns", paying).topologies
    assert found["independent"] == ""
    for name in ("spine", TURN_END, "vine"):
        assert "rewards speaker" in found[name] and "'independent'" in found[name]


def test_an_episode_of_a_spine_ends_at_such_a_step_with_the_cure(
    make_runner, paying, spine, by_branch
):
    (episode,) = make_runner(paying, by_branch, spine()).play()
    assert episode.error is not None and episode.error.kind == "env"
    assert "'independent'" in episode.error.message


def test_a_trial_that_meets_such_a_step_is_not_left_out(make_runner, paying, vine, by_branch):
    (episode,) = make_runner(paying, by_branch, vine()).play()
    assert episode.error is not None and "'independent'" in episode.error.message
    assert episode.turns == ()


def test_a_cross_table_that_meets_such_a_step_has_no_entries(make_runner, paying, spine, by_branch):
    paying.together = True
    (episode,) = make_runner(paying, by_branch, spine(orders="cross")).play()
    assert episode.error is not None and "'independent'" in episode.error.message


def test_whole_episodes_and_evaluation_pay_the_other_seat(make_runner, paying, spine, by_branch):
    made = make_runner(paying, by_branch, spine())
    for episode in (
        *make_runner(paying, by_branch, None).play(),
        *made.play(stream="evaluation"),
    ):
        assert episode.error is None
        speaker, hearer = episode.trajectories
        assert [turn.rewards["own"] for turn in speaker.turns] == [0.0, -1.0]
        assert [turn.rewards["own"] for turn in hearer.turns] == [0.0, 0.0]
