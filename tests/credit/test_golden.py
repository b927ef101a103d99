"""Every scheme of docs/math.md 2 against numbers worked out by hand."""

import pytest

from turnwise.credit import SCHEMES, assign_advantages, make_credit
from turnwise.errors import TrainingError

A, B = [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0]  # batch: mean 1/2, variance 8/4 / 7 = 2/7
GOLDEN = {
    "reinforce": ({}, A, B),
    "reinforce++": ({}, [0.935414, *[-0.935414] * 3], [0.935414, 0.935414, -0.935414, 0.935414]),
    "rloo": ({}, [1, -1 / 3, -1 / 3, -1 / 3], [1 / 3, 1 / 3, -1, 1 / 3]),
    "grpo batch_returns": (
        {},
        [1.403122, *[-0.467707] * 3],
        [0.467707, 0.467707, -1.403122, 0.467707],
    ),
    "grpo batch_advantages": (  # 3/4, -1/4 x 3, 1/4 x 3, -3/4: variance 24/16 / 7 = 3/14
        {"std": "batch_advantages"},
        [1.620185, *[-0.540062] * 3],
        [0.540062, 0.540062, -1.620185, 0.540062],
    ),
    "grpo group": ({"std": "group"}, [1.5, -0.5, -0.5, -0.5], [0.5, 0.5, -1.5, 0.5]),
    "grpo none": ({"std": "none"}, [0.75, -0.25, -0.25, -0.25], [0.25, 0.25, -0.75, 0.25]),
    "dr_grpo": ({}, [0.75, -0.25, -0.25, -0.25], [0.25, 0.25, -0.75, 0.25]),
    "grpo of all roles": (
        {"statistics": "all", "std": "group"},
        [1.5, *[-0.5] * 3],
        [0.5] * 2 + [-1.5, 0.5],
    ),
    "rae": ({}, A, B),
    # sets of 2 with a member: A 1 of 1, or 1/3; sets of 2 of others: A 0, or 2/3; B 1 or 1; 1 or 1
    "max_at_k none": (
        {"k": 2, "std": "none"},
        [1, -1 / 3, -1 / 3, -1 / 3],
        [0, 0, 0, 0],
    ),
    "max_at_k": (  # 1, -1/3 x 3, and four times 0: variance 4/3 / 7 = 4/21
        {"k": 2},
        [2.291288, *[-0.763763] * 3],
        [0, 0, 0, 0],
    ),
    "maxrl": ({}, [3, -1, -1, -1], [1 / 3, 1 / 3, -1, 1 / 3]),
}


def values(credit):
    return {
        (t.episode.visit, t.episode.member, t.turn): spans[""]
        for t, spans in credit.advantages.items()
    }


def config(name, **options):
    return make_credit(scheme=name.split()[0], rewards={"goal": 1.0}, **options)


@pytest.mark.parametrize("name", GOLDEN)
def test_scheme_equals_numbers_by_hand(name, one_turn_groups):
    options, first, second = GOLDEN[name]
    got = values(assign_advantages(one_turn_groups(A, B), config(name, **options)))
    for visit, expected in enumerate((first, second)):
        for sample, value in enumerate(expected):
            assert got[visit, sample, 0] == pytest.approx(value, abs=1e-6)


def test_every_scheme_has_a_golden_test():
    elsewhere = {"gigpo", "gae"} | {n for n, each in SCHEMES.items() if each.by_sibling}
    assert {name.split()[0] for name in GOLDEN} | elsewhere == set(SCHEMES)


def test_std_has_ddof_1_and_a_floor_under_it(one_turn_groups):
    close = one_turn_groups([1.0, 1.0 - 1e-6])  # std 7e-7
    assert values(assign_advantages(close, config("grpo"))) == pytest.approx(
        {(0, 0, 0): 0.005, (0, 1, 0): -0.005}, rel=1e-6
    )
    wide = values(assign_advantages(close, config("grpo", std="group", std_floor=1e-2)))
    assert wide[0, 0, 0] == pytest.approx(5e-5, rel=1e-6)


