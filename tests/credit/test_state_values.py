"""Values of states where episodes were cut: what they depend on, and how far they look ahead."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from turnwise.credit.state_values import FOLDS, PASSES, state_values


def played(episode, rng, count):
    """Return trajectories of which some were cut, and their rewards."""
    found, rewards = [], []
    for number in range(count):
        turns = rng.randint(1, 4)
        one = episode(
            [0.0] * turns,
            visit=number // 4,
            sample=number % 4,
            states=rng.choices("stu", k=turns),
            next_key=rng.choice([None, "s", "u", "v"]),
        )
        found.append(one.trajectories[0])
        rewards.append(np.array([rng.choice([0.0, 1.0]) for _ in range(turns)]))
    return found, rewards


@pytest.mark.parametrize("count", [6, FOLDS, 3 * FOLDS])
def test_no_value_depends_on_what_its_own_episode_earned(episode, count):
    """Also not by way of the others, which are bootstrapped."""
    rng = Random(f"own {count}")
    found, rewards = played(episode, rng, count)
    before = state_values(found, rewards, 0.9)
    for number in range(0, count, 5):
        changed = [*rewards]
        changed[number] = rewards[number] + 10.0
        after = state_values(found, changed, 0.9)
        assert after[number].values.tolist() == before[number].values.tolist()
        assert after[number].bootstrap == before[number].bootstrap
        assert any((a.values != b.values).any() for a, b in zip(after, before, strict=True))


def test_values_look_as_far_ahead_as_the_discount_does(episode):
    """-1 a turn for ever is worth -100 at a discount of 0.99, in parts of 16 turns."""
    many = [
        episode([-1.0] * 16, sample=n, states=["s"] * 16, next_key="s").trajectories[0]
        for n in range(32)
    ]
    rewards = [np.full(16, -1.0)] * 32
    found = state_values(many, rewards, 0.99)
    assert found[0].bootstrap == pytest.approx(-100.0, rel=1e-3)
    assert found[0].values == pytest.approx(-100.0, rel=1e-3)


@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.999])
@pytest.mark.parametrize("turns", [1, 2, 8])
def test_values_of_short_parts_look_as_far(episode, gamma, turns):
    """Passes alone would stop short: 100 parts of a turn are 0.63 of the sum at 0.99."""
    rng = Random(f"short {gamma} {turns}")
    many, rewards = [], []
    for n in range(64):
        one = episode(
            [0.0] * turns, sample=n, states=rng.choices("stu", k=turns), next_key=rng.choice("stu")
        )
        many.append(one.trajectories[0])
        rewards.append(np.full(turns, -1.0))
    found = state_values(many, rewards, gamma)
    for each in found:
        assert each.bootstrap == pytest.approx(-1 / (1 - gamma), rel=1e-6)
        assert each.values == pytest.approx(-1 / (1 - gamma), rel=1e-6)


def test_without_a_discount_and_without_an_end_values_are_finite(episode):
    many = [episode([-1.0], sample=n, states=["s"], next_key="s").trajectories[0] for n in range(4)]
    found = state_values(many, [np.array([-1.0])] * 4, 1.0)
    assert np.isfinite(found[0].bootstrap) and found[0].bootstrap <= -PASSES


def test_each_role_has_folds_of_its_own(episode):
    """A role that plays in episodes 0 and 16 alone is not in one fold."""
    found = [
        *(episode([1.0], sample=n, states=["s"]).trajectories[0] for n in range(17)),
        *(episode([1.0], sample=n, states=["s"], role="rare").trajectories[0] for n in (0, 16)),
    ]
    values = state_values(found, [np.array([1.0])] * 19, 1.0)
    assert [int(each.others[0]) for each in values[17:]] == [1, 1]


def test_members_of_a_group_are_in_different_folds(episode):
    """Each counts on all the others of its group."""
    found = [
        episode([0.0], visit=v, sample=s, states=["s"]).trajectories[0]
        for v in range(8)
        for s in range(8)
    ]
    rewards = [np.array([1.0 if each.turns[0].id.episode.member else 0.0]) for each in found]
    values = state_values(found, rewards, 1.0)
    assert {int(each.visits[0]) for each in values} == {60}
    assert [each.bootstrap for each in values] == [0.0] * 64
