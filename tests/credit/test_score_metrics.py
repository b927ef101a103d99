"""The metrics that compare the returns of a group with its scores and lengths, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from turnwise.credit import assign_advantages, make_credit, score_metrics


def metrics(episodes, scores):
    scored = [replace(e, score=score) for e, score in zip(episodes, scores, strict=True)]
    credit = assign_advantages(scored, make_credit(scheme="grpo", rewards={"goal": 1.0}))
    return score_metrics(credit.groups, scored)


def test_returns_and_scores_are_correlated_within_groups(episode):
    episodes = [
        episode([3.0, 0.0, 0.0], visit=0, sample=0),
        episode([1.0], visit=0, sample=1),
        episode([0.0], visit=0, sample=2),
        episode([20.0, 0.0], visit=1, sample=0),
        episode([10.0], visit=1, sample=1),
        episode([50.0], visit=2, sample=0),  # equal returns: nothing is compared
        episode([50.0], visit=2, sample=1),
    ]
    found = metrics(episodes, [0.0, 0.5, 1.0, 0.0, 1.0, 0.0, 1.0])
    returns = np.array([3, 1, 0, 20, 10]) - np.array([4 / 3] * 3 + [15] * 2)
    scores = np.array([0, 0.5, 1, 0, 1]) - 0.5
    wanted = (returns @ scores) / np.sqrt((returns @ returns) * (scores @ scores))
    assert found["credit/score_correlation"] == pytest.approx(wanted)
    assert found["credit/best_turns"] == 2.5
    assert found["credit/other_turns"] == 1.0


def test_equal_scores_have_no_correlation_and_equal_returns_no_best(episode):
    episodes = [episode([float(n)], sample=n) for n in range(2)]
    assert "credit/score_correlation" not in metrics(episodes, [1.0, 1.0])
    assert "credit/best_turns" in metrics(episodes, [1.0, 1.0])
    same = [episode([1.0], sample=n) for n in range(2)]
    assert not {"credit/score_correlation", "credit/best_turns"} & set(metrics(same, [0.0, 1.0]))


def test_episodes_that_were_left_have_no_score_to_compare(episode):
    """Their group tells nothing; those of other groups do."""
    whole = [episode([float(n)], visit=0, sample=n) for n in range(2)]
    left = [
        episode([3.0, 0.0], visit=1, sample=0),
        episode([1.0], visit=1, sample=1, states=["s"], next_key="s"),
    ]
    both = metrics([*whole, *left], [0.0, 1.0, 1.0, 0.0])
    assert both == metrics(whole, [0.0, 1.0])
    assert both["credit/score_correlation"] == pytest.approx(1.0)
    assert metrics(left, [1.0, 0.0]) == {}
