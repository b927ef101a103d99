"""The distance to the reference as a part of the reward, from played episodes to advantages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from turnwise.app import build
from turnwise.credit import assign_advantages
from turnwise.errors import ConfigError
from turnwise.forest import FlatScorer, ForestConfig, TreeScorer
from turnwise.rollout import samples_from_episodes
from turnwise.trainers.batches import batch_of, begin, kl_in_reward
from turnwise.trainers.loop import play_groups
from turnwise.trainers.penalties import reward_kl
from turnwise.trainers.update import make_batch
from turnwise.types import Failure, Span, TrainingSample, Trajectory

K1 = ("loss.kl=reward_k1", "loss.kl_weight=0.1")


@pytest.fixture(scope="module")
def reference(tiny_policy):
    """The tiny policy with other weights."""
    other = tiny_policy.reference()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return other.model


def by_hand(model, turn):
    """Return the model's log-probabilities of a turn's completion, by its own forward pass."""
    ids = torch.tensor([turn.prompt_ids + turn.completion_ids])
    begin = len(turn.prompt_ids)
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, begin - 1 : -1] / turn.sampling.temperature
    return logits.log_softmax(-1).gather(1, ids[0, begin:, None])[:, 0].double().numpy()


def with_spans(episodes):
    """Return the episodes; each completion's first two tokens are a span called `think`."""
    span = Span(name="think", start=0, end=2)

    def spanned(episode):
        turns = tuple(replace(turn, spans=(span,)) for turn in episode.turns)
        return replace(
            episode, trajectories=(Trajectory(role="player", seat="player", turns=turns),)
        )

    return [spanned(episode) for episode in episodes]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("scorer", [FlatScorer, TreeScorer])
def test_each_turn_pays_the_weighted_k1_of_its_own_tokens(
    tiny_policy, reference, make_episodes, own, scorer
):
    """log pi - log ref, pi being the engine's or the trainer's own; in total and by span."""
    episodes = with_spans(make_episodes()[0])
    found = reward_kl(
        episodes,
        "main",
        reference=reference,
        policy=tiny_policy.model if own else None,
        scorer=scorer(config=ForestConfig(token_budget=64)),
        weight=0.3,
    )
    turns = [turn for episode in episodes for turn in episode.turns]
    assert set(found.penalties) == {turn.id for turn in turns}
    every = []
    for turn in turns:
        now = by_hand(tiny_policy.model, turn) if own else np.array(turn.logprobs)
        nats = now - by_hand(reference, turn)
        every.extend(nats)
        expected = {"": 0.3 * nats.sum(), "think": 0.3 * nats[:2].sum()}
        assert found.penalties[turn.id] == pytest.approx(expected, abs=1e-4)
    assert np.std(every) > 0.1
    assert found.mean == pytest.approx(np.mean(every), abs=1e-5)


def test_rounding_is_no_distance_to_the_reference(tiny_policy, make_episodes, gradients):
    """The engine's log-probabilities of the reference's own weights pay nothing at all."""
    model, episodes = tiny_policy.model, make_episodes()[0]

    def spoken(turn):
        noise = 1e-6 * np.cos(np.arange(len(turn.completion_ids)))
        return replace(turn, logprobs=tuple(by_hand(model, turn) + noise))

    played = [
        replace(
            episode,
            trajectories=(
                Trajectory(
                    role="player",
                    seat="player",
                    turns=tuple(spoken(turn) for turn in episode.turns),
                ),
            ),
        )
        for episode in episodes
    ]
    found = reward_kl(
        played, "main", reference=model, policy=None, scorer=gradients.flat(), weight=1.0
    )
    assert found.penalties
    assert all(paid == {"": 0.0} for paid in found.penalties.values())


def test_the_update_reuses_the_log_probabilities_beside_rows_of_the_sft_mix(
    tiny_policy, reference, make_episodes, gradients
):
    """As a column of the update's rows: the same rows, then those of the SFT mix."""
    episodes, advantages = make_episodes()
    found = reward_kl(
        episodes,
        "main",
        reference=reference,
        policy=tiny_policy.model,
        scorer=gradients.flat(),
        weight=1.0,
    )
    taught = TrainingSample.of(
        policy="main", turns=(), token_ids=[1, 2], turn_index=[-1, -1], ce_weight=[0, 1]
    )
    rows = [*samples_from_episodes(episodes, advantages), taught]
    column = found.proximal_of(rows)
    assert len(column) == sum(len(row.token_ids) for row in rows)
    begin = 0
    for row in rows:
        for number, identity in enumerate(row.turns):
            turn = next(t for e in episodes for t in e.turns if t.id == identity)
            here = column[begin : begin + len(row.token_ids)][row.turn_index == number]
            assert here == pytest.approx(by_hand(tiny_policy.model, turn), abs=1e-4)
        begin += len(row.token_ids)


