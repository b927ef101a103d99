"""Invalid replies are worth less than every honest one, whatever play costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from turnwise.credit import assign_advantages, assign_below_worst, make_credit
from turnwise.errors import ConfigError
from turnwise.types import Failure

SCHEMES = [
    {"scheme": "grpo", "std": "group"},
    {"scheme": "grpo", "std": "batch_returns"},
    {"scheme": "gigpo", "std": "batch_returns", "gamma": 0.9, "state_weight": 4.0},
    {"scheme": "rloo"},
    {"scheme": "reinforce++"},
    {"scheme": "maxrl"},
]


def failing(episode, last):
    """Return the episode as it is when its turn `last` was no action."""
    (trajectory,) = episode.trajectories
    error = Failure(kind="parse", message="no answer")
    turns = trajectory.turns[: last + 1]
    bad = replace(turns[-1], error=error, action=None, rewards={"invalid": 1.0})
    short = replace(trajectory, turns=(*turns[:-1], bad))
    return replace(episode, trajectories=(short,), error=error, terminated=False)


@pytest.fixture
def batch(episode):
    """Two visits of four episodes: costs of 1 to 100 a turn; two of the second visit fail."""
    rng = np.random.default_rng(0)

    def made(visit, member):
        costs = -rng.choice([1.0, 100.0], 6) if visit else rng.choice([0.0, 1.0], 6)
        rewards = [{"cost": float(cost)} for cost in costs]
        return episode(rewards, visit=visit, sample=member, states=["a", "b", "c"] * 2)

    found = [made(visit, member) for visit in range(2) for member in range(4)]
    return [*found[:6], failing(found[6], 4), failing(found[7], 0)]


def config(options):
    return make_credit(**options, rewards={"cost": 1.0}, invalid_below_worst=True)


@pytest.mark.parametrize("options", SCHEMES, ids=str)
def test_an_invalid_reply_has_the_least_advantage_of_all(batch, options):
    if options["scheme"] == "maxrl":  # it takes no negative returns
        batch = [each for each in batch if each.id.visit == 0] + [
            failing(batch[3], 2),
        ]
        batch.pop(3)
    credit = assign_below_worst(batch, config(options))
    bad = [t for e in batch for t in e.turns if t.error is not None]
    assert bad
    honest = [
        value
        for turn, spans in credit.advantages.items()
        if turn not in {t.id for t in bad}
        for value in spans.values()
    ]
    for turn in bad:
        (value,) = credit.advantages[turn.id].values()
        assert value < min(honest)
        assert value < 0
    assert credit.metrics["credit/invalid"] == len(bad)


@pytest.mark.parametrize("options", SCHEMES[:5], ids=str)
def test_honest_episodes_are_compared_as_if_the_others_were_not_there(batch, options):
    credit = assign_below_worst(batch, config(options))
    alone = assign_advantages(batch[:6], config(options))
    for turn, spans in alone.advantages.items():
        assert credit.advantages[turn] == spans
    for episode in batch[6:]:
        for turn in episode.turns:
            if turn.error is None:
                assert credit.advantages[turn.id] == {"": 0.0}
    assert len(credit.advantages) == sum(len(episode.turns) for episode in batch)
    assert credit.counted == frozenset(credit.advantages)


def test_only_turns_with_an_advantage_count_where_the_recipe_says_so(batch):
    kept = config({"scheme": "grpo", "std": "group", "normalise_by": "kept"})
    credit = assign_below_worst(batch, kept)
    moved = {turn for turn, spans in credit.advantages.items() if any(spans.values())}
    assert credit.counted == moved


def test_where_all_episodes_fail_their_last_replies_are_discouraged(batch):
    failed = [failing(each, 1) for each in batch[:6]]
    credit = assign_below_worst(failed, config({"scheme": "grpo"}))
    values = [spans[""] for spans in credit.advantages.values()]
    assert sorted(set(values)) == [-1.0, 0.0]
    assert values.count(-1.0) == len(failed)
    assert credit.has_signal


def test_a_broken_episode_stays_out(batch):
    error = Failure(kind="env", message="it raised")
    broken = replace(batch[0], error=error)
    credit = assign_below_worst([broken, *batch[1:]], config({"scheme": "grpo"}))
    assert not any(turn.episode == broken.id for turn in credit.advantages)
    assert credit.metrics["credit/excluded"] == 1


def test_an_invalid_reply_after_which_the_episode_goes_on_is_the_worst_too(batch):
    (trajectory,) = batch[0].trajectories
    error = Failure(kind="parse", message="no answer")
    bad = replace(trajectory.turns[2], error=error, action=None)
    turns = (*trajectory.turns[:2], bad, *trajectory.turns[3:])
    going_on = replace(batch[0], trajectories=(replace(trajectory, turns=turns),))
    whole = [going_on, *batch[1:]]
    credit = assign_below_worst(whole, config({"scheme": "grpo", "std": "group"}))
    others = [v for t, spans in credit.advantages.items() if t != bad.id for v in spans.values()]
    assert credit.advantages[bad.id][""] <= min(others)
    first = trajectory.turns[0].id
    assert (
        credit.advantages[first]
        == assign_advantages(whole[:6], config({"scheme": "grpo", "std": "group"})).advantages[
            first
        ]
    )


def test_a_weight_of_invalid_replies_does_not_go_with_it():
    with pytest.raises(ConfigError, match=r"rewards.invalid = -1.0 does not go with"):
        make_credit(scheme="grpo", rewards={"cost": 1.0, "invalid": -1.0}, invalid_below_worst=True)


def drawn_with(episode, least):
    """Return the episode as it is when its last reply has a token of log-probability `least`."""
    (trajectory,) = episode.trajectories
    last = trajectory.turns[-1]
    last = replace(last, logprobs=(least, *last.logprobs[1:]))
    turns = (*trajectory.turns[:-1], last)
    return replace(episode, trajectories=(replace(trajectory, turns=turns),))


def test_what_follows_an_improbable_token_of_an_invalid_reply_has_no_advantage(batch):
    usual = min(value for each in batch for turn in each.turns for value in turn.logprobs)
    rare = usual + np.log(0.01)
    for least, end in ((usual, None), (rare + 0.1, None), (rare - 0.1, 1), (-20.0, 1)):
        drawn = [*batch[:7], drawn_with(batch[7], least)]
        credit = assign_below_worst(drawn, config(SCHEMES[0]))
        bad = drawn[7].turns[-1].id
        assert credit.ends == ({} if end is None else {bad: end})
        assert credit.of([bad]).ends == credit.ends
        assert not credit.of([]).ends
        assert credit.advantages == assign_below_worst(batch, config(SCHEMES[0])).advantages


def test_what_is_usual_is_a_matter_of_the_policy_s_own_readable_replies(batch):
    """Long replies hold improbable tokens: an invalid one with such a token is no accident."""
    long = [drawn_with(each, -9.0) for each in batch]
    credit = assign_below_worst(long, config(SCHEMES[0]))
    plain = assign_below_worst(batch, config(SCHEMES[0]))
    assert credit.advantages == plain.advantages
    assert not credit.ends
