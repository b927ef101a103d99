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
        for learner in made.learners.values():
            begin(made, build.plan_of(recipe), learner)
        yield made
        made.metrics.close()


def shift(session, amount):
    """Add to the adapters' weights, to each policy's another amount."""
    with torch.no_grad():
        for number, learner in enumerate(session.learners.values(), start=1):
            for parameter in learner.policy.trainable_parameters():
                parameter += number * amount


def adapters(session):
    return {name: learner.policy.digest() for name, learner in session.learners.items()}


def test_the_best_adapters_are_kept_and_not_the_latest(session):
    shift(session, 0.1)
    session.save("train", 1, score=0.9)
    best = adapters(session)
    shift(session, 0.1)
    session.save("train", 2, score=0.5)
    assert set(adapters(session).values()).isdisjoint(best.values())
    keep_adapters(session)
    for name, learner in session.learners.items():
        shift(session, 0.1)
        learner.policy.load_weights(session.run.adapters / name / "grpo")
        assert learner.policy.digest() == best[name]
    assert best["scout"] != best["digger"]


def test_adapters_that_begin_afresh_are_not_equal(session):
    for learner in session.learners.values():
        assert learner.policy.config.lora.merge_warmup is False
        lora = learner.policy.config.lora.model_copy(update={"merge_warmup": True})
        learner.policy.config = learner.policy.config.model_copy(update={"lora": lora})
    versions = {name: learner.policy.version for name, learner in session.learners.items()}
    begin_adapters(session)
    first, second = (
        [parameter.detach().clone() for parameter in learner.policy.trainable_parameters()]
        for learner in session.learners.values()
    )
    assert any(not torch.equal(a, b) for a, b in zip(first, second, strict=True))
    for name, learner in session.learners.items():
        assert learner.policy.version == versions[name] + 1
        assert (session.run.adapters / name / "sft" / "adapter_config.json").is_file()
