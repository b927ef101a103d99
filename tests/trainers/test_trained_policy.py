"""Several trained policies: each one's metrics, and what a checkpoint keeps of it."""

from __future__ import annotations

import pytest
import torch

from turnwise.app import build
from turnwise.recipe.schema import load_recipe
from turnwise.trainers import resume
from turnwise.trainers.batches import begin
from turnwise.trainers.trained_policy import by_policy

NAMES = ("scout", "digger")
SIZE = "{hidden=32,layers=1,heads=2,kv_heads=1,head_dim=16,intermediate=32}"


def test_the_mean_is_over_the_policies_that_have_a_metric():
    found = {"a": {"loss/rl": 2.0, "policy/kl": 1.0}, "b": {"loss/rl": 4.0}}
    assert by_policy(found, ["a", "b"]) == {
        "loss/rl": 3.0,
        "policy/kl": 1.0,
        "a/loss/rl": 2.0,
        "a/policy/kl": 1.0,
        "b/loss/rl": 4.0,
    }


def test_a_policy_that_stepped_alone_is_named_where_others_train():
    expected = {"loss/rl": 4.0, "b/loss/rl": 4.0}
    assert by_policy({"b": {"loss/rl": 4.0}}, ["a", "b"]) == expected
    assert by_policy({}, ["a", "b"]) == {}
    assert by_policy({"b": {"loss/rl": 4.0}}, ["b"]) == {"loss/rl": 4.0}


@pytest.fixture
def begun(make_session, tmp_path):
    """`begun()`: the run's session, and each of two equal models with an optimizer."""
    sizes = [f"policies.{name}.nano={SIZE}" for name in NAMES]
    probes = ["engine.probe_tokens=64", "forest.probe_tokens=64", "device=cpu"]
    given = ["preset=models", "preset=smoke", "warmup=none", "sft_mix=none"]
    recipe = load_recipe("relay", [*given, *sizes, *probes])

    def make():
        session = make_session(recipe, tmp_path / "run")
        for trained in session.trained.values():
            begin(session, build.plan_of(recipe), trained)
        return session

    return make


def state(trained):
    """Return what a checkpoint keeps of a trained policy."""
    moments = trained.optimizer.state_dict()["adamw"]["state"]
    sums = [float(each["exp_avg"].double().sum()) for each in moments.values()]
    return trained.policy.digest(), trained.policy.version, trained.optimizer.steps, sums


def test_every_policy_comes_back_with_its_own_weights_optimizer_and_version(begun):
    session = begun()
    for count, trained in enumerate(session.trained.values(), start=1):
        for _ in range(count):
            for parameter in trained.policy.trainable_parameters():
                parameter.grad = torch.full_like(parameter, float(count))
            trained.optimizer.step()
            session.new_weights(trained)
    session.save_start()
    session.save("train", 1)
    expected = {name: state(trained) for name, trained in session.trained.items()}
    assert [kept[1:3] for kept in expected.values()] == [(1, 1), (2, 2)]
    assert expected["scout"][0] != expected["digger"][0]

    again = begun()
    assert all(state(each) != expected[name] for name, each in again.trained.items())
    back = resume(again)
    assert back is not None
    for trained in again.trained.values():
        back.restore(trained)
    assert {name: state(trained) for name, trained in again.trained.items()} == expected
    for name, trained in again.trained.items():
        with torch.no_grad():
            for parameter in trained.policy.trainable_parameters():
                parameter.zero_()
        trained.policy.load_weights(again.run.start(name))
        assert trained.policy.digest() == expected[name][0]
