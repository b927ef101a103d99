"""From a recipe of several policies to their parts."""

from __future__ import annotations

import pytest

from turnwise.app import lifecycle
from turnwise.app.build import (
    check_workflow_of,
    config_of,
    make_policies,
    trained_policies_of,
)
from turnwise.errors import ConfigError
from turnwise.policies import kept_threads
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run
from turnwise.tasks import GeneratedTasks

ASKS = """
from turnwise.types import Message


async def asks(agents, state):
    while True:
        seat = agents.acting(state)[0]
        await agents[seat].ask([Message(role="user", content="well?")], score=len)
        step = await agents[seat].act(state)
        if step.terminated or step.truncated:
            return step
        state = step.state
"""

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


def test_a_frozen_policy_that_has_learned_nothing_is_refused_before_it_is_made(tmp_path):
    recipe = relay("models", "policies.scout.trainable=false")
    with pytest.raises(ConfigError, match="has learned nothing: give the folder of a"):
        lifecycle.train(recipe, run=tmp_path / "run")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("credit.scheme=gigpo",), "compares turns by their states: set"),
        (("credit.scheme=gae",), "compares turns by their states: set"),
        ((), None),
    ],
)
def test_questions_do_not_go_with_schemes_that_compare_states(tmp_path, settings, words):
    (tmp_path / "asks.py").write_text(ASKS)
    recipe = load_recipe("relay", [f"workflow={tmp_path / 'asks.py'}:asks", *settings])
    env = recipe.env.make("training")
    task = GeneratedTasks(env, "train", 0).task(0)
    if words is None:
        check_workflow_of(recipe, env, task)
    else:
        with pytest.raises(ConfigError, match=words):
            check_workflow_of(recipe, env, task)


@pytest.mark.parametrize("name", ["plan-path-two-policy", "relay"])
def test_cross_tables_need_seats_that_act_at_the_same_time(name):
    begun = ["preset=spine", "topology.score=step"] if name == "relay" else []
    recipe = load_recipe(name, [*begun, "topology.orders=cross"])
    env = recipe.env.make("training")
    with pytest.raises(ConfigError, match="named one seat at a time in an episode of random"):
        check_workflow_of(recipe, env, GeneratedTasks(env, "train", 0).task(0))
