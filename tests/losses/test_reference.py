"""Weights and losses against the definitions of docs/math.md 3 and 4, on random batches.

The reference is numpy, token by token, with the derivative written out; it shares no code with the
library.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from turnwise.losses import make_loss, token_weights, total_loss
from turnwise.types import EpisodeId, TrainingSample, TurnId

AGGREGATIONS = {"token": {}, "turn": {}, "episode": {}, "constant": {"constant_length": 7}}
STREAMS = ("rl_weight", "ce_weight", "ref_kl_weight", "entropy_weight")


def random_rows(rng):
    """Return rows of up to three turns and, for each row, the turn or None of each token.

    A turn may lie in several rows, as where a template begins a new row in the middle of one.
    """
    turns = [
        TurnId(
            episode=EpisodeId(iteration=0, visit=visit, task=task, member=sample),
            role=role,
            turn=turn,
        )
        for task, visit in (("a", 0), ("b", 0), ("a", 1))
        for sample in (0, 1)
        for role in ("player", "critic")
        for turn in (0, 1)
    ]
    few = rng.sample(turns, rng.randint(1, 8))
    rows, owners = [], []
    for _ in range(rng.randint(1, 6)):
        here = rng.sample(few, min(len(few), rng.randint(1, 3)))
        index = [-1, *(rng.randrange(-1, len(here)) for _ in range(rng.randint(1, 8)))]
        streams = {name: [random_weight(rng, name, number) for number in index] for name in STREAMS}
        streams["ce_weight"][0] = 0.0  # the first token is no target
        rows.append(
            TrainingSample.of(
                policy="main",
                turns=tuple(here),
                token_ids=list(range(len(index))),
                turn_index=index,
                **streams,
            )
        )
        owners.append([here[number] if number >= 0 else None for number in index])
    return rows, owners, set(rng.sample(few, rng.randint(0, len(few))))


def random_weight(rng, stream, number):
    """Only sampled tokens carry a policy gradient; only cross-entropy may lie elsewhere."""
    if number < 0 and stream != "ce_weight":
        return 0.0
    return rng.choice([0.0, 1.0, 1.0, 0.5])


def episode_of(turn):
    return (turn.episode, turn.role)


def expected_weights(stream, owners, config, counted):
    """Return the weight of every token of the batch, in order."""
    tokens = [turn for turn, value in zip(owners, stream, strict=True) if value]
    kept = [turn for turn in tokens if counted is None or turn in counted]

    def share(turn):
        if not kept:
            return 0.0
        if config.aggregation == "token":
            return 1 / len(kept)
        if config.aggregation == "turn":
            return 1 / (len(set(kept)) * tokens.count(turn))
        episodes = len({episode_of(one) for one in kept})
        if config.aggregation == "constant":
            return 1 / (episodes * config.constant_length)
        return 1 / (episodes * sum(episode_of(one) == episode_of(turn) for one in tokens))

    pairs = zip(owners, stream, strict=True)
    return [value * share(turn) if value else 0.0 for turn, value in pairs]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_token_weights_equal_their_definitions(aggregation):
    options = AGGREGATIONS[aggregation] | {"kl": "loss_k3", "kl_weight": 1.0}
    config = make_loss(aggregation=aggregation, **options)
    for number in range(80):
        rng = Random(f"{aggregation} {number}")
        rows, owners, some = random_rows(rng)
        flat = [turn for row in owners for turn in row]
        for counted in (None, some):
            found = token_weights(rows, config, counted=counted)
            streams = {n: [v for row in rows for v in getattr(row, n).tolist()] for n in STREAMS}
            expected = {
                "rl": expected_weights(streams["rl_weight"], flat, config, counted),
                "ce": expected_weights(streams["ce_weight"], flat, make_loss(), None),
                "ref_kl": expected_weights(streams["ref_kl_weight"], flat, config, None),
                "entropy": expected_weights(streams["entropy_weight"], flat, config, None),
                "metric": expected_weights(
                    [float(v != 0) for v in streams["rl_weight"]], flat, make_loss(), None
                ),
            }
            for name, values in expected.items():
                got = np.concatenate([getattr(row, name) for row in found])
                assert got.dtype == np.float32
                assert got == pytest.approx(values, rel=1e-5), (number, name)


def surrogate(ratio, advantage, config):
    """Return the clipped objective of one token, as a loss, and its derivative by log ratio."""
    low, high = 1 - config.clip_low, 1 + config.clip_high
    dual = getattr(config, "dual_clip", None)
    if advantage > 0:
        return (-high * advantage, 0.0) if ratio > high else (-ratio * advantage,) * 2
    if ratio < low:
        return -low * advantage, 0.0
    if dual is not None and ratio > dual:
        return -dual * advantage, 0.0
    return (-ratio * advantage,) * 2


def expected_loss(v, config):
    """Return the loss, and its derivative by each token's log-probability."""
    count = len(v["now"])
    ratio = np.exp(v["now"] - v["proximal"])
    value, slope = 0.0, np.zeros(count)
    for i in range(count):
        advantage = v["advantages"][i]
        if config.kind == "cispo":
            weight = min(ratio[i], config.cispo_cap)
            loss, rate = -weight * advantage * v["now"][i], -weight * advantage
        elif config.kind == "gspo":
            mine = (v["turn"] == v["turn"][i]) & (v["rl"] != 0)
            mean = np.exp(np.log(ratio[mine]).mean()) if mine.any() else 1.0
            loss, rate = surrogate(mean, advantage, config)
        else:
            loss, rate = surrogate(ratio[i], advantage, config)
        weight = v["rl"][i]
        if config.tis_cap is not None:
            weight *= min(np.exp(v["proximal"][i] - v["behaviour"][i]), config.tis_cap)
        value += weight * loss - v["ce"][i] * v["now"][i]
        slope[i] += weight * rate - v["ce"][i]
        value -= config.entropy_weight * v["entropy_weight"][i] * v["entropy"][i]
        if config.kl in ("loss_k2", "loss_k3"):
            nats = v["now"][i] - v["ref"][i]
            k2, k3 = (nats**2 / 2, nats), (np.exp(-nats) - 1 + nats, 1 - np.exp(-nats))
            distance, rate = k2 if config.kl == "loss_k2" else k3
            scale = config.kl_weight * v["ref_kl"][i] * ratio[i]  # the ratio has no gradient
            value, slope[i] = value + scale * distance, slope[i] + scale * rate
    return value, slope


