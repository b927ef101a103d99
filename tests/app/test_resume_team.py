"""A run of several policies goes on: what may change, and what is refused as another team."""

from __future__ import annotations

import shutil

import pytest

from turnwise.app import lifecycle
from turnwise.errors import ConfigError, RunError
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run, read_metrics
from turnwise.trainers.progress import Silent

NANO = "nano={hidden=16,layers=1,heads=2,kv_heads=1,head_dim=8,intermediate=16}"
SMALL = (
    "preset=models",
    "preset=smoke",
    *(f"policies.{name}.{NANO}" for name in ("scout", "digger")),
    "warmup.steps=1",
    "sft_mix.rows=2",
    "evaluation.validation_tasks=2",
    "evaluation.test_tasks=2",
    "engine.probe_tokens=64",
    "forest.probe_tokens=64",
    "device=cpu",
)
HAND = {
    "a policy that is frozen": ("policies.scout.trainable=false",),
    "a policy of another name": ("policies.eyes.model=nano", "agents.scout.policy=eyes"),
    "a policy that is shared": ("agents.scout.policy=digger",),
    "a policy at a server": (
        "policies.scout={kind='remote',base_url='http://localhost:9/v1',model='m'}",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of two policies."""
    run = tmp_path_factory.mktemp("team") / "run"
    assert lifecycle.train(load_recipe("relay", SMALL), run=run).finished
    return run


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "run")


def test_the_rate_of_one_policy_may_change(run):
    learning = {"credit.scheme": "reinforce", "credit.rewards.invalid": -1.0}
    lifecycle.resume(run, {"policies.scout.lr": 0.0625, "trainer.iterations": 3} | learning)
    (last,) = [r for r in read_metrics(Run(run).metrics) if r["step"] == 3]
    assert last["scout/optim/lr"] == 0.0625
    assert last.get("digger/optim/lr", 1e-3) == 1e-3
    assert load_recipe(str(run / "recipe.toml")).weights["scout"].lr == 0.0625


def test_a_rate_that_would_change_nothing_is_refused(run):
    with pytest.raises(ConfigError, match=r"policies\.scout\.lr would change nothing"):
        lifecycle.resume(run, {"policies.scout.lr": 0.5})


def test_a_preset_is_refused_and_nothing_is_said_of_a_change_that_is_refused(run):
    class Watcher(Silent):
        notes = ()

        def note(self, text):
            self.notes += (text,)

    watcher = Watcher()
    for sets, words in (
        (["preset=spine"], "presets are applied when a run begins"),
        ({"preset": "spine"}, "presets are applied when a run begins"),
        (["policies.scout.model=pico"], "cannot change in a resumed run"),
    ):
        with pytest.raises(ConfigError, match=words):
            lifecycle.resume(run, sets, progress=watcher)
    assert not watcher.notes


@pytest.mark.parametrize("change", HAND)
def test_a_recipe_that_was_edited_to_another_team_is_refused(run, change):
    recipe = load_recipe(str(run / "recipe.toml"))
    data = [*HAND[change], "trainer.iterations=3"]
    if "policies.scout.trainable=false" not in data:
        data.insert(0, "policies.scout=none")
    edited = load_recipe(str(run / "recipe.toml"), data)
    assert edited.policies != recipe.policies
    (run / "recipe.toml").write_text(edited.to_toml())
    before = sorted(path.name for path in (run / "checkpoints").iterdir())
    with pytest.raises(
        RunError, match=r"holds the trained policies digger, scout, but '.*' trains"
    ):
        lifecycle.resume(run)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == before


def test_a_recipe_whose_stages_were_edited_is_refused(run):
    recipe = load_recipe(str(run / "recipe.toml"), ["stages=['warmup']"])
    (run / "recipe.toml").write_text(recipe.to_toml())
    with pytest.raises(RunError, match=r"was made in the stage 'train', which is none of stages"):
        lifecycle.resume(run)
