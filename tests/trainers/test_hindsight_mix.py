"""GRPO with demonstrations of its own episodes: which rows there are, and what they do."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from turnwise.app.build import plan_of
from turnwise.errors import ConfigError
from turnwise.losses import token_weights
from turnwise.recipe.schema import load_recipe
from turnwise.runs import comparable, read_metrics
from turnwise.trainers import grpo, resume, train_grpo
from turnwise.trainers.batches import batches_of, begin
from turnwise.trainers.config import HindsightMixConfig
from turnwise.trainers.grpo import credit_of
from turnwise.trainers.hindsight_mix import HindsightMix
from turnwise.trainers.loop import play_groups
from turnwise.trainers.relabelling import Achieved, relabelled
from turnwise.types import EpisodeId, Task

MIX = ("sft_mix=none", "trainer.hindsight={}")


@pytest.fixture
def ready(make_recipe, make_session, speaker, tmp_path):
    """`ready("trainer.hindsight.most=1")`: a session before its first update, and its episodes."""

    def make(*settings):
        recipe = make_recipe(f"policies.main.model={speaker}", *MIX, *settings)
        session, plan = make_session(recipe, tmp_path / "run"), plan_of(recipe)
        begin(session, plan, session.trained["main"])
        return session, plan, play_groups(session, plan, session.curriculum.visits(0))

    return make


def supervised(batch):
    return [row for row in batch.samples if not row.turns]


def test_the_episodes_on_the_tasks_that_they_solved_are_beside_the_policy_gradient(ready):
    session, plan, played = ready("trainer.hindsight.weight=0.25")
    credit = credit_of(session, plan, played)
    assert credit.has_signal
    batch = batches_of(session, plan, played, credit, {}, 0)["main"]
    rows = supervised(batch)
    assert rows
    assert len(batch.samples) > len(rows), "there is a policy gradient too"
    assert {weight for row in rows for weight in np.unique(row.ce_weight)} == {0.0, 0.25}
    said = [r for r in batch.samples if r.turns]
    assert not any(row.ce_weight.any() for row in said)
    renderer = session.policies["main"].renderer
    goals = [renderer.decode(row.token_ids.tolist()) for row in rows]
    assert all("goal" in text and "<answer>" in text for text in goals)
    assert not any(row.rl_weight.any() for row in rows)


@pytest.mark.parametrize("rows", [4, 32])
def test_an_sft_mix_does_not_change_the_weight_of_the_demonstrations(ready, rows):
    """The weights of all tokens of a kind add up to its weight in the loss (docs/math.md 4)."""
    mix = f"sft_mix={{rows = {rows}, spans = {{answer = 0.25}}}}"
    session, plan, played = ready("trainer.hindsight.weight=0.5", mix)
    credit = credit_of(session, plan, played)
    batch = batches_of(session, plan, played, credit, {}, 0)["main"]
    weights = token_weights(batch.samples, plan.loss, counted=credit.counted)
    sums = [float(each.ce.sum()) for each in weights]
    assert sum(sums[:-rows]) == pytest.approx(0.5)
    assert sum(sums[-rows:]) == pytest.approx(0.25)
    assert len(supervised(batch)) > rows


def test_what_was_shown_is_not_shown_again_unless_asked(ready):
    session, _, played = ready()
    mix = session.trained["main"].hindsight
    first = mix.rows(session, "main", played, 0)
    assert first and mix.metrics["hindsight/rows"] == len(first)
    assert mix.metrics["hindsight/new"] > 0
    found = relabelled(session.runner.env, played)
    assert mix.metrics["hindsight/closest"] == max(each.closeness for each in found)
    assert mix.rows(session, "main", played, 1) == []
    assert mix.metrics["hindsight/new"] == mix.metrics["hindsight/rows"] == 0
    again = HindsightMix(config=HindsightMixConfig(again=True))
    both = [again.rows(session, "main", played, n) for n in (0, 1)]
    assert [r.token_ids.tolist() for r in both[0]] == [r.token_ids.tolist() for r in both[1]]
    few = HindsightMix(config=HindsightMixConfig(most=1))
    closest = few.rows(session, "main", played, 0)
    assert 0 < len(closest) < len(first)
    ends = [row.token_ids.tolist() for row in first[-len(closest) :]]
    assert [row.token_ids.tolist() for row in closest] == ends
    shown = closest
    while more := few.rows(session, "main", played, 0):  # what was left out is shown later
        shown = more + shown
    assert [row.token_ids.tolist() for row in shown] == [row.token_ids.tolist() for row in first]


def test_rows_alone_are_a_signal(ready):
    """All groups are equal: grpo alone would take no step."""
    session, plan, played = ready("trainer.minibatches=2")
    credit = credit_of(session, plan, played)
    silent = credit.of(())
    assert not silent.has_signal
    batch = batches_of(session, plan, played, silent, {}, 0)["main"]
    assert supervised(batch)
    before = session.policies["main"].digest()
    metrics = grpo.update(session, plan, session.trained["main"], 0, batch)
    assert metrics["loss/ce"] > 0
    assert session.policies["main"].digest() != before


def achieved(number, closeness, *actions):
    task = Task(id="t", env="e", seed=0, data={"goal": number})
    identity = EpisodeId(iteration=0, visit=0, task="t", member=number)
    return Achieved(
        id=identity, asked=task, task=task, actions=actions, problem=str(number),
        closeness=closeness,
    )  # fmt: skip


def test_solved_episodes_are_replayed_from_the_next_iteration_on(ready):
    session, _, played = ready("trainer.hindsight.replay_solved=1")
    found = {each.problem: each for each in relabelled(session.runner.env, played)}
    solved = [
        replace(episode, task=each.task)
        for each in found.values()
        for episode in played
        if episode.id == each.id
    ]
    mix = session.trained["main"].hindsight
    first = [row.token_ids.tolist() for row in mix.rows(session, "main", solved, 0)]
    assert len(mix.solved.kept) > 1 and not mix.past.replay.kept
    plain = HindsightMix(config=HindsightMixConfig())
    assert first == [row.token_ids.tolist() for row in plain.rows(session, "main", solved, 0)]
    later = [mix.rows(session, "main", [], number) for number in range(1, 7)]
    texts = [[row.token_ids.tolist() for row in rows] for rows in later]
    assert all(rows and all(row in first for row in rows) for rows in texts)
    assert len({str(rows) for rows in texts}) > 1, "each iteration has draws of its own"


def test_solved_episodes_alone_are_kept_as_solved_also_where_their_problem_was_shown(ready):
    session, _, played = ready("trainer.hindsight.replay_solved=1")
    mix, found = session.trained["main"].hindsight, relabelled(session.runner.env, played)
    near = {each.problem for each in found if each.closeness < 1}
    mix.rows(session, "main", played, 0)
    assert near and not near & set(mix.solved.kept)
    assert set(mix.solved.kept) == {each.problem for each in found if each.closeness >= 1}
    unseen = HindsightMix(config=mix.config)
    unseen.past.seen.update(each.problem for each in found)
    tasks = {each.id: each.task for each in found}
    solved = [replace(each, task=tasks[each.id]) for each in played if each.id in tasks]
    assert unseen.rows(session, "main", solved, 0) == []
    assert unseen.solved.kept, "their problems were shown, and they are solved now"


def test_what_was_demonstrated_is_replayed_from_the_next_iteration_on(ready):
    session, _, played = ready("trainer.hindsight.replay=2")
    mix = session.trained["main"].hindsight
    first = [row.token_ids.tolist() for row in mix.rows(session, "main", played, 0)]
    assert set(mix.past.replay.kept) == mix.past.seen and not mix.solved.kept
    later = [row.token_ids.tolist() for row in mix.rows(session, "main", played, 1)]
    actions = sorted(len(each.actions) for each in mix.past.replay.kept.values())
    assert sum(actions[:2]) <= len(later) <= sum(actions[-2:]), "no problem is new"
    assert all(row in first for row in later)


def test_its_state_is_plain_and_is_restored():
    config = HindsightMixConfig(replay=2, replay_solved=1)
    mix = HindsightMix(config=config)
    mix.past.seen.update({"a", "b"})
    mix.solved.add([achieved(1, 1.0, "one", "two")])
    mix.past.replay.add([achieved(2, 0.5, "three")])
    other = HindsightMix(config=config)
    other.restore(json.loads(json.dumps(mix.state())))
    assert other == mix and other.past.replay.kept and other.solved.kept


REPLAYED = ("trainer.hindsight.replay=2", "trainer.hindsight.replay_solved=1")


def trained(make_recipe, make_session, folder, *more):
    recipe = make_recipe(*MIX, "trainer.iterations=4", *REPLAYED, *more)
    session = make_session(recipe, folder)
    back = resume(session)
    if back is None:
        session.save_start()
    done = train_grpo(session, plan_of(recipe), back)
    session.metrics.sync()
    return done, session, comparable(read_metrics(session.run.metrics))


def test_a_run_that_is_stopped_goes_on_to_the_same_numbers(
    make_recipe, make_session, speaker, tmp_path, monkeypatch
):
    model = f"policies.main.model={speaker}"
    _, whole, records = trained(make_recipe, make_session, tmp_path / "whole", model)
    assert sum(record.get("hindsight/rows", 0) for record in records) > 0
    real, calls = grpo.update_all, []

    def stopping(session, *args):
        calls.append(1)
        if len(calls) == 2:
            session.stop.requested = "a test"
        return real(session, *args)

    with monkeypatch.context() as patched:
        patched.setattr(grpo, "update_all", stopping)
        done, *_ = trained(make_recipe, make_session, tmp_path / "parts", model)
    assert not done
    done, session, again = trained(make_recipe, make_session, tmp_path / "parts", model)
    assert done and again == records
    assert session.policies["main"].digest() == whole.policies["main"].digest()


def test_an_env_that_cannot_relabel_is_refused():
    with pytest.raises(ConfigError, match=r"trainer.hindsight needs the task .* 'treasure'"):
        load_recipe("treasure", {"trainer.hindsight": {}})
    recipe = load_recipe("frozen-lake", {"trainer.hindsight.weight": 0.5})
    assert recipe.trainer.hindsight.weight == 0.5
