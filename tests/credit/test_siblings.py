"""Siblings by enumeration: which schemes have the true gradient, and the bias of the others.

The game is that of `test_enumeration`: answer 0 ends the episode with 0.4; answer 1 leads to a
second choice, worth 0 or 1. The policy is tabular, one logit a turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from turnwise.credit import RoleBaselines, assign_advantages, make_credit
from turnwise.credit.metrics import advantage_shares

P = np.array([0.7, 0.35])  # probabilities of answer 1 in the first and the second turn
TRUE = np.array([P[0] * (1 - P[0]) * (P[1] - 0.4), P[0] * P[1] * (1 - P[1])])
K = 3


def draws(p: float, count: int = K) -> Iterator[tuple[tuple[int, ...], float]]:
    """All answers of `count` siblings, with their probabilities."""
    for answers in itertools.product((0, 1), repeat=count):
        yield answers, float(np.prod([p if a else 1 - p for a in answers]))


def with_siblings(episode, turns):
    """Return an episode whose turns are (values of the siblings, the one that went on)."""
    one = episode([0.0] * len(turns))
    chosen, others = [], []
    for turn, (values, place) in zip(one.turns, turns, strict=True):
        for branch, value in enumerate(values):
            own = replace(
                turn,
                id=replace(turn.id, branch=branch, round=turn.id.turn),
                trials=({"goal": value},),
                chosen=branch == place,
            )
            (chosen if branch == place else others).append(own)
    (trajectory,) = one.trajectories
    played = replace(trajectory, turns=tuple(chosen), siblings=tuple(others))
    return replace(one, trajectories=(played,))


def chances(values, rule):
    """The probability that each sibling goes on."""
    if rule == "uniform":
        return np.full(len(values), 1 / len(values))
    return np.eye(len(values))[int(np.argmax(values))]


def expected_gradient(episode, scheme, *, judged, rule):
    """E[mean over siblings of A x score, summed over turns], over all draws of the game.

    `judged` is `step`, the reward of the step, or `return`, with one continuation of each sibling.
    """
    config = make_credit(
        scheme=scheme, rewards={"goal": 1.0}, **({"std": "none"} if scheme == "at_grpo" else {})
    )
    total = np.zeros(2)

    def add(turns, answers, weight):
        found = assign_advantages([with_siblings(episode, turns)], config).advantages
        for identity, spans in found.items():
            answer = answers[identity.turn][identity.branch]
            gradient = np.eye(2)[identity.turn] * (answer - P[identity.turn])
            total[:] += weight * spans[""] * gradient / K

    for first, likely in draws(P[0]):
        for later, odds in draws(P[1]) if judged == "return" else [((0,) * K, 1.0)]:
            values = [0.4 if not a else float(after) for a, after in zip(first, later, strict=True)]
            for place, chance in enumerate(chances(values, rule)):
                weight = likely * odds * chance
                if not weight:
                    continue
                if not first[place]:
                    add([(values, place)], [first], weight)
                    continue
                for second, more in draws(P[1]):
                    rewards = [float(a) for a in second]
                    add([(values, place), (rewards, 0)], [first, second], weight * more)
    return total


def test_a_vine_that_goes_on_with_any_sibling_has_the_true_gradient(episode):
    got = expected_gradient(episode, "counterfactual", judged="return", rule="uniform")
    assert got == pytest.approx(TRUE, abs=1e-12)
    centred = expected_gradient(episode, "at_grpo", judged="return", rule="uniform")
    assert centred == pytest.approx((K - 1) / K * TRUE, abs=1e-12)


def test_a_vine_that_goes_on_with_the_best_visits_other_states(episode):
    """Each turn's part is exact where it is; the second turn is visited more or less often."""
    got = expected_gradient(episode, "counterfactual", judged="return", rule="greedy")
    print(f"true {TRUE}, greedy vine {got}")
    assert got[0] == pytest.approx(TRUE[0], abs=1e-12)
    assert abs(got[1] - TRUE[1]) > 1e-3


@pytest.mark.parametrize("rule", ["greedy", "uniform"])
def test_a_spine_is_biased_by_what_it_does_not_see(episode, rule):
    """The first turn's step is worth 0.4 or 0, whatever the second one is worth."""
    got = expected_gradient(episode, "at_grpo", judged="step", rule=rule)
    print(f"true {TRUE}, spine {rule} {got}")
    seen = (K - 1) / K * P[0] * (1 - P[0]) * (0.0 - 0.4)
    assert got[0] == pytest.approx(seen, abs=1e-12)
    assert got[0] < 5 * TRUE[0], "eight times the true one"


