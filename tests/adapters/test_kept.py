"""Which adapters a finished run of two policies keeps for users, and how fresh ones are drawn."""

from __future__ import annotations

import pytest
import torch

from turnwise.app import build
from turnwise.app.stages import begin_adapters, keep_adapters
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run, StopSignal
from turnwise.trainers import Silent
from turnwise.trainers.batches import begin

NAMES = ("scout", "digger")
SIZE = "{hidden=32,layers=1,heads=2,kv_heads=1,head_dim=16,intermediate=32}"


@pytest.fixture
def session(tmp_path):
    """Two adapters on one base that nothing has trained."""
    sizes = [f"policies.{name}.nano={SIZE}" for name in NAMES]
    probes = ["engine.probe_tokens=64", "forest.probe_tokens=64", "device=cpu"]
    recipe = load_recipe("relay", ["preset=lora", "preset=smoke", "pretrain=none", *sizes, *probes])
    run = Run.create(tmp_path / "run", recipe.name, recipe.to_toml(), tmp_path / "run")
    with StopSignal() as stop:
        made = build.assemble(recipe, run, stop, Silent())
        for trained in made.trained.values():
            begin(made, build.plan_of(recipe), trained)
        yield made
        made.metrics.close()


def shift(session, amount):
    """Add to the adapters' weights, to each policy's another amount."""
    with torch.no_grad():
        for number, trained in enumerate(session.trained.values(), start=1):
            for parameter in trained.policy.trainable_parameters():
                parameter += number * amount


def adapters(session):
    return {name: trained.policy.digest() for name, trained in session.trained.items()}


def test_the_best_adapters_are_kept_and_not_the_latest(session):
    shift(session, 0.1)
    session.save("train", 1, score=0.9)
    best = adapters(session)
    shift(session, 0.1)
    session.save("train", 2, score=0.5)
    assert set(adapters(session).values()).isdisjoint(best.values())
    keep_adapters(session)
    for name, trained in session.trained.items():
        shift(session, 0.1)
        trained.policy.load_weights(session.run.adapters / name / "grpo")
        assert trained.policy.digest() == best[name]
    assert best["scout"] != best["digger"]


def test_adapters_that_begin_afresh_are_not_equal(session):
    for trained in session.trained.values():
        assert trained.policy.config.lora.merge_warmup is False
        lora = trained.policy.config.lora.model_copy(update={"merge_warmup": True})
        trained.policy.config = trained.policy.config.model_copy(update={"lora": lora})
    versions = {name: trained.policy.version for name, trained in session.trained.items()}
    begin_adapters(session)
    first, second = (
        [parameter.detach().clone() for parameter in trained.policy.trainable_parameters()]
        for trained in session.trained.values()
    )
    assert any(not torch.equal(a, b) for a, b in zip(first, second, strict=True))
    for name, trained in session.trained.items():
        assert trained.policy.version == versions[name] + 1
        assert (session.run.adapters / name / "sft" / "adapter_config.json").is_file()
