"""What stays in one mini-batch where an episode has several seats."""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.credit import assign_advantages, make_credit
from turnwise.rollout import samples_from_episodes
from turnwise.trainers.grpo import mixed_visits
from turnwise.trainers.minibatches import minibatches, parts_of
from turnwise.types import Episode, EpisodeId, Sampling, Task, Trajectory, Turn, TurnId

SEATS = ("scout", "digger")


def episode(visit, member, roles):
    """Return an episode in which each of two seats has two turns, each of them a row."""
    identity = EpisodeId(iteration=0, visit=visit, task="t", member=member)
    trajectories = tuple(
        Trajectory(
            role=role,
            seat=seat,
            turns=tuple(
                Turn(
                    id=TurnId(episode=identity, role=seat, turn=number),
                    order=2 * number + SEATS.index(seat),
                    policy="main",
                    policy_version=0,
                    prompt_ids=(1, 2 + number),
                    completion_ids=(8, 9),
                    logprobs=(-0.5, -0.5),
                    sampling=Sampling(),
                    finish_reason="stop",
                    text="",
                    rewards={"own": float(member)},
                )
                for number in range(2)
            ),
        )
        for seat, role in zip(SEATS, roles, strict=True)
    )
    return Episode(
        id=identity,
        task=Task(id="t", env="e", seed=0, data={}),
        trajectories=trajectories,
        terminated=True,
        truncated=False,
        score=0.0,
    )


def rows_and_parts(scheme, roles):
    """Return the rows of three visits of two members each, and their parts."""
    episodes = [episode(visit, member, roles) for visit in range(3) for member in range(2)]
    credit = assign_advantages(episodes, make_credit(scheme=scheme, rewards={"own": 1.0}))
    rows = samples_from_episodes(episodes, credit.advantages)
    assert len(rows) == 24
    return rows, parts_of(rows, credit)


@pytest.mark.parametrize("roles", [SEATS, ("player", "player")])
@pytest.mark.parametrize(("scheme", "count"), [("rloo", 6), ("grpo", 6), ("reinforce", 3)])
def test_a_part_is_a_seats_group_or_a_visit_where_all_are_compared(scheme, count, roles):
    rows, parts = rows_and_parts(scheme, roles)
    assert len(set(parts)) == count
    whose = [(row.turns[0].episode.visit, row.turns[0].role) for row in rows]
    named = {
        part: {who for who, p in zip(whose, parts, strict=True) if p == part} for part in parts
    }
    for part, members in named.items():
        assert {visit for visit, _ in members} == {part[0]}
        assert len(members) == (1 if count == 6 else 2)


def test_seats_of_a_visit_may_be_in_different_mini_batches():
    rows, parts = rows_and_parts("rloo", SEATS)
    dealt = minibatches(parts, 6, np.random.default_rng(0))
    assert [len(batch) for batch in dealt] == [4] * 6
    for batch in dealt:
        assert len({(rows[r].turns[0].episode.visit, rows[r].turns[0].role) for r in batch}) == 1
        assert {rows[r].turns[0].episode.member for r in batch} == {0, 1}


def test_rows_of_the_sft_mix_make_no_mini_batch_of_their_own():
    """Where groups are fewer than mini-batches, each group is one step, and no row is another."""
    group = (0, "scout 0/0/t")
    assert minibatches([group, group, None, None, None], 4, np.random.default_rng(0)) == [
        [0, 1, 2, 3, 4]
    ]


def test_rows_of_the_sft_mix_are_shared_out_evenly_whatever_their_order():
    """Rows of two roles alternate: none of two mini-batches has those of one role alone."""
    parts = [(0, ""), (1, ""), *[None] * 40]
    batches = minibatches(parts, 2, np.random.default_rng(0))
    taught = [[row for row in batch if row > 1] for batch in batches]
    assert [len(rows) for rows in taught] == [20, 20]
    assert all(5 <= sum(row % 2 for row in rows) <= 15 for rows in taught)


def test_a_visit_of_one_episode_is_not_mixed():
    """Nothing was compared in it, so that dynamic sampling goes on."""
    episodes = [episode(0, 1, SEATS), *(episode(1, member, SEATS) for member in range(2))]
    credit = assign_advantages(episodes, make_credit(scheme="rloo", rewards={"own": 1.0}))
    assert mixed_visits(credit) == [1]
