"""The output and the exit code of each command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.app import loading, run_scores
from turnwise.cli.main import app
from turnwise.envs import ENVS
from turnwise.recipe.schema import load_recipe, recipe_names


def test_eval_prints_one_object(turnwise, smoke_run):
    result = turnwise("eval", smoke_run, "--tasks", 6, "--seed", 4, "--json")
    assert result.exit_code == 0
    scores = json.loads(result.stdout)
    assert (scores["env"], scores["tasks"], scores["seed"]) == ("frozen-lake", 6, 4)
    assert (scores["split"], scores["seen"]) == ("test", False)
    for name in ("score", "stderr", "score_sampled", "score_sampled_stderr"):
        assert isinstance(scores[name], float)
    assert {"random", "reflex", "optimal", "warmup"} <= set(scores["baselines"])
    assert set(scores["baselines"]) == set(scores["baselines_stderr"]) == set(scores["paired"])
    assert scores["baselines"]["optimal"] == 1.0
    assert set(scores["measures"]) <= {"steps", "falls"}  # it may give no answer at all
    assert scores["baselines_measures"]["shortest-path"]["falls"]["mean"] == 0
    assert {"random", "reflex", "optimal"} <= set(scores["baselines_measures"])
    assert result.stderr == ""


def test_eval_is_a_function_of_its_arguments(turnwise, smoke_run):
    def scores(*arguments):
        found = json.loads(turnwise("eval", smoke_run, *arguments, "--json").stdout)
        return {name: value for name, value in found.items() if name != "seconds"}

    assert scores("--tasks", 8, "--seed", 2) == scores("--tasks", 8, "--seed", 2)
    assert scores("--tasks", 8, "--seed", 2) != scores("--tasks", 8, "--seed", 3)


def test_eval_draws_a_table_with_all_baselines(turnwise, smoke_run):
    result = turnwise("eval", smoke_run, "--tasks", 4)
    assert result.exit_code == 0
    assert "4 unseen tasks, seed 0" in result.stdout
    for name in ("trained, greedy", "trained, sampled", "random", "reflex", "optimal", "warmup"):
        assert name in result.stdout
    assert "measured in final states: means and standard errors" in result.stdout


def test_the_policy_and_the_baselines_meet_the_same_slips(turnwise, rightward_run):
    """A policy that always goes right is `always-right`, task by task, whatever the seed."""
    for seed in (0, 5):
        result = turnwise("eval", rightward_run, "--tasks", 60, "--seed", seed, "--json")
        scores = json.loads(result.stdout)
        assert 0 < scores["score"] < 1
        assert scores["score"] == scores["baselines"]["always-right"]
        lead = scores["paired"]["always-right"]
        # Equal pairs are no certainty: another problem may differ, and here some are drawn often.
        assert lead["difference"] == 0 < lead["stderr"] < 0.5


def test_independent_noise_is_for_training_groups_alone(rightward_run):
    scores = run_scores.evaluate_run(
        rightward_run, tasks=60, seed=5, overrides=["trainer.noise=independent"]
    )
    assert scores.paired["always-right"].difference == 0.0


def test_watching_a_policy_shows_the_episode_that_was_played(turnwise, rightward_run):
    """On slippery ice the pictures lead to where the score was earned."""
    ends = set()
    for seed in range(5):
        result = turnwise(
            "play", "frozen-lake", "--run", rightward_run, "--seed", seed,
            "--set", "slippery=true", "--set", "frozen_probability=0.95",
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        *_, where, score = result.stdout.strip().splitlines()
        assert ("the goal" in where) == score.startswith("score 1 ")
        assert ("steps left" in where) <= ("0 of" in where)
        ends.add(where.partition(", ")[2])
    assert len(ends) > 1


def test_watching_a_run_plays_its_own_env(turnwise, rightward_run):
    """The ice is slippery as in the run's recipe, without a word about it."""
    told = ("--seed", 3, "--set", "slippery=true", "--set", "frozen_probability=0.95")
    named = turnwise("play", "frozen-lake", "--run", rightward_run, *told)
    alone = turnwise("play", "--run", rightward_run, "--seed", 3)
    assert alone.exit_code == 0, alone.output
    assert alone.stdout == named.stdout
    changed = turnwise("play", "--run", rightward_run, "--set", "slipery=false")
    assert "did you mean 'slippery'" in changed.stderr


def test_phases_without_steps_are_skipped(turnwise, rightward_run, smoke_run, sets, tmp_path):
    assert loading.load_run(rightward_run).checkpoint.phase == "warmup"
    recipe = smoke_run / "recipe.toml"
    run = tmp_path / "run"
    result = turnwise("train", recipe, *sets("warmup.steps=0"), "--run", run, "--json")
    assert result.exit_code == 0, result.output
    phases = {json.loads(line)["phase"] for line in (run / "metrics.jsonl").open()}
    assert phases == {"train"}


