"""Penalties, which `loss.kl = "reward_k1"` makes: off the rewards, before anything is compared.

The game and its enumeration are those of `test_enumeration`: one or two turns, a tabular policy. A
turn's penalty is `BETA * (log pi - log ref)`, so that the objective is `E[R] - BETA * KL(pi, ref)`.
"""

import itertools

import numpy as np
import pytest

from turnwise.credit import assign_advantages, make_credit
from turnwise.errors import TrainingError

LOGITS = np.array([0.8, -0.6])
REFERENCE = np.array([-0.5, 0.9])  # logits of answer 1 in the first and the second turn
OUTCOMES = {(0,): [0.4], (1, 0): [0.0, 0.0], (1, 1): [0.0, 1.0]}  # actions -> rewards
BETA, K = 0.3, 3


def log_odds(logits, turn, action):
    sign = 1 if action else -1
    return -np.log1p(np.exp(-sign * logits[turn]))


def k1(actions, turn, logits=LOGITS):
    return log_odds(logits, turn, actions[turn]) - log_odds(REFERENCE, turn, actions[turn])


def probability(actions, logits=LOGITS):
    return np.exp(sum(log_odds(logits, turn, a) for turn, a in enumerate(actions)))


def objective(logits):
    """E[R] - BETA * KL(pi, ref) of whole episodes."""
    return sum(
        probability(actions, logits)
        * (sum(rewards) - BETA * sum(k1(actions, t, logits) for t in range(len(actions))))
        for actions, rewards in OUTCOMES.items()
    )


def true_gradient(step=1e-5):
    sides = [(objective(LOGITS + d) - objective(LOGITS - d)) / (2 * step) for d in np.eye(2) * step]
    return np.array(sides)


def played(episode, chosen, penalty):
    """Return the episodes of chosen outcomes, and each turn's penalty."""
    episodes = [
        episode(OUTCOMES[actions], sample=i, states=["first", "second"][: len(actions)])
        for i, actions in enumerate(chosen)
    ]
    penalties = {
        turn.id: {"": penalty(actions, number)}
        for actions, one in zip(chosen, episodes, strict=True)
        for number, turn in enumerate(one.turns)
    }
    return episodes, penalties


def expected_gradient(episode, **options):
    config = make_credit(rewards={"goal": 1.0}, **options)
    total = np.zeros(2)
    for chosen in itertools.product(OUTCOMES, repeat=K):
        episodes, penalties = played(episode, chosen, lambda a, t: BETA * k1(a, t))
        credit = assign_advantages(episodes, config, penalties=penalties)
        weight = np.prod([probability(actions) for actions in chosen])
        for turn, spans in credit.advantages.items():
            slope = chosen[turn.episode.member][turn.turn] - np.exp(log_odds(LOGITS, turn.turn, 1))
            total += weight * spans[""] * np.eye(2)[turn.turn] * slope / K
    return total


@pytest.mark.parametrize("scheme", ["reinforce", "rloo"])
def test_the_gradient_is_that_of_the_reward_less_the_kl(scheme, episode):
    """Of whole episodes: the first turn answers for the KL of the second, too."""
    got = expected_gradient(episode, scheme=scheme)
    assert got == pytest.approx(true_gradient(), abs=1e-9)


def test_mean_centred_schemes_scale_the_kl_like_the_reward(episode):
    got = expected_gradient(episode, scheme="dr_grpo")
    assert got == pytest.approx((K - 1) / K * true_gradient(), abs=1e-9)


def test_a_turn_that_answered_only_for_itself_would_be_wrong(episode):
    """The comparison has teeth: the gradient of the first turn needs the second one's KL."""
    config = make_credit(rewards={"goal": 1.0}, scheme="reinforce")
    total = 0.0
    for actions in OUTCOMES:
        episodes, _ = played(episode, [actions], lambda a, t: 0.0)
        advantage = assign_advantages(episodes, config).advantages[episodes[0].turns[0].id][""]
        slope = actions[0] - np.exp(log_odds(LOGITS, 0, 1))
        total += probability(actions) * (advantage - BETA * k1(actions, 0)) * slope
    assert abs(total - true_gradient()[0]) > 0.01


def one_turn(episode, rewards, penalties):
    episodes = [episode([reward], sample=i) for i, reward in enumerate(rewards)]
    return episodes, {e.turns[0].id: {"": p} for e, p in zip(episodes, penalties, strict=True)}


SLOPES = {
    "reinforce": ({}, 0.05),
    "rloo": ({}, 0.05 * 4 / 3),  # of four episodes: R - mean of the others
    "dr_grpo": ({}, 0.05),
    "grpo group": ({"std": "group"}, 0.05 / 0.104083),
    "grpo batch_returns": ({}, 0.05 / 0.104083),
    "grpo batch_advantages": ({"std": "batch_advantages"}, 0.05 / 0.104083),
    "reinforce++": ({}, 0.05 / 0.104083),
}
"""By how much an advantage falls for a nat of KL that weighs 0.05: returns have a std of 0.1, with
what the KL takes off them one of (0.01 + 0.05^2 / 3)^0.5 = 0.104083."""


@pytest.mark.parametrize("name", SLOPES)
def test_the_kl_is_centred_and_scaled_with_the_reward(name, episode):
    """At a return std of 0.1 a nat costs 0.48 where advantages are scaled, not 0.05."""
    rewards = np.array([0.0, 0.03**0.5, 0.0, 0.03**0.5])
    assert np.std(rewards, ddof=1) == pytest.approx(0.1)
    nats = np.array([1.0, 1.0, 0.0, 0.0])  # independent of the reward
    episodes, penalties = one_turn(episode, rewards.tolist(), (0.05 * nats).tolist())
    options, slope = SLOPES[name]
    config = make_credit(scheme=name.split()[0], rewards={"goal": 1.0}, **options)
    credit = assign_advantages(episodes, config, penalties=penalties)
    got = [credit.advantages[e.turns[0].id][""] for e in episodes]
    assert np.polyfit(nats, got, 1)[0] == pytest.approx(-slope, rel=1e-5)