def test_maxrl_group_with_mean_0_gives_nothing(one_turn_groups):
    got = values(assign_advantages(one_turn_groups([0.0, 0.0], [0.0, 1.0]), config("maxrl")))
    assert got == {(0, 0, 0): 0.0, (0, 1, 0): 0.0, (1, 0, 0): -1.0, (1, 1, 0): 1.0}


def test_maxrl_refuses_negative_returns(one_turn_groups):
    with pytest.raises(TrainingError, match="returns must be 0 or more; got -1"):
        assign_advantages(one_turn_groups([-1.0, 1.0]), config("maxrl"))


def test_r_is_the_weighted_sum_of_the_roles_turns(episode):
    episodes = [
        episode([{"goal": 0.0, "steps": 1.0}, {"goal": 1.0, "steps": 1.0, "other": 9.0}]),
        episode([{"steps": 1.0}], sample=1),
    ]
    credit = assign_advantages(
        episodes, make_credit(scheme="reinforce", rewards={"goal": 2.0, "steps": -0.25})
    )
    assert values(credit) == {(0, 0, 0): 1.5, (0, 0, 1): 1.5, (0, 1, 0): -0.25}


GIGPO = {  # own_episode, std -> the five turns' advantages; see the returns-to-go below
    ("exclude", "none"): [0.75, 1.0, 1.5, -1.125, -1.0],
    ("include", "none"): [1 / 3, 0.75, 13 / 12, -11 / 12, -0.75],
    ("exclude", "group"): [1.187491, 2.121320, 2.628645, -1.908068, -2.121320],
    ("exclude", "batch_returns"): [1.304721, 1.902336, 3.097564, -2.201143, -1.902336],
    ("exclude", "batch_advantages"): [1.072255, 1.437404, 2.167700, -1.619978, -1.437404],
}


@pytest.mark.parametrize(("own", "std"), GIGPO)
def test_gigpo_equals_numbers_by_hand(own, std, episode):
    """gamma 1/2: returns-to-go 1/4, 1/2, 1 and 0, 0; s0 holds 1/4, 1, 0; s1 holds 1/2, 0.

    Squared std: episodes 1/2; s0 13/48, s1 1/8; the batch of turns 7/40. The
    advantages' own: episodes 1/2; turns, of 1/4, 1/2, 1, -5/8, -1/2, 15/32.
    """
    episodes = [
        episode([0.0, 0.0, 1.0], sample=0, states=["s0", "s1", "s0"]),
        episode([0.0, 0.0], sample=1, states=["s0", "s1"]),
    ]
    options = {"gamma": 0.5, "own_episode": own, "std": std}
    got = values(assign_advantages(episodes, config("gigpo", **options)))
    expected = GIGPO[own, std]
    assert [got[key] for key in sorted(got)] == pytest.approx(expected, abs=1e-6)


def test_gigpo_weight_scales_the_turn_part_only(episode):
    episodes = [episode([1.0], sample=0, states=["s"]), episode([0.0], sample=1, states=["s"])]
    got = values(assign_advantages(episodes, config("gigpo", state_weight=3.0)))
    assert got == {(0, 0, 0): 3.5, (0, 1, 0): -3.5}  # 1/2 + 3 x 1


def test_gigpo_state_seen_by_one_episode_only_has_no_turn_part(episode):
    episodes = [episode([1.0], sample=0, states=["a"]), episode([0.0], sample=1, states=["b"])]
    assert values(assign_advantages(episodes, config("gigpo"))) == {(0, 0, 0): 0.5, (0, 1, 0): -0.5}


def test_gigpo_compares_states_within_one_visit_only(episode):
    episodes = [
        episode([float(visit)], visit=visit, sample=sample, states=["s"])
        for visit in range(2)
        for sample in range(2)
    ]
    assert set(values(assign_advantages(episodes, config("gigpo"))).values()) == {0.0}


