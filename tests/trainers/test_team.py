"""Several policies in one run: each has its own batches, steps, rate and metrics."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import turnwise.trainers.grpo
from turnwise.app import build, lifecycle
from turnwise.app.run_scores import evaluate_run
from turnwise.policies import learning_rate
from turnwise.recipe.schema import load_recipe
from turnwise.report import write_report
from turnwise.runs import Run, StopSignal, read_metrics
from turnwise.trainers import Silent, train_grpo, warm_up
from turnwise.trainers.batches import batches_of, begin
from turnwise.trainers.grpo import credit_of, update
from turnwise.trainers.loop import play_groups

NANO = "nano={hidden=32,layers=1,heads=2,kv_heads=1,head_dim=16,intermediate=64}"
PRESETS = {
    "shared": ((), ("main",)),
    "single": (("preset=single",), ("main",)),
    "lora": (("preset=lora",), ("scout", "digger")),
    "models": (("preset=models",), ("scout", "digger")),
}
"""Name -> the preset of the recipe, and the policies that it trains."""
TAUGHT = "steps=60,eval_every=60,batch_size=16,perception_tasks=4"
PHASE = f"{{{TAUGHT},optimizer={{lr=1e-2,warmup_steps=0}}}}"


def relay(name, *more, policies=None):
    """Return the recipe with a preset, and the smallest models."""
    preset, names = PRESETS[name]
    sizes = [f"policies.{each}.{NANO}" for each in policies or names]
    probes = ("engine.probe_tokens=64", "forest.probe_tokens=64", "device=cpu")
    return load_recipe("relay", [*preset, "preset=smoke", *sizes, *probes, *more])


def taught(name, *more):
    """Return a recipe whose warm-up teaches replies that are actions, now and then."""
    played = ("trainer.tasks_per_iteration=4", "trainer.group_size=4", "env.options.size=2")
    phase = "pretrain=none" if name == "lora" else f"warmup={PHASE}"
    return relay(name, phase, *played, "optimizer.schedule=constant", *more)


@pytest.mark.parametrize("scheme", ["grpo", "rloo"])
@pytest.mark.parametrize("name", PRESETS)
def test_the_presets_of_the_shipped_recipe_train(name, scheme, tmp_path):
    short = ("pretrain.steps=2", "pretrain.eval_every=1", "pretrain.optimizer.warmup_steps=0")
    recipe = relay(name, f"credit.scheme={scheme}", *(short if name == "lora" else ()))
    outcome = lifecycle.train(recipe, run=tmp_path / "run")
    assert outcome.finished and outcome.scores is not None
    assert set(recipe.policies) == set(PRESETS[name][1])
    phases = [record["phase"] for record in read_metrics(Run(outcome.run).metrics)]
    assert phases.count("train") == 2
    saved = sorted(path.name for path in (outcome.run / "start").iterdir())
    assert saved == sorted(PRESETS[name][1])


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    """A model that answers for both roles, with any action that is legal."""
    path = tmp_path_factory.mktemp("talker")
    recipe = taught("shared")
    run = Run.create(path / "run", recipe.name, recipe.to_toml(), path / "run")
    with StopSignal() as stop:
        session = build.assemble(recipe, run, stop, Silent())
        assert warm_up(session, recipe.warmup, None)
        session.metrics.close()
    session.policies["main"].save(path / "model")
    return path / "model"


def begun_with(model, *names):
    """Return the settings by which policies begin with a model's weights."""
    return [f"policies.{n}.{s}" for n in names for s in (f"model={model}", "nano=none")]


@pytest.fixture
def ready(make_session):
    """`ready(recipe)`: the session whose policies have been warmed up, and its plan."""

    def make(recipe):
        session = make_session(recipe)
        if recipe.warmup is not None:
            assert warm_up(session, recipe.warmup, None)
        session.save_start()
        return session, build.plan_of(recipe)

    return make


@pytest.fixture
def batches(ready):
    """`batches(recipe)`: the session, its plan and every trained policy's first batch."""

    def make(recipe):
        session, plan = ready(recipe)
        for trained in session.trained.values():
            begin(session, plan, trained)
        episodes = play_groups(session, plan, session.curriculum.visits(0))
        credit = credit_of(session, plan, episodes)
        return session, plan, batches_of(session, plan, episodes, credit, {}, 0)

    return make


def digests(session):
    return {name: policy.digest() for name, policy in session.policies.items()}


def test_a_frozen_policy_plays_and_keeps_its_weights(ready, talker):
    frozen = [*begun_with(talker, "scout"), "policies.scout.trainable=false"]
    session, plan = ready(taught("models", *frozen))
    assert list(session.trained) == ["digger"]
    before = digests(session)
    assert train_grpo(session, plan, None)
    after = digests(session)
    assert after["scout"] == before["scout"]
    assert after["digger"] != before["digger"]


@pytest.mark.parametrize("name", ["models", "lora"])
@pytest.mark.parametrize("stepped", ["scout", "digger"])
def test_a_step_on_one_policy_leaves_the_other_bit_identical(batches, talker, name, stepped):
    start = begun_with(talker, "scout", "digger") if name == "lora" else ()
    session, plan, made = batches(taught(name, "credit.scheme=reinforce", *start))
    other = "digger" if stepped == "scout" else "scout"
    before = digests(session)
    update(session, plan, session.trained[stepped], 0, made[stepped])
    after = digests(session)
    assert after[other] == before[other]
    assert after[stepped] != before[stepped]
    assert session.policies[other].version < session.policies[stepped].version


