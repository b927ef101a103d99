"""The policy-gradient loop on a lake, from a tiny policy that speaks: every part and every cap."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from turnwise.app import build
from turnwise.credit import assign_advantages
from turnwise.engines import EngineConfig, LocalEngine
from turnwise.errors import EngineError, TrainingError
from turnwise.evaluation.exact import SAMPLED, exact_measures, exact_score
from turnwise.policies import OptimizerConfig, learning_rate, make_optimizer
from turnwise.rollout import samples_from_episodes
from turnwise.runs import (
    comparable,
    episode_file,
    read_episodes,
    read_metrics,
    recorded_iterations,
)
from turnwise.trainers import resume, train_grpo
from turnwise.trainers.batches import batch_of, begin, kl_in_reward, reference_policy
from turnwise.trainers.grpo import mixed_only, mixed_visits, refill, update
from turnwise.trainers.loop import play_groups
from turnwise.trainers.update import (
    FP32_LARGEST,
    FP32_MEAN,
    LOW_PRECISION_K3,
    LOW_PRECISION_P999,
    WEIGHT_STREAMS,
    check_weights,
    optimise,
)
from turnwise.types import Trajectory

SCHEMES = {
    "reinforce": (),
    "reinforce++": (),
    "rloo": (),
    "grpo": (),
    "grpo, by group": ("credit.std=group", "credit.std_floor=0.1"),
    "dr_grpo": ("loss.aggregation=constant", "loss.constant_length=32"),
    "maxrl": ("credit.rewards=none", "credit.rewards.expert=1.0"),
    "max_at_k": ("credit.k=2",),
    "gigpo": ("credit.gamma=0.5", "credit.state_weight=2.0"),
}
LONG = ("agents.player.max_tokens=4", "agents.player.temperature=1.5")
"""Just enough tokens for a plain answer, and words that wander: some replies are cut."""
LOSSES = {
    "gspo": ("loss.kind=gspo",),
    "cispo": ("loss.kind=cispo",),
    "dual clip, by turn": ("loss.dual_clip=3.0", "loss.aggregation=turn"),
    "k2": ("loss.kl=loss_k2", "loss.kl_weight=0.1"),
    "k3, by episode": ("loss.kl=loss_k3", "loss.kl_weight=0.1", "loss.aggregation=episode"),
    "k1 off the reward": ("loss.kl=reward_k1", "loss.kl_weight=0.1"),
    "tis": ("loss.tis_cap=2.0",),
    "masked": (*LONG, "trainer.truncated_completions=mask"),
    "excluded": (*LONG, "trainer.truncated_completions=exclude"),
    "mini-batches": ("trainer.minibatches=2", "trainer.epochs=2"),
    "full history": ("agents.player.history=full",),
    "an adapter": ("policies.main.lora.rank=4", "policies.main.lora.dropout=0.5"),
    "sft_mix": ("sft_mix.rows=3", "trainer.minibatches=2", "loss.aggregation=episode"),
    "recomputed": ("trainer.old_logprobs=recompute",),
    "bfloat16": ("policies.main.dtype=bfloat16",),
}


def check_run(session, records):
    """Every number is finite, the weights moved with every step, the checkpoint is the last."""
    assert [record["step"] for record in records] == [1, 2]
    for record in records:
        numbers = [value for value in record.values() if not isinstance(value, str)]
        assert all(math.isfinite(value) for value in numbers)
    spent = sum(record["time/step"] for record in records)
    assert records[-1]["time/total"] == pytest.approx(spent)
    learned = [record for record in records if not record["train/skipped"]]
    assert learned
    assert session.policies["main"].version == len(learned)
    checkpoint = session.checkpoints.latest().checkpoint
    assert (checkpoint.phase, checkpoint.step) == ("train", 2)
    now = session.policies["main"].digest()
    session.policies["main"].load_weights(session.run.start("main"))
    assert session.policies["main"].digest() != now


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_scheme_trains(speaking, train, scheme):
    session, records = train(speaking(f"credit.scheme={scheme.split(',')[0]}", *SCHEMES[scheme]))
    check_run(session, records)
    assert all(record["credit/episodes"] == 16 for record in records)


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_and_option_trains(speaking, train, name):
    session, records = train(speaking(*LOSSES[name]))
    check_run(session, records)


def test_cut_completions_are_trained_masked_or_excluded(speaking, train):
    """The first iteration plays the same in all three, and learns something else in each."""
    first = {}
    for rule in ("train", "mask", "exclude"):
        recipe = speaking(*LONG, f"trainer.truncated_completions={rule}", "trainer.iterations=1")
        _, (first[rule],) = train(recipe)
    assert first["train"]["rollout/cut_share"] == first["mask"]["rollout/cut_share"] > 0
    assert first["train"]["credit/return_mean"] == first["mask"]["credit/return_mean"]
    assert first["exclude"]["rollout/cut_share"] == first["mask"]["rollout/cut_share"]
    assert 0 < first["exclude"]["credit/episodes"] < 16
    assert first["exclude"]["rollout/left_out"] == 16 - first["exclude"]["credit/episodes"]
    assert len({record["optim/grad_norm"] for record in first.values()}) == 3


@pytest.mark.parametrize(
    "overrides", [(), ("policies.main.lora.rank=4",), ("agents.player.history=full",)]
)
def test_the_first_ratio_is_one(first_batch, overrides):
    """The trainer scores what the local engine drew, to 1e-4 in float32 (docs/math.md 3)."""
    session, plan, batch = first_batch(*overrides)
    still = make_optimizer(session.policies["main"], OptimizerConfig(lr=1e-30), 1)
    metrics = optimise(
        session.policies["main"], still, session.trained["main"].scorer, batch, plan.loss
    )
    assert metrics["policy/ratio_mean"] == pytest.approx(1, abs=1e-4)
    assert metrics["policy/ratio_max"] == pytest.approx(1, abs=1e-4)
    assert metrics["engine/gap_max"] < 1e-4
    assert metrics["policy/clip_fraction"] == 0


def test_a_full_history_is_trained_in_fewer_rows_than_turns(first_batch):
    """The tokens of a longer prompt that extends a shorter one are computed once."""
    _, _, apart = first_batch()
    _, _, whole = first_batch("agents.player.history=full")
    assert all(len(sample.turns) == 1 for sample in apart.samples)
    assert max(len(sample.turns) for sample in whole.samples) > 1
    assert len({sample.turns[0].episode.member for sample in whole.samples}) == 4


def test_clipping_acts_in_a_later_mini_batch(first_batch):
    session, plan, batch = first_batch("trainer.minibatches=2", "trainer.epochs=2")
    session.trained["main"].begin(OptimizerConfig(lr=0.03), 4)
    metrics = update(session, plan, session.trained["main"], 0, batch)
    assert metrics["policy/ratio_mean"] == pytest.approx(1, abs=1e-4)  # of the first
    assert metrics["policy/clip_fraction"] > 0  # of the last
    assert session.totals["optimizer_steps"] == 4


def test_stale_weights_in_the_engine_stop_the_run(first_batch):
    """The trainer's weights moved, and the engine never learned of it."""
    session, plan, _ = first_batch()
    stale = session.policies["main"].reference()
    stale.name = "main"
    session.engine = LocalEngine({"main": stale}, EngineConfig(), session.seed)
    session.runner.engine = session.engine
    trained = session.trained["main"]
    trained.begin(OptimizerConfig(lr=0.01), 9)

    def iteration(number):
        episodes = play_groups(session, plan, session.curriculum.visits(number))
        credit = assign_advantages(episodes, plan.credit)
        samples = samples_from_episodes(episodes, credit.advantages)
        return update(session, plan, trained, number, batch_of(plan, trained, samples, credit))

    assert iteration(0)["engine/gap_max"] < 1e-4
    with pytest.raises(EngineError, match="the engine did not sample from the weights"):
        iteration(1)