def test_broken_episodes_pay_nothing_and_silent_turns_pay_0(
    tiny_policy, reference, make_episodes, gradients
):
    episodes, _ = make_episodes(visits=1, samples=3)
    broken = replace(episodes[0], error=Failure(kind="env", message="gone"))
    (turn, *others) = episodes[1].turns
    silent = replace(turn, completion_ids=(), logprobs=())
    silenced = replace(
        episodes[1],
        trajectories=(Trajectory(role="player", seat="player", turns=(silent, *others)),),
    )
    found = reward_kl(
        [broken, silenced],
        "main",
        reference=reference,
        policy=None,
        scorer=gradients.flat(),
        weight=1.0,
    )
    assert set(found.penalties) == {t.id for t in silenced.turns}
    assert found.penalties[turn.id] == {"": 0.0}
    nothing = reward_kl(
        [broken], "main", reference=reference, policy=None, scorer=gradients.flat(), weight=1.0
    )
    assert (dict(nothing.penalties), nothing.mean) == ({}, 0.0)


@pytest.mark.parametrize(
    ("overrides", "own"), [((), False), (("trainer.old_logprobs=recompute",), True)]
)
def test_the_batch_has_no_reference_and_scores_itself_once(
    speaking, make_session, overrides, own, monkeypatch
):
    recipe = speaking(*K1, *overrides)
    session, plan = make_session(recipe), build.plan_of(recipe)
    session.save_start()
    episodes = play_groups(session, plan, session.curriculum.visits(0))
    trained = session.trained["main"]
    begin(session, plan, trained)
    kl = kl_in_reward(session, plan, episodes)["main"]
    assert (kl.proximal is not None) == own
    credit = assign_advantages(episodes, plan.credit, penalties=kl.penalties)
    samples = samples_from_episodes(episodes, credit.advantages)
    monkeypatch.setattr("turnwise.trainers.batches.score_column", refuse)
    batch = batch_of(plan, trained, samples, credit, kl)
    assert "reference" not in batch.columns
    drawn = batch.columns["sampled"] != 0
    same = np.array_equal(
        batch.columns["proximal_logprobs"][drawn], batch.columns["behaviour_logprobs"][drawn]
    )
    assert same != own
    plain = make_batch(samples, plan.loss, counted=credit.counted)
    assert batch.columns["proximal_logprobs"][drawn] == pytest.approx(
        plain.columns["behaviour_logprobs"][drawn], abs=1e-4
    )


def refuse(*_):
    raise AssertionError("all that is needed was scored before")


def test_a_heavy_kl_in_the_reward_holds_the_policy_at_its_reference(speaking, train):
    """The same play and rate, without the KL and with so much of it that it outweighs all else."""
    base = ("trainer.iterations=6", "optimizer.lr=0.01", "credit.std=none", "loss.kl=reward_k1")
    moved = {}
    for weight in ("1e-9", "3.0"):
        _, records = train(speaking(*base, f"loss.kl_weight={weight}"))
        assert records[0]["policy/ref_k1"] == pytest.approx(0, abs=1e-5)
        assert records[0]["credit/penalty_mean"] == pytest.approx(0, abs=1e-3)
        moved[weight] = records[-1]["policy/ref_k1"]
    assert moved["1e-9"] > 0.5
    assert moved["3.0"] < 0.25 * moved["1e-9"]


def test_dynamic_sampling_looks_at_rewards_alone(speaking, train):
    """A group whose episodes earn the same is refilled, though their distances differ."""
    recipe = speaking(
        *K1, "trainer.dynamic_sampling=true", "trainer.max_refills=1", "trainer.group_size=2",
        "trainer.iterations=3", "optimizer.lr=0.003",
    )  # fmt: skip
    _, records = train(recipe)
    later = records[1:]
    assert any(record["credit/mixed_share"] < 1 for record in later)
    assert any(record["rollout/left_out"] > 0 for record in later)
    assert any(abs(record["credit/penalty_mean"]) > 1e-4 for record in later)


def test_maxrl_is_refused_with_a_kl_in_the_reward(speaking):
    expert = ("credit.scheme=maxrl", "credit.rewards=none", "credit.rewards.expert=1.0")
    with pytest.raises((ConfigError, ValidationError), match="'reward_k1' makes returns negative"):
        speaking(*expert, *K1)