def test_gigpo_without_state_keys_is_refused(episode):
    with pytest.raises(TrainingError, match="has no state key"):
        assign_advantages([episode([1.0])], config("gigpo"))


def test_gae_equals_numbers_by_hand(episode):
    """gamma 1/2, lambda 1/2, two visits of a task; first the values, then the advantages.

    a earns 0 in s0 and 1 in s1, b 0 in s0 and 0 in s2, c 1 in s1. Returns-to-go: a 1/2, 1; b 0, 0;
    c 1. For a: V0 = 1/3 for both turns; V1 of its first turn (1 + 2) / 8 = 3/8, of its second
    (0 + 2) / 7 = 2/7; V2 of s0 (0 + 9/4) / 7 = 9/28, of s1 (1 + 12/7) / 7 = 19/49; b is of the same
    visit, c of another: V of s0 (0 + 54/28) / 7 = 27/98, of s1 19/49.
    """
    episodes = [
        episode([0.0, 1.0], sample=0, states=["s0", "s1"]),
        episode([0.0, 0.0], sample=1, states=["s0", "s2"]),
        episode([1.0], sample=0, visit=1, states=["s1"]),
    ]
    found = config("gae", gamma=0.5, gae_lambda=0.5, std="none")
    got = values(assign_advantages(episodes, found))
    assert got[0, 0, 1] == pytest.approx(1 - 19 / 49)
    follows = 0.25 * 19 / 49 + 0.75 * 1  # one other visit of s1: (1 - 1/2) / 2 on its value
    assert got[0, 0, 0] == pytest.approx(0.5 * follows - 27 / 98)


def test_gae_counts_what_followed_where_no_other_episode_was(episode):
    """Nothing is known of s1 and s2: the advantage is the discounted return less the value of s."""
    episodes = [
        episode([0.0, 1.0], sample=0, states=["s", "s1"]),
        episode([0.0, 0.0], sample=1, states=["s", "s2"]),
    ]
    options = {"gamma": 0.5, "std": "none"}
    low, high = (
        values(assign_advantages(episodes, config("gae", gae_lambda=each, **options)))
        for each in (0.0, 1.0)
    )
    assert low == high
    assert low[0, 0, 0] == pytest.approx(0.5)
    assert low[0, 1, 0] < 0


def test_gae_counts_on_the_value_of_the_state_in_which_an_episode_was_left(episode):
    """gamma 1/2. a earns 0 in s0 and is left in s1; b earns 1 in s1 and c, of another visit, 0.

    What a goes on with, g, is computed without the episode whose states are valued. For a: V0 = V1
    of its next state = 1/2; V2 of s1 (1 + 0 + 3) / 8 = 1/2; V3 (1 + 3) / 7 = 4/7 = g. a returns
    1/2 x 4/7 = 2/7, and V of s0 = 1/2. For b: V0 = V1 = g / 4; V2 = V3 of s1 = 6/7 V0 = g, so that
    g = 0: its value is 0. For c: V0 = V1 = (g / 2 + 1) / 2; V2 = (1 + 6 V1) / 7, V3 of a's next
    state (1 + 6 V2) / 7 = g, so that g = 31/40; V0 = 111/160; V2 = 59/80, which is V3 for c.
    """
    episodes = [
        episode([0.0], sample=0, states=["s0"], next_key="s1"),
        episode([1.0], sample=1, states=["s1"]),
        episode([0.0], sample=0, visit=1, states=["s1"]),
    ]
    assert [each.left for each in episodes] == [True, False, False]
    for trust in (0.0, 1.0):  # nothing that the episode's own future could tell is known
        found = config("gae", gamma=0.5, gae_lambda=trust, std="none")
        got = values(assign_advantages(episodes, found))
        expected = {(0, 0, 0): 2 / 7 - 1 / 2, (0, 1, 0): 1.0, (1, 0, 0): -59 / 80}
        assert got == pytest.approx(expected)


