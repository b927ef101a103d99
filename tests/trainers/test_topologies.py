"""Runs with siblings, end to end: they train, resume to equal numbers, and record what they did."""

from __future__ import annotations

import pytest

from turnwise.app import build, lifecycle
from turnwise.errors import ConfigError
from turnwise.evaluation import evaluate
from turnwise.recipe.schema import load_recipe
from turnwise.runs import Run, read_metrics
from turnwise.runs.episodes import episode_file, read_episodes
from turnwise.trainers import train_grpo, warm_up
from turnwise.trainers.session import resume

NANO = {"hidden": 32, "layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 16, "intermediate": 64}
TAUGHT = {"steps": 40, "eval_every": 40, "batch_size": 16, "perception_tasks": 4}
SMALL = {
    "preset": "smoke",
    "engine.probe_tokens": 64,
    "forest.probe_tokens": 64,
    "device": "cpu",
    "env.options.size": 2,
    "trainer.tasks_per_iteration": 3,
    "trainer.group_size": 1,
    "optimizer.schedule": "constant",
    "warmup": {**TAUGHT, "optimizer": {"lr": 1e-2, "warmup_steps": 0}},
}
SPINE = {
    "topology": {"kind": "spine", "siblings": 4, "score": "turn_end"},
    "credit.scheme": "at_grpo",
}
VINE = {
    "topology": {"kind": "vine", "siblings": 3, "continuations": 2},
    "credit.scheme": "counterfactual",
}


def relay(*more, policies=("main",)):
    settings = dict(SMALL)
    for each in more:
        settings |= each
    sizes = {f"policies.{name}.nano": NANO for name in policies}
    return load_recipe("relay", settings | sizes)


def records(run):
    return [r for r in read_metrics(Run(run).metrics) if r["phase"] == "train"]


def numbers(found):
    """Records without the clock, and without totals: a run that was stopped validated once more."""
    out = ("time/", "mem/", "total/")
    return [{k: v for k, v in each.items() if not k.startswith(out)} for each in found]


@pytest.mark.slow
def test_a_spine_trains_evaluates_and_resumes_to_equal_numbers(tmp_path):
    recipe = relay(SPINE, {"trainer.iterations": 3, "trainer.role_gradients": True})
    whole = lifecycle.train(recipe, run=tmp_path / "whole")
    assert whole.finished and whole.scores is not None
    half = lifecycle.train(relay(SPINE, {"trainer.iterations": 2}), run=tmp_path / "half")
    lifecycle.resume(half.run, ["trainer.iterations=3", "trainer.role_gradients=true"])
    one, two = records(whole.run), records(half.run)
    assert numbers(one)[-1] == numbers(two)[-1]
    for record in one:
        assert record["rollout/siblings"] == 3 * record["rollout/turns"]
        shares = [record[f"credit/advantage_share/{role}"] for role in ("scout", "digger")]
        assert sum(shares) == pytest.approx(1.0) or sum(shares) == 0
    measured = [r for r in one if "optim/grad_share/scout" in r]
    for record in measured:
        shares = [record[f"optim/grad_share/{role}"] for role in ("scout", "digger")]
        assert sum(shares) == pytest.approx(1.0)
    assert measured and one[-1]["total/state_resets"] > 0
    played = read_episodes(episode_file(whole.run / "episodes", 0)).episodes
    assert all(len(t.siblings) == 3 * len(t.turns) for e in played for t in e.trajectories)


def test_scouts_learn_of_the_round_by_turn_end_alone(make_session):
    """The team's reward comes at the digger's step: a scout's own step is worth 0."""
    mixed = {}
    for score in ("step", "turn_end"):
        topology = {"kind": "spine", "siblings": 8, "score": score}
        recipe = relay(SPINE, {"topology": topology, "credit.rewards": {"found": 1.0}})
        session, plan = make_session(recipe), build.plan_of(recipe)
        assert warm_up(session, recipe.warmup, None)
        episodes = session.runner.collect(session.curriculum.visits(0), "train")
        assert not any(each.broken for each in episodes)
        scouts = [t for e in episodes for t in e.trajectories if t.seat == "scout"]
        mixed[score] = {
            trial.get("found", 0.0)
            for each in scouts
            for turn in each.sampled
            for trial in turn.trials
        }
        assert plan.credit.scheme == "at_grpo"
    assert mixed == {"step": {0.0}, "turn_end": {0.0, 1.0}}


@pytest.mark.parametrize("settings", [SPINE, VINE], ids=["spine", "vine"])
def test_siblings_train(settings, make_session):
    recipe = relay(settings)
    session, plan = make_session(recipe), build.plan_of(recipe)
    assert warm_up(session, recipe.warmup, None)
    session.save_start()
    before = session.policies["main"].digest()
    assert train_grpo(session, plan, None)
    assert session.policies["main"].digest() != before


def test_evaluation_of_a_run_with_siblings_plays_single_replies(make_session):
    session = make_session(relay(SPINE))
    tasks = [session.validation.task(0)]
    found = evaluate(session.eval_runner, tasks, greedy=False)
    assert all(t.siblings == () for e in found.episodes for t in e.trajectories)


def test_a_kl_penalty_is_taken_off_the_scores_of_siblings(make_session):
    recipe = relay(SPINE, {"loss.kl": "reward_k1", "loss.kl_weight": 0.1})
    session, plan = make_session(recipe), build.plan_of(recipe)
    assert warm_up(session, recipe.warmup, None)
    session.save_start()
    assert train_grpo(session, plan, None)


def test_running_baselines_are_kept_in_checkpoints(make_session, tmp_path):
    recipe = relay({"credit.scheme": "rae", "trainer.group_size": 4})
    session, plan = make_session(recipe, tmp_path / "run"), build.plan_of(recipe)
    assert warm_up(session, recipe.warmup, None)
    session.save_start()
    assert train_grpo(session, plan, None)
    kept = session.role_baselines.state()
    assert set(kept) == {"scout", "digger"}
    again = make_session(recipe, tmp_path / "run")
    assert resume(again) is not None
    assert again.role_baselines.state() == kept


PLANS = """
from turnwise.types import Message


async def plans(agents, state):
    await agents["scout"].ask([Message(role="user", content="a plan?")])
    while True:
        step = await agents[agents.acting(state)[0]].act(state)
        if step.terminated or step.truncated:
            return step
        state = step.state
"""


def test_a_workflow_with_plain_questions_is_refused_before_models_are_loaded(
    tmp_path, make_session
):
    path = tmp_path / "plans.py"
    path.write_text(PLANS)
    recipe = relay(SPINE, {"workflow": f"{path}:plans"})
    with pytest.raises(ConfigError, match=r"write ask\(messages, score=function\)"):
        make_session(recipe)
