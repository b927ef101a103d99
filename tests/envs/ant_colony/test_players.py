"""Baselines of the ant colony beside the measured scores of its specification (docs/ant-colony.md).

The tasks are the first ones of the test split with seed 0.
"""

from __future__ import annotations

import numpy as np
import pytest

from turnwise.envs import make_env, score_baselines
from turnwise.tasks import GeneratedTasks

SPECIFIED = {
    0: (3.72, 3.72),
    1: (4.88, 4.98),
    2: (5.92, 6.63),
    3: (7.62, 9.12),
    4: (10.6, 13.2),
    5: (11.9, 14.9),
    6: (25.9, 36.6),
}
"""Tier -> the food of the heuristic and of the oracle, of `small-systems.md` C.2."""


def scores(tier, tasks, *names):
    env = make_env("ant-colony", tier=tier)
    return score_baselines(env, GeneratedTasks(env, "test", 0).take(tasks), 0, names=names)


@pytest.mark.parametrize("tier", [0, 1])
def test_baselines_of_small_tiers_score_what_was_specified(tier):
    found = scores(tier, 30, "heuristic", "oracle", "random-walk")
    for name, wanted in zip(("heuristic", "oracle"), SPECIFIED[tier], strict=True):
        food = found[name].measures["food"]
        assert abs(food.mean - wanted) < 0.35 + 2 * food.stderr
        assert found[name].measures["valid_actions"].mean == 1.0
    assert found["random-walk"].mean < 0.25 < found["heuristic"].mean


@pytest.mark.slow
@pytest.mark.parametrize("tier", [2, 3, 4])
def test_baselines_score_about_what_was_specified(tier):
    found = scores(tier, 60, "heuristic", "oracle")
    for name, wanted in zip(("heuristic", "oracle"), SPECIFIED[tier], strict=True):
        assert found[name].measures["food"].mean == pytest.approx(wanted, rel=0.15)


@pytest.mark.parametrize("tier", [0, 2])
def test_the_oracle_is_not_behind_the_heuristic(tier):
    found = scores(tier, 15, "heuristic", "oracle")
    lead = np.subtract(found["oracle"].scores, found["heuristic"].scores)
    assert lead.mean() >= 0


@pytest.mark.slow
def test_the_scent_user_walks_on_trails_of_others_on_tier_5():
    found = scores(5, 10, "scent-user", "heuristic")
    measures = found["scent-user"].measures
    assert measures["trail_reuse"].mean > 0.1 and measures["deliveries_along"].mean > 1
    assert found["heuristic"].measures["trail_reuse"].mean == 0.0


def test_the_scent_user_without_scents_is_the_heuristic():
    """Of one ant, whose scents nobody else has laid, and in the first tick of any."""
    env = make_env("ant-colony", tier=4)
    players, rng = env.baselines(), np.random.default_rng
    state = env.reset(GeneratedTasks(env, "test", 0).task(0))
    bodies = {players[n](state, rng(0)).split("\n")[0] for n in ("heuristic", "scent-user")}
    assert len(bodies) == 1


@pytest.mark.parametrize("tier", [0, 4])
def test_random_possible_actions_are_all_that_are_possible(tier, monkeypatch):
    monkeypatch.setattr("turnwise.envs.ant_colony.players.ASIDE", 0.5)
    env = make_env("ant-colony", tier=tier, start="anywhere", ticks=30)
    player, rng, said = env.baselines()["random-possible"], np.random.default_rng(0), set()
    for number in range(30):
        state = env.reset(GeneratedTasks(env, "train", 0).task(number))
        while not state.ended:
            action = player(state, rng)
            said |= {line.split('"')[0].rstrip(" 12345") for line in action.split("\n")}
            state = env.step(state, env.acting(state)[0], action, rng).state
        assert env.measures(state)["valid_actions"] == 1.0
    body = {"PICK_UP", "DROP", "DEPOSIT", *(f"MOVE {way}" for way in "NESW")}
    scent = {f"{verb} {of}" for verb in ("SIGNAL", "REINFORCE") for of in ("FOOD", "HOME", "ALARM")}
    assert said == body | scent | {"REMEMBER", "FORGET"}
