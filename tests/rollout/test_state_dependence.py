"""How much more often actions agree in equal states than in different ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from turnwise.rollout import rollout_metrics, state_dependence
from turnwise.rollout.state_dependence import STATE_DEPENDENCE
from turnwise.types import Episode, EpisodeId, Failure, Sampling, Task, Trajectory, Turn, TurnId


def episode(number, *turns, error=None):
    """Return an episode; each turn is (role, state, action)."""
    identity = EpisodeId(iteration=0, visit=number, task="t", member=0)
    made = [
        (role, Turn(id=TurnId(episode=identity, role=role, turn=order), order=order, policy="main",
                    policy_version=0, prompt_ids=(1,), completion_ids=(2,), logprobs=(-0.5,),
                    sampling=Sampling(), finish_reason="stop", text="", action=action,
                    state_key=state))
        for order, (role, state, action) in enumerate(turns)
    ]  # fmt: skip
    seats = dict.fromkeys(role for role, _ in made)
    return Episode(
        id=identity,
        task=Task(id="t", env="e", seed=0, data={}),
        trajectories=tuple(
            Trajectory(role=seat, seat=seat, turns=tuple(t for role, t in made if role == seat))
            for seat in seats
        ),
        terminated=True,
        truncated=False,
        score=0.0,
        error=error,
    )


def drawn(seed, episodes=24, roles=("a", "b")):
    rng = np.random.default_rng(seed)
    return [
        [(str(rng.choice(roles)), str(rng.integers(3)), str(rng.integers(2))) for _ in range(6)]
        for _ in range(episodes)
    ]


def by_pairs(games):
    """The difference of the two agreements, pair by pair."""
    turns = [(game, *turn) for game, played in enumerate(games) for turn in played]
    agree: dict[bool, list[bool]] = {True: [], False: []}
    for (game, role, state, action), (other, role2, state2, action2) in combinations(turns, 2):
        if game != other and role == role2:
            agree[state == state2].append(action == action2)
    return np.mean(agree[True]) - np.mean(agree[False])


@pytest.mark.parametrize("seed", range(3))
def test_pairs_of_different_episodes_and_one_role_are_counted(seed):
    games = drawn(seed)
    found = state_dependence([episode(n, *turns) for n, turns in enumerate(games)])
    assert found == {STATE_DEPENDENCE: pytest.approx(by_pairs(games))}


def test_a_policy_with_one_action_for_each_state_and_one_that_is_constant():
    def policy(action_of):
        turns = [("a", str(n % 2), action_of(str(n % 2))) for n in range(6)]
        return state_dependence([episode(n, *turns) for n in range(20)])[STATE_DEPENDENCE]

    assert policy(lambda state: state) == 1.0
    assert policy(lambda state: "x") == 0.0


def test_nothing_is_measured_where_states_or_actions_hardly_recur_or_one_state_is_all():
    def found(turn_of):
        return state_dependence([episode(n, *(turn_of(n, k) for k in range(4))) for n in range(40)])

    assert found(lambda n, k: ("a", "same", str(k % 2))) == {}
    assert found(lambda n, k: ("a", f"{n} {k}", str(k % 2))) == {}
    assert found(lambda n, k: ("a", str(k % 2), f"{n} {k}")) == {}
    assert found(lambda n, k: ("a", str(k % 2), str(k % 2))) != {}


def test_broken_episodes_and_failed_replies_are_left_out():
    games = drawn(0)
    whole = [episode(n, *turns) for n, turns in enumerate(games)]
    broken = episode(99, ("a", "0", "1"), error=Failure(kind="env", message="it broke"))
    failed = episode(98, ("a", "0", None), ("b", None, "1"))
    assert state_dependence([*whole, broken, failed]) == state_dependence(whole)


def test_turns_without_a_choice_count_neither_as_actions_nor_as_agreement():
    games = drawn(0)
    whole = [episode(n, *turns) for n, turns in enumerate(games)]
    more = []
    for each in whole:
        seats = [
            replace(s, turns=(*s.turns, *(replace(t, action="next", forced=True) for t in s.turns)))
            for s in each.trajectories
        ]
        more.append(replace(each, trajectories=tuple(seats)))
    assert state_dependence(more) == state_dependence(whole)
    names = [name for name in rollout_metrics(more) if name.startswith("action/")]
    assert names == ["action/0", "action/1"]
    assert all(rollout_metrics(more)[name] == rollout_metrics(whole)[name] for name in names)
    assert sum(rollout_metrics(more)[name] for name in names) == pytest.approx(1)
