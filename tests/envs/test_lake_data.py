"""Expert data of lakes: states as gymnasium prints them, read back and trained from."""

from __future__ import annotations

import csv
from itertools import islice

import gymnasium
import numpy as np
import pytest

from turnwise.envs import check_env, make_env
from turnwise.envs.datasets import FrozenLakeQ
from turnwise.envs.frozen_lake.data import COLUMNS, print_state, read_state, task_of_row
from turnwise.envs.frozen_lake.solver import action_values
from turnwise.envs.split import split_of
from turnwise.errors import DataError
from turnwise.tasks import GeneratedTasks
from turnwise.types import Task

STANDARD = ("SFFF", "FHFH", "FFFH", "HFFG")
HERE = "\x1b[41mS\x1b[0mFFF|FHFH|FFFH|HFFG"
ROW = {"state_str": HERE, "action": "0", "q_value_left": "0.5", "q_value_down": "0.25",
       "q_value_right": "0.25", "q_value_up": "0.0"}  # fmt: skip


def test_what_gymnasium_prints_is_read_and_printed_alike():
    env = gymnasium.make("FrozenLake-v1", render_mode="ansi", is_slippery=True)
    env.reset(seed=3)
    seen = set()
    for _ in range(400):
        text = env.render()
        cell, last = int(env.unwrapped.s), env.unwrapped.lastaction
        if STANDARD[cell // 4][cell % 4] in "SF":
            assert read_state(text) == (STANDARD, cell)
            assert read_state(text.replace("\n", "|")) == (STANDARD, cell)
            assert print_state(STANDARD, cell, last) == text.strip("\n").replace("\n", "|")
            seen.add(cell)
        _, _, terminated, truncated, _ = env.step(int(env.action_space.sample()))
        if terminated or truncated:
            env.reset()
    assert len(seen) > 5


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty: give a map"),
        ("SFFF|FHFH|FFFH|HFFG", "marks 0 cells as the player's: mark one"),
        (HERE + "|\x1b[41mF\x1b[0mFFF", "marks 2 cells"),
        ("SF|\x1b[41mH\x1b[0mG", "has ended: give states with something to decide"),
        ("\x1b[41mS\x1b[0mF|HX", r"must be of the letters S, F, H, G: replace \['X'\]"),
        ("__import__('os')", "must"),
    ],
)
def test_other_texts_are_refused(text, sentence):
    with pytest.raises(DataError, match=sentence):
        read_state(text)


def test_a_row_is_a_task_of_one_step_worth_what_it_says():
    env = make_env("frozen-lake", slippery=True)
    data = task_of_row(ROW | {"reward": "0.0", "batch_idx": "7"}, slippery=True)
    state = env.reset(Task(id="t", env=env.name, seed=0, data=data))
    for action, worth in zip(("LEFT", "DOWN", "RIGHT", "UP"), (1.0, 0.5, 0.5, 0.0), strict=True):
        step = env.step(state, "player", action, np.random.default_rng(0))
        assert step.rewards["expert"] == worth
        assert step.terminated or step.truncated
    equal = task_of_row(ROW | dict.fromkeys(COLUMNS[3:], "0.125"), slippery=True)
    state = env.reset(Task(id="t", env=env.name, seed=0, data=equal))
    for action in ("LEFT", "UP"):
        step = env.step(state, "player", action, np.random.default_rng(0))
        assert step.rewards["expert"] == 1.0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"q_value_up": "high"}, "q_value_up = 'high' is not a finite number"),
        ({"q_value_up": "nan"}, "q_value_up = 'nan' is not a finite number"),
        ({"action": "4"}, "action = '4' is none of 0"),
        ({"action": "LEFT"}, "action = 'LEFT' is not a finite number"),
    ],
)
def test_wrong_values_are_refused(change, sentence):
    with pytest.raises(DataError, match=sentence):
        task_of_row(ROW | change, slippery=True)


def test_a_missing_column_is_named():
    row = {name: value for name, value in ROW.items() if name != "q_value_down"}
    with pytest.raises(DataError, match="no column 'q_value_down' .columns: state_str"):
        task_of_row(row, slippery=True)


