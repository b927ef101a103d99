"""Rows from turns: golden rows by hand, and the check that no sampled token is lost or doubled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from turnwise.errors import TrainingError
from turnwise.rollout import samples_from_episodes, without_cut
from turnwise.rollout.samples import _check_token_truth
from turnwise.types import Episode, EpisodeId, Sampling, Span, Task, Trajectory, Turn, TurnId


def turn(number, prompt, said, *, sample=0, finish="stop", spans=(), temperature=0.5, logprobs=()):
    return Turn(
        order=number,
        id=TurnId(
            episode=EpisodeId(iteration=1, visit=2, task="t", member=sample),
            role="player",
            turn=number,
        ),
        policy="main",
        policy_version=3,
        prompt_ids=tuple(prompt),
        completion_ids=tuple(said),
        logprobs=tuple(logprobs) or tuple(-0.1 * token for token in said),
        sampling=Sampling(temperature=temperature),
        finish_reason=finish,
        text="",
        spans=tuple(Span(name=n, start=a, end=b) for n, a, b in spans),
    )


def episode(*turns, sample=0):
    return Episode(
        id=EpisodeId(iteration=1, visit=2, task="t", member=sample),
        task=Task(id="t", env="e", seed=0, data={}),
        trajectories=(Trajectory(role="player", seat="player", turns=turns),),
        terminated=True,
        truncated=False,
        score=0.0,
    )


def whole(*turns, value=2.0):
    return {one.id: {"": value} for one in turns}


def test_one_turn_is_one_row_with_every_stream():
    one = turn(0, (1, 2, 3), (4, 5))
    (row,) = samples_from_episodes([episode(one)], whole(one))
    assert (row.policy, row.policy_version, row.turns) == ("main", 3, (one.id,))
    assert row.token_ids.tolist() == [1, 2, 3, 4, 5]
    assert row.turn_index.tolist() == [-1, -1, -1, 0, 0]
    assert row.sampled_mask.tolist() == [False, False, False, True, True]
    assert row.rl_weight.tolist() == [0, 0, 0, 1, 1]
    assert row.advantages.tolist() == [0, 0, 0, 2, 2]
    assert row.logprobs == pytest.approx([0, 0, 0, -0.4, -0.5])
    assert row.temperature.tolist() == [1, 1, 1, 0.5, 0.5]
    assert row.entropy_weight.tolist() == [0, 0, 0, 1, 1]
    assert not row.ce_weight.any()
    assert not row.ref_kl_weight.any()


def test_a_prompt_that_extends_the_row_continues_it():
    first, second = turn(0, (1, 2), (4, 5)), turn(1, (1, 2, 4, 5, 6), (7,))
    advantages = {first.id: {"": 1.0}, second.id: {"": -1.0}}
    (row,) = samples_from_episodes([episode(first, second)], advantages)
    assert row.turns == (first.id, second.id)
    assert row.token_ids.tolist() == [1, 2, 4, 5, 6, 7]
    assert row.turn_index.tolist() == [-1, -1, 0, 0, -1, 1]
    assert row.advantages.tolist() == [0, 0, 1, 1, 0, -1]
    assert row.logprobs == pytest.approx([0, 0, -0.4, -0.5, 0, -0.7])


def test_a_prompt_that_rewrites_the_past_starts_a_row():
    first, second = turn(0, (1, 2), (4, 5)), turn(1, (1, 2, 9, 5, 6), (7,))
    third = turn(2, (1, 2, 9, 5, 6, 7), (8,))
    rows = samples_from_episodes([episode(first, second, third)], whole(first, second, third))
    assert [row.turns for row in rows] == [(first.id,), (second.id, third.id)]
    assert rows[1].turn_index.tolist() == [-1, -1, -1, -1, -1, 0, 1]


def test_a_shorter_prompt_starts_a_row_though_it_agrees_so_far():
    first, second = turn(0, (1, 2), (4, 5)), turn(1, (1, 2, 4), (5,))
    rows = samples_from_episodes([episode(first, second)], whole(first, second))
    assert [row.token_ids.tolist() for row in rows] == [[1, 2, 4, 5], [1, 2, 4, 5]]


def test_episodes_never_share_a_row():
    first, other = turn(0, (1,), (4,)), turn(0, (1, 4), (5,), sample=1)
    rows = samples_from_episodes(
        [episode(first), episode(other, sample=1)], whole(first) | whole(other)
    )
    assert [row.token_ids.tolist() for row in rows] == [[1, 4], [1, 4, 5]]
    assert [row.turns[0].episode.member for row in rows] == [0, 1]


def test_turns_without_advantage_and_turns_that_said_nothing_are_in_no_row():
    first, silent = turn(0, (1, 2), (4,)), turn(1, (1, 2, 4, 6), (), finish="context")
    failed = turn(0, (1, 2), (9,), sample=1)
    played = [episode(first, silent), episode(failed, sample=1)]
    (row,) = samples_from_episodes(played, whole(first, silent))
    assert row.turns == (first.id,)


SPANS = (("think", 0, 2), ("answer", 3, 6), ("action", 4, 5))


def test_spans_carry_their_own_advantages_and_gaps_carry_none():
    one = turn(0, (1, 2), (4, 5, 6, 7, 8, 9), spans=SPANS)
    advantages = {one.id: {"think": 3.0, "answer": -1.0}}
    (row,) = samples_from_episodes([episode(one)], advantages, entropy_span="action")
    assert row.advantages.tolist() == [0, 0, 3, 3, 0, -1, -1, -1]
    assert row.rl_weight.tolist() == [0, 0, 1, 1, 0, 1, 1, 1]
    assert row.sampled_mask.tolist() == [False, False] + [True] * 6
    assert row.entropy_weight.tolist() == [0, 0, 0, 0, 0, 0, 1, 0]


def test_a_span_that_is_missing_has_no_piece():
    one = turn(0, (1,), (4, 5), spans=(("answer", 0, 2),))
    (row,) = samples_from_episodes(
        [episode(one)], {one.id: {"think": 3.0, "answer": 1.0}}, entropy_span="action"
    )
    assert row.advantages.tolist() == [0, 1, 1]
    assert not row.entropy_weight.any()


@pytest.mark.parametrize(
    ("rule", "weights"), [("train", [0, 1, 1, 0, 1]), ("mask", [0, 0, 0, 0, 1])]
)
def test_cut_completions_are_trained_or_have_no_loss(rule, weights):
    cut = turn(0, (1,), (4, 5), finish="length")
    good = turn(1, (1, 4, 5, 6), (7,))
    (row,) = samples_from_episodes(
        [episode(cut, good)], whole(cut, good), truncated_completions=rule, reference=True
    )
    assert row.rl_weight.tolist() == weights
    assert row.ref_kl_weight.tolist() == weights
    assert row.entropy_weight.tolist() == weights
    assert row.sampled_mask.tolist() == [False, True, True, False, True]


def test_excluded_episodes_are_those_with_a_cut_completion_in_any_turn():
    good, cut = turn(0, (1,), (4,)), turn(1, (1, 4, 6), (7,), finish="length")
    full = turn(0, (1,), (), sample=1, finish="context")
    played = [episode(good, cut), episode(full, sample=1)]
    assert [one.id.member for one in without_cut(played)] == [1]


@pytest.mark.parametrize("by_span", [{"": 2.0}, {"think": 3.0, "answer": 2.0}])
def test_the_tokens_after_an_end_carry_nothing(by_span):
    spans = (("think", 0, 1), ("answer", 1, 4))
    one, other = turn(0, (1,), (4, 5, 6, 7), spans=spans), turn(0, (1,), (4, 5), sample=1)
    played = [episode(one), episode(other, sample=1)]
    advantages = {one.id: by_span, other.id: {"": 1.0}}
    row, free = samples_from_episodes(played, advantages, ends={one.id: 2}, reference=True)
    first = by_span.get("think", 2.0)
    assert row.advantages.tolist() == [0, first, 2, 0, 0]
    assert row.rl_weight.tolist() == row.ref_kl_weight.tolist() == [0, 1, 1, 0, 0]
    assert row.sampled_mask.tolist() == [False, True, True, True, True]
    assert free.advantages.tolist() == [0, 1, 1]
    (short, _) = samples_from_episodes(played, advantages, ends={one.id: 1})
    assert short.advantages.tolist() == [0, first, 0, 0, 0]


def test_the_reference_weighs_what_carries_policy_gradient():
    one = turn(0, (1, 2), (4, 5, 6, 7, 8, 9), spans=SPANS)
    (row,) = samples_from_episodes([episode(one)], {one.id: {"answer": 1.0}}, reference=True)
    assert row.ref_kl_weight.tolist() == row.rl_weight.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]


def test_greedy_tokens_are_scored_at_temperature_one():
    one = turn(0, (1,), (4,), temperature=0.0)
    (row,) = samples_from_episodes([episode(one)], whole(one))
    assert row.temperature.tolist() == [1, 1]


def test_a_turn_that_is_filed_twice_is_found():
    one = turn(0, (1,), (4,))
    again = replace(one, prompt_ids=(1, 4, 6))
    with pytest.raises(TrainingError, match="in two rows"):
        samples_from_episodes([episode(one, again)], whole(one))
    with pytest.raises(TrainingError, match="in two rows"):
        samples_from_episodes([episode(one), episode(one)], whole(one))


def test_a_turn_that_is_in_no_row_and_ids_that_are_not_the_engines_are_found():
    first, second = turn(0, (1,), (4,)), turn(1, (2,), (5,))
    played, advantages = [episode(first, second)], whole(first, second)
    rows = samples_from_episodes(played, advantages)
    _check_token_truth(played, advantages, rows)
    with pytest.raises(TrainingError, match="1 sampled turns are in no row"):
        _check_token_truth(played, advantages, rows[:1])
    other = replace(rows[1], token_ids=np.array([2, 6]))
    with pytest.raises(TrainingError, match="other ids"):
        _check_token_truth(played, advantages, [rows[0], other])
    unmarked = replace(rows[1], sampled_mask=np.array([False, False]))
    with pytest.raises(TrainingError, match="misses a drawn token"):
        _check_token_truth(played, advantages, [rows[0], unmarked])


def test_a_row_goes_on_while_its_media_do():
    first, second = turn(0, (1, 2), (4,)), turn(1, (1, 2, 4, 5), (6,))
    for media, rows in ((((), ()), 1), ((("a",), ("a", "b")), 1), ((("a",), ("b",)), 2)):
        shown = [replace(t, media=m) for t, m in zip((first, second), media, strict=True)]
        found = samples_from_episodes([episode(*shown)], whole(*shown))
        assert len(found) == rows
        assert found[-1].media == media[1]