def test_penalties_by_hand_in_every_turn_of_an_episode(episode):
    """Rewards 0 and 1, penalties 1/4 and 1/2: the return is 1/4; the other's is -1/8."""
    episodes = [episode([0.0, 1.0]), episode([0.0], sample=1)]
    first, second = episodes[0].turns
    (other,) = episodes[1].turns
    penalties = {first.id: {"": 0.25}, second.id: {"": 0.5}, other.id: {"": 0.125}}
    config = make_credit(scheme="rloo", rewards={"goal": 1.0})
    credit = assign_advantages(episodes, config, penalties=penalties)
    assert credit.groups[0].returns == (0.25, -0.125)
    got = [credit.advantages[turn.id][""] for turn in (first, second, other)]
    assert got == [0.375, 0.375, -0.375]
    assert credit.metrics["credit/penalty_mean"] == pytest.approx((0.75 + 0.125) / 2)
    assert credit.metrics["credit/return_mean"] == pytest.approx((0.25 - 0.125) / 2)
    free = assign_advantages(episodes, config)
    assert "credit/penalty_mean" not in free.metrics


def test_a_negative_penalty_is_a_gain(episode):
    """Where the reference is likelier than the policy, log pi - log ref is below 0."""
    episodes, penalties = one_turn(episode, [0.0, 0.0], [-0.5, 0.5])
    config = make_credit(scheme="rloo", rewards={"goal": 1.0})
    credit = assign_advantages(episodes, config, penalties=penalties)
    assert [spans[""] for spans in credit.advantages.values()] == [1.0, -1.0]


def test_gigpo_charges_a_turn_for_the_discounted_penalties_that_follow(episode):
    """gamma 1/2. Penalties 1/8, 1/4 and 1/2, 0; returns 1 - 3/8 and -1/2; episodes +-9/16.

    To go: 1/2 - 1/8 - 1/8 = 1/4, 1 - 1/4 = 3/4; and -1/2, 0. Turns: +-3/4 in both states.
    """
    states = ["s", "u"]
    episodes = [
        episode([0.0, 1.0], states=states),
        episode([0.0, 0.0], sample=1, states=states),
    ]
    turns = [*episodes[0].turns, *episodes[1].turns]
    penalties = {t.id: {"": p} for t, p in zip(turns, [0.125, 0.25, 0.5, 0.0], strict=True)}
    config = make_credit(scheme="gigpo", rewards={"goal": 1.0}, gamma=0.5, state_weight=1.0)
    credit = assign_advantages(episodes, config, penalties=penalties)
    got = [credit.advantages[t.id][""] for t in turns]
    assert got == pytest.approx([9 / 16 + 3 / 4] * 2 + [-9 / 16 - 3 / 4] * 2)


def test_a_group_of_equal_rewards_and_different_penalties_is_compared(episode):
    """It is no zero-variance group: the filter keeps it; and equal penalties leave it one."""
    options = {"scheme": "grpo", "rewards": {"goal": 1.0}, "std": "none"}
    config = make_credit(**options, filter_zero_variance=True)
    episodes, penalties = one_turn(episode, [1.0, 1.0], [0.0, 0.5])
    assert assign_advantages(episodes, config).groups[0].zero_variance
    credit = assign_advantages(episodes, config, penalties=penalties)
    assert not credit.groups[0].zero_variance
    assert [spans[""] for spans in credit.advantages.values()] == [0.25, -0.25]
    assert credit.metrics["credit/zero_variance_share"] == 0
    _, equal = one_turn(episode, [1.0, 1.0], [0.5, 0.5])
    assert not assign_advantages(episodes, config, penalties=equal).has_signal


def test_a_span_that_answers_for_itself_pays_for_its_own_tokens(episode):
    """Seeing 1 and 1; their spans cost 1 and 0: -1/2, 1/2 over a std of 0.5^0.5. The return pays
    for the whole turn: 3 and 0."""
    spans = [["think", "answer"]]
    episodes = [episode([{"perception": 1.0}], sample=i, spans=spans) for i in range(2)]
    costs = [{"": 3.0, "think": 1.0, "answer": 2.0}, {"": 0.0, "think": 0.0, "answer": 0.0}]
    penalties = {e.turns[0].id: cost for e, cost in zip(episodes, costs, strict=True)}
    config = make_credit(
        scheme="rloo", rewards={"goal": 1.0}, segments={"think": "perception", "answer": "return"}
    )
    credit = assign_advantages(episodes, config, penalties=penalties)
    first, second = (credit.advantages[e.turns[0].id] for e in episodes)
    assert first == pytest.approx({"think": -(0.5**0.5), "answer": -3.0})
    assert second == pytest.approx({"think": 0.5**0.5, "answer": 3.0})


def test_a_turn_without_a_penalty_is_refused_where_others_have_one(episode):
    episodes, penalties = one_turn(episode, [1.0, 0.0], [0.5, 0.5])
    del penalties[episodes[1].turns[0].id]
    with pytest.raises(TrainingError, match="0/0/t/1/player/0/0 has no penalty"):
        assign_advantages(
            episodes, make_credit(scheme="rloo", rewards={"goal": 1.0}), penalties=penalties
        )
