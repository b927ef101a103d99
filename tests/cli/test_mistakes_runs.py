"""Folders that are no runs, runs in use, and runs that were damaged."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import pytest


def nothing(folder: Path) -> None:
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")


def young(folder: Path) -> None:
    shutil.copytree(folder.parent / "good", folder)
    shutil.rmtree(folder / "checkpoints")


def scribbled(folder: Path) -> None:
    shutil.copytree(folder.parent / "good", folder)
    (folder / "recipe.toml").write_text("name = ")


def edited(folder: Path) -> None:
    shutil.copytree(folder.parent / "good", folder)
    file = folder / "recipe.toml"
    file.write_text(file.read_text().replace("group_size = 2", "group_sise = 2"))


def torn(folder: Path) -> None:
    shutil.copytree(folder.parent / "good", folder)
    file = folder / "metrics.jsonl"
    file.write_text("{\n" + file.read_text())


def rotten(folder: Path) -> None:
    shutil.copytree(folder.parent / "good", folder)
    for weights in folder.glob("checkpoints/*/policies/main/model.safetensors"):
        flip(weights)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)


TRAIN, RESUME = ("train", "frozen-lake", "--run"), ("resume",)
CASES = {
    "a folder of other things, resumed": (nothing, RESUME, (), "is not a complete run folder"),
    "a folder of other things, begun": (nothing, TRAIN, (), "is not empty: give --run a folder"),
    "a folder of other things, judged": (nothing, ("eval",), (), "is not a complete run folder"),
    "a folder of other things, reported": (nothing, ("report",), (), "is not a complete run"),
    "a run without checkpoints, judged": (young, ("eval",), (), "has no checkpoint yet: let it"),
    "a run without checkpoints, watched": (
        young, ("play", "frozen-lake", "--run"), (), "has no checkpoint yet",
    ),
    "a recipe that was scribbled on": (scribbled, RESUME, (), "is not valid TOML"),
    "a recipe that was edited": (edited, ("eval",), (), "did you mean 'trainer.group_size'"),
    "a log that was edited": (torn, RESUME, (), "line 1 is not a JSON object: the log was edited"),
    "checkpoints that are all damaged": (rotten, RESUME, (), "another checksum"),
    "a damaged best checkpoint": (rotten, ("eval",), (), "delete it, so that the next best one"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_folder(turnwise, is_one_sentence, smoke_run, tmp_path, case):
    make, before, after, words = CASES[case]
    shutil.copytree(smoke_run, tmp_path / "good")
    make(tmp_path / "bad")
    kept = sorted(path for path in (tmp_path / "bad").rglob("*") if path.name != "run.lock")
    is_one_sentence(turnwise(*before, tmp_path / "bad", *after), words)
    left = sorted(path for path in (tmp_path / "bad").rglob("*") if path.name != "run.lock")
    assert set(kept) <= set(left), "nothing is lost"


def test_a_damaged_checkpoint_falls_back_to_the_one_before(turnwise, smoke_run, tmp_path):
    run = shutil.copytree(smoke_run, tmp_path / "run")
    *_, before, newest = sorted(p for p in (run / "checkpoints").iterdir() if p.is_dir())
    flip(newest / "policies/main/model.safetensors")
    result = turnwise("resume", run)
    assert result.exit_code == 0, result.output
    assert (
        f"checkpoint {newest.name} is damaged (policies/main/model.safetensors has" in result.stdout
    )
    assert f"going on from {before.name}" in result.stdout


def test_a_run_in_use(turnwise, is_one_sentence, smoke_run, tmp_path):
    run = shutil.copytree(smoke_run, tmp_path / "run")
    with (run / "run.lock").open("w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = turnwise("resume", run)
    is_one_sentence(result, "is in use by process 4711: wait for it, stop it, or choose another")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("train", "frozen-lake", "--run", "file/run"), "a part of the path is a file: choose"),
        (("train", "frozen-lake", "--run", "file"), "is a file: give --run a folder"),
        (("resume", "file"), "there is no run folder at 'file'"),
        (("train", "frozen-lake", "--run", "x" * 300), "the name is too long: choose another"),
        (
            ("train", "frozen-lake", "--run", "/proc/x/y"),
            "cannot be made (no such file or directory)",
        ),
        (("init", "file/model"), "something else has that name: choose another"),
    ],
)
def test_a_place_where_nothing_can_be_made(
    turnwise, is_one_sentence, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    is_one_sentence(turnwise(*arguments), words)
    assert (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
