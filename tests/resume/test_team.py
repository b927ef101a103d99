"""A run of three policies, or of two adapters on one base, ends so wherever it was killed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from turnwise.recipe.schema import load_recipe

HERE = Path(__file__).parent
ENV = f"{HERE.parent / 'trainers' / 'words.py'}:ThreeWords"
POLICIES = ("first", "second", "third")
LORA = (
    "preset=lora",
    "preset=smoke",
    "warmup=none",
    *(f"policies.{name}.nano.hidden=32" for name in ("scout", "digger")),
    "pretrain={steps=60,eval_every=20,batch_size=16,perception_tasks=4,optimizer={lr=1e-2}}",
    *(f"agents.{role}.temperature=1.0" for role in ("scout", "digger")),
    "env.options.size=2",
    "trainer.tasks_per_iteration=4",
    "trainer.group_size=4",
    "device=cpu",
    "engine.probe_tokens=64",
    "forest.probe_tokens=64",
)
KILLS = {
    "making the models": [{"place": "renaming"}, {"place": "renaming", "call": 2}],
    "saving the second policy in warm-up": [
        {"place": "saving weights", "call": 2},
        {"place": "saving optimizer", "call": 3, "after": True},
    ],
    "keeping the start of the second policy": [
        {"place": "step", "call": 110},
        {"place": "saving weights", "call": 5},
    ],
    "between the steps of two policies": [
        {"place": "step", "call": 129},
        {"place": "step", "call": 3, "after": True},
    ],
    "saving the third policy in training": [
        {"place": "saving weights", "call": 12},
        {"place": "saving optimizer", "call": 2, "after": True},
    ],
    "before a checkpoint is whole": [{"place": "sealing", "call": 4}, {"place": "sealing"}],
    "in validation and in the test": [{"place": "validation", "call": 2}, {"place": "test"}],
}
"""Where the run is killed, and where the resumed one is killed again."""


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """The recipe of three policies, with the place of its env."""
    file = tmp_path_factory.mktemp("three") / "three.toml"
    file.write_text((HERE / "three.toml").read_text().replace("ENV", ENV))
    return file


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """The recipe of two adapters on one base that is trained first."""
    file = tmp_path_factory.mktemp("relay") / "relay.toml"
    file.write_text(load_recipe("relay", LORA).to_toml())
    return file


def finished(turnwise, traces, recipe, folder):
    ended = turnwise.train(folder / "run", recipe=recipe)
    assert ended.code == 0, ended.said
    return traces(folder / "run")


@pytest.fixture(scope="module")
def whole(turnwise, traces, three, tmp_path_factory):
    """The run of three policies that was never interrupted."""
    return finished(turnwise, traces, three, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def whole_relay(turnwise, traces, relay, tmp_path_factory):
    """The run of two adapters that was never interrupted."""
    return finished(turnwise, traces, relay, tmp_path_factory.mktemp("whole-relay"))


def kill_twice(turnwise, run, recipe, events):
    """Start a run that is killed, resume it until it is killed again, and resume it to its end."""
    first, second = events
    assert turnwise.train(run, first, recipe=recipe).code == -9
    assert turnwise.resume(run, second).code == -9
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said


def test_every_policy_of_the_whole_run_has_something_to_lose(whole):
    trained = [record for record in whole["metrics"] if record["phase"] == "train"]
    assert len(trained) == 4
    last = max(name for name in whole if name.startswith("checkpoints/") and " " not in name)
    for name in POLICIES:
        assert any(f"{name}/loss/total" in record for record in trained)
        assert whole[f"start/{name}"] != whole[last]["weights"][name]
        assert whole[f"{last}/{name} optimizer"]["steps"] > 0


def test_a_team_killed_twice_ends_with_the_same_numbers(
    turnwise, whole, traces, differences, three, tmp_path
):
    events = KILLS["between the steps of two policies"]
    kill_twice(turnwise, tmp_path / "run", three, events)
    assert differences(traces(tmp_path / "run"), whole) == []


@pytest.mark.slow
@pytest.mark.parametrize("where", KILLS)
def test_a_team_killed_anywhere_ends_so(
    turnwise, whole, traces, differences, three, tmp_path, where
):
    kill_twice(turnwise, tmp_path / "run", three, KILLS[where])
    assert differences(traces(tmp_path / "run"), whole) == []


def test_two_adapters_begin_with_the_base_that_was_trained(whole_relay):
    phases = [record["phase"] for record in whole_relay["metrics"]]
    assert [phase for phase, _ in itertools.groupby(phases)] == ["pretrain", "train"]
    assert {"base", "adapters", "start"} <= set(whole_relay["folders"])
    assert {"adapters/scout/grpo", "adapters/digger/grpo"} <= set(whole_relay)


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_team_killed_at_the_saving_of_its_base_ends_so(
    turnwise, whole_relay, traces, differences, relay, tmp_path, after
):
    run = tmp_path / "run"
    event = {"place": "saving weights", "call": 4, "after": after}
    assert turnwise.train(run, event, recipe=relay).code == -9
    assert list((run / "checkpoints").glob("*-pretrain-60"))
    assert not (run / "base").exists(), "it appears when it is whole"
    ended = turnwise.resume(run)
    assert ended.code == 0, ended.said
    assert differences(traces(run), whole_relay) == []
