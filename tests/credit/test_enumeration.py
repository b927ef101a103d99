"""docs/math.md 2 by enumeration: expected gradients of whole groups against the true gradient.

The game: answer 0 ends the episode with 0.4; answer 1 leads to a second choice, worth 0 or 1. Its
episodes have one or two turns, so that averaging over turns instead of episodes shows. The policy
is tabular, one logit a turn: `d log pi(a) / d logit = a - p`.
"""

import itertools
from math import comb

import numpy as np
import pytest

from turnwise.credit import assign_advantages, make_credit

P = np.array([0.7, 0.35])  # probabilities of answer 1 in the first and the second turn
OUTCOMES = {(0,): [0.4], (1, 0): [0.0, 0.0], (1, 1): [0.0, 1.0]}  # actions -> rewards
K = 4


def probability(actions):
    return np.prod([P[t] if a else 1 - P[t] for t, a in enumerate(actions)])


def score(actions, turn):
    """The gradient of log pi of one turn's answer with respect to both logits."""
    return np.eye(2)[turn] * (actions[turn] - P[turn])


TRUE = sum(
    probability(actions) * sum(rewards) * sum(score(actions, t) for t in range(len(actions)))
    for actions, rewards in OUTCOMES.items()
)


def groups():
    """All K-tuples of outcomes with their probabilities."""
    for chosen in itertools.product(OUTCOMES, repeat=K):
        yield chosen, np.prod([probability(actions) for actions in chosen])


def expected_gradient(advantages_of):
    """E[1/K sum over episodes and turns of A x score]; `advantages_of`: outcomes -> (i, t) -> A."""
    total = np.zeros(2)
    for chosen, weight in groups():
        found = advantages_of(chosen)
        parts = [found[i, t] * score(a, t) for i, a in enumerate(chosen) for t in range(len(a))]
        total += weight * np.sum(parts, axis=0) / K
    return total


def assigned(episode, **options):
    """Return a function from outcomes to what `assign_advantages` gives each turn."""
    config = make_credit(rewards={"goal": 1.0}, **options)

    def advantages_of(chosen):
        episodes = [
            episode(OUTCOMES[a], sample=i, states=["first", "second"][: len(a)])
            for i, a in enumerate(chosen)
        ]
        credit = assign_advantages(episodes, config)
        return {(t.episode.member, t.turn): spans[""] for t, spans in credit.advantages.items()}

    return advantages_of


def test_the_true_gradient_is_what_calculus_says():
    first, second = P
    by_hand = [first * (1 - first) * (second - 0.4), first * second * (1 - second)]
    assert pytest.approx(by_hand) == TRUE


@pytest.mark.parametrize("scheme", ["reinforce", "rloo"])
def test_reinforce_and_rloo_equal_the_true_gradient(scheme, episode):
    assert expected_gradient(assigned(episode, scheme=scheme)) == pytest.approx(TRUE, abs=1e-12)


def test_gae_without_bootstrapping_equals_the_true_gradient(episode):
    options = {"scheme": "gae", "gamma": 1.0, "std": "none"}
    got = expected_gradient(assigned(episode, gae_lambda=1.0, **options))
    assert got == pytest.approx(TRUE, abs=1e-12)
    biased = expected_gradient(assigned(episode, gae_lambda=0.0, **options))
    assert biased != pytest.approx(TRUE, rel=1e-3)
    assert biased == pytest.approx(TRUE, rel=0.25)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_max_at_k_equals_the_gradient_of_the_highest_return_of_k_over_k(k, episode):
    """By symmetry that is the highest return times the score of the first of k episodes."""
    true = np.zeros(2)
    for chosen in itertools.product(OUTCOMES, repeat=k):
        weight = np.prod([probability(actions) for actions in chosen])
        best = max(sum(OUTCOMES[actions]) for actions in chosen)
        true += weight * best * sum(score(chosen[0], t) for t in range(len(chosen[0])))
    got = expected_gradient(assigned(episode, scheme="max_at_k", k=k, std="none"))
    assert got == pytest.approx(true, abs=1e-12)


@pytest.mark.parametrize("options", [{"scheme": "dr_grpo"}, {"scheme": "grpo", "std": "none"}])
def test_mean_centred_equals_k_minus_1_over_k_of_it(options, episode):
    got = expected_gradient(assigned(episode, **options))
    assert got == pytest.approx((K - 1) / K * TRUE, abs=1e-12)


