"""Treasure: what its baselines are worth, exactly, and that both looks are needed."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from turnwise.envs import Treasure, TreasureConfig, call_text, check_env
from turnwise.envs.treasure import CHESTS, COINS
from turnwise.types import Task

ENV = Treasure(TreasureConfig(chests=8))


def state_of(first, second):
    """Return a state whose first two chests are asked about and hold these coins."""
    others = [c for c in range(COINS) if c not in (first, second)][: len(CHESTS) - 2]
    coins = dict(zip(CHESTS, [first, second, *others], strict=True))
    data = {"coins": coins, "asked": [CHESTS[0], CHESTS[1]]}
    return ENV.reset(Task(id="t", env="treasure", seed=0, data=data))


def played(player, state):
    """Return the score of an episode of a player that draws nothing."""
    while True:
        step = ENV.step(state, "player", player(state, None), np.random.default_rng(0))
        state = step.state
        if step.terminated or step.truncated:
            return Fraction(ENV.score(state))


@pytest.mark.parametrize(
    ("name", "worth"), [("first", Fraction(1, 2)), ("one look", Fraction(7, 9)), ("optimal", 1)]
)
def test_baselines_are_worth_what_is_said(name, worth):
    pairs = list(permutations(range(COINS), 2))
    player = ENV.baselines()[name]
    assert sum(played(player, state_of(*pair)) for pair in pairs) / len(pairs) == worth


def test_no_policy_does_better_with_one_look():
    best = sum(Fraction(max(seen, COINS - 1 - seen), COINS - 1) for seen in range(COINS)) / COINS
    assert best == Fraction(7, 9)


def test_random_play_is_worth_7_in_16():
    scores = []
    for seed in range(4000):
        rng, state = np.random.default_rng(seed), state_of(3, 6)
        while True:
            step = ENV.step(state, "player", ENV.random_action(state, "player", rng), rng)
            state = step.state
            if step.terminated or step.truncated:
                break
        scores.append(ENV.score(state))
    assert abs(np.mean(scores) - 7 / 16) < 4 * np.std(scores) / np.sqrt(len(scores))


def test_how_many_is_known_by_looking_and_hardly_otherwise():
    env = Treasure(TreasureConfig(chests=8, question="count"))
    played = {name: [] for name in env.baselines()}
    for seed in range(3000):
        rng = np.random.default_rng(seed)
        task = Task(id="t", env="treasure", seed=0, data=env.generate(rng))
        for name, player in env.baselines().items():
            state = env.reset(task)
            while True:
                step = env.step(state, "player", player(state, rng), rng)
                state = step.state
                if step.terminated or step.truncated:
                    break
            played[name].append(env.score(state))
    assert set(played) == {"random", "first", "optimal"} and np.mean(played["optimal"]) == 1
    for name, worth in (("random", 7 / 64), ("first", 1 / 8)):
        assert abs(np.mean(played[name]) - worth) < 4 * np.std(played[name]) / np.sqrt(3000)


def test_the_contract_is_kept():
    assert check_env(ENV).longest == 3
    assert check_env(Treasure(TreasureConfig(chests=2))).name == "treasure"
    assert check_env(Treasure(TreasureConfig(question="count"))).longest == 3


def test_what_is_known_is_described_and_nothing_more():
    state = state_of(4, 7)
    assert ENV.observe(state, "player").description == "? amber birch"
    for chest, known in (
        ("hazel", "hazel 6 ? amber birch"),
        ("birch", "birch 7 hazel 6 ? amber birch"),
    ):
        state = ENV.step(state, "player", call_text("look", chest=chest), None).state
        assert ENV.observe(state, "player").description == known
    assert "4" not in ENV.observe(state, "player").text.replace("-> 4", "")
    third = ENV.step(state, "player", call_text("look", chest="amber"), None)
    assert (third.truncated, third.terminated, ENV.score(third.state)) == (True, False, 0.0)


def test_only_first_looks_into_what_is_asked_about_are_rewarded():
    state, rewards = state_of(4, 7), []
    for chest in ("hazel", "birch"):
        step = ENV.step(state, "player", call_text("look", chest=chest), None)
        state = step.state
        rewards.append(step.rewards.get("looked", 0.0))
    assert rewards == [0.0, 1.0]
    twice = ENV.step(state_of(4, 7), "player", call_text("look", chest="amber"), None).state
    again = ENV.step(twice, "player", call_text("look", chest="amber"), None)
    assert again.rewards.get("looked", 0.0) == 0.0


def test_a_chest_that_is_not_there_is_an_error():
    step = ENV.step(state_of(4, 7), "player", call_text("look", chest="oak"), None)
    assert step.state.told[0].result == "error: no chest 'oak'"
    assert ENV.observe(step.state, "player").description == "? amber birch"
