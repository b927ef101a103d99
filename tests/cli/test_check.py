"""`turnwise check`: the contract, the topologies, and what a recipe costs."""

from __future__ import annotations

import json
import tempfile

from turnwise.envs import make_env
from turnwise.workflows.topologies import TOPOLOGIES, topologies_of

from ..conftest import TINY


def test_an_env_that_is_right_ends_with_ok(turnwise):
    result = turnwise("check", "treasure", "--set", "chests=4")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "ok"
    assert "`turnwise check treasure --recipe` measures it" in result.stdout


def test_a_setting_of_the_recipe_of_this_name_is_told_apart(turnwise, is_one_sentence):
    result = turnwise("check", "relay", "--set", "preset=lora")
    is_one_sentence(result, "for the recipe of this name add --recipe")


def test_topologies_follow_from_what_an_env_declares(turnwise):
    lake = make_env("frozen-lake")
    assert topologies_of(lake) == dict.fromkeys(TOPOLOGIES, "")
    lake.reward_timing = "terminal"
    found = topologies_of(lake)
    assert found["independent"] == found["vine"] == ""
    assert "siblings of a turn before the last all earn the same" in found["spine"]
    lake.branching = "none"
    found = topologies_of(lake)
    assert found["independent"] == ""
    assert all("branching = 'none'" in found[name] for name in ("spine", "vine"))
    printed = json.loads(turnwise("check", "frozen-lake", "--json").stdout)
    assert printed["ok"] is True
    assert printed["workflow"] == "turns" and len(printed["topologies"]) == 4
    assert all(entry["allowed"] for entry in printed["topologies"].values())


WORKFLOW = """
from turnwise.types import Message


async def plans(agents, state):
    await agents["scout"].ask([Message(role="user", content="a plan?")])
    return await agents["scout"].act(state)
"""


def test_the_topologies_of_a_workflow_are_shown(turnwise, is_one_sentence, tmp_path):
    path = tmp_path / "plans.py"
    path.write_text(WORKFLOW)
    own = ("--workflow", f"{path}:plans")
    found = json.loads(turnwise("check", "relay", *own, "--json").stdout)
    allowed = {name: entry["allowed"] for name, entry in found["topologies"].items()}
    assert allowed.pop("independent") and not any(allowed.values())
    assert "write ask(messages, score=function)" in found["topologies"]["vine"]["refusal"]
    is_one_sentence(turnwise("check", "relay", "--recipe", *own), "give --set workflow=")


def test_a_recipe_is_measured_and_nothing_is_left_behind(turnwise, sets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    result = turnwise("check", "frozen-lake", "--recipe", *sets(*TINY), "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["ok"], found["recipe"], found["trained"]) == (True, "frozen-lake", True)
    assert 0 < found["rollout_seconds"] < found["seconds_per_iteration"] < 60
    assert found["megabytes"] > 50
    assert list(tmp_path.iterdir()) == [scratch]
    left = [path.name for path in scratch.iterdir()]
    assert [name for name in left if not name.startswith("torchinductor")] == []  # torch's own


def test_a_name_of_neither_an_env_nor_a_recipe(turnwise, is_one_sentence):
    is_one_sentence(turnwise("check", "treasur"), "unknown env or recipe 'treasur': did you mean")
    is_one_sentence(turnwise("check", "rows", "--recipe"), "unknown recipe 'rows'")