@pytest.mark.parametrize("overrides", [(), ("trainer.old_logprobs=recompute",)])
def test_a_mismatch_is_found_or_ignored_as_the_recipe_says(first_batch, overrides):
    session, plan, batch = first_batch(*overrides)
    for parameter in session.policies["main"].trainable_parameters():
        parameter.data.mul_(1.01)
    with pytest.raises(EngineError, match=r"trainer\.mismatch = 'ignore'"):
        update(session, plan, session.trained["main"], 0, batch)
    session, plan, batch = first_batch("trainer.mismatch=ignore", *overrides)
    for parameter in session.policies["main"].trainable_parameters():
        parameter.data.mul_(1.01)
    assert update(session, plan, session.trained["main"], 0, batch)["engine/gap_max"] > 1e-4


@pytest.mark.parametrize(
    ("overrides", "own"),
    [
        ((), False),
        (("trainer.old_logprobs=recompute",), True),
        (("loss.kind=gspo",), True),
        (("loss.tis_cap=2.0",), True),
        (("policies.main.dtype=bfloat16",), True),
        (("policies.main.dtype=bfloat16", "trainer.old_logprobs=behaviour"), False),
    ],
)
def test_the_trainer_scores_for_itself_where_the_engine_is_not_exact(first_batch, overrides, own):
    """Below float32, for GSPO and for truncated weights: `auto` (docs/math.md 3)."""
    _, _, batch = first_batch(*overrides)
    drawn = batch.columns["sampled"] != 0
    same = np.array_equal(
        batch.columns["proximal_logprobs"][drawn], batch.columns["behaviour_logprobs"][drawn]
    )
    assert same != own


