"""Cross tables of seats that act at the same time: leave one role out (docs/math.md 2)."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.credit import assign_advantages, make_credit
from turnwise.credit.siblings import score_of

WEIGHTS = {"own": 1.0, "both": 0.1, "invalid": -2.0}


def credit_of(episodes, **options):
    config = make_credit(**{"scheme": "leave_one_role_out", "rewards": WEIGHTS, **options})
    return assign_advantages(episodes, config, team={"both"})


def test_every_combination_is_scored_and_no_token_is_sampled_for_it(
    make_runner, echo, by_branch, spine
):
    made = make_runner(
        echo(rounds=1, together=True), by_branch, spine(orders="cross"), weights=WEIGHTS
    )
    (episode,) = made.play()
    assert len(made.engine.requests) == 2 * 3
    for trajectory in episode.trajectories:
        for turn in trajectory.sampled:
            own = float(turn.id.branch)
            assert [trial["own"] for trial in turn.trials] == [own] * 3
            both = [trial["both"] for trial in turn.trials]
            speaker = trajectory.seat == "speaker"
            assert both == ([10 * own] * 3 if speaker else [0.0, 10.0, 20.0])
    assert episode.resets == 9
    assert episode.trial_steps == 2 * 9 - 6


def test_the_advantage_is_the_rows_mean_less_the_tables(make_runner, echo, at_random, spine):
    """A_i = mean_j R_ij - mean R, by hand from the digits."""
    made = make_runner(
        echo(rounds=2, together=True), at_random, spine(orders="cross"), weights=WEIGHTS
    )
    episodes = made.play(2, visits=(0, 1))
    for episode in episodes:
        found = credit_of([episode])
        for number in (0, 1):
            digits = {
                t.seat: {s.id: float(s.action) for s in t.sampled if s.id.turn == number}
                for t in episode.trajectories
            }
            first, second = (np.array(list(digits[s].values())) for s in ("speaker", "hearer"))
            team = np.broadcast_to(first[:, None], (3, 3))  # ten times the digit, weighed 0.1
            rows = (first[:, None] + team).mean(axis=1)
            columns = (second[None, :] + team).mean(axis=0)
            for seat, values in (("speaker", rows), ("hearer", columns)):
                for identity, value in zip(digits[seat], values, strict=True):
                    expected = value - values.mean()
                    assert found.advantages[identity][""] == pytest.approx(expected)


def test_the_pair_with_the_highest_sum_goes_on(make_runner, echo, by_branch, spine):
    made = make_runner(
        echo(rounds=3, together=True), by_branch, spine(orders="cross"), weights=WEIGHTS
    )
    (episode,) = made.play()
    assert [turn.action for turn in sorted(episode.turns, key=lambda t: t.order)] == ["2"] * 6
    assert [turn.order for turn in sorted(episode.turns, key=lambda t: t.order)] == list(range(6))
    assert [turn.id.round for turn in episode.trajectories[1].turns] == [0, 1, 2]


def test_the_chosen_pair_is_stepped_again_with_fresh_noise(make_runner, echo, by_branch, spine):
    made = make_runner(
        echo(rounds=1, together=True), by_branch, spine(orders="cross", fresh_noise=True)
    )
    (episode,) = made.play()
    for turn in episode.turns:
        assert turn.rewards["luck"] != turn.trials[0]["luck"]
        assert turn.rewards["own"] == 2.0


def test_invalid_siblings_are_no_row_of_the_table(make_runner, echo, says, spine):
    script = lambda r: says("none" if r.id.branch == 0 else str(r.id.branch))  # noqa: E731
    made = make_runner(echo(rounds=1, together=True), script, spine(orders="cross"))
    (episode,) = made.play()
    assert episode.error is None
    for trajectory in episode.trajectories:
        by_number = {turn.id.branch: turn for turn in trajectory.sampled}
        assert by_number[0].error is not None
        assert score_of(by_number[0], WEIGHTS) == -2.0
        assert {len(by_number[n].trials) for n in (1, 2)} == {2}


def test_a_refused_action_is_compared_by_its_own_rewards(make_runner, echo, by_branch, spine):
    made = make_runner(echo(rounds=1, together=True, refused="1"), by_branch, spine(orders="cross"))
    (episode,) = made.play()
    assert episode.error is None
    refused = [t for each in episode.trajectories for t in each.sampled if t.id.branch == 1]
    assert [t.error.kind for t in refused] == ["illegal_action"] * 2
    assert [score_of(t, WEIGHTS) for t in refused] == [-2.0, -2.0]


def test_an_episode_ends_where_all_replies_of_a_seat_are_invalid(make_runner, echo, says, spine):
    for bad, turns in (("speaker", 1), ("hearer", 2)):
        script = lambda r, bad=bad: says("none" if r.id.role == bad else "3")  # noqa: E731
        made = make_runner(echo(rounds=1, together=True), script, spine(orders="cross"))
        (episode,) = made.play()
        assert episode.error.kind == "illegal_action"
        assert len(episode.turns) == turns


def test_seats_that_see_each_others_buffered_actions_are_refused(
    make_runner, echo, by_branch, spine
):
    class Peeks(echo):
        def observe(self, state, role):
            self.together = False
            seen = super().observe(state, role)
            self.together = True
            return seen

    made = make_runner(Peeks(rounds=1, together=True), by_branch, spine(orders="cross"))
    (episode,) = made.play()
    assert "let observe show nothing of buffered actions" in episode.error.message


def test_seats_that_act_one_after_the_other_have_no_table(make_runner, echo, by_branch, spine):
    plain, crossed = (
        make_runner(echo(), by_branch, spine(orders=orders)).play()[0]
        for orders in ("sequential", "cross")
    )
    assert plain == crossed