def test_each_batch_holds_the_turns_of_its_own_policy(batches):
    session, _, made = batches(taught("models", "credit.scheme=reinforce"))
    for name, batch in made.items():
        rows = [row for row in batch.samples if row.turns]
        assert rows and {row.policy for row in rows} == {name}
        assert {turn.role for row in rows for turn in row.turns} == {name}
    assert set(made) == set(session.trained)


def test_all_batches_are_made_before_any_policy_steps(ready, monkeypatch):
    session, plan = ready(taught("models", "credit.scheme=reinforce"))
    seen = []

    def watched(name):
        real = getattr(turnwise.trainers.grpo, name)

        def call(*args, **kwargs):
            found = real(*args, **kwargs)
            seen.append((name, tuple(digests(session).values())))
            return found

        monkeypatch.setattr(turnwise.trainers.grpo, name, call)

    watched("batches_of")
    watched("update")
    before = tuple(digests(session).values())
    assert train_grpo(session, plan, None)
    assert [name for name, _ in seen] == 2 * ["batches_of", "update", "update"]
    assert seen[0][1] == before, "no step was taken before the batches were made"
    assert len({weights for name, weights in seen if name == "update"}) == 4


def test_every_policy_has_its_rate_and_its_metrics(ready):
    own = ("policies.scout.lr=5e-4", "optimizer.schedule=linear", "optimizer.warmup_steps=0")
    recipe = taught("models", "credit.scheme=reinforce", *own)
    session, plan = ready(recipe)
    assert train_grpo(session, plan, None)
    session.metrics.sync()
    records = [r for r in read_metrics(session.run.metrics) if r["phase"] == "train"]
    base = recipe.optimizer
    rates = {"scout": base.model_copy(update={"lr": 5e-4}), "digger": base}
    for step, record in enumerate(records):
        for name, config in rates.items():
            assert record[f"{name}/optim/lr"] == learning_rate(config, step, len(records))
        for bare in ("optim/lr", "loss/total", "policy/entropy", "optim/grad_norm"):
            values = [record[f"{name}/{bare}"] for name in ("scout", "digger")]
            assert values[0] != values[1]
            assert record[bare] == pytest.approx(sum(values) / 2)


@pytest.mark.parametrize("auto", ["scout", "digger"])
def test_the_rate_of_one_policy_may_be_automatic(ready, auto):
    fixed = "digger" if auto == "scout" else "scout"
    rates = {
        "scout": ("policies.scout.lr=auto",),
        "digger": ("optimizer.lr=auto", "policies.scout.lr=5e-4"),
    }[auto]
    session, plan = ready(taught("models", "credit.scheme=reinforce", *rates))
    numbers = {"scout": 5e-4, "digger": plan.optimizer.lr}
    assert train_grpo(session, plan, None)
    session.metrics.sync()
    records = [r for r in read_metrics(session.run.metrics) if r["phase"] == "train"]
    assert len(records) == 2
    for record in records:
        assert record[f"{fixed}/optim/lr"] == numbers[fixed]
        assert f"{fixed}/policy/movement" not in record
        assert f"{auto}/policy/movement" in record
        assert record["policy/movement"] == record[f"{auto}/policy/movement"]
    assert records[0][f"{auto}/optim/lr"] != numbers[fixed]
    assert session.trained[auto].optimizer.is_auto
    assert not session.trained[fixed].optimizer.is_auto


def test_an_iteration_in_which_one_policy_steps_is_not_skipped(ready):
    """A scout that nothing has taught ends every episode, so that the digger never speaks."""
    session, plan = ready(
        taught("models", "warmup=none", "sft_mix=none", "credit.scheme=reinforce")
    )
    before = digests(session)
    assert train_grpo(session, plan, None)
    session.metrics.sync()
    records = [r for r in read_metrics(session.run.metrics) if r["phase"] == "train"]
    assert [record["train/skipped"] for record in records] == [0.0, 0.0]
    for record in records:
        assert record["loss/rl"] == record["scout/loss/rl"]
        assert not any(name.startswith("digger/") for name in record)
    after = digests(session)
    assert after["digger"] == before["digger"] and after["scout"] != before["scout"]
    assert {n: policy.version for n, policy in session.policies.items()} == {
        "scout": 2,
        "digger": 0,
    }


def test_one_policy_has_metrics_without_its_name(ready):
    session, plan = ready(taught("shared", "credit.scheme=reinforce"))
    assert train_grpo(session, plan, None)
    session.metrics.sync()
    names = {name for record in read_metrics(session.run.metrics) for name in record}
    assert "loss/total" in names
    assert not any(name.startswith("main/") for name in names)


@pytest.fixture
def scout_url():
    """The address of a server that gives the same signal for every row."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            message = {"role": "assistant", "content": "<answer> bim </answer>"}
            body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


def test_a_server_plays_the_scout_of_a_whole_run(scout_url, tmp_path):
    remote = f"policies.scout={{kind='remote',base_url='{scout_url}',model='wise'}}"
    played = ("trainer.tasks_per_iteration=4", "trainer.group_size=4", "env.options.size=2")
    recipe = relay("models", remote, f"warmup={PHASE}", *played, policies=["digger"])
    assert list(recipe.remote) == ["scout"]
    first = lifecycle.train(recipe, run=tmp_path / "run")
    assert first.finished and first.scores is not None
    again = lifecycle.resume(first.run, ["trainer.iterations=3"])
    assert again.finished
    records = [r for r in read_metrics(Run(first.run).metrics) if r["phase"] == "train"]
    assert [record["step"] for record in records] == [1, 2, 3]
    assert not all(record["train/skipped"] for record in records)
    assert all(record["rollout/broken_share"] == 0 for record in records)
    assert evaluate_run(first.run, tasks=2).broken == 0
    assert "trained, greedy" in write_report(Run(first.run))
    assert [path.name for path in (first.run / "start").iterdir()] == ["digger"]