def test_denominators_count_what_the_recipe_says(first_batch):
    """All sampled tokens share the batch's weight of 1, or only those that carry an advantage."""
    few = ("credit.rewards.progress=none", "credit.rewards.fall=none")
    sparse = ("trainer.group_size=2", *few)
    _, _, sampled = first_batch(*sparse)
    _, _, kept = first_batch(*sparse, "credit.normalise_by=kept")
    carries = (sampled.columns["advantages"] != 0) & (sampled.columns["rl_weight"] != 0)
    assert sampled.columns["rl_weight"].sum() == pytest.approx(1)
    assert 0 < carries.sum() < (sampled.columns["rl_weight"] != 0).sum()
    assert kept.columns["rl_weight"][carries].sum() == pytest.approx(1)


KL = ("loss.kl=loss_k3", "loss.kl_weight=0.5", "optimizer.lr=0.003")


def test_the_reference_is_the_start_of_reinforcement_learning(speaking, train):
    """Not the weights of now, nor an adapter's bare base: not even after the weights moved."""
    session, records = train(speaking(*KL))
    assert records[0]["policy/ref_k3"] == pytest.approx(0, abs=1e-9)
    assert records[1]["policy/ref_k3"] > 1e-5
    reference = reference_policy(session, session.policies["main"], speaking(*KL).loss)
    moved = session.policies["main"].digest()
    session.policies["main"].load_weights(session.run.start("main"))
    assert reference.digest() == session.policies["main"].digest() != moved


def test_a_resumed_run_keeps_the_reference_of_the_start(speaking, make_session, tmp_path):
    recipe = speaking(*KL, "evaluation.every=1")

    def play_on(folder, iterations):
        session = make_session(recipe, folder)
        back = resume(session)
        if back is None:
            session.save_start()
        part = recipe.trainer.model_copy(update={"iterations": iterations})
        assert train_grpo(session, build.plan_of(recipe.model_copy(update={"trainer": part})), back)
        session.metrics.close()
        return comparable(read_metrics(session.run.metrics))

    whole = play_on(tmp_path / "whole", 2)
    play_on(tmp_path / "parts", 1)
    parts = play_on(tmp_path / "parts", 2)
    assert [record["step"] for record in parts] == [1, 2]
    assert parts[1] == whole[1]
    assert parts[1]["policy/ref_k3"] > 1e-5


def test_a_resumed_run_drops_the_episodes_that_it_will_play_again(speaking, train, make_session):
    """Those of iterations after the checkpoint: a kill may come between the two."""
    recipe = speaking()
    session, _ = train(recipe)
    kept = recorded_iterations(session.run.episodes)
    session.episodes.write(2, [])
    assert recorded_iterations(session.run.episodes) == [*kept, 2]
    back = resume(make_session(recipe, session.run.path))
    assert (back.phase, back.step) == ("train", 2)
    assert recorded_iterations(session.run.episodes) == kept == [0, 1]


def test_the_exact_score_is_the_first_measure_of_sampled_play(speaking, make_session):
    recipe = speaking(
        "env.options={map=['SF','HG']}",
        "env.options.size=none",
        "env.training=none",
        "env.warmup.frozen_probability=none",
    )
    session = make_session(recipe)
    env, tasks = session.eval_runner.env, session.validation.take(1)
    score = exact_score(env, tasks, session.agents, session.policies)
    measures = exact_measures(env, tasks, session.agents, session.policies)[SAMPLED]
    assert score == pytest.approx(next(iter(measures.values())))
    assert 0 < score < 1


