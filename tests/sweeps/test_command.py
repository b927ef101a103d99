"""`turnwise sweep`: its arguments, its table and JSON, and exit codes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from turnwise.cli.main import app


@pytest.fixture
def command(tmp_path, monkeypatch, starts):
    """Run `turnwise sweep` with words in an empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*words):
        return CliRunner().invoke(app, ["sweep", *map(str, words)])

    return run


def test_a_grid_on_the_command_line(command, tmp_path, starts):
    words = ("frozen-lake", "--over", "optimizer.lr=1e-3,1e-4", "--over", "seed=0,1", "--set",
             "preset=fast", "--workers", 2)  # fmt: skip
    done = command(*words, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["folder"] == "runs/sweep-frozen-lake"
    assert [group["settings"] for group in found["groups"]] == [
        {"optimizer.lr": 1e-3}, {"optimizer.lr": 1e-4}
    ]  # fmt: skip
    assert found["groups"][0]["values"] == {
        "optimizer.lr=0.001 seed=0": 0.001, "optimizer.lr=0.001 seed=1": 1.001
    }  # fmt: skip
    assert (found["missing"], found["failed"]) == ([], {})
    shown = command(*words)
    assert len(starts()) == 4, "nothing was trained again"
    assert "0.501" in shown.stdout and "runs/sweep-frozen-lake/plot.png" in shown.stdout


def test_a_file_with_another_measure_and_more_values(command, tmp_path):
    file = tmp_path / "here" / "rates.toml"
    file.write_text('recipe = "frozen-lake"\n[grid]\nseed = [0, 1]\n')
    done = command("rates.toml", "--measure", "total/episodes", "--over", "seed=0,1,2", "--json")
    found = json.loads(done.stdout)
    assert found["folder"] == "runs/sweep-rates"
    assert (found["measure"], found["groups"][0]["mean"]) == ("total/episodes", 20)
    assert found["groups"][0]["runs"] == 3
    none = command("rates.toml", "--measure", "scor", "--folder", "runs/sweep-rates")
    assert "has no number 'scor'" in none.stdout


def test_a_measure_that_no_run_has_is_told_after_the_first_run(command):
    none = command("frozen-lake", "--over", "seed=0,1", "--measure", "scor", "--workers", 1)
    told = " ".join(none.stdout.split())
    cure = "seed=0: has no number 'scor': did you mean 'score'? The same command with another"
    assert told.index(cure) < told.index("sweep 1/2")


def test_a_failure_has_exit_code_2_and_is_told(command):
    done = command("frozen-lake", "--over", "seed=13,0", "--workers", 1)
    assert done.exit_code == 2
    assert "seed=13: failed: unlucky [number]" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("frozen-lake",), "nothing to vary: give --over KEY=VALUE,VALUE"),
        (("frozen-lake", "--over", "seed"), "must look like section.key=value,value"),
        (("frozen-lake", "--over", "seed=0", "--over", "seed=1"), "--over seed is given twice"),
        (("frozen-lake", "--over", "sed=0,1"), "unknown key 'sed', did you mean 'seed'"),
        (("frozen-lak", "--over", "seed=0,1"), "did you mean 'frozen-lake'"),
        (("frozen-lake", "--over", "seed=0", "--set", "seed=1"), "is in settings and is varied"),
        (("none.toml", "--over", "seed=0"), "none.toml"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(command, words, says, tmp_path):
    done = command(*words)
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())
    assert not (tmp_path / "here" / "runs").exists()
