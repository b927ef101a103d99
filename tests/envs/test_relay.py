"""Relay: what its baselines are worth, exactly, who sees what, and what a team is paid."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from turnwise.envs import Relay, RelayConfig, check_env, first_turn, make_env
from turnwise.envs.relay import MOST_LISTED
from turnwise.errors import DataError, EnvError, IllegalActionError
from turnwise.policies.nano import NanoConfig, make_tokenizer
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

RNG = np.random.default_rng(0)


def task_of(*treasures):
    return Task(id="t", env="relay", seed=0, data={"treasures": [list(cell) for cell in treasures]})


def worth(env, state, player=None):
    """Return the expected score from `state`: of a player that draws nothing, or of random play."""
    if state.ended:
        return Fraction(env.score(state)).limit_denominator(100)
    (seat,) = env.acting(state)
    legal = env.observe(state, seat).legal_actions
    actions = legal if player is None else (player(state, None),)
    after = [env.step(state, seat, action, RNG).state for action in actions]
    return sum(worth(env, state, player) for state in after) / len(actions)


@pytest.mark.parametrize(
    ("size", "legs", "exchange"),
    [(2, 1, False), (3, 1, False), (4, 1, False), (2, 2, False), (2, 1, True), (3, 1, True)],
)
@pytest.mark.parametrize("name", ["random", "silent", "one-way", "optimal"])
def test_baselines_are_worth_what_is_said(size, legs, exchange, name):
    env = Relay(RelayConfig(size=size, legs=legs, exchange=exchange))
    if name == "one-way" and not exchange:
        assert name not in env.baselines()
        return
    cells = list(product(range(size), repeat=2))
    player = None if name == "random" else env.baselines()[name]
    problems = [env.reset(task_of(*cells)) for cells in product(cells, repeat=legs)]
    found = sum(worth(env, state, player) for state in problems) / len(problems)
    diggers = 2 if exchange else 1
    said = {"random": Fraction(1, size ** (2 * diggers)), "silent": Fraction(1, size**diggers)}
    assert found == (said | {"one-way": Fraction(1, size), "optimal": 1})[name]


def test_where_both_signal_neither_sees_where_the_other_digs():
    env = Relay(RelayConfig(size=4, exchange=True))
    state, seen = env.reset(task_of((2, 1))), []
    for action in ("fep", "dov", "r2 c1", "r2 c1"):
        (seat,) = env.acting(state)
        seen.append((seat, env.observe(state, seat).description))
        step = env.step(state, seat, action, RNG)
        state = step.state
    assert seen == [
        ("scout", "row r2"),
        ("digger", "column c1 signal fep"),
        ("scout", "row r2 signal dov told fep"),
        ("digger", "column c1 signal fep told dov"),
    ]
    assert (step.rewards["found"], step.terminated, env.score(state)) == (1.0, True, 1.0)
    assert env.render(state) == "leg 1: treasure r2 c1, signal fep, dov, dig r2 c1, r2 c1"
    with pytest.raises(IllegalActionError, match="is none of bim, dov, fep, gul"):
        env.step(env.reset(task_of((2, 1))), "scout", "r2 c1", RNG)
    assert check_env(env).longest == env.max_turns == 4


def test_one_who_misses_loses_the_treasure_for_both():
    env = Relay(RelayConfig(size=4, exchange=True))
    for digs in (("r2 c1", "r0 c1"), ("r2 c0", "r2 c1")):
        state = env.reset(task_of((2, 1)))
        for action in ("fep", "dov", *digs):
            step = env.step(state, env.acting(state)[0], action, RNG)
            state = step.state
        assert (step.rewards["found"], env.score(state)) == (0.0, 0.0)


def test_the_random_baseline_plays_uniformly():
    env, scores = Relay(RelayConfig(size=2)), []
    player = env.baselines()["random"]
    for _ in range(2000):
        state = env.reset(task_of((1, 0)))
        for seat in ("scout", "digger"):
            state = env.step(state, seat, player(state, RNG), RNG).state
        scores.append(env.score(state))
    assert abs(np.mean(scores) - 1 / 4) < 4 * np.std(scores) / np.sqrt(len(scores))


@pytest.mark.parametrize("roles", ["two", "one"])
@pytest.mark.parametrize(("size", "legs"), [(4, 1), (2, 1), (8, 3)])
def test_the_contract_is_kept(size, legs, roles):
    assert check_env(Relay(RelayConfig(size=size, legs=legs, roles=roles))).longest == 2 * legs


def test_each_seat_sees_its_half_and_the_digger_the_signal():
    env = Relay()
    state = env.reset(task_of((2, 1)))
    assert env.acting(state) == ("scout",)
    for column in range(4):  # the scout's view does not depend on the column
        assert env.observe(env.reset(task_of((2, column))), "scout") == env.observe(state, "scout")
    assert env.observe(state, "scout").description == "row r2"
    told = env.step(state, "scout", "fep", RNG).state
    assert env.acting(told) == ("digger",)
    for row in range(4):  # nor the digger's on the row
        other = env.step(env.reset(task_of((row, 1))), "scout", "fep", RNG).state
        assert env.observe(other, "digger") == env.observe(told, "digger")
    assert env.observe(told, "digger").description == "column c1 signal fep"
    assert env.state_key(told, "digger") != env.state_key(other, "digger")


def test_a_team_is_paid_for_each_treasure_once():
    env = Relay(RelayConfig(size=4, legs=2))
    state, paid = env.reset(task_of((2, 1), (0, 3))), []
    for action in ("fep", "r2 c1", "bim", "r0 c0"):
        (seat,) = env.acting(state)
        step = env.step(state, seat, action, RNG)
        paid.append(dict(step.rewards))
        state = step.state
    assert paid == [{}, {"found": 1.0}, {}, {"found": 0.0}]
    assert env.components == {"found": "team"}
    assert (step.terminated, step.truncated, env.score(state)) == (True, False, 0.5)
    assert env.render(state).splitlines()[1] == "leg 2: treasure r0 c3, signal bim, dig r0 c0"


def test_one_role_may_have_both_seats():
    env = make_env("relay", roles="one")
    assert (env.roles, dict(env.seats)) == (("player",), {"scout": "player", "digger": "player"})
    assert make_env("relay").roles == ("scout", "digger") == tuple(make_env("relay").seats)
    seats = [first_turn(env, task_of((2, 1)), "player", RNG)[1] for _ in range(40)]
    assert 5 < seats.count("digger") < 35  # both seats are met where random play gives a turn


def test_what_cannot_be_is_refused():
    env = Relay()
    state = env.reset(task_of((2, 1)))
    with pytest.raises(IllegalActionError, match="'r2 c1' is none of bim, dov, fep, gul"):
        env.step(state, "scout", "r2 c1", RNG)
    with pytest.raises(EnvError, match="'digger' acts and it is the turn of 'scout'"):
        env.step(state, "digger", "r2 c1", RNG)
    for treasures in ([(2, 1), (0, 0)], [(4, 0)], []):
        with pytest.raises(DataError, match=r"give 1, each as \[row, column\] from 0 to 3"):
            env.reset(task_of(*treasures))


def test_few_problems_are_in_every_split_and_many_are_divided():
    tasks = {s: GeneratedTasks(Relay(), s, seed=0) for s in ("train", "validation", "test")}
    assert [(source.count, source.seen) for source in tasks.values()] == [(16, True)] * 3
    assert "train 16, validation 16, test 16; every split has the same" in (
        tasks["test"].problems.described
    )
    divided = GeneratedTasks(Relay(RelayConfig(size=4, legs=2)), "test", seed=0)
    assert not divided.seen and sum(divided.problems.counts.values()) == 256
    drawn = Relay(RelayConfig(size=8, legs=3))
    assert MOST_LISTED < 64**3 and drawn.tasks("train") is None
    assert not GeneratedTasks(drawn, "test", seed=0).seen


def test_every_word_is_one_token():
    env = Relay(RelayConfig(size=8))
    tokenizer = make_tokenizer((), env.vocabulary(), NanoConfig())
    for word in env.vocabulary():
        assert len(tokenizer.encode(f" {word}")) == 1