DYNAMIC = (
    "trainer.dynamic_sampling=true",
    "trainer.max_refills=3",
    "trainer.group_size=2",
)
HOPELESS = ("credit.rewards=none", "credit.rewards.goal=1", "env.training.start=none")
"""Only the goal counts, and it is six right moves away."""


@pytest.fixture
def refilled(speaking, make_session):
    """`refilled(*overrides)`: what dynamic sampling makes of one iteration, and what it played."""

    def make(*overrides):
        recipe = speaking(*DYNAMIC, *overrides)
        session, plan = make_session(recipe), build.plan_of(recipe)
        played = play_groups(session, plan, session.curriculum.visits(5))
        before = session.totals["env_steps"]
        credit = assign_advantages(played, plan.credit)
        every = refill(session, plan, 5, played)
        episodes = mixed_only(plan, every, assign_advantages(every, plan.credit))
        after = assign_advantages(episodes, plan.credit)
        return played, credit, episodes, after, session.totals["env_steps"] - before

    return make


def test_refilling_draws_fresh_tasks_until_enough_groups_are_mixed(refilled):
    played, credit, episodes, after, steps = refilled()
    assert 0 < len(mixed_visits(credit)) < 4
    assert steps > 0
    chosen = sorted({episode.id.visit for episode in episodes})
    assert len(chosen) == 4
    assert mixed_visits(after) == chosen
    assert set(mixed_visits(credit)) < set(chosen)
    fresh = {episode.task.id for episode in episodes if episode.id.visit >= 4}
    assert fresh.isdisjoint({episode.task.id for episode in played})
    assert all(sum(e.id.visit == visit for e in episodes) == 2 for visit in chosen)
    assert {episode.id.iteration for episode in episodes} == {5}


def test_refilling_stops_at_its_cap_and_keeps_everything_where_nothing_is_mixed(refilled):
    """No reward ever differs here: three refills are played, and there is no signal."""
    played, credit, episodes, after, _ = refilled(*HOPELESS)
    assert mixed_visits(credit) == []
    assert not after.has_signal
    assert sorted({episode.id.visit for episode in episodes}) == list(range(4 * 4))
    assert len(played) == 8


def test_what_is_recorded_is_what_was_played_not_what_was_chosen(speaking, train):
    session, records = train(speaking(*DYNAMIC, "trainer.iterations=4"))
    record = max(records, key=lambda record: record["rollout/left_out"])
    assert record["rollout/left_out"] > 0
    assert record["credit/mixed_share"] < 1
    total = sum(record["rollout/env_steps"] for record in records)
    assert total == session.totals["env_steps"]
    path = episode_file(session.run.episodes, int(record["step"]) - 1)
    assert read_episodes(path).played == record["rollout/episodes"]


def test_every_skipped_step_is_counted(first_batch):
    session, plan, batch, *_ = first_batch("trainer.minibatches=4", "trainer.epochs=2")
    trained, calls = session.trained["main"], []

    def sometimes(gradient):
        calls.append(gradient)
        return gradient * np.inf if len(calls) in (2, 5) else gradient

    session.policies["main"].trainable_parameters()[0].register_hook(sometimes)
    metrics = update(session, plan, trained, 0, batch)
    assert metrics["optim/skipped"] == trained.optimizer.skipped == 2


def test_gradients_that_stay_wrong_name_the_batch(first_batch):
    session, plan, batch, *_ = first_batch("trainer.epochs=3")
    session.policies["main"].trainable_parameters()[0].register_hook(
        lambda gradient: gradient * np.inf
    )
    with pytest.raises(TrainingError, match=r"3 steps in a row.*its rows are of 0/0/"):
        update(session, plan, session.trained["main"], 0, batch)


