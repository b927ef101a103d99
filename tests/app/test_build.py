"""From a recipe of several policies to their parts."""

from __future__ import annotations

import pytest

from turnwise.app.build import config_of, make_policies, trained_policies_of
from turnwise.policies import kept_threads
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run

SIZE = "{{hidden={},layers=1,heads=2,kv_heads=1,head_dim=16,intermediate=32}}"


def relay(preset, *more, hidden=(32, 48)):
    """Return the recipe of a scout and a digger with models of these widths."""
    sizes = [
        f"policies.{name}.nano={SIZE.format(width)}"
        for name, width in zip(("scout", "digger"), hidden, strict=True)
    ]
    given = (f"preset={preset}", "preset=smoke", *sizes, "device=cpu", "forest.probe_tokens=64")
    return load_recipe("relay", [*given, *more])


@pytest.mark.parametrize(("hidden", "model"), [((32, 48), "digger"), ((32, 32), "scout")])
def test_a_policy_is_read_from_the_model_that_was_made_for_it(tmp_path, hidden, model):
    recipe = relay("models", hidden=hidden)
    run = Run.create(tmp_path / "run", recipe.name, recipe.to_toml(), tmp_path / "run")
    assert config_of("digger", recipe, run).model == "nano"
    for name in ("scout", "digger"):
        (run.models / name).mkdir(parents=True)
    assert config_of("scout", recipe, run).model == str(run.models / "scout")
    assert config_of("digger", recipe, run).model == str(run.models / model)


def test_adapters_stand_on_the_base_that_was_trained_for_them(tmp_path):
    run = Run.create(tmp_path / "run", "relay", "", tmp_path / "run")
    for name in ("scout", "digger"):
        (run.bases / name).mkdir(parents=True)
    shared, apart = relay("lora", hidden=(32, 32)), relay("lora", hidden=(32, 48))
    assert config_of("digger", shared, run).model == str(run.bases / "scout")
    assert config_of("digger", apart, run).model == str(run.bases / "digger")


def test_a_trained_policy_has_its_roles_and_frozen_policies_are_not_trained():
    recipe = relay("models", "policies.scout.trainable=false", "warmup=none", hidden=(32, 32))
    with kept_threads():
        trained = trained_policies_of(
            recipe, make_policies(recipe, None), {"scout": 0, "digger": 0}
        )
    assert {name: list(each.agents) for name, each in trained.items()} == {"digger": ["digger"]}