def test_the_enumerated_choice_is_that_of_the_rollout():
    from turnwise.rollout.choice import choose
    from turnwise.workflows.topologies import SpineConfig, VineConfig

    rng, values = np.random.default_rng(0), [1.0, 3.0, 3.0]
    assert {choose(values, SpineConfig(), rng) for _ in range(20)} == {1}
    uniform = VineConfig(continuation="epsilon-greedy", epsilon=1.0)
    counts = np.bincount([choose(values, uniform, rng) for _ in range(3000)], minlength=3)
    assert counts / 3000 == pytest.approx([1 / 3] * 3, abs=0.04)
    proportional = SpineConfig(continuation="proportional")
    counts = np.bincount([choose(values, proportional, rng) for _ in range(7000)], minlength=3)
    assert counts / 7000 == pytest.approx([1 / 7, 3 / 7, 3 / 7], abs=0.03)
    counts = np.bincount([choose([-1.0, 1.0], proportional, rng) for _ in range(50)], minlength=2)
    assert counts.tolist() == [0, 50]
    assert {choose([0.0, 0.0], proportional, rng) for _ in range(50)} == {0, 1}


PAY = np.array([[1.0, 0.0], [0.25, 2.0]])
"""What two seats that act at the same time earn together."""
BOTH = np.array([0.6, 0.3])


def test_leaving_one_role_out_has_the_true_gradient_of_each(episode):
    """With K siblings each the expected gradient is (K - 1) / K of the true one, exactly."""
    chance = np.array([1 - BOTH, BOTH])
    of_first, of_second = PAY @ chance[:, 1], PAY.T @ chance[:, 0]
    true = BOTH * (1 - BOTH) * [of_first[1] - of_first[0], of_second[1] - of_second[0]]
    config, total = make_credit(scheme="leave_one_role_out", rewards={"goal": 1.0}), np.zeros(2)
    for (first, one), (second, other) in itertools.product(draws(BOTH[0]), draws(BOTH[1])):
        table = PAY[np.ix_(first, second)]
        for seat, answers, rows in ((0, first, table), (1, second, table.T)):
            made = with_siblings(episode, [([0.0] * K, 0)])
            (trajectory,) = made.trajectories
            judged = [
                replace(turn, trials=tuple({"goal": value} for value in rows[turn.id.branch]))
                for turn in trajectory.sampled
            ]
            made = replace(
                made,
                trajectories=(replace(trajectory, turns=(judged[0],), siblings=tuple(judged[1:])),),
            )
            for identity, spans in assign_advantages([made], config).advantages.items():
                gradient = answers[identity.branch] - BOTH[seat]
                total[seat] += one * other * spans[""] * gradient / K
    assert total == pytest.approx((K - 1) / K * true, abs=1e-12)


def test_at_grpo_by_hand(episode):
    """(R - mean) / std with ddof 1 of the siblings of a turn; equal ones have 0."""
    made = with_siblings(episode, [([1.0, 2.0, 3.0], 2), ([5.0, 5.0, 5.0], 0)])
    config = make_credit(scheme="at_grpo", rewards={"goal": 1.0})
    credit = assign_advantages([made], config)
    by_place = {(t.turn, t.branch): spans[""] for t, spans in credit.advantages.items()}
    assert by_place == {
        (0, 0): -1.0, (0, 1): 0.0, (0, 2): 1.0, (1, 0): 0.0, (1, 1): 0.0, (1, 2): 0.0,
    }  # fmt: skip
    assert credit.metrics["credit/groups"] == 2.0
    assert credit.metrics["credit/mixed_share"] == 0.5
    counterfactual = assign_advantages(
        [made], make_credit(scheme="counterfactual", rewards={"goal": 1.0})
    )
    first = [counterfactual.advantages[t][""] for t in sorted(by_ids(made)) if t.turn == 0]
    assert first == [-1.5, 0.0, 1.5]


def by_ids(episode):
    return [turn.id for turn in episode.sampled]


def test_what_a_siblings_own_tokens_cost_is_taken_off_its_score(episode):
    made = with_siblings(episode, [([1.0, 1.0], 0)])
    config = make_credit(scheme="at_grpo", rewards={"goal": 1.0}, std="none")
    penalties = {t.id: {"": 0.5 * t.id.branch} for t in made.sampled}
    credit = assign_advantages([made], config, penalties=penalties)
    assert {t.branch: s[""] for t, s in credit.advantages.items()} == {0: 0.25, 1: -0.25}


