"""Updates with the automatic rate: the movement by brute force, undone updates, the cap, skips."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from turnwise.errors import ConfigError, TrainingError
from turnwise.forest import FlatScorer, ForestConfig
from turnwise.losses import make_loss
from turnwise.policies import auto_rate
from turnwise.policies.optimizer import MAX_SKIPS
from turnwise.policies.schedule import MOVEMENT, START, OptimizerConfig
from turnwise.rollout import samples_from_episodes
from turnwise.trainers import grpo, loop, movement
from turnwise.trainers.grpo import update
from turnwise.trainers.movement import Moved
from turnwise.trainers.update import make_batch, optimise, score_column
from turnwise.types import Episode, EpisodeId, Sampling, Task, Trajectory, Turn, TurnId

AUTO = "optimizer.lr='auto'"
EVEN = (AUTO, "optimizer.movement=0.005")
"""The same movement is wanted from the first iteration on."""
FLAT = FlatScorer(config=ForestConfig())


def brute_force(model, batch):
    """KL(before, after) per decision of replies with an advantage, by one pass for each row."""
    total, decisions = 0.0, 0.0
    before, advantages = batch.columns["proximal_logprobs"], batch.columns["advantages"]
    for sample, begin in zip(batch.samples, batch.offsets, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor(sample.token_ids)[None]).logits[0].double()
        for turn in range(len(sample.turns)):
            places = np.flatnonzero(sample.turn_index == turn)
            places = [p for p in places if sample.sampled_mask[p] and advantages[begin + p]]
            surprisal = [-float(before[begin + place]) for place in places]
            if places:
                decisions += sum(surprisal) ** 2 / sum(s**2 for s in surprisal)
            for place in places:
                heat = float(sample.temperature[place])
                after = (logits[place - 1] / heat).log_softmax(-1)[int(sample.token_ids[place])]
                ratio = float(after) - float(before[begin + place])
                total += np.exp(ratio) - 1 - ratio
    return total / decisions


def first_movement(plan):
    """How far the first iteration's update is to move the policy."""
    return plan.optimizer.wanted_movement(1 / plan.trainer.iterations, done=0.0)


def played(batch):
    return batch.rows([row for row, part in enumerate(batch.parts) if part is not None])


def moved_by(model, size):
    """Return a copy of a model whose weights differ by noise."""
    torch.manual_seed(0)
    other = deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(size * torch.randn_like(weight))
    return other


def test_the_movement_is_the_divergence_by_brute_force(first_batch):
    session, plan, batch, *_ = first_batch("agents.player.history=full")
    trained, rows = session.trained["main"], played(batch)
    optimise(trained.policy, trained.optimizer, trained.scorer, batch, plan.loss)
    found = movement.movement(trained.policy.model, trained.scorer, rows).nats
    assert found == pytest.approx(brute_force(trained.policy.model, rows), rel=1e-3)
    assert found > 0


@pytest.mark.parametrize("mute", [0, 1, 2])
def test_replies_without_advantage_count_nowhere(tiny_policy, make_episodes, mute):
    """Of three members of each visit, `mute` have the advantage 0."""
    episodes, advantages = make_episodes()
    advantages = {turn: {"": 0.0 if turn.episode.member < mute else 1.0} for turn in advantages}
    samples = samples_from_episodes(episodes, advantages)
    before = score_column(tiny_policy.model, FLAT, samples)
    batch = make_batch(samples, make_loss(), proximal=before)
    told = sum(turn.episode.member >= mute for turn in advantages)
    assert movement.informative(batch) == told / len(advantages)
    model = moved_by(tiny_policy.model, 0.02)
    found = movement.movement(model, FLAT, batch).nats
    assert found == pytest.approx(brute_force(model, batch), rel=1e-3)
    everyone = make_batch(
        samples_from_episodes(episodes, {turn: {"": 1.0} for turn in advantages}),
        make_loss(),
        proximal=before,
    )
    of_all = movement.movement(model, FLAT, everyone).nats
    assert (found == pytest.approx(of_all)) == (mute == 0)


def test_nothing_is_informative_without_replies(first_batch):
    _, _, batch, *_ = first_batch()
    assert movement.informative(batch.rows([])) == 0


REPLIES, TOKENS = 3000, 2
"""Sampled replies, and the tokens of each: few enough to list all replies."""


def distribution(model, prompt, vocab):
    """Return the probability of every reply of two tokens, [vocab, vocab]."""
    ids = torch.tensor([[*prompt, first] for first in range(vocab)])
    with torch.no_grad():
        logits = model(ids).logits.double()[:, -2:]
    first = logits[0, 0].softmax(-1)
    return (first[:, None] * logits[:, 1].softmax(-1)).numpy()


