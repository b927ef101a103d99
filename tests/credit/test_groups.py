"""The invariants of groups in docs/math.md 2; each is a bug found in a published system."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.credit import (
    SCHEMES,
    GroupKey,
    Unit,
    assign_advantages,
    group,
    make_credit,
)
from turnwise.credit.schemes import batch_key, visit_key
from turnwise.errors import TrainingError
from turnwise.types import Episode, EpisodeId, Failure, TurnId, VisitId

REWARDS = {"goal": 1.0}


def unit(*, visit=0, sample=0, role="player", policy="main", first_prompt=(1, 2)):
    turn = TurnId(
        episode=EpisodeId(iteration=0, visit=visit, task="t", member=sample), role=role, turn=0
    )
    return Unit(role=role, turns=(turn,), policy=policy, first_prompt=first_prompt, value=1.0)


def test_visits_of_one_task_are_groups_of_their_own(episode):
    """128 visits of one prompt are 128 groups, not one."""
    episodes = [episode([1.0], visit=v, sample=s) for v in range(128) for s in range(2)]
    credit = assign_advantages(episodes, make_credit(scheme="rloo", rewards=REWARDS))
    assert len(credit.groups) == 128
    assert {len(g.units) for g in credit.groups} == {2}


def test_iterations_and_roles_are_groups_of_their_own():
    key = visit_key(unit())
    other = TurnId(
        episode=EpisodeId(iteration=1, visit=0, task="t", member=0), role="player", turn=0
    )
    assert key != visit_key(
        Unit(role="player", turns=(other,), policy="main", first_prompt=(), value=0.0)
    )
    assert key != visit_key(unit(role="critic"))
    assert batch_key(unit()) != batch_key(unit(role="critic"))


def test_a_group_never_spans_two_visits():
    def forgetful(unit):
        return GroupKey(role=unit.role, visit=VisitId(iteration=0, visit=0, task="t"))

    assert len(group([unit(), unit(sample=1)], forgetful)) == 1
    with pytest.raises(TrainingError, match="spans two visits"):
        group([unit(), unit(visit=1)], forgetful)


def test_a_group_never_mixes_policies():
    with pytest.raises(TrainingError, match="mixes the policies main, other"):
        group([unit(), unit(sample=1, policy="other")], visit_key)


def test_a_group_never_mixes_roles():
    with pytest.raises(TrainingError, match="mixes the roles"):
        group([unit(), unit(role="critic")], lambda unit: GroupKey(role="player"))


def test_episodes_of_a_group_have_the_same_first_prompt():
    with pytest.raises(TrainingError, match="different first prompts"):
        group([unit(), unit(sample=1, first_prompt=(1, 3))], visit_key)
    assert len(group([unit(), unit(sample=1, first_prompt=(1, 3))], batch_key)) == 1


def test_a_unit_is_never_counted_twice():
    with pytest.raises(TrainingError, match="holds a unit twice"):
        group([unit(), unit()], visit_key)


def test_a_turn_filed_under_another_episode_is_refused(episode):
    stray, home = episode([1.0], sample=1), episode([1.0], sample=0)
    mixed = Episode(
        id=EpisodeId(iteration=0, visit=0, task=home.task.id, member=0),
        task=home.task,
        trajectories=stray.trajectories,
        terminated=True,
        truncated=False,
        score=0.0,
    )
    with pytest.raises(TrainingError, match="is filed under episode"):
        assign_advantages([mixed], make_credit(rewards=REWARDS))


def test_early_solved_episodes_are_kept_and_weigh_as_one(episode):
    """One turn or five, an episode is one member: the mean of 1, 0, 0 is 1/3."""
    episodes = [
        episode([1.0], sample=0),
        episode([0.0] * 5, sample=1),
        episode([0.0] * 3, sample=2),
    ]
    credit = assign_advantages(episodes, make_credit(scheme="dr_grpo", rewards=REWARDS))
    got = {(t.episode.member, t.turn): spans[""] for t, spans in credit.advantages.items()}
    assert len(got) == 9
    assert got[0, 0] == pytest.approx(2 / 3)
    assert {round(value, 9) for (sample, _), value in got.items() if sample} == {-0.333333333}


def test_an_episode_that_begins_with_a_full_context_is_compared(episode):
    """Its reply has no tokens, which is not the same as a reply without ids of a server's."""
    won, full = episode([1.0]), episode([0.0], sample=1)
    empty = replace(full.turns[0], completion_ids=(), logprobs=(), finish_reason="context")
    full = replace(full, trajectories=(replace(full.trajectories[0], turns=(empty,)),))
    credit = assign_advantages([won, full], make_credit(scheme="rloo", rewards=REWARDS))
    assert [spans[""] for spans in credit.advantages.values()] == [1.0, -1.0]


