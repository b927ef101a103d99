"""benchmarks/lake_hard_maps.py: the scores on the maps that the reflex loses are those of play."""

from __future__ import annotations

import re

import numpy as np
import pytest

from turnwise.envs import make_env
from turnwise.envs.frozen_lake.baselines import reflex
from turnwise.seeding import generator
from turnwise.tasks import GeneratedTasks

from ..conftest import load_benchmark

ROW = re.compile(
    r"(.+?)\s+(\d+) maps  policy ([\d.]+) \+- ([\d.]+)  reflex ([\d.]+)  "
    r"difference ([-+][\d.]+) \+- ([\d.]+)"
)


@pytest.fixture(scope="module")
def script():
    return load_benchmark("lake_hard_maps")


def test_the_table_of_a_run(script, smoke_run, monkeypatch, capsys):
    arguments = [str(smoke_run), "--tasks", "60", "--at-most", "0.75"]
    monkeypatch.setattr("sys.argv", ["lake_hard_maps.py", *arguments])
    script.main()
    _, whole, hard = capsys.readouterr().out.splitlines()
    found, few = ROW.fullmatch(whole), ROW.fullmatch(hard)
    assert found is not None and few is not None
    assert (found[1], found[2]) == ("all maps", "60")
    assert few[1] == "reflex <= 0.75"
    assert 0 < int(few[2]) < 60
    assert float(few[5]) <= 0.75 < float(found[5])


def test_a_row_is_of_the_chosen_maps_and_a_map_drawn_twice_counts_once(script):
    scores, probabilities, names = (
        [1.0, 0.0, 1.0, 1.0],
        [0.5, 0.25, 0.25, 1.0],
        ["a", "b", "b", "c"],
    )
    row = ROW.fullmatch(
        script.table_row("hard", scores, probabilities, names, [True, True, True, False])
    )
    assert row is not None
    assert [float(x) for x in row.groups()[2:]] == [0.667, 0.236, 0.333, 0.333, 0.118]
    assert script.table_row("none", scores, probabilities, names, [False] * 4).split() == [
        "none", "no", "map",
    ]  # fmt: skip


def test_the_chance_of_the_reflex_is_its_share_of_won_episodes(script):
    env = make_env("frozen-lake", size=8, frozen_probability=0.7)
    for task in GeneratedTasks(env, "test", 0).take(4):
        won = 0.0
        for number in range(300):
            state, rng = env.reset(task), generator(7, number)
            while not state.ended:
                state = env.step(state, "player", reflex(state, rng), rng).state
            won += env.score(state) / 300
        assert won == pytest.approx(script.reflex_chance(env, task), abs=4 * np.sqrt(0.25 / 300))
