"""The commands on a finished run of two policies."""

from __future__ import annotations

import json
import shutil
import tomllib

import pytest
import tomli_w
from typer.testing import CliRunner

from turnwise.app import run_scores
from turnwise.cli.main import app

SIZES = "nano={hidden=32,layers=1,heads=2,kv_heads=1,head_dim=16,intermediate=64}"
TEAM = (
    "preset=models",
    "preset=smoke",
    *(f"policies.{name}.{SIZES}" for name in ("scout", "digger")),
    "warmup={steps=60,eval_every=60,batch_size=16,optimizer={lr=1e-2,warmup_steps=0}}",
    "trainer.tasks_per_iteration=4",
    "trainer.group_size=4",
    "env.options.size=2",
    "credit.scheme=reinforce",
    "device=cpu",
    "engine.probe_tokens=64",
    "forest.probe_tokens=64",
)


@pytest.fixture(scope="module")
def team_run(turnwise, sets, tmp_path_factory):
    """A finished run of a scout and a digger with a model each."""
    run = tmp_path_factory.mktemp("runs") / "team"
    result = turnwise("train", "relay", *sets(*TEAM), "--run", run)
    assert result.exit_code == 0, result.output
    return run


def test_the_report_has_a_row_for_every_policy(turnwise, team_run):
    (team_run / "report.md").unlink()
    result = turnwise("report", team_run)
    assert result.exit_code == 0, result.output
    text = (team_run / "report.md").read_text()
    _, section = text.split("## Policies")
    rows = [line.split(" | ")[:2] for line in section.splitlines() if line.startswith("| ")]
    assert rows[1:3] == [["| digger", "2"], ["| scout", "2"]]


def test_a_team_is_evaluated_with_both_policies(turnwise, team_run):
    result = turnwise("eval", team_run, "--tasks", 3, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["tasks"] == 3
    loaded = run_scores.load_run(team_run)
    before = {name: policy.digest() for name, policy in loaded.policies.items()}
    loaded.use_checkpoint()
    after = {name: policy.digest() for name, policy in loaded.policies.items()}
    assert sorted(after) == ["digger", "scout"]
    assert all(after[name] != before[name] for name in after)


def test_watching_a_team_names_who_speaks(turnwise, team_run):
    result = turnwise("play", "relay", "--set", "size=2", "--run", team_run)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("scout sees: ")
    assert any(line.startswith("scout: ") for line in lines)
    assert lines[-1].startswith("score ")


def test_a_person_sees_what_the_acting_seat_sees():
    played = CliRunner().invoke(app, ["play", "relay", "--set", "size=2"], input="aa\nba\n")
    assert played.stdout.startswith("scout sees: ")


def test_watching_goes_on_after_a_reply_that_is_no_action(turnwise, team_run, tmp_path):
    """Every reply is cut after one token, and the scout is asked again until the cap on turns."""
    run = tmp_path / "run"
    shutil.copytree(team_run, run)
    recipe = (run / "recipe.toml").read_text()
    recipe = recipe.replace('invalid_reply = "end"', 'invalid_reply = "continue"')
    (run / "recipe.toml").write_text(recipe.replace("max_tokens = 24", "max_tokens = 1"))
    result = turnwise("play", "relay", "--set", "size=2", "--run", run)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert sum(line.startswith("no action: no <answer>") for line in lines) == 2
    assert lines[-1] == "score 0 after 2 turns"


def test_watching_a_run_needs_an_env_of_its_roles(turnwise, team_run):
    result = turnwise("play", "frozen-lake", "--run", team_run)
    assert result.exit_code == 2, result.output
    assert "env 'frozen-lake' has the roles ['player'], and run" in result.stderr
    assert "plays ['digger', 'scout']: give the env of the run, 'relay'" in result.stderr


def test_a_remote_policy_of_a_run_is_no_source_of_weights(
    turnwise, is_one_sentence, team_run, tmp_path
):
    run = tmp_path / "run"
    shutil.copytree(team_run, run)
    recipe = tomllib.loads((run / "recipe.toml").read_text())
    endpoint = {"kind": "remote", "base_url": "http://127.0.0.1:1/v1", "model": "x"}
    recipe["policies"]["scout"] = endpoint
    (run / "recipe.toml").write_text(tomli_w.dumps(recipe))
    result = turnwise("eval", team_run, "--policy", f"scout={run}:scout")
    is_one_sentence(result, f"policy '{run}:scout' is remote and has no weights: name its endpoint")