def test_a_fixed_map_is_not_called_unseen(turnwise, smoke_run):
    result = turnwise(
        "eval", smoke_run, "--tasks", 2,
        "--set", "env.options.map=['SFF','FFF','FFG']", "--set", "env.options.size=none",
        "--set", "env.warmup=none", "--set", "env.training=none",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "2 seen tasks" in result.stdout


def test_training_ends_with_the_scores_and_the_report(turnwise, smoke_run, sets, tmp_path):
    recipe, run = smoke_run / "recipe.toml", tmp_path / "again"
    result = turnwise("train", recipe, *sets("evaluation.test_tasks=3"), "--run", run)
    assert result.exit_code == 0, result.output
    assert "trained, greedy" in result.stdout
    assert f"report: {run / 'report.md'}" in result.stdout
    assert (run / "report.md").read_text().startswith("# again")
    assert "warm-up 2/2" in result.stdout
    assert "training 2/2" in result.stdout


def test_an_adapter_is_trained_saved_and_judged(turnwise, smoke_run, sets, tmp_path):
    """From the base that another run made; checkpoints hold the adapter alone, in PEFT's format."""
    base, run = smoke_run / "models" / "main", tmp_path / "adapter"
    result = turnwise(
        "train", "frozen-lake", "--run", run, "--json",
        *sets("preset=smoke", f"policies.main.model={base}", "policies.main.lora.rank=4",
              "policies.main.device=cpu"),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert {"random", "warmup"} <= set(json.loads(result.stdout)["scores"]["baselines"])
    policy = loading.load_run(run).checkpoint.path / "policies/main"
    settings = json.loads((policy / "adapter_config.json").read_text())
    assert settings["r"] == 4
    assert (policy / "adapter_model.safetensors").is_file()
    assert not (policy / "model.safetensors").exists()
    assert turnwise("eval", run, "--tasks", 2).exit_code == 0


def test_resuming_a_finished_run_trains_no_further(turnwise, smoke_run):
    before = (smoke_run / "metrics.jsonl").read_text()
    result = turnwise("resume", smoke_run, "--json")
    assert result.exit_code == 0, result.output
    assert (smoke_run / "metrics.jsonl").read_text() == before
    assert "has done its 2 iterations, and only tests what it has learned" in result.stderr


def test_a_finished_run_refuses_what_would_change_nothing(turnwise, sets, smoke_run, tmp_path):
    run = shutil.copytree(smoke_run, tmp_path / "run")
    before = (run / "recipe.toml").read_text()
    result = turnwise("resume", run, *sets("credit.scheme=grpo"))
    assert result.exit_code == 2
    assert "credit.scheme would change nothing, as the run has finished its 2" in result.stderr
    assert (run / "recipe.toml").read_text() == before


def test_a_change_that_cannot_be_is_not_kept(turnwise, sets, smoke_run, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    run = shutil.copytree(smoke_run, tmp_path / "run")
    recipe, scores = (run / "recipe.toml").read_text(), (run / "eval.json").read_text()
    change = sets("policies.main.device=cuda", "trainer.iterations=3")
    result = turnwise("resume", run, *change)
    assert result.exit_code == 2
    assert "device = 'cuda' is not available here" in result.stderr
    assert (run / "recipe.toml").read_text() == recipe
    assert (run / "eval.json").read_text() == scores


def test_report_is_written_again(turnwise, smoke_run):
    (smoke_run / "report.md").unlink()
    result = turnwise("report", smoke_run)
    assert result.exit_code == 0
    assert "trained, greedy" in (smoke_run / "report.md").read_text()


def test_recipes_are_listed(turnwise):
    listed = json.loads(turnwise("recipes", "--json").stdout)["recipes"]
    assert [recipe["name"] for recipe in listed] == recipe_names()
    assert all("smoke" in recipe["presets"] for recipe in listed)
    table = turnwise("recipes").stdout
    assert "gigpo" in table


def test_a_recipe_is_printed_as_a_file_that_trains_the_same(turnwise, tmp_path):
    own = tmp_path / "own.toml"
    own.write_text(turnwise("recipes", "sudoku-two-policy").stdout, encoding="utf-8")
    assert load_recipe(str(own)) == load_recipe("sudoku-two-policy")
    assert turnwise("recipes", own).stdout == own.read_text(encoding="utf-8")
    (listed,) = json.loads(turnwise("recipes", "relay", "--json").stdout)["recipes"]
    assert listed["name"] == "relay"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("arguments", [["recipes"], ["recipes", "--json"], ["envs"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_to_a_full_disk_is_one_sentence(arguments, unbuffered):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "turnwise", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        "error: the output cannot be written (no space left on device): send it elsewhere\n"
    )


def test_output_that_is_closed_is_one_sentence():
    words = [sys.executable, "-m", "turnwise", "recipes", "--json"]
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *words]
    done = subprocess.run(shell, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr == "error: the output cannot be written (it is closed): send it elsewhere\n"


def test_envs_are_listed_with_every_option(turnwise):
    listed = json.loads(turnwise("envs", "--json").stdout)["envs"]
    assert [env["name"] for env in listed] == list(ENVS)
    for env in listed:
        kind = ENVS[env["name"]]
        assert set(env["options"]) == set(kind.config_class.model_fields)
        assert all(option["help"] for option in env["options"].values())
        assert set(env["rewards"]) == set(kind.components)
    text = turnwise("envs").stdout
    assert "frozen-lake" in text
    assert "slippery" in text


def test_one_env_is_described_with_what_it_is_derived_from(turnwise):
    said = " ".join(turnwise("envs", "n-queens").stdout.split())
    assert "The `n-queens` env" in said and "The env of a planning puzzle" in said
    assert "moves_per_call" in said and "slippery" not in said
    (listed,) = json.loads(turnwise("envs", "n-queens", "--json").stdout)["envs"]
    assert listed["name"] == "n-queens"


def test_an_env_of_the_user_is_described(turnwise, tmp_path):
    file = tmp_path / "mine.py"
    head = '"""My game."""\nfrom turnwise.envs.relay import Relay\n'
    text = head + 'class Mine(Relay):\n    name = "mine"\n'
    file.write_text(text, encoding="utf-8")
    said = turnwise("envs", f"{file}:Mine").stdout
    assert said.startswith("My game.") and "legs" in said


@pytest.mark.parametrize("command", ["recipes", "envs"])
def test_a_misspelt_name_is_refused_with_the_near_one(turnwise, command):
    result = turnwise(command, "sokobn-single" if command == "recipes" else "sokobn")
    assert result.exit_code == 2
    assert "did you mean 'sokoban" in result.stderr


@pytest.mark.parametrize("baseline", ["random", "reflex", "optimal"])
def test_a_baseline_plays(turnwise, baseline):
    result = turnwise("play", "frozen-lake", "--baseline", baseline, "--seed", 3)
    assert result.exit_code == 0
    assert f"{baseline}: " in result.stdout
    assert "score" in result.stdout.strip().splitlines()[-1]
    assert turnwise("play", "frozen-lake", "--baseline", baseline, "--seed", 3).stdout == (
        result.stdout
    )


def test_the_optimum_wins_and_seeds_draw_other_tasks(turnwise):
    ends = [
        turnwise("play", "frozen-lake", "--baseline", "optimal", "--seed", seed).stdout
        for seed in range(3)
    ]
    assert all("score 1" in end for end in ends)
    assert len(set(ends)) == 3


def test_a_person_plays_by_first_letters():
    arguments = ["play", "frozen-lake", "--set", "map=['SF','FG']"]
    won = CliRunner().invoke(app, arguments, input="d\n[/x]\nRIGHT\n")
    assert won.exit_code == 0
    assert "'[/x]' is none of LEFT, DOWN, RIGHT, UP" in won.stdout
    assert "the end after 2 steps, score 1" in won.stdout
    for words in ("quit\n", ""):
        left = CliRunner().invoke(app, arguments, input=words)
        assert left.exit_code == 0
        assert "score" not in left.stdout


def test_a_person_plays_by_numbers():
    options = ["env.options.id=MountainCarContinuous", "repeat=10", "steps=20"]
    arguments = ["play", "gymnasium", *(part for pair in options for part in ("--set", pair))]
    played = CliRunner().invoke(app, arguments, input="2\nforwards\n1\n-0.5\n")
    assert played.exit_code == 0
    for typed in ("2", "forwards"):
        assert f"'{typed}' is no action: give a number from -1 to 1" in played.stdout
    assert "the step limit after 2 steps, score 0" in played.stdout


def test_check_measures_an_env(turnwise):
    result = turnwise("check", "frozen-lake", "--set", "size=5", "--json")
    assert result.exit_code == 0
    costs = json.loads(result.stdout)["costs"]
    assert all(value > 0 for value in costs.values())
    assert "keeps the contract" in turnwise("check", "frozen-lake").stdout


def test_init_makes_a_model_that_trains(turnwise, sets, tmp_path):
    model = tmp_path / "model"
    result = turnwise("init", model, "--size", "nano", "--seed", 3)
    assert result.exit_code == 0, result.output
    assert "parameters" in result.stdout
    assert (model / "model.safetensors").is_file()
    again = tmp_path / "again"
    assert turnwise("init", again, "--seed", 3).exit_code == 0
    weights = [(folder / "model.safetensors").read_bytes() for folder in (model, again)]
    assert weights[0] == weights[1]


def test_help_names_every_command(turnwise):
    result = turnwise("--help")
    for command in (
        "train",
        "resume",
        "docs",
        "eval",
        "report",
        "recipes",
        "envs",
        "check",
        "init",
        "play",
    ):
        assert command in result.stdout


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_table_cuts_a_name(turnwise, monkeypatch, width):
    from turnwise.cli import options

    monkeypatch.setattr(options.console, "_width", width)
    said = turnwise("recipes").stdout
    for name in recipe_names():
        assert name in said
    assert "…" not in said + turnwise("envs").stdout + turnwise("bench", "works").stdout
    assert max(map(len, said.splitlines())) <= width
