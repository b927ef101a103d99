"""Every mistake that a person can mend is one sentence on standard error and exit code 2."""

from __future__ import annotations

import json

import pytest

MISTAKES = {
    "an unknown recipe": (["train", "frozen-lak"], "did you mean 'frozen-lake'"),
    "a missing file": (["train", "nowhere.toml"], "no recipe file at 'nowhere.toml'"),
    "a misspelt key": (
        ["train", "frozen-lake", "--set", "trainer.iteratoins=1"],
        "did you mean 'trainer.iterations'",
    ),
    "a misspelt preset": (
        ["train", "frozen-lake", "--set", "preset=smokey"], "did you mean 'smoke'",
    ),
    "a misspelt scheme": (
        ["train", "frozen-lake", "--set", "credit.scheme=gigop"], "did you mean 'gigpo'",
    ),
    "a wrong type": (
        ["train", "frozen-lake", "--set", "trainer.iterations=many"], "valid integer",
    ),
    "brackets in a message": (
        ["train", "frozen-lake", "--set", "agents.referee.max_tokens=3"],
        "agents are ['player', 'referee']",
    ),
    "an override without a value": (["train", "frozen-lake", "--set", "seed"], "section.key=value"),
    "an impossible combination": (
        ["train", "frozen-lake", "--set", "trainer.group_size=1"], "nothing to compare",
    ),
    "resuming nothing": (["resume"], "Missing argument"),
    "resuming what is not there": (
        ["resume", "nowhere"], "no run folder at 'nowhere'",
    ),
    "an unknown document": (["docs", "sped"], "did you mean 'speed'"),
    "a model that is nearly a preset": (
        ["train", "frozen-lake", "--set", "policies.main.model=nanoo"], "did you mean 'nano'",
    ),
    "evaluating nothing": (["eval", "nowhere"], "no run folder at 'nowhere'"),
    "reporting nothing": (["report", "nowhere"], "no run folder at 'nowhere'"),
    "an unknown env to play": (["play", "frozen-laek"], "did you mean 'frozen-lake'"),
    "an unknown baseline": (
        ["play", "frozen-lake", "--baseline", "optimale"], "did you mean 'optimal'",
    ),
    "two players": (
        ["play", "frozen-lake", "--baseline", "random", "--run", "x"], "not both",
    ),
    "a run to watch that is not there": (
        ["play", "frozen-lake", "--run", "nowhere"], "no run folder",
    ),
    "nothing to play": (["play"], "no env to play: give its name, or a run by --run"),
    "a sweep that is not there": (["sweep", "nosuch.toml"], "no recipe file at 'nosuch.toml'"),
    "a misspelt recipe to sweep": (["sweep", "frozen-lak"], "did you mean 'frozen-lake'"),
    "a run to watch, alone, that is not there": (["play", "--run", "nowhere"], "no run folder"),
    "an unknown env to check": (["check", "frozen-laek"], "did you mean 'frozen-lake'"),
    "an option of no env": (["check", "frozen-lake", "--set", "sise=4"], "did you mean 'size'"),
    "an option of a wrong type": (["play", "frozen-lake", "--set", "size=big"], "size = 'big'"),
    "a model where something is": (["init", "."], "exists"),
    "a model of no size": (["init", "new-model", "--size", "huge"], "unknown"),
    "a model for no recipe": (["init", "new-model", "--recipe", "lake"], "frozen-lake"),
    "too few tasks": (["eval", "nowhere", "--tasks", "0"], "--tasks"),
    "no such command": (["trian"], "trian"),
    "a missing argument": (["train"], "Missing argument"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_2(turnwise, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    arguments, words = MISTAKES[case]
    result = turnwise(*arguments)
    assert result.exit_code == 2
    said = result.stderr.replace("\n", " ")
    assert words in said
    assert "Traceback" not in result.output
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit)
    if said.startswith("error:"):
        assert result.stderr.count("\n") == 1
        assert result.stdout == "" or arguments[0] == "train"


def test_nothing_is_left_behind_by_a_recipe_that_cannot_be(turnwise, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    turnwise("train", "frozen-lake", "--set", "trainer.group_size=1")
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_not_begun_twice(turnwise, smoke_run):
    result = turnwise("train", "frozen-lake", "--run", smoke_run)
    assert result.exit_code == 2
    assert f"`turnwise resume {smoke_run}`" in result.stderr


def test_a_run_without_checkpoints_cannot_be_judged(turnwise, smoke_run, tmp_path):
    run = tmp_path / "young"
    run.mkdir()
    (run / "recipe.toml").write_text((smoke_run / "recipe.toml").read_text())
    result = turnwise("eval", run)
    assert result.exit_code == 2
    assert "has no checkpoint yet" in result.stderr


def test_a_misspelt_run_gets_the_nearest(turnwise, smoke_run):
    result = turnwise("eval", smoke_run.parent / "smoek")
    assert result.exit_code == 2
    assert f"did you mean '{smoke_run}'" in result.stderr


def test_an_override_of_a_run_that_cannot_be_is_refused(turnwise, smoke_run):
    result = turnwise("eval", smoke_run, "--set", "env.options.sise=5", "--json")
    assert result.exit_code == 2
    assert "did you mean 'size'" in result.stderr
    with pytest.raises(json.JSONDecodeError):
        json.loads(result.stdout)
