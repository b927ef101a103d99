"""Training tasks out of a file: every row, of one split, with the line in every complaint."""

from __future__ import annotations

import csv
from itertools import islice

import numpy as np
import pytest

from turnwise.envs import make_env
from turnwise.envs.datasets import FrozenLakeQ
from turnwise.errors import DataError
from turnwise.tasks import FileTasks, split_of

MAPS = [("SFFF", "FFFF", "FFFF", "FFFG"), ("SFFF", "FHFF", "FFHF", "FFFG"),
        ("SHFF", "FFFF", "FHFF", "FFFG"), ("SFFF", "FHFH", "FFFH", "HFFG"),
        ("SFFH", "FFFF", "HFFF", "FFFG"), ("SFHF", "FFFF", "FFHF", "HFFG")]  # fmt: skip


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def expert():
    return list(islice(FrozenLakeQ().rows(np.random.default_rng(0)), 20))


def test_each_pass_meets_every_row_once_in_another_order(tmp_path, expert):
    path = write(tmp_path / "q.csv", expert)
    env = make_env("frozen-lake", map=MAPS[3], slippery=True)
    tasks = FileTasks(env, path, "train", seed=0)
    passes = [[tasks.task(n + 20 * p).id.rsplit("-", 1)[0] for n in range(20)] for p in (0, 1)]
    assert sorted(passes[0]) == sorted(passes[1]) and passes[0] != passes[1]
    assert len(set(passes[0])) == 20
    assert tasks.task(7) == FileTasks(env, path, "train", seed=0).task(7)
    assert len({tasks.task(n).id for n in range(40)}) == 40


def test_rows_of_other_splits_are_left_out(tmp_path):
    rows = [next(FrozenLakeQ(map=m).rows(np.random.default_rng(0))) for m in MAPS]
    path, env = write(tmp_path / "q.csv", rows), make_env("frozen-lake", slippery=True)
    wanted = {m for m in MAPS if split_of(env.canonical({"map": m})) == "train"}
    assert 0 < len(wanted) < len(MAPS)
    tasks = FileTasks(env, path, "train", seed=0)
    assert {tuple(tasks.task(n).data["map"]) for n in range(30)} == wanted


def test_a_wrong_row_is_told_with_its_line(tmp_path, expert):
    expert[4]["q_value_up"] = "?"
    path = write(tmp_path / "q.csv", expert)
    with pytest.raises(DataError, match=r"q\.csv' line 6: q_value_up = '\?' is not a finite"):
        FileTasks(make_env("frozen-lake", slippery=True), path, "train", seed=0)


def test_a_file_without_a_task_of_the_split_is_refused(tmp_path):
    m = next(m for m in MAPS if split_of(make_env("frozen-lake").canonical({"map": m})) != "train")
    path = write(tmp_path / "q.csv", [next(FrozenLakeQ(map=m).rows(np.random.default_rng(0)))])
    with pytest.raises(DataError, match="has no task of the train split: give more rows"):
        FileTasks(make_env("frozen-lake", slippery=True), path, "train", seed=0)
