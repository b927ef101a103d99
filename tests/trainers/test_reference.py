"""The training rows of a run, recomputed from its episodes by other code (docs/math.md 2 to 4).

One iteration of the loop is played. Every number of its batch is then computed again: the KL by a
forward pass for each turn, returns, advantages, weights and the loss by loops over the episodes.
"""

from __future__ import annotations

import math
from statistics import mean, stdev

import pytest
import torch

from turnwise.app import build
from turnwise.trainers import grpo, train_grpo

REWARDS = {"goal": 1.0, "progress": 1.0, "fall": -0.5, "invalid": -1.0}
KL = 0.3
SETTINGS = {
    "grpo, batch_returns": ("credit.scheme=grpo", "loss.aggregation=token"),
    "grpo, batch_advantages": (
        "credit.scheme=grpo", "credit.std=batch_advantages", "loss.aggregation=episode",
    ),
    "grpo, group": ("credit.scheme=grpo", "credit.std=group", "loss.aggregation=turn"),
    "rloo": ("credit.scheme=rloo", "loss.aggregation=constant", "loss.constant_length=32"),
    "reinforce++": ("credit.scheme=reinforce++", "loss.aggregation=episode"),
}  # fmt: skip


def log_probs(model, turn):
    """Return the model's log-probabilities of a turn's completion, by its own forward pass."""
    ids = torch.tensor([turn.prompt_ids + turn.completion_ids])
    begin = len(turn.prompt_ids)
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, begin - 1 : -1] / turn.sampling.temperature
    return logits.log_softmax(-1).gather(1, ids[0, begin:, None])[:, 0].double().tolist()


def expected_advantages(returns, name):
    """Return visit -> sample -> advantage from visit -> sample -> return."""
    scheme, _, std = name.partition(", ")
    every = [value for group in returns.values() for value in group.values()]

    def centred(group, sample):
        if scheme == "reinforce++":
            return group[sample] - mean(every)
        if scheme == "rloo":
            return group[sample] - mean(v for other, v in group.items() if other != sample)
        return group[sample] - mean(group.values())

    found = {v: {s: centred(group, s) for s in group} for v, group in returns.items()}
    flat = [value for group in found.values() for value in group.values()]
    if scheme == "rloo":
        divisors = dict.fromkeys(returns, 1.0)
    elif std == "group":
        divisors = {v: max(stdev(group.values()), 1e-4) for v, group in returns.items()}
    else:
        one = stdev(flat if std == "batch_advantages" else every)
        divisors = dict.fromkeys(returns, max(one, 1e-4))
    return {v: {s: a / divisors[v] for s, a in group.items()} for v, group in found.items()}


def expected_weight(turn, episodes, aggregation):
    """Return the weight of each token of a turn."""
    lengths = {t.id: len(t.completion_ids) for episode in episodes for t in episode.turns}
    (home,) = (e for e in episodes if any(t.id == turn.id for t in e.turns))
    return {
        "token": 1 / sum(lengths.values()),
        "turn": 1 / (len(lengths) * lengths[turn.id]),
        "episode": 1 / (len(episodes) * sum(lengths[t.id] for t in home.turns)),
        "constant": 1 / (len(episodes) * 32),
    }[aggregation]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_batch_holds_what_the_formulas_say(name, speaking, make_session, monkeypatch):
    recipe = speaking(
        *SETTINGS[name], "loss.kl=reward_k1", f"loss.kl_weight={KL}", "trainer.iterations=2",
        "agents.player.temperature=1.3", "optimizer.lr=0.01",
    )  # fmt: skip
    session, plan = make_session(recipe), build.plan_of(recipe)
    session.save_start()
    start = session.policies["main"].reference()
    start.load_weights(session.run.start("main"))
    seen, written = [], []
    optimise, write = grpo.optimise, session.episodes.write

    def watched(policy, optimizer, scorer, batch, loss, **options):
        metrics = optimise(policy, optimizer, scorer, batch, loss, **options)
        seen.append((batch, metrics))
        return metrics

    def kept(iteration, episodes, **options):
        written.append(episodes)
        write(iteration, episodes, **options)

    monkeypatch.setattr(grpo, "optimise", watched)
    monkeypatch.setattr(session.episodes, "write", kept)
    assert train_grpo(session, plan, None)
    assert len(seen) == 2
    paid = []
    for (batch, metrics), episodes in zip(seen, written, strict=True):
        paid += check(batch, metrics, episodes, start.model, name, plan.loss.aggregation)
    assert max(map(abs, paid)) > 0.01  # the second iteration is away from the reference


def check(batch, metrics, episodes, reference, name, aggregation):
    """Compare a batch with its episodes; return what each turn pays for its KL."""
    paid = {}
    for turn in (turn for episode in episodes for turn in episode.turns):
        nats = zip(turn.logprobs, log_probs(reference, turn), strict=True)
        paid[turn.id] = KL * sum(now - then for now, then in nats)
    returns = {}
    for e in episodes:
        earned = sum(weight * turn.rewards.get(what, 0.0) for turn in e.turns
                     for what, weight in REWARDS.items())  # fmt: skip
        returns.setdefault(e.id.visit, {})[e.id.member] = earned - sum(paid[t.id] for t in e.turns)
    expected = expected_advantages(returns, name)
    turns = {turn.id: turn for episode in episodes for turn in episode.turns}
    loss, found = 0.0, set()
    for row, offset in zip(batch.samples, batch.offsets, strict=True):
        for number, identity in enumerate(row.turns):
            places = offset + (row.turn_index == number).nonzero()[0]
            advantage = expected[identity.episode.visit][identity.episode.member]
            weight = expected_weight(turns[identity], episodes, aggregation)
            size = len(turns[identity].completion_ids)
            got = batch.columns["advantages"][places].tolist()
            assert got == pytest.approx([advantage] * size, abs=2e-3), identity
            assert batch.columns["rl_weight"][places].tolist() == pytest.approx(
                [weight] * size, rel=1e-5
            )
            loss -= weight * advantage * size  # the ratio is 1: the surrogate is the advantage
            found.add(identity)
    assert found == set(turns)
    assert metrics["loss/rl"] == pytest.approx(loss, abs=2e-3)
    assert metrics["loss/total"] == pytest.approx(loss, abs=2e-3)
    assert math.isfinite(loss)
    return list(paid.values())