def test_mean_over_turns_instead_of_episodes_is_wrong(episode):
    """The published mistake: a group of turns weighs an episode by its number of turns.

    Three tries at even odds, success ends the episode: early successes have fewer turns. Every
    try's true gradient is 1/16; the episode mean gives (K - 1) / K of it, the turn mean less.
    """
    tries = {(1,): 1.0, (0, 1): 1.0, (0, 0, 1): 1.0, (0, 0, 0): 0.0}
    config = make_credit(scheme="dr_grpo", rewards={"goal": 1.0})
    right, wrong = np.zeros(3), np.zeros(3)
    for chosen in itertools.product(tries, repeat=K):
        weight = np.prod([0.5 ** len(actions) for actions in chosen])
        turns = [(i, t) for i, actions in enumerate(chosen) for t in range(len(actions))]
        turn_mean = np.mean([tries[chosen[i]] for i, _ in turns])
        episodes = [
            episode([0.0] * (len(actions) - 1) + [tries[actions]], sample=i)
            for i, actions in enumerate(chosen)
        ]
        credit = assign_advantages(episodes, config)
        for turn, spans in credit.advantages.items():
            i, t = turn.episode.member, turn.turn
            gradient = np.eye(3)[t] * (chosen[i][t] - 0.5)
            right += weight * spans[""] * gradient / K
            wrong += weight * (tries[chosen[i]] - turn_mean) * gradient / K
    assert right == pytest.approx([(K - 1) / K / 16] * 3, abs=1e-12)
    assert (wrong < 0.98 * right).all()
    assert wrong[2] < 0.84 * right[2]


def binary_gradient(p, group_size, one_turn_groups, **options):
    """E of the estimator on a one-turn game with reward a, by the number of successes."""
    config = make_credit(rewards={"goal": 1.0}, **options)
    total = 0.0
    for wins in range(group_size + 1):
        answers = [1.0] * wins + [0.0] * (group_size - wins)
        credit = assign_advantages(one_turn_groups(answers), config)
        estimate = sum(
            spans[""] * (answers[turn.episode.member] - p)
            for turn, spans in credit.advantages.items()
        )
        weight = comb(group_size, wins) * p**wins * (1 - p) ** (group_size - wins)
        total += weight * estimate / group_size
    return total


@pytest.mark.parametrize(("p", "factor"), [(0.1, 2.18), (0.5, 1.74)])
def test_std_scaled_binary_grpo_is_the_gradient_times_a_factor_of_p(p, factor, one_turn_groups):
    """With ddof = 1; the population's std (ddof = 0) gives sqrt(8 / 7) of it, 2.33 and 1.86."""
    got = binary_gradient(p, 8, one_turn_groups, scheme="grpo", std="group") / (p * (1 - p))
    assert got == pytest.approx(factor, abs=0.005)
    assert got * (8 / 7) ** 0.5 == pytest.approx({0.1: 2.33, 0.5: 1.86}[p], abs=0.005)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_maxrl_is_the_gradient_of_truncated_log_likelihood(p, one_turn_groups):
    """With K samples: grad p x (1 + q + ... + q^(K - 2)), q = 1 - p, which tends to grad log p."""
    got = binary_gradient(p, 8, one_turn_groups, scheme="maxrl")
    assert got == pytest.approx(p * (1 - p) * (1 - (1 - p) ** 7) / p, abs=1e-12)


def turn_part(episode, **options):
    """The expected gradient of gigpo's turn-level part alone."""
    both = expected_gradient(assigned(episode, scheme="gigpo", gamma=1.0, **options))
    return both - expected_gradient(assigned(episode, scheme="grpo", std="none"))


def test_gigpo_own_episode_exclude_differs_from_include(episode):
    exclude = turn_part(episode, own_episode="exclude")
    include = turn_part(episode, own_episode="include")
    print(f"true {TRUE}, exclude {exclude}, include {include}")
    assert np.abs(exclude - include).max() > 1e-3
    assert np.linalg.norm(exclude - TRUE) < np.linalg.norm(include - TRUE)


def test_gigpo_exclude_is_exact_where_another_episode_always_visits_the_state(episode):
    """The first turn's state is visited by all; the second one's by two or more with some odds."""
    exclude = turn_part(episode, own_episode="exclude")
    include = turn_part(episode, own_episode="include")
    assert exclude[0] == pytest.approx(TRUE[0], abs=1e-12)
    assert include[0] == pytest.approx((K - 1) / K * TRUE[0], abs=1e-12)
    assert exclude[1] == pytest.approx(TRUE[1] * (1 - (1 - P[0]) ** (K - 1)), abs=1e-12)
