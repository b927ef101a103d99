"""A run in two processes is the run in one: the same replies, gradients and metrics.

Sums of other parts are rounded differently. Large steps let such differences grow until a draw
falls on the other side of the border between two tokens. The runs therefore take small, smooth
steps, and those that play begin with equal weights that can speak.
"""

from pathlib import Path

import pytest

from turnwise.app import lifecycle
from turnwise.recipe.schema import load_recipe
from turnwise.runs import read_episodes

TINY = Path(__file__).parents[1] / "resume" / "tiny.toml"
SMOOTH = "{lr=1e-2,eps=1e-2,schedule='linear',warmup_steps=5}"
LONG = ("trainer.iterations=20", "episodes.keep=-1", "device=cpu", "optimizer.eps=1e-3")
LONG += ("optimizer.lr=1e-4",)
NANO = "nano={hidden=32,layers=1,heads=2,kv_heads=1,head_dim=16,intermediate=64}"
RELAY = (
    *("preset=models", "preset=smoke", f"policies.scout.{NANO}", f"policies.digger.{NANO}"),
    *("trainer.tasks_per_iteration=3", "trainer.group_size=4", "env.options.size=2"),
    *("warmup.steps=40", "warmup.eval_every=20", "warmup.batch_size=16"),
    *(f"warmup.optimizer={SMOOTH}", "engine.probe_tokens=64", "forest.probe_tokens=64"),
)
RUNS = {
    "frozen-lake": (),
    "dynamic sampling, KL in the reward": (
        *("trainer.dynamic_sampling=true", "trainer.tasks_per_iteration=3", "credit.scheme=rloo"),
        *("credit.std_floor=none", "credit.gamma=none", "credit.segments=none"),
        *("loss.kl=reward_k1", "trainer.old_logprobs=recompute"),
    ),
    "adapter": ("policies.main.lora={rank=4,alpha=8.0}",),
}


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A tiny model after its warm-up."""
    run = tmp_path_factory.mktemp("taught") / "run"
    lifecycle.train(load_recipe(str(TINY), ["trainer.iterations=1", "device=cpu"]), run=run)
    return run / "start" / "main"


def replies(run):
    files = sorted(run.episodes.glob("train-*.jsonl"))
    return [[t.completion_ids for e in read_episodes(f).episodes for t in e.turns] for f in files]


def agree(runs, furthest, iterations, most=1e-5):
    (one, gradients), (two, shared) = runs
    assert len(replies(one)) == iterations
    assert replies(one) == replies(two)
    found = furthest(one, two)
    assert {name: gap for name, gap in found.items() if gap[0] > most} == {}
    for alone, together in zip(gradients, shared, strict=True):
        assert float((alone - together).norm()) < 1e-5 * float(alone.norm())


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_training_in_two_processes_is_that_in_one(twice, furthest, taught, name):
    start = ("warmup=none", f"policies.main.model={taught}", "policies.main.nano=none")
    agree(twice(TINY, *start, *RUNS[name], *LONG), furthest, 20)


@pytest.mark.slow
def test_so_is_a_warm_up(twice, furthest):
    sets = ("warmup.steps=20", "warmup.eval_every=10", "trainer.stop_if_failed=never")
    sets += ("warmup.optimizer={lr=1e-3,eps=1e-3}", "trainer.iterations=1", "device=cpu")
    agree(twice(TINY, *sets), furthest, 1, most=1e-4)


@pytest.mark.slow
def test_so_is_a_team_of_two_policies(twice, furthest):
    agree(twice("relay", *RELAY, *LONG), furthest, 20)


def test_the_first_replies_and_gradients_are_the_same(twice, furthest):
    sets = ("warmup=none", "trainer.iterations=1", "trainer.stop_if_failed=never", "device=cpu")
    agree(twice(TINY, *sets), furthest, 1, most=1e-4)