CONFIGS = [
    {},
    {"dual_clip": 1.5, "clip_high": 0.5},
    {"clip_low": 0.1, "clip_high": 0.4, "tis_cap": 1.3},
    {"kind": "gspo", "clip_low": 0.15, "clip_high": 0.3},
    {"kind": "cispo", "cispo_cap": 1.2, "tis_cap": 0.9},
    {"kl": "loss_k2", "kl_weight": 0.4, "entropy_weight": 0.2},
    {"kl": "loss_k3", "kl_weight": 0.4},
    {"kl": "reward_k1", "kl_weight": 0.4},
]


@pytest.mark.parametrize("options", CONFIGS)
def test_losses_and_gradients_equal_their_definitions(options, make_inputs):
    config = make_loss(**options)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(1, 12))
        v = {
            "now": rng.normal(-1.5, 0.7, count),
            "advantages": rng.normal(0, 1, count),
            "turn": rng.integers(0, 4, count),
            "entropy": rng.uniform(0, 2, count),
        }
        v["proximal"] = v["now"] - rng.normal(0, 0.5, count)
        v["behaviour"] = v["proximal"] - rng.normal(0, 0.3, count)
        v["ref"] = v["now"] - rng.normal(0, 0.5, count)
        for name in ("rl", "ce", "ref_kl", "entropy_weight"):
            v[name] = rng.uniform(0.1, 1, count) * (rng.random(count) < 0.8)
        inputs = make_inputs(
            [1.0] * count,
            v["advantages"].tolist(),
            logprobs=v["now"].tolist(),
            proximal_logprobs=v["proximal"].tolist(),
            behaviour_logprobs=v["behaviour"].tolist(),
            ref_logprobs=v["ref"].tolist(),
            rl_weight=v["rl"].tolist(),
            ce_weight=v["ce"].tolist(),
            ref_kl_weight=v["ref_kl"].tolist(),
            entropy=v["entropy"].tolist(),
            entropy_weight=v["entropy_weight"].tolist(),
            turn=v["turn"].tolist(),
        )
        loss = total_loss(inputs, config).loss
        (gradient,) = torch.autograd.grad(loss, inputs.logprobs)
        value, slope = expected_loss(v, config)
        assert loss.item() == pytest.approx(value, rel=1e-9, abs=1e-12), seed
        assert gradient.tolist() == pytest.approx(slope.tolist(), rel=1e-9, abs=1e-12), seed


@pytest.mark.parametrize(("ratio", "clipped"), [(1.5, 0.0), (2.9, 0.0), (3.1, 1.0)])
def test_the_dual_clip_is_counted_above_its_bound_only(ratio, clipped, make_inputs):
    metrics = total_loss(make_inputs([ratio], [-1.0]), make_loss(dual_clip=3.0)).metrics
    assert metrics["policy/clip_fraction_dual"].item() == clipped
    assert metrics["policy/clip_fraction"].item() == clipped
