"""Exact measures of players of a lake, against play, hand and the published figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from turnwise.envs import FrozenLake, FrozenLakeConfig, make_env
from turnwise.envs.frozen_lake.baselines import reflex, reflex_chances
from turnwise.envs.frozen_lake.exact import free_cells, measures, occupancy, success_of
from turnwise.envs.frozen_lake.maps import ACTIONS
from turnwise.envs.frozen_lake.solver import action_values
from turnwise.seeding import generator
from turnwise.types import Task

STANDARD = ("SFFF", "FHFH", "FFFH", "HFFG")


def always(action: int, cells: int = 16) -> np.ndarray:
    return np.tile(np.eye(4)[action], (cells, 1))


@pytest.mark.parametrize(
    ("action", "published", "advantage"),
    [(0, 0.804, 0.421), (1, 0.653, 0.352), (2, 0.625, 0.323), (3, 0.619, 0.410)],
)
def test_constants_score_what_the_published_run_ended_at(action, published, advantage):
    found = measures(STANDARD, True, 100, 0, always(action))
    assert found["published"] == pytest.approx(published, abs=5e-4)
    assert found["advantage"] == pytest.approx(advantage, abs=5e-4)


def test_the_best_stationary_player_and_chance():
    best = np.eye(4)[action_values(STANDARD, True).argmax(axis=1)]
    found = measures(STANDARD, True, 100, 0, best)
    assert found["success"] == pytest.approx(0.7402, abs=5e-5)
    assert found["of_optimum"] == pytest.approx(0.7402 / 0.7442, abs=1e-4)
    assert (found["advantage"], found["published"]) == (pytest.approx(1.0), pytest.approx(1.0))
    uniform = measures(STANDARD, True, 100, 0, np.full((16, 4), 0.25))
    assert uniform["success"] == pytest.approx(0.014, abs=5e-4)
    assert uniform["published"] == pytest.approx(0.675, abs=5e-4)


def test_no_other_deterministic_choice_in_one_cell_is_better():
    best = np.eye(4)[action_values(STANDARD, True).argmax(axis=1)]
    top = measures(STANDARD, True, 100, 0, best)["success"]
    for cell in free_cells(STANDARD):
        for action in range(4):
            other = best.copy()
            other[cell] = np.eye(4)[action]
            assert measures(STANDARD, True, 100, 0, other)["success"] <= top + 1e-9


def test_the_chain_is_what_play_does():
    rng = np.random.default_rng(0)
    player = rng.dirichlet(np.ones(4), size=16) * 0.98  # two in a hundred answer nothing
    env = FrozenLake(FrozenLakeConfig(map=STANDARD, slippery=True, steps=30))
    task = Task(id="t", env=env.name, seed=0, data=env.generate(rng))
    ends = np.zeros(16)
    for number in range(3000):
        chance, state = generator(1, number), env.reset(task)
        while not state.ended:
            cell = state.position
            if chance.random() > player[cell].sum():
                break
            action = chance.choice(4, p=player[cell] / player[cell].sum())
            state = env.step(state, "player", ("LEFT", "DOWN", "RIGHT", "UP")[action], chance).state
        else:
            ends[state.position] += 1 / 3000
    expected = occupancy(STANDARD, True, 30, 0, player)[-1]
    assert np.abs(ends - expected).max() < 5 * np.sqrt(0.25 / 3000)
    assert expected.sum() < 1


def test_firm_ice_by_hand():
    right_then_down = always(2, 4)
    right_then_down[1] = np.eye(4)[1]
    found = measures(("SF", "HG"), False, 2, 0, 0.9 * right_then_down)
    assert found["success"] == pytest.approx(0.81)
    assert found["of_optimum"] == pytest.approx(0.81)
    assert measures(("SF", "HG"), False, 1, 0, right_then_down)["success"] == 0.0
    assert measures(("SF", "HG"), False, 1, 0, right_then_down)["of_optimum"] == 1.0


def test_an_env_offers_its_decisions_and_players():
    env = make_env("frozen-lake", map=STANDARD, slippery=True, steps=100)
    task = Task(id="t", env=env.name, seed=0, data=env.generate(np.random.default_rng(0)))
    exact = env.exact(task)
    assert list(exact.decisions) == [
        "r0c0", "r0c1", "r0c2", "r0c3", "r1c0", "r1c2", "r2c0", "r2c1", "r2c2", "r3c1", "r3c2"
    ]  # fmt: skip
    assert {env.observe(s, "player").text.split()[-1] for s in exact.decisions.values()} == set(
        exact.decisions
    )
    down = exact.measure(exact.players["always-down"])
    assert down["published"] == pytest.approx(0.653, abs=5e-4)
    assert exact.measure(exact.players["stationary"])["success"] == pytest.approx(0.7402, abs=5e-5)
    assert next(iter(down)) == "success"
    assert exact.measure({name: {} for name in exact.decisions})["published"] == 0.0


def test_play_may_begin_anywhere_with_the_start_left_where_it_is():
    env = make_env("frozen-lake", map=STANDARD, slippery=True, steps=1, start="anywhere")
    drawn = [env.generate(np.random.default_rng(i)) for i in range(200)]
    assert {data["position"] for data in drawn} == set(free_cells(STANDARD))
    assert all(data["map"] == list(STANDARD) and data["limit"] == 1 for data in drawn)
    state = env.reset(Task(id="t", env=env.name, seed=0, data=drawn[0]))
    assert env.step(state, "player", "UP", np.random.default_rng(0)).truncated


@pytest.mark.parametrize("slippery", [False, True])
def test_the_reflex_as_a_table_is_the_reflex_at_play(slippery):
    rows = ("SFFF", "FFHF", "HFFH", "FFFG")  # a fork, one way ahead, and a dead end
    env = FrozenLake(FrozenLakeConfig(map=rows, slippery=slippery))
    state = env.reset(Task(id="t", env=env.name, seed=0, data=env.generate(generator(0))))
    wanted = reflex_chances(rows)
    for cell in free_cells(rows):
        taken = [reflex(replace(state, position=cell), generator(1, cell, i)) for i in range(200)]
        shares = [taken.count(action) / 200 for action in ACTIONS]
        assert shares == pytest.approx(wanted[cell].tolist(), abs=0.12)
        assert {share > 0 for share, p in zip(shares, wanted[cell], strict=True) if not p} <= {
            False
        }
    assert wanted.sum(axis=1) == pytest.approx(1)


def test_the_reflex_wins_some_maps_always_and_some_half_the_time():
    def chance(*rows):
        return success_of(rows, False, 12, 0, reflex_chances(rows))

    assert chance("SFFF", "FFFF", "FFFF", "FFFG") == pytest.approx(1)
    assert chance("SHFF", "FHFF", "FHFF", "FFFG") == pytest.approx(1)  # only one way
    half = chance("SFFF", "FHHF", "FFHF", "HHHG")  # DOWN first ends in a pocket
    assert half == pytest.approx(0.5)