def test_the_data_set_is_play_of_the_optimum():
    rows = FrozenLakeQ().rows(np.random.default_rng(0))
    made = [next(rows) for _ in range(3000)]
    table = action_values(STANDARD, True)
    starts = 0
    for row in made:
        found, cell = read_state(row["state_str"])
        assert (found, str(cell)) == (STANDARD, row["state"])
        assert [float(row[column]) for column in COLUMNS[3:]] == table[cell].tolist()
        assert int(row["action"]) == table[cell].argmax()
        starts += "(" not in row["state_str"]
    shares = {cell: sum(row["state"] == cell for row in made) / 3000 for cell in ("0", "4", "8")}
    assert shares["0"] == pytest.approx(13.79 / 44.57, abs=0.06)  # by the Markov chain
    assert 0.6 < sum(shares.values()) < 0.8
    assert 30 < starts < 200


MAPS = [("SFFF", "FFFF", "FFFF", "FFFG"), ("SFFF", "FHFF", "FFHF", "FFFG"),
        ("SHFF", "FFFF", "FHFF", "FFFG"), ("SFFF", "FHFH", "FFFH", "HFFG"),
        ("SFFH", "FFFF", "HFFF", "FFFG"), ("SFHF", "FFFF", "FFHF", "HFFG")]  # fmt: skip


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


@pytest.fixture
def expert():
    return list(islice(FrozenLakeQ().rows(np.random.default_rng(0)), 20))


def test_a_file_is_the_training_tasks_of_every_split_of_its_one_map(tmp_path, expert):
    path = write(tmp_path / "q.csv", expert)
    env = make_env("frozen-lake", map=STANDARD, slippery=True, data=path)
    tasks = GeneratedTasks(env, "train", seed=0)
    first = [tasks.task(n).data for n in range(20)]
    assert sorted(map(str, first)) == sorted(
        map(str, (task_of_row(row, slippery=True) for row in expert))
    )
    assert tasks.task(7) == GeneratedTasks(env, "train", seed=0).task(7)
    assert len({tasks.task(n).id for n in range(40)}) == 40
    assert check_env(env, tasks.take(5)).longest == 1


def test_rows_of_other_splits_are_left_out(tmp_path):
    drawn = GeneratedTasks(make_env("frozen-lake"), "train", seed=0).take(25)
    drawn += GeneratedTasks(make_env("frozen-lake"), "validation", seed=0).take(5)
    drawn += GeneratedTasks(make_env("frozen-lake"), "test", seed=0).take(9)
    maps = {tuple(task.data["map"]) for task in drawn}
    rows = [next(FrozenLakeQ(map=m).rows(np.random.default_rng(0))) for m in sorted(maps)]
    env = make_env("frozen-lake", slippery=True, data=write(tmp_path / "q.csv", rows))
    wanted = {m for m in maps if split_of(env.canonical({"map": m})) == "train"}
    assert 0 < len(wanted) < len(maps)
    tasks = GeneratedTasks(env, "train", seed=0)
    assert not tasks.seen
    assert {tuple(tasks.task(n).data["map"]) for n in range(len(wanted))} == wanted


def test_a_wrong_row_is_told_with_its_line(tmp_path, expert):
    expert[4]["q_value_up"] = "?"
    env = make_env("frozen-lake", slippery=True, data=write(tmp_path / "q.csv", expert))
    with pytest.raises(DataError, match=r"q\.csv' line 6: q_value_up = '\?' is not a finite"):
        env.tasks("train")


def test_a_file_of_few_maps_is_in_every_split(tmp_path):
    m = next(m for m in MAPS if split_of(make_env("frozen-lake").canonical({"map": m})) != "train")
    row = next(FrozenLakeQ(map=m).rows(np.random.default_rng(0)))
    env = make_env("frozen-lake", slippery=True, data=write(tmp_path / "q.csv", [row]))
    for split in ("train", "validation", "test"):
        tasks = GeneratedTasks(env, split, seed=0)
        assert (tasks.count, tasks.seen, tasks.problems.counts[split]) == (1, True, 1)
    with pytest.raises(DataError, match="has no rows: add states"):
        empty = make_env("frozen-lake", slippery=True, data=write(tmp_path / "e.csv", [row]))
        (tmp_path / "e.csv").write_text((tmp_path / "e.csv").read_text().split("\n")[0] + "\n")
        empty.tasks("train")