def test_an_iteration_without_signal_takes_no_step_and_is_counted(speaking, train):
    session, records = train(speaking(*HOPELESS))
    assert [record["train/skipped"] for record in records] == [1, 1]
    assert session.policies["main"].version == 0
    assert session.totals.get("optimizer_steps", 0) == 0
    assert not any("loss/total" in record for record in records)
    now = session.policies["main"].digest()
    session.policies["main"].load_weights(session.run.start("main"))
    assert session.policies["main"].digest() == now


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_rate_follows_its_schedule_through_a_run(speaking, train, schedule):
    recipe = speaking(
        "trainer.iterations=3",
        "trainer.minibatches=2",
        f"optimizer={{lr=1e-3,warmup_steps=2,schedule={schedule!r}}}",
    )
    _, records = train(recipe)
    assert not any(record["train/skipped"] for record in records)
    rates = [record["optim/lr"] for record in records]  # of each iteration's last step
    assert rates == [learning_rate(recipe.optimizer, step, 6) for step in (1, 3, 5)]


def test_a_run_that_is_asked_to_stop_says_that_it_is_not_done(speaking, make_session):
    recipe = speaking()
    session = make_session(recipe)
    session.save_start()
    session.stop.requested = "SIGTERM"
    assert train_grpo(session, build.plan_of(recipe), None) is False
    assert session.totals.get("env_steps", 0) == 0


def test_training_stops_at_its_target(speaking, train):
    """A slippery open lake, which anybody crosses now and then, and a target of once."""
    recipe = speaking(
        "trainer.iterations=5",
        "evaluation.every=1",
        "evaluation.validation_tasks=30",
        "evaluation.target=1e-9",
        "env.options={slippery=true,frozen_probability=0.9,step_limit=8}",
        "env.training.start=none",
    )
    session, records = train(recipe)
    scores = [record["validation/score"] for record in records]
    assert len(records) < 5
    assert scores[-1] > 0
    assert not any(scores[:-1])
    assert session.checkpoints.best().step == len(records)


def test_fewer_groups_than_mini_batches_still_take_a_mean_step(first_batch, gradients):
    """Dynamic sampling may keep one group only: its one step is the batch's own gradient."""
    session, plan, batch = first_batch("trainer.minibatches=4")
    one = [
        s
        for s in batch.samples
        if s.turns[0].episode.visit == batch.samples[0].turns[0].episode.visit
    ]
    episodes = play_groups(session, plan, session.curriculum.visits(0)[:1])
    credit = assign_advantages(episodes, plan.credit)
    samples = samples_from_episodes(episodes, credit.advantages)
    alone = batch_of(plan, session.trained["main"], samples, credit)
    plain = gradients.batch(samples, plan.loss, counted=credit.counted)
    assert len(samples) == len(one)
    assert np.array_equal(alone.columns["rl_weight"], plain.columns["rl_weight"])
    assert not np.array_equal(
        batch.columns["rl_weight"][: len(plain.columns["rl_weight"])], plain.columns["rl_weight"]
    )


def test_mini_batches_weigh_as_much_as_the_whole_batch_would(first_batch):
    """The mean of two steps' gradients is the batch's: each of the two weighs double."""
    _, _, one = first_batch()
    _, _, two = first_batch("trainer.minibatches=2")
    for name in WEIGHT_STREAMS:
        weight = f"{name}_weight"
        assert two.columns[weight] == pytest.approx(2 * one.columns[weight])
    assert one.columns["rl_weight"].sum() == pytest.approx(1)


def test_metrics_of_a_mini_batch_are_means_over_its_tokens(first_batch):
    _, _, batch = first_batch("trainer.minibatches=2")
    row = len(batch.samples[0].token_ids)
    part = batch.part([0])
    assert part.columns["metric_weight"][:row].sum() == pytest.approx(1)
    assert np.array_equal(part.columns["rl_weight"], batch.columns["rl_weight"]), (
        "weights keep the batch's means"
    )