def test_segments_of_siblings_are_compared_over_all_of_them(episode):
    one = episode([0.0], spans=[["think", "answer"]])
    (turn,) = one.turns
    own = [
        replace(
            turn,
            id=replace(turn.id, branch=n),
            rewards={"seen": float(n)},
            trials=({"goal": 2.0 * n, "seen": float(n)},),
        )
        for n in range(3)
    ]
    (trajectory,) = one.trajectories
    played = replace(trajectory, turns=(own[0],), siblings=tuple(own[1:]))
    config = make_credit(
        scheme="at_grpo",
        rewards={"goal": 1.0},
        segments={"think": "seen", "answer": "return"},
        std="none",
    )
    credit = assign_advantages([replace(one, trajectories=(played,))], config)
    found = {t.branch: spans for t, spans in credit.advantages.items()}
    assert found[0] == {"think": -1.0, "answer": -2.0}
    assert found[2] == {"think": 1.0, "answer": 2.0}


def test_rae_subtracts_the_mean_of_earlier_iterations(episode):
    """The first iteration has no baseline; then a mean that is corrected for its start at 0."""
    config = make_credit(scheme="rae", rewards={"goal": 1.0}, decay=0.5)
    baselines = RoleBaselines()

    def play(*returns):
        batch = [episode([value], sample=n) for n, value in enumerate(returns)]
        credit = assign_advantages(batch, config, baselines=baselines.values())
        baselines.learn(credit.groups, config)
        return [spans[""] for spans in credit.advantages.values()]

    assert play(1.0, 3.0) == [1.0, 3.0]
    assert play(2.0, 6.0) == [0.0, 4.0]  # less 2
    assert baselines.values() == {"player": pytest.approx((0.25 * 2 + 0.5 * 4) / 0.75)}
    other = RoleBaselines()
    other.restore(baselines.state())
    assert other.values() == baselines.values()
    grpo = make_credit(scheme="grpo", rewards={"goal": 1.0})
    other.learn(assign_advantages([episode([9.0])], grpo).groups, grpo)
    assert other.values() == baselines.values(), "schemes without baselines teach none"


def test_the_expected_gradient_of_rae_is_the_true_one(episode):
    """A baseline that holds no return of the batch takes nothing off the gradient."""
    config = make_credit(scheme="rae", rewards={"goal": 1.0})
    total, p = 0.0, 0.3
    for answers, weight in draws(p, 2):
        batch = [episode([float(a)], sample=n) for n, a in enumerate(answers)]
        found = assign_advantages(batch, config, baselines={"player": 0.8}).advantages
        for identity, spans in found.items():
            total += weight * spans[""] * (answers[identity.episode.member] - p) / 2
    assert total == pytest.approx(p * (1 - p), abs=1e-12)


def test_statistics_of_all_roles_and_of_one(episode):
    """Dr. MAS: roles that earn differently have advantages of one sign under shared statistics."""
    batch = []
    for n, (low, high) in enumerate(((0.0, 10.0), (1.0, 11.0))):
        one = episode([low], sample=n, role="a")
        two = episode([high], sample=n, role="b")
        batch.append(replace(one, trajectories=one.trajectories + two.trajectories))

    def advantages(statistics):
        config = make_credit(
            scheme="grpo", rewards={"goal": 1.0}, std="group", statistics=statistics
        )
        credit = assign_advantages(batch, config)
        found = {(t.role, t.episode.member): s[""] for t, s in credit.advantages.items()}
        return found, credit

    own, credit = advantages("role")
    assert own == pytest.approx({
        ("a", 0): -(0.5**0.5), ("a", 1): 0.5**0.5, ("b", 0): -(0.5**0.5), ("b", 1): 0.5**0.5,
    })  # fmt: skip
    assert credit.metrics["credit/advantage_share/a"] == pytest.approx(0.5)
    shared, credit = advantages("all")
    std = float(np.std([0.0, 1.0, 10.0, 11.0], ddof=1))
    assert shared == pytest.approx({
        ("a", 0): -5.5 / std, ("a", 1): -4.5 / std, ("b", 0): 4.5 / std, ("b", 1): 5.5 / std,
    })  # fmt: skip
    assert [str(group.key) for group in credit.groups] == ["all roles 0/0/t"]


def test_the_share_of_a_role_is_that_of_its_absolute_advantages(episode):
    batch = [
        replace(one, trajectories=one.trajectories + two.trajectories)
        for one, two in (
            (episode([3.0, 0.0], sample=n, role="a"), episode([1.0], sample=n, role="b"))
            for n in range(2)
        )
    ]
    config = make_credit(scheme="reinforce", rewards={"goal": 1.0})
    credit = assign_advantages(batch, config)
    values = {turn: spans[""] for turn, spans in credit.advantages.items()}
    assert advantage_shares(credit.groups, values) == {
        "credit/advantage_share/a": 6 / 7,
        "credit/advantage_share/b": 1 / 7,
    }