def test_gae_counts_on_nothing_after_the_end(episode):
    """The same episodes, of which none was left: a returns 0 where it returned 2/7."""
    episodes = [
        episode([0.0], sample=0, states=["s0"]),
        episode([1.0], sample=1, states=["s1"]),
        episode([0.0], sample=0, visit=1, states=["s1"]),
    ]
    found = config("gae", gamma=0.5, gae_lambda=0.0, std="none")
    got = values(assign_advantages(episodes, found))
    assert got == pytest.approx({(0, 0, 0): -1 / 2, (0, 1, 0): 1.0, (1, 0, 0): -4 / 7})


def test_gae_passes_values_on_from_part_to_part(episode):
    """b goes on where a was left, c where b was: what c earns counts in the first step of a."""

    def advantages(reward):
        episodes = [
            episode([0.0], sample=0, states=["s0"], next_key="s1"),
            episode([0.0], sample=1, states=["s1"], next_key="s2"),
            episode([0.0], sample=2, states=["s0"]),
            *(episode([reward], sample=3 + n, states=["s2"]) for n in range(20)),
            *(episode([0.0], sample=30 + n, states=["s3"]) for n in range(20)),
        ]
        found = config("gae", gamma=1.0, gae_lambda=0.3, std="none")
        return values(assign_advantages(episodes, found))

    paid, unpaid = advantages(1.0), advantages(0.0)
    assert set(unpaid.values()) == {0.0}
    assert paid[0, 0, 0] > paid[0, 2, 0] + 0.4  # it did not end in s0 with nothing
    assert paid[0, 1, 0] > 0.2


@pytest.mark.parametrize("name", sorted(set(SCHEMES) - {"gae"}))
def test_only_gae_asks_where_an_episode_was_left(name, episode):
    def advantages(**left):
        episodes = [
            episode([0.0, 1.0], sample=0, states=["s0", "s1"], **left),
            episode([0.0], sample=1, states=["s0"]),
            episode([1.0], sample=0, visit=1, states=["s1"], **left),
        ]
        return values(assign_advantages(episodes, config(name)))

    assert advantages(next_key="s1") == advantages()


def test_gae_has_no_signal_where_all_returns_to_go_are_equal(episode):
    episodes = [
        episode([1.0], visit=visit, sample=sample, states=[f"s{visit}"])
        for visit in range(3)
        for sample in range(2)
    ]
    credit = assign_advantages(episodes, config("gae"))
    assert not credit.has_signal


def test_gae_without_state_keys_is_refused(episode):
    with pytest.raises(TrainingError, match=r"has no state key, by which gae groups turns"):
        assign_advantages([episode([1.0])], config("gae"))


@pytest.mark.parametrize("name", ["grpo", "gae", "gigpo", "rloo"])
def test_advantages_have_a_lower_bound_after_they_are_divided(name, episode):
    """A rare disaster: nothing else changes, and the advantages do not add up to 0 any more."""
    rewards = [0.0, 0.0, 0.0, 1.0, -9.0]
    episodes = [episode([r], sample=n, states=["s"]) for n, r in enumerate(rewards)]
    plain = values(assign_advantages(episodes, config(name)))
    bounded = values(assign_advantages(episodes, config(name, least_advantage=-0.5)))
    assert plain[0, 4, 0] < -0.5
    assert bounded == {key: max(value, -0.5) for key, value in plain.items()}
    assert sum(bounded.values()) > sum(plain.values())
    wide = values(assign_advantages(episodes, config(name, least_advantage=-100.0)))
    assert wide == plain


def test_the_bound_is_of_returns_and_of_no_component_of_a_span(episode):
    both = [["think", "answer"]]
    episodes = [
        episode([{"perception": float(n > 0), "goal": float(n > 0)}], sample=n, spans=both)
        for n in range(4)
    ]
    segments = {"think": "perception", "answer": "return"}
    options = {"std": "none", "segments": segments, "least_advantage": -0.25}
    credit = assign_advantages(episodes, config("grpo", **options))
    got = {turn.episode.member: spans for turn, spans in credit.advantages.items()}
    assert got[0] == pytest.approx({"think": -1.5, "answer": -0.25})
    assert got[1] == pytest.approx({"think": 0.5, "answer": 0.25})