@pytest.mark.parametrize("kind", ["engine", "env"])
def test_infrastructure_failures_leave_their_group(kind, episode):
    broken = episode([9.0], sample=2, error=Failure(kind=kind, message="gone"))
    episodes = [episode([1.0]), episode([0.0], sample=1), broken]
    credit = assign_advantages(episodes, make_credit(scheme="rloo", rewards=REWARDS))
    assert {t.episode.member: spans[""] for t, spans in credit.advantages.items()} == {
        0: 1.0,
        1: -1.0,
    }
    assert credit.metrics["credit/excluded"] == 1.0


@pytest.mark.parametrize("kind", ["parse", "illegal_action", "context"])
def test_failures_the_policy_caused_stay(kind, episode):
    failed = episode([0.0], sample=1, error=Failure(kind=kind, message="its own doing"))
    config = make_credit(scheme="rloo", rewards=REWARDS)
    credit = assign_advantages([episode([1.0]), failed], config)
    assert {t.episode.member: spans[""] for t, spans in credit.advantages.items()} == {
        0: 1.0,
        1: -1.0,
    }
    assert credit.metrics["credit/excluded"] == 0.0


EPISODES = sorted(name for name, scheme in SCHEMES.items() if not scheme.by_sibling)
"""The schemes that compare episodes."""


@pytest.mark.parametrize("scheme", sorted(set(EPISODES) - {"reinforce", "rae"}))
def test_a_group_of_one_has_advantage_0_and_is_counted(scheme, episode):
    credit = assign_advantages(
        [episode([1.0], states=["s"])], make_credit(scheme=scheme, rewards=REWARDS)
    )
    assert [spans[""] for spans in credit.advantages.values()] == [0.0]
    assert credit.metrics["credit/singletons"] == 1.0
    assert credit.metrics["credit/zero_variance_share"] == 0.0
    assert not credit.has_signal


def test_equal_returns_have_exactly_no_advantage_whatever_the_rounding(episode):
    """0.1 + 0.2 is not 0.3; divided by a floor the difference must not become a signal."""
    episodes = [episode([0.1, 0.2]), episode([0.3], sample=1), episode([0.2, 0.1], sample=2)]
    credit = assign_advantages(episodes, make_credit(scheme="grpo", rewards=REWARDS))
    assert not credit.has_signal
    assert credit.groups[0].zero_variance


@pytest.mark.parametrize("std", ["none", "group", "batch_returns", "batch_advantages"])
def test_equal_returns_to_go_of_a_state_have_exactly_no_advantage(std, episode):
    """The same in gigpo's turn part: sums that differ by rounding are equal."""
    episodes = [
        episode([0.1, 0.2], states=["s", "t"]),
        episode([0.3], sample=1, states=["s"]),
        episode([0.2, 0.1], sample=2, states=["s", "u"]),
    ]
    config = make_credit(scheme="gigpo", rewards=REWARDS, gamma=1.0, std=std)
    assert not assign_advantages(episodes, config).has_signal