def turn_of(prompt, said, member):
    episode = EpisodeId(iteration=0, visit=0, task="t", member=member)
    return Turn(
        order=0,
        id=TurnId(episode=episode, role="player", turn=0),
        policy="main",
        policy_version=0,
        prompt_ids=prompt,
        completion_ids=said,
        logprobs=(0.0,) * len(said),
        sampling=Sampling(temperature=1.0),
        finish_reason="stop",
        text="",
    )


def episode_of(turn):
    return Episode(
        id=turn.id.episode,
        task=Task(id="t", env="e", seed=0, data={}),
        trajectories=(Trajectory(role="player", seat="player", turns=(turn,)),),
        terminated=True,
        truncated=False,
        score=0.0,
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("forgets", [True, False])
def test_the_readable_share_that_is_lost_is_estimated_from_its_exact_value(
    tiny_policy, seed, forgets
):
    """A reply is readable if its tokens are one of a random half of all pairs, the likelier ones
    or the less likely ones after the update."""
    rng = np.random.default_rng(seed)
    vocab, prompt = tiny_policy.model.config.vocab_size, (1, 2, 3)
    model = moved_by(tiny_policy.model, 0.03)
    before, after = (distribution(each, prompt, vocab) for each in (tiny_policy.model, model))
    readable = (after < before) if forgets else (after >= before)
    draws = rng.choice(vocab**2, REPLIES, p=before.ravel() / before.sum())
    turns = [turn_of(prompt, (int(d) // vocab, int(d) % vocab), m) for m, d in enumerate(draws)]
    samples = samples_from_episodes(
        [episode_of(t) for t in turns], {t.id: {"": 1.0} for t in turns}
    )
    column = score_column(tiny_policy.model, FLAT, samples)
    batch = make_batch(samples, make_loss(), proximal=column)
    failed = {turn.id for turn in turns if not readable[turn.completion_ids]}
    assert 0.1 < len(failed) / REPLIES < 0.9
    found = movement.movement(model, FLAT, batch, failed)
    exact = float(before[readable].sum() - after[readable].sum())
    assert abs(exact) > 0.02
    assert (exact > 0) == forgets
    assert 0 < found.error < abs(exact) / 2
    assert abs(found.lost - exact) < 3 * found.error
    divergence = float((before * (np.log(before) - np.log(after))).sum())
    said = -np.array(
        [[column[n * len(s.token_ids) + k] for k in (3, 4)] for n, s in enumerate(samples)]
    )
    decisions = (said.sum(1) ** 2 / (said**2).sum(1)).mean()
    assert 1 < decisions < 2
    of_all = movement.movement(model, FLAT, batch)
    assert of_all.nats == pytest.approx(divergence / decisions, rel=0.2)


@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_replies_that_cannot_be_read_move_nothing(tiny_policy, advantage):
    """One reply that the update makes impossible would count more than all others."""
    rng, prompt = np.random.default_rng(0), (1, 2, 3)
    vocab = tiny_policy.model.config.vocab_size
    turns = [turn_of(prompt, tuple(rng.integers(vocab, size=2).tolist()), m) for m in range(20)]
    advantages = {t.id: {"": 1.0} for t in turns} | {turns[0].id: {"": advantage}}
    samples = samples_from_episodes([episode_of(t) for t in turns], advantages)
    column = score_column(tiny_policy.model, FLAT, samples)
    spoilt = column.copy()
    spoilt[3:5] = -0.01  # as if the first reply had been all but certain
    model = moved_by(tiny_policy.model, 0.03)
    readable = make_batch(samples[1:], make_loss(), proximal=column[len(samples[0].token_ids) :])
    expected = movement.movement(model, FLAT, readable)
    batch = make_batch(samples, make_loss(), proximal=spoilt)
    of_all = movement.movement(model, FLAT, batch)
    assert of_all.whole > 2 * expected.whole
    found = movement.movement(model, FLAT, batch, {turns[0].id})
    if advantage <= 0:
        assert found.nats == pytest.approx(expected.nats, rel=1e-4)
        assert found.whole == pytest.approx(expected.whole, rel=1e-4)
        assert found.replies == 19
        assert movement.informative(batch, {turns[0].id}) == 1
    else:  # a reply that the update makes likelier counts
        assert found[:2] == of_all[:2]
        assert found.replies == 20
    failed = movement.movement(model, FLAT, batch, {turn.id for turn in turns})
    assert failed.lost == 0
    if advantage > 0:
        assert failed[:2] == of_all[:2]


def test_where_no_reply_can_be_read_all_are_measured(tiny_policy):
    turns = [turn_of((1, 2, 3), (member, member), member) for member in range(20)]
    samples = samples_from_episodes(
        [episode_of(t) for t in turns], {t.id: {"": -1.0} for t in turns}
    )
    column = score_column(tiny_policy.model, FLAT, samples)
    batch = make_batch(samples, make_loss(), proximal=column)
    model = moved_by(tiny_policy.model, 0.03)
    found = movement.movement(model, FLAT, batch, {turn.id for turn in turns})
    assert found[:2] == movement.movement(model, FLAT, batch)[:2]
    assert found.replies == 20


@pytest.mark.parametrize(
    ("moved", "share"),
    [
        (Moved(0.01, 0.2, 0.0, 0.0, 99), 0.25),  # 0.2 of all tokens is far within 8 times 0.1
        (Moved(0.01, 0.6, 0.0, 0.0, 99), 0.75),
        (Moved(0.01, 0.6, 0.0, 0.0, 15), 8.0),  # and too far where hardly any advantage is measured
        (Moved(0.0, 0.31, 0.0, 0.0, 0), 4 * 0.31 / 0.3),
        (Moved(0.6, 0.6, 0.0, 0.0, 99), 8.0),
        (Moved(0.1, float("nan"), 0.0, 0.0, 99), float("inf")),
        (Moved(0.0, 0.0, float("nan"), 0.0, 0), float("inf")),
    ],
)
def test_how_far_a_policy_moved_beside_what_was_wanted(moved, share):
    assert movement._share(moved, 0.1, 0.1) == pytest.approx(share)


def test_a_reply_has_as_many_decisions_as_it_has_uncertain_tokens():
    def decisions(*surprisal):
        return movement._decisions(np.array(surprisal), np.zeros(len(surprisal), dtype=int))

    assert decisions(1.4, 0.0, 0.0) == pytest.approx(1)
    assert decisions(*[0.7] * 8) == pytest.approx(8)
    assert decisions(1.4, 0.01, 0.01, 0.01) == pytest.approx(1.04, abs=0.01)
    assert decisions() == decisions(0.0, 0.0) == 0
    two = movement._decisions(np.array([1.0, 1.0, 3.0]), np.array([0, 0, 2]))
    assert two == pytest.approx(3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nothing_moves_without_an_update(first_batch, dtype):
    session, _, batch, *_ = first_batch(f"policies.main.dtype={dtype}")
    trained, some = session.trained["main"], played(batch).rows([2, 0])
    if trained.low_precision:
        some = movement._scored(trained, some, session.group)
    assert movement.movement(trained.policy.model, trained.scorer, some).nats < 1e-9


@pytest.mark.parametrize("start", [1e-6, 1e-3, 1.0])
def test_a_first_update_ends_in_the_band_whatever_the_start(first_batch, start):
    session, plan, batch, *_ = first_batch(
        AUTO, f"optimizer.lr_start={start}", "trainer.minibatches=2"
    )
    trained = session.trained["main"]
    metrics = update(session, plan, trained, 0, batch)
    told = movement.informative(played(batch))
    assert 0 < told < 1
    wanted = first_movement(plan) * told**0.5
    assert metrics["policy/movement_wanted"] == pytest.approx(wanted)
    least = wanted / 4 if start < 1 else 0  # what went too far before may move less
    assert least < metrics["policy/movement"] <= 4 * wanted
    assert trained.optimizer.steps == 2, "undone steps do not count"
    assert trained.optimizer.found
    if start != 1e-3:
        assert metrics["optim/undone"] >= 1


KINDS = {
    "whole": (),
    "mini-batches": ("trainer.minibatches=2",),
    "adapter": ("policies.main.lora.rank=4",),
    "bfloat16": ("policies.main.dtype=bfloat16",),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_undone_update_leaves_nothing_behind(first_batch, kind):
    """Undone once and taken at a rate, an update is the one that is taken at this rate at once."""
    session, plan, batch, *_ = first_batch(AUTO, "optimizer.lr_start=0.5", *KINDS[kind])
    trained = session.trained["main"]
    start, at_start = trained.optimizer.snapshot(), trained.policy.digest()
    metrics = update(session, plan, trained, 0, batch)
    assert metrics["optim/undone"] > 0
    weights, state = trained.policy.digest(), deepcopy(trained.optimizer.state_dict())
    trained.optimizer.restore(start)
    assert trained.policy.digest() == at_start != weights
    trained.optimizer.peak = trained.optimizer.found = metrics["optim/lr"]
    again = update(session, plan, trained, 0, batch)
    assert again["optim/undone"] == 0
    assert trained.policy.digest() == weights
    assert again["policy/movement"] == metrics["policy/movement"]
    torch.testing.assert_close(trained.optimizer.state_dict(), state, rtol=0, atol=0)


def test_the_engine_samples_from_the_weights_that_stand(first_batch):
    session, plan, batch, *_ = first_batch(AUTO, "optimizer.lr_start=0.5")
    metrics = update(session, plan, session.trained["main"], 0, batch)
    assert metrics["optim/undone"] > 0
    episodes = loop.play_groups(session, plan, session.curriculum.visits(1))
    samples = samples_from_episodes(episodes, {t.id: {"": 1.0} for e in episodes for t in e.turns})
    policy = session.policies["main"]
    own = score_column(policy.model, session.trained["main"].scorer, samples)
    drawn = make_batch(samples, plan.loss)
    where = drawn.columns["sampled"] != 0
    assert np.abs(own - drawn.columns["behaviour_logprobs"])[where].max() < 1e-3


def moved_so(nats, lost, error, *, whole=0.0, replies=99):
    """What a measurement says, of many replies unless `replies` says otherwise."""
    return Moved(nats, whole, lost, error, replies)


@pytest.fixture
def reports(monkeypatch):
    """`reports(*moves)`: what the following measurements say; the last one is repeated."""

    def say(*moves):
        left = list(moves)
        monkeypatch.setattr(
            movement, "movement", lambda *_: left.pop(0) if len(left) > 1 else left[0]
        )

    return say


def test_a_run_whose_updates_always_go_too_far_stops_and_says_so(first_batch, reports):
    session, plan, batch, *_ = first_batch(*EVEN)
    reports(moved_so(7.0, 0.0, 0.0))
    with pytest.raises(TrainingError, match=r"'main': 9 attempts at the update of iteration 3"):
        update(session, plan, session.trained["main"], 3, batch)
    assert auto_rate.MOST_TRIES == 8


def test_the_search_for_a_first_rate_goes_on_in_the_next_iteration(first_batch, reports):
    session, plan, batch, *_ = first_batch(
        *EVEN, "optimizer.lr_start=1e-12", "trainer.mismatch=ignore"
    )
    trained = session.trained["main"]
    reports(moved_so(0.0, 0.0, 0.0))
    metrics = update(session, plan, trained, 0, batch)
    assert metrics["optim/undone"] == auto_rate.MOST_TRIES
    assert trained.optimizer.found is None
    assert trained.optimizer.peak == pytest.approx(1e-4)
    wanted = first_movement(plan) * movement.informative(batch) ** 0.5
    reports(moved_so(0.0, 0.0, 0.0), moved_so(wanted, 0.0, 0.0))
    assert update(session, plan, trained, 1, batch)["optim/undone"] == 1
    assert trained.optimizer.found == pytest.approx(1e-3)


def test_gradients_that_are_not_finite_undo_an_update(first_batch, monkeypatch):
    """The steps after a first one with too high a rate have no finite gradients."""
    session, plan, batch, *_ = first_batch(
        *EVEN, "optimizer.lr_start=1e3", "trainer.minibatches=4", "trainer.mismatch=ignore"
    )
    trained = session.trained["main"]
    norm, steps = torch.nn.utils.get_total_norm, []

    def spoiled(gradients):
        steps.append(trained.optimizer.rate())
        return norm(gradients) * (float("nan") if trained.optimizer.peak > 1 else 1.0)

    monkeypatch.setattr(torch.nn.utils, "get_total_norm", spoiled)
    metrics = update(session, plan, trained, 0, batch)
    assert metrics["optim/undone"] >= 3
    assert metrics["optim/skipped"] == 0
    assert 0 < trained.optimizer.peak <= 1
    assert len(steps) >= 3 * MAX_SKIPS


def test_a_run_without_finite_gradients_at_any_rate_stops_and_says_so(first_batch, monkeypatch):
    session, plan, batch, *_ = first_batch(
        *EVEN, "trainer.minibatches=4", "trainer.mismatch=ignore"
    )
    nan = torch.tensor(float("nan"))
    monkeypatch.setattr(torch.nn.utils, "get_total_norm", lambda gradients: nan)
    with pytest.raises(TrainingError, match="the gradient was not finite 3 steps in a row"):
        update(session, plan, session.trained["main"], 0, batch)


@pytest.mark.parametrize("nats", [1e-6, 0.05])
def test_one_that_makes_replies_unreadable_never_stands(first_batch, reports, nats):
    session, plan, batch, *_ = first_batch(*EVEN)
    reports(moved_so(nats, 0.5, 0.01))
    with pytest.raises(TrainingError, match="made 50% more of its replies unreadable"):
        update(session, plan, session.trained["main"], 0, batch)


def test_a_loss_of_readable_replies_counts_if_it_is_sure(first_batch, reports):
    session, plan, batch, *_ = first_batch(*EVEN, "trainer.mismatch=ignore")
    trained = session.trained["main"]
    wanted = first_movement(plan) * movement.informative(batch) ** 0.5
    reports(moved_so(wanted, 0.2, 0.06))
    assert update(session, plan, trained, 0, batch)["optim/undone"] == 0
    reports(moved_so(wanted, 0.2, 0.04), moved_so(wanted, 0.0, 0.0))
    assert update(session, plan, trained, 1, batch)["optim/undone"] == 1
    assert trained.optimizer.peak == pytest.approx(1e-4 / 2)


def test_the_rate_never_rises_to_more_than_ten_times_the_first_that_stood(first_batch, reports):
    session, plan, batch, *_ = first_batch(*EVEN, "trainer.mismatch=ignore")
    trained = session.trained["main"]
    optimizer, first = trained.optimizer, START
    reports(moved_so(first_movement(plan) * movement.informative(batch) ** 0.5, 0.0, 0.0))
    update(session, plan, trained, 0, batch)
    assert optimizer.peak == optimizer.found == pytest.approx(first)
    reports(moved_so(0.0, 0.0, 0.0))
    rates = []
    for iteration in range(1, 13):
        update(session, plan, trained, iteration, batch)
        rates.append(optimizer.peak / first)
    assert rates[0] == pytest.approx(auto_rate.DRIFT)
    assert rates[-3] < rates[-2] == rates[-1] == pytest.approx(auto_rate.LARGEST_RISE)
    assert optimizer.found == pytest.approx(first)


@pytest.mark.parametrize(
    ("steps", "minibatches", "least_done", "factor"),
    [(0, 1, 0.0, 1.0), (2, 1, 0.0, 0.5), (4, 2, 0.0, 0.5), (0, 1, 0.75, 0.25), (3, 1, 0.5, 0.25)],
)
def test_the_wanted_movement_follows_the_square_of_the_schedule(
    first_batch, reports, steps, minibatches, least_done, factor
):
    """Of several steps of an iteration the highest rate counts, which is the first one's."""
    session, plan, batch, *_ = first_batch(
        *EVEN,
        "optimizer.schedule=linear",
        "trainer.iterations=4",
        f"trainer.minibatches={minibatches}",
    )
    trained = session.trained["main"]
    trained.optimizer.steps, trained.optimizer.least_done = steps, least_done
    told = movement.informative(batch)
    wanted = first_movement(plan) * told**0.5 * factor**2
    reports(moved_so(wanted, 0.0, 0.0))
    metrics = update(session, plan, trained, 0, batch)
    assert metrics["policy/movement_wanted"] == pytest.approx(wanted)
    assert metrics["optim/undone"] == 0
    assert trained.optimizer.peak == pytest.approx(START)


def test_where_the_schedule_is_over_nothing_is_wanted_and_undone(first_batch):
    session, plan, batch, *_ = first_batch(*EVEN, "optimizer.schedule=linear")
    trained = session.trained["main"]
    trained.optimizer.least_done, before = 1.0, trained.policy.digest()
    metrics = update(session, plan, trained, 0, batch)
    assert metrics["optim/lr"] == 0
    assert "policy/movement" not in metrics
    assert trained.policy.digest() == before
    assert trained.optimizer.found is None


@pytest.mark.parametrize("after", [moved_so(0.0, 0.0, 0.0), moved_so(float("nan"), 0.0, 0.0)])
def test_a_skipped_step_says_nothing_of_the_rate_unless_the_policy_is_destroyed(
    first_batch, reports, after
):
    session, plan, batch, *_ = first_batch(*EVEN)
    trained = session.trained["main"]
    weight, calls = next(iter(trained.policy.trainable_parameters())), []

    def spoil(gradient):
        calls.append(1)
        return gradient * float("nan") if len(calls) == 1 else gradient

    weight.register_hook(spoil)
    wanted = first_movement(plan) * movement.informative(batch) ** 0.5
    reports(after, moved_so(wanted, 0.0, 0.0))
    metrics = update(session, plan, trained, 0, batch)
    start = START
    if after.nats == 0:
        assert metrics["optim/skipped"] == 1
        assert trained.optimizer.found is None
        assert trained.optimizer.peak == start
    else:
        assert (metrics["optim/skipped"], metrics["optim/undone"]) == (0, 1)
        assert trained.optimizer.found == start / auto_rate.LARGEST_CHANGE


def test_some_groups_are_measured_and_first_those_with_advantages(first_batch, monkeypatch):
    _, _, batch, *_ = first_batch()
    monkeypatch.setattr(movement, "LEAST_ROWS", 2)
    groups = {part: [n for n, p in enumerate(batch.parts) if p == part] for part in batch.parts}
    assert len(groups) == 4
    advantages = batch.columns["advantages"]
    for rows in groups.values():
        only = np.zeros_like(advantages)
        for row in rows:
            begin = batch.offsets[row]
            only[begin : begin + len(batch.samples[row].token_ids)] = 1
        alone = replace(batch, columns=batch.columns | {"advantages": only})
        for iteration in range(3):
            found = movement._measured_rows(alone, 0, iteration)
            assert set(rows) <= set(found)
            assert found == sorted(found)
            assert len(found) < len(batch.samples)
            whole = {batch.parts[row] for row in found}
            assert found == sorted(row for each in whole for row in groups[each])
    monkeypatch.setattr(movement, "LEAST_ROWS", 1000)
    assert movement._measured_rows(batch, 0, 0) == list(range(len(batch.samples)))


def test_all_replies_together_may_not_move_much_further(first_batch, reports):
    session, plan, batch, *_ = first_batch(*EVEN, "trainer.mismatch=ignore")
    trained = session.trained["main"]
    wanted = first_movement(plan) * movement.informative(batch) ** 0.5
    most = movement.WHOLE * first_movement(plan)
    reports(moved_so(wanted, 0.0, 0.0, whole=most))
    assert update(session, plan, trained, 0, batch)["optim/undone"] == 0
    assert trained.optimizer.peak == pytest.approx(START)
    reports(moved_so(wanted, 0.0, 0.0, whole=4.1 * most), moved_so(wanted, 0.0, 0.0))
    assert update(session, plan, trained, 1, batch)["optim/undone"] == 1
    assert trained.optimizer.peak == pytest.approx(START / 2)  # and not START / 4.1**0.5


@pytest.mark.parametrize(("share", "tries"), [(4.1, 1), (30.0, 1), (1e4, 2)])
def test_the_next_iteration_begins_with_half_of_the_rate_at_least(
    first_batch, reports, share, tries
):
    """A batch that needs a much smaller rate does not leave it to those that follow."""
    session, plan, batch, *_ = first_batch(*EVEN, "trainer.mismatch=ignore")
    trained = session.trained["main"]
    wanted = first_movement(plan) * movement.informative(batch) ** 0.5
    reports(moved_so(wanted, 0.0, 0.0))
    update(session, plan, trained, 0, batch)
    assert trained.optimizer.peak == pytest.approx(START)
    far = (moved_so(share * wanted, 0.0, 0.0),) * tries
    reports(*far, moved_so(wanted, 0.0, 0.0))
    metrics = update(session, plan, trained, 1, batch)
    assert metrics["optim/undone"] == tries
    assert metrics["optim/lr"] < START / 2
    assert trained.optimizer.peak == pytest.approx(START / 2)
    reports(moved_so(3 * wanted, 0.0, 0.0))
    update(session, plan, trained, 2, batch)
    assert trained.optimizer.peak == pytest.approx(START / 2 / auto_rate.DRIFT)


@pytest.mark.parametrize(("tries", "factor"), [(3, 0.5), (4, 0.5**4)])
def test_a_rate_that_took_many_attempts_falls_further(first_batch, reports, tries, factor):
    """Or the next iteration would not have attempts enough."""
    session, plan, batch, *_ = first_batch(*EVEN, "trainer.mismatch=ignore")
    trained = session.trained["main"]
    wanted = first_movement(plan) * movement.informative(batch) ** 0.5
    fine = moved_so(wanted, 0.0, 0.0)
    reports(fine)
    update(session, plan, trained, 0, batch)
    reports(*(moved_so(wanted, 0.5, 0.0),) * tries, fine)
    assert update(session, plan, trained, 1, batch)["optim/undone"] == tries
    assert trained.optimizer.peak == pytest.approx(START * factor)


def test_few_replies_never_raise_a_rate_and_lower_it_like_many(first_batch, reports):
    session, plan, batch, *_ = first_batch(*EVEN, "trainer.mismatch=ignore")
    trained = session.trained["main"]
    few = movement.LEAST_REPLIES - 1
    reports(moved_so(0.0, 0.0, 0.0, replies=few))
    assert update(session, plan, trained, 0, batch)["optim/undone"] == 0
    assert (trained.optimizer.peak, trained.optimizer.found) == (START, None)
    wanted = first_movement(plan) * movement.informative(batch) ** 0.5
    reports(moved_so(100 * wanted, 0.0, 0.0, replies=few), moved_so(0.0, 0.0, 0.0, replies=few))
    assert update(session, plan, trained, 1, batch)["optim/undone"] == 1
    assert trained.optimizer.peak == pytest.approx(START / 10)


def test_a_fixed_rate_takes_no_part(first_batch, monkeypatch):
    session, plan, batch, *_ = first_batch("optimizer.lr=1e-3")
    monkeypatch.setattr(grpo, "update_within_band", lambda *_: pytest.fail("not asked for"))
    metrics = update(session, plan, session.trained["main"], 0, batch)
    assert metrics["optim/lr"] == 1e-3
    assert "policy/movement" not in metrics


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("optimizer.lr_start=1e-3",), "optimizer.lr_start belongs to lr = "),
        (("optimizer.movement=0.1",), "optimizer.movement belongs to lr = "),
        ((AUTO, "warmup.optimizer.movement=0.1"), "unknown key 'warmup.optimizer.movement'"),
        (("warmup.optimizer.lr='auto'",), "warmup.optimizer.lr = 'auto': input should be a"),
        (("optimizer.lr='automatic'",), "optimizer"),
        (("optimizer.lr=0.0",), "optimizer"),
    ],
)
def test_settings_that_would_be_ignored_are_refused(make_recipe, overrides, said):
    with pytest.raises(ConfigError, match=said):
        make_recipe(*overrides)


def test_settings_of_the_automatic_rate_go_with_one_policy_s(make_recipe):
    recipe = make_recipe("policies.main.lr='auto'", "optimizer.movement=0.1")
    assert recipe.policies["main"].lr == "auto"


@pytest.mark.parametrize(
    ("iterations", "wanted"), [(1, 0.1), (150, 0.1), (500, 0.03), (1500, 0.01), (5000, 0.005)]
)
def test_a_policy_moves_as_far_in_long_runs_as_in_short_ones(first_batch, iterations, wanted):
    session, plan, *_ = first_batch(AUTO, f"trainer.iterations={iterations}")
    assert plan.optimizer.peak_movement(1 / iterations) == pytest.approx(wanted)
    optimizer = session.trained["main"].optimizer
    optimizer.steps = 1
    assert optimizer.wanted_movement(1, optimizer.steps - 1) == pytest.approx(0.005)
    optimizer.steps += math.ceil(0.2 * iterations)
    assert optimizer.wanted_movement(1, optimizer.steps - 1) == pytest.approx(wanted)
    given = replace_movement(plan, 0.03)
    assert [given.peak_movement(part) for part in (1.0, 0.1, 1e-4)] == [0.03] * 3


@pytest.mark.parametrize(
    ("done", "movement", "wanted"),
    [
        (0.0, 0.08, 0.005),
        (0.1, 0.08, 0.03125),
        (0.2, 0.08, 0.08),
        (0.9, 0.08, 0.08),
        (0.0, 0.001, 0.001),
        (0.1, 0.001, 0.001),
        (0.0, None, 0.005),
        (0.5, None, 0.1),
    ],
)
def test_the_root_of_the_wanted_movement_rises_over_a_fifth_of_the_training(done, movement, wanted):
    """0.03125 is the square of the mean of the roots of 0.005 and 0.08."""
    config = OptimizerConfig(movement=movement)
    assert config.wanted_movement(0.01, done) == pytest.approx(wanted)


@pytest.mark.parametrize("over", ["steps", "time"])
def test_the_movement_rises_with_the_steps_and_with_the_time(first_batch, over):
    session, *_ = first_batch(AUTO, "trainer.iterations=100", "optimizer.movement=0.08")
    optimizer = session.trained["main"].optimizer
    optimizer.steps = 11 if over == "steps" else 1
    optimizer.least_done = 0.1 if over == "time" else 0.0
    assert optimizer.wanted_movement(1, optimizer.steps - 1) == pytest.approx(0.03125)


def replace_movement(plan, movement):
    return plan.optimizer.model_copy(update={"movement": movement})


def test_under_a_limit_of_time_the_number_of_iterations_follows_from_their_pace(first_batch):
    """Fifty updates of two steps each take a quarter of the time, and each 0.005 of it."""
    session, *_ = first_batch(AUTO, "trainer.iterations=5000", "trainer.minibatches=2")
    optimizer = session.trained["main"].optimizer
    optimizer.steps = 2
    assert optimizer.wanted_movement(2, optimizer.steps - 2) == pytest.approx(0.005)
    optimizer.steps, optimizer.least_done = 102, 0.25
    assert optimizer.wanted_movement(2, optimizer.steps - 2) == pytest.approx(MOVEMENT * 0.005)
    optimizer.least_done = 1e-6
    assert optimizer.wanted_movement(2, optimizer.steps - 2) == pytest.approx(0.005)


def test_a_rate_follows_the_root_of_what_is_wanted(first_batch, reports):
    """The second update is the first whose share of the time is known."""
    session, plan, batch, *_ = first_batch(
        AUTO, "trainer.iterations=5000", "trainer.mismatch=ignore"
    )
    trained = session.trained["main"]
    optimizer, told = trained.optimizer, movement.informative(batch) ** 0.5
    reports(moved_so(0.005 * told, 0.0, 0.0))
    update(session, plan, trained, 0, batch)
    assert (optimizer.peak, optimizer.found) == (START, START)
    optimizer.least_done = 0.004
    peak, risen = MOVEMENT * 0.004, 0.004 / 0.2
    second = (0.005**0.5 + risen * (peak**0.5 - 0.005**0.5)) ** 2
    reports(moved_so(second * told, 0.0, 0.0))
    metrics = update(session, plan, trained, 1, batch)
    change = (second / 0.005) ** 0.5
    assert change > 1.02
    assert metrics["optim/undone"] == 0
    assert metrics["optim/lr"] == pytest.approx(START * change)
    assert optimizer.found == pytest.approx(START * change)
    again = deepcopy(optimizer.state_dict())
    optimizer.wanted = None
    optimizer.load_state_dict(again)
    assert optimizer.wanted == pytest.approx((1, second))


def test_a_rate_that_rises_with_the_wanted_movement_stays_at_its_cap(first_batch, reports):
    """Its factors are rounded, so that it may be a little below ten times the first one."""
    session, plan, batch, *_ = first_batch(
        AUTO, "optimizer.lr_start=1e-6", "trainer.iterations=120", "trainer.mismatch=ignore"
    )
    trained = session.trained["main"]
    told = movement.informative(batch) ** 0.5
    reports(moved_so(0.005 * told, 0.0, 0.0), moved_so(1e-9, 0.0, 0.0))
    found = [update(session, plan, trained, number, batch) for number in range(24)]
    at_cap = [metrics["optim/lr_at_cap"] for metrics in found]
    first = at_cap.index(1.0)
    assert first < 15 and at_cap[first:] == [1.0] * (24 - first)
    assert found[-1]["optim/lr"] > 20e-6


def test_a_rate_rises_with_the_wanted_movement_before_a_first_one_is_known(first_batch):
    session, *_ = first_batch(AUTO, "optimizer.movement=0.02")
    optimizer = session.trained["main"].optimizer
    optimizer.wanted, optimizer.least_done, optimizer.peak = (1, 0.005), 1.0, 1e-4
    optimizer.follow_wanted()
    assert (optimizer.peak, optimizer.found) == (pytest.approx(2e-4), None)
    optimizer.follow_wanted()
    assert optimizer.peak == pytest.approx(2e-4)


def test_a_rate_rises_by_ten_at_most_at_a_time(first_batch):
    session, *_ = first_batch(AUTO, "optimizer.movement=50")
    optimizer = session.trained["main"].optimizer
    optimizer.wanted, optimizer.least_done, optimizer.peak = (1, 0.005), 1.0, 1e-6
    peaks = []
    for _ in range(4):
        optimizer.follow_wanted()
        peaks.append(optimizer.peak)
    assert peaks == pytest.approx([1e-5, 1e-4, 1e-4, 1e-4])


def test_of_a_rising_schedule_the_highest_rate_of_an_iteration_counts(first_batch, reports):
    """Four steps of a warm-up of four end at the peak."""
    four = ("optimizer.warmup_steps=4", "trainer.minibatches=4")
    session, plan, batch, *_ = first_batch(*EVEN, *four)
    told = movement.informative(batch)
    wanted = first_movement(plan) * told**0.5
    reports(moved_so(wanted, 0.0, 0.0))
    metrics = update(session, plan, session.trained["main"], 0, batch)
    assert metrics["policy/movement_wanted"] == pytest.approx(wanted)


def test_what_is_wanted_next_is_compared_without_the_schedule(first_batch, reports):
    """A linear schedule halves the rate; the peak is not lowered for it a second time."""
    session, plan, batch, *_ = first_batch(
        *EVEN, "optimizer.schedule=linear", "trainer.mismatch=ignore"
    )
    trained = session.trained["main"]
    trained.optimizer.least_done = 0.5
    wanted = first_movement(plan) * movement.informative(batch) ** 0.5 * 0.25
    reports(moved_so(wanted, 0.0, 0.0))
    for number in range(2):
        update(session, plan, trained, number, batch)
    assert trained.optimizer.peak == pytest.approx(START)


def test_a_movement_below_rounding_is_refused(speaking):
    with pytest.raises(ConfigError, match=r"optimizer\.movement"):
        speaking(AUTO, "optimizer.movement=1e-6")