@pytest.mark.parametrize("kl", ["loss_k3", "reward_k1"])
def test_the_proximal_policy_is_the_one_that_played_and_not_the_reference(
    speaking, make_session, kl
):
    """After the weights have moved: the two were equal at the start."""
    recipe = speaking("trainer.old_logprobs=recompute", f"loss.kl={kl}", "loss.kl_weight=0.1")
    session, plan = make_session(recipe), build.plan_of(recipe)
    session.save_start()
    for parameter in session.policies["main"].trainable_parameters():
        parameter.data.mul_(1.05)
    trained = session.trained["main"]
    session.new_weights(trained)
    episodes = play_groups(session, plan, session.curriculum.visits(0))
    begin(session, plan, trained)
    paid = kl_in_reward(session, plan, episodes).get("main")
    credit = assign_advantages(episodes, plan.credit, penalties=paid and paid.penalties)
    samples = samples_from_episodes(episodes, credit.advantages, reference=plan.loss.has_kl_loss)
    columns = batch_of(plan, trained, samples, credit, paid).columns
    drawn = columns["sampled"] != 0
    assert columns["proximal_logprobs"][drawn] == pytest.approx(
        columns["behaviour_logprobs"][drawn], abs=1e-4
    )
    if kl == "loss_k3":
        assert np.abs(columns["ref_logprobs"] - columns["proximal_logprobs"])[drawn].mean() > 1e-3
    else:
        nats = np.array([cost[""] for cost in paid.penalties.values()]) / 0.1
        assert nats.sum() / drawn.sum() == pytest.approx(paid.mean, rel=1e-4)
        assert np.abs(nats).max() > 1e-2


def test_every_epoch_of_every_iteration_deals_its_mini_batches_anew(first_batch, monkeypatch):
    session, plan, batch = first_batch("trainer.minibatches=2", "trainer.epochs=4")
    trained, dealt = session.trained["main"], []
    trained.begin(OptimizerConfig(lr=1e-30), 100)

    def watched(*arguments, rows, group):
        dealt.append(tuple(rows))
        return optimise(*arguments, rows=rows, group=group)

    monkeypatch.setattr("turnwise.trainers.grpo.optimise", watched)
    for iteration in (0, 1, 0):
        update(session, plan, trained, iteration, batch)
    first, second, again = (dealt[i : i + 8] for i in (0, 8, 16))
    assert first == again
    assert first != second
    epochs = {frozenset(first[i : i + 2]) for i in range(0, 8, 2)}
    assert len(epochs) > 1
    assert all(sorted(one + two) == list(range(len(batch.samples))) for one, two in epochs)


def test_updates_are_made_without_dropout(first_batch, monkeypatch):
    session, plan, batch = first_batch()
    trained, modes = session.trained["main"], []

    def watched(policy, *arguments, rows, group):
        modes.append(policy.model.training)
        return optimise(policy, *arguments, rows=rows, group=group)

    monkeypatch.setattr("turnwise.trainers.grpo.optimise", watched)
    trained.policy.model.train()
    update(session, plan, trained, 0, batch)
    assert modes == [False]
    assert not trained.policy.model.training


RIGHT = {"engine/gap_mean": 0, "engine/gap_max": 0, "engine/gap_k3": 0, "engine/gap_p999": 0}
WRONG = {
    "a mean too large": (False, "engine/gap_mean", FP32_MEAN),
    "one token too far": (False, "engine/gap_max", FP32_LARGEST),
    "a mean k3 too large": (True, "engine/gap_k3", LOW_PRECISION_K3),
    "a token in a thousand too far": (True, "engine/gap_p999", LOW_PRECISION_P999),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_measure_of_the_engines_weights_alone_is_enough(tiny_policy, case):
    low_precision, name, bound = WRONG[case]
    check_weights(RIGHT | {name: bound}, tiny_policy, low_precision=low_precision)
    with pytest.raises(EngineError, match="differ from the trainer's"):
        check_weights(RIGHT | {name: bound * 1.01}, tiny_policy, low_precision=low_precision)
    check_weights(RIGHT | {name: bound * 1.01}, tiny_policy, low_precision=not low_precision)


def test_of_too_many_mixed_groups_the_first_are_kept(speaking, make_episodes):
    """The later ones were drawn because earlier tasks fell short; taking them would favour those
    that come after easy or hopeless tasks."""
    plan = build.plan_of(speaking("trainer.tasks_per_iteration=2"))
    episodes = []
    for episode in make_episodes(visits=6, samples=2)[0]:
        earned = float(episode.id.member) if episode.id.visit not in (0, 3) else 1.0
        last = replace(episode.turns[-1], rewards={"goal": earned})
        turns = (*episode.turns[:-1], last)
        episodes.append(
            replace(episode, trajectories=(Trajectory(role="player", seat="player", turns=turns),))
        )
    credit = assign_advantages(episodes, plan.credit)
    assert mixed_visits(credit) == [1, 2, 4, 5]
    assert {episode.id.visit for episode in mixed_only(plan, episodes, credit)} == {1, 2}