def test_zero_variance_filter_zeroes_all_advantages_of_the_group(episode):
    """Without the filter gigpo's turn part and a segment's own component still speak."""
    spans = [["think", "answer"]]
    episodes = [
        episode([{"goal": 1.0, "perception": 1.0}], visit=0, sample=0, spans=spans),
        episode([{"goal": 1.0, "perception": 0.0}], visit=0, sample=1, spans=spans),
        episode([{"goal": 1.0}], visit=1, sample=0, spans=spans),
        episode([{"goal": 0.0}], visit=1, sample=1, spans=spans),
    ]
    options = {
        "scheme": "rloo",
        "rewards": REWARDS,
        "segments": {"think": "perception", "answer": "return"},
    }
    free = assign_advantages(episodes, make_credit(**options))
    kept = assign_advantages(episodes, make_credit(**options, filter_zero_variance=True))
    for turn in free.advantages:
        if turn.episode.visit == 0:
            assert free.advantages[turn]["think"] != 0
            assert set(kept.advantages[turn].values()) == {0.0}
        else:
            assert kept.advantages[turn] == free.advantages[turn]
    assert set(kept.advantages) == set(free.advantages)  # their rows stay, for ce and ref_kl


def test_zero_variance_filter_silences_gigpos_turn_part(episode):
    episodes = [
        episode([0.0, 1.0], sample=0, states=["a", "b"]),
        episode([1.0, 0.0], sample=1, states=["a", "b"]),
    ]
    options = {"scheme": "gigpo", "rewards": REWARDS}
    assert assign_advantages(episodes, make_credit(**options)).has_signal
    assert not assign_advantages(
        episodes, make_credit(**options, filter_zero_variance=True)
    ).has_signal


def test_normalise_by_says_which_turns_the_denominators_count(one_turn_groups):
    episodes = one_turn_groups([1.0, 1.0], [1.0, 0.0])
    options = {"scheme": "rloo", "rewards": REWARDS}
    sampled = assign_advantages(episodes, make_credit(**options))
    kept = assign_advantages(episodes, make_credit(**options, normalise_by="kept"))
    assert sampled.counted == frozenset(sampled.advantages)
    assert {turn.episode.visit for turn in kept.counted} == {1}


def test_metrics_of_a_batch_by_hand(one_turn_groups):
    episodes = one_turn_groups([1.0, 0.0], [1.0, 1.0], [0.0])
    metrics = assign_advantages(episodes, make_credit(scheme="rloo", rewards=REWARDS)).metrics
    assert metrics == pytest.approx(
        {
            "credit/return_mean": 0.6,
            "credit/return_std": 0.3**0.5,
            "credit/group_std_mean": 0.5**0.5 / 2,
            "credit/groups": 3.0,
            "credit/episodes": 5.0,
            "credit/singletons": 1.0,
            "credit/zero_variance_share": 1 / 3,
            "credit/mixed_share": 1 / 3,
            "credit/excluded": 0.0,
            "credit/advantage_abs_mean": 0.4,
            "credit/turns_without_signal": 3.0,
        }
    )


def test_an_empty_batch_has_no_signal():
    credit = assign_advantages([], make_credit(rewards=REWARDS))
    assert not credit.has_signal
    assert credit.metrics["credit/groups"] == 0.0


@given(data=st.data(), scheme=st.sampled_from(EPISODES))
def test_the_order_of_episodes_never_matters(data, scheme, episode):
    """Bit for bit, for returns and lengths of any kind."""
    lengths = st.lists(st.floats(0, 10, width=32), min_size=1, max_size=3)
    played = data.draw(st.lists(st.lists(lengths, min_size=1, max_size=4), max_size=3))
    episodes = [
        episode(rewards, visit=v, sample=s, states=["s", "u", "s"][: len(rewards)])
        for v, members in enumerate(played)
        for s, rewards in enumerate(members)
    ]
    shuffled = data.draw(st.permutations(episodes))
    config = make_credit(scheme=scheme, rewards=REWARDS)
    one, two = assign_advantages(episodes, config), assign_advantages(shuffled, config)
    assert one.advantages == two.advantages
    assert one.groups == two.groups
    assert one.metrics == two.metrics


@given(returns=st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_centred_advantages_of_a_group_add_to_zero(returns, one_turn_groups):
    for scheme in ("rloo", "grpo", "dr_grpo"):
        config = make_credit(scheme=scheme, rewards=REWARDS)
        credit = assign_advantages(one_turn_groups(returns), config)
        total = sum(spans[""] for spans in credit.advantages.values())
        assert total == pytest.approx(0.0, abs=1e-6)