def test_segments_standardise_their_own_component_over_the_batch_of_turns(episode):
    """Seeing 1, 0, 1, 1 over turns: mean 3/4, std 1/2."""
    both = [["think", "answer"], ["think", "answer"]]
    episodes = [
        episode([{"perception": 1.0, "goal": 1.0}, {"perception": 0.0}], sample=0, spans=both),
        episode([{"perception": 1.0}, {"perception": 1.0}], sample=1, spans=both, visit=0),
    ]
    segments = {"think": "perception", "answer": "return"}
    credit = assign_advantages(episodes, config("grpo", std="none", segments=segments))
    got = {(t.episode.member, t.turn): spans for t, spans in credit.advantages.items()}
    assert got[0, 0] == pytest.approx({"think": 0.5, "answer": 0.5})
    assert got[0, 1] == pytest.approx({"think": -1.5, "answer": 0.5})
    assert got[1, 0] == pytest.approx({"think": 0.5, "answer": -0.5})


def test_a_reply_without_the_span_that_carries_the_return_answers_with_all_its_tokens(episode):
    episodes = [
        episode([1.0], sample=0, spans=[["think", "answer"]]),
        episode([0.0], sample=1, spans=[["think"]]),
    ]
    segments = {"think": "perception", "answer": "return"}
    credit = assign_advantages(episodes, config("rloo", segments=segments))
    assert [credit.advantages[t] for t in sorted(credit.advantages)] == [
        {"think": 0.0, "answer": 1.0},
        {"": -1.0},
    ]


def test_batch_returns_and_batch_advantages_differ_where_groups_differ(one_turn_groups):
    """Two groups far apart: the std of returns is of the groups' distance, 2^0.5 x 5 and more."""
    far = one_turn_groups([11.0, 9.0], [1.0, -1.0])  # returns: variance 104/3; advantages: 4/3
    by_returns = values(assign_advantages(far, config("grpo", std="batch_returns")))
    by_advantages = values(assign_advantages(far, config("grpo", std="batch_advantages")))
    assert by_returns[0, 0, 0] == pytest.approx((104 / 3) ** -0.5)
    assert by_advantages[0, 0, 0] == pytest.approx((4 / 3) ** -0.5)
    assert by_advantages[1, 1, 0] == pytest.approx(-((4 / 3) ** -0.5))


def test_batch_advantages_leave_out_the_groups_that_a_filter_drops(one_turn_groups):
    """ScaleRL's batch holds no prompt of zero variance: 1/2, -1/2 alone, not with two 0s."""
    episodes = one_turn_groups([1.0, 0.0], [1.0, 1.0])
    options = {"std": "batch_advantages"}
    whole = values(assign_advantages(episodes, config("grpo", **options)))
    kept = values(assign_advantages(episodes, config("grpo", **options, filter_zero_variance=True)))
    assert whole[0, 0, 0] == pytest.approx(0.5 / (0.5 / 3) ** 0.5)
    assert kept[0, 0, 0] == pytest.approx(0.5 / 0.5**0.5)
    assert kept[1, 0, 0] == whole[1, 0, 0] == 0


def test_batch_advantages_have_the_floor_too(one_turn_groups):
    close = one_turn_groups([1.0, 1.0 - 1e-6])
    got = values(assign_advantages(close, config("grpo", std="batch_advantages")))
    assert got[0, 0, 0] == pytest.approx(5e-7 / 1e-4, rel=1e-6)
    nothing = one_turn_groups([1.0, 1.0])
    options = {"std": "batch_advantages", "filter_zero_variance": True}
    assert set(values(assign_advantages(nothing, config("grpo", **options))).values()) == {0.0}
