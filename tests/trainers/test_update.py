"""From rows to a gradient: nothing about the layout of rows may change it (docs/math.md 4)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from turnwise.credit import Credit
from turnwise.forest import FlatScorer, ForestConfig
from turnwise.losses import make_loss
from turnwise.rollout import samples_from_episodes
from turnwise.seeding import generator
from turnwise.trainers.minibatches import minibatches, parts_of
from turnwise.trainers.update import row_offsets, score_column
from turnwise.types import Trajectory

TOLERANCE = 1e-5
WIDE = {"clip_low": 0.3, "clip_high": 0.3}
LOSSES = {
    "clipped": make_loss(),
    "dual": make_loss(dual_clip=1.2),
    "gspo": make_loss(kind="gspo", **WIDE),
    "cispo": make_loss(kind="cispo", cispo_cap=1.1),
    "tis": make_loss(tis_cap=1.05),
    "k2": make_loss(kl="loss_k2", kl_weight=0.5),
    "k3": make_loss(kl="loss_k3", kl_weight=0.5),
    "entropy": make_loss(entropy_weight=0.3),
}
AGGREGATIONS = {
    "token": {},
    "turn": {},
    "episode": {},
    "constant": {"constant_length": 16},
}


def one_row_a_turn(episodes):
    """Return the same turns as episodes of one turn each: no row can hold two of them."""
    return [
        replace(episode, trajectories=(Trajectory(role="player", seat="player", turns=(turn,)),))
        for episode in episodes
        for turn in episode.turns
    ]


class Rows:
    """Rows, with a proximal and a reference policy that belong to tokens and not to rows."""

    def __init__(self, gradients, episodes, advantages, loss, **options):
        self._gradients, self.loss = gradients, loss
        self.samples = samples_from_episodes(
            episodes, advantages, reference=loss.has_kl_loss, **options
        )

    def streams(self):
        """Return flat columns of proximal and reference log-probabilities, by turn and place."""
        shifts = {"proximal": 0.2, "reference": 0.4}
        columns = {name: [] for name in shifts}
        for row in self.samples:
            for name, shift in shifts.items():
                column = row.logprobs.copy()
                for number, turn in enumerate(row.turns):
                    here = np.flatnonzero(row.turn_index == number)
                    noise = generator(0, name, turn.episode.visit, turn.episode.member, turn.turn)
                    column[here] += noise.normal(0, shift, len(here)).astype(np.float32)
                columns[name].append(column)
        return {name: np.concatenate(parts) for name, parts in columns.items()}

    def shuffled(self, seed=5):
        """Put the rows in another order."""
        order = np.random.default_rng(seed).permutation(len(self.samples))
        self.samples = [self.samples[i] for i in order]
        return self

    def batch(self, scale=1.0):
        streams = self.streams()
        if not self.loss.has_kl_loss:
            del streams["reference"]
        if self.loss.tis_cap is None and self.loss.kind != "gspo":
            del streams["proximal"]
        return self._gradients.batch(self.samples, self.loss, scale=scale, **streams)


CASES = [(name, "token") for name in LOSSES] + [
    (name, aggregation)
    for name in ("clipped", "gspo", "cispo")
    for aggregation in ("turn", "episode", "constant")
]


def by_visit(samples):
    """Rows of one visit are one part, as where the group of a scheme is the whole batch."""
    nothing = Credit(advantages={}, groups=(), metrics={}, counted=frozenset())
    return parts_of(samples, nothing)


@pytest.mark.parametrize(("name", "aggregation"), CASES)
def test_the_layout_of_rows_changes_no_gradient(
    tiny_policy, make_episodes, gradients, name, aggregation
):
    options = {"aggregation": aggregation, **AGGREGATIONS[aggregation]}
    loss = make_loss(**(LOSSES[name].model_dump(exclude_unset=True) | options))
    episodes, advantages = make_episodes()
    whole = Rows(gradients, episodes, advantages, loss)
    cut = Rows(gradients, one_row_a_turn(episodes), advantages, loss)
    assert len(cut.samples) > len(whole.samples) == 9
    base, metrics = gradients.of(tiny_policy, whole.batch(), loss)
    assert metrics["policy/ratio_max"] > 1.1

    def found(rows, scorer):
        return gradients.of(tiny_policy, rows.batch(), loss, scorer=scorer)

    ways = {
        "tree": found(whole, gradients.tree()),
        "small trees": found(whole, gradients.tree(token_budget=64, mask_budget=4096)),
        "small rows": found(whole, gradients.flat(token_budget=64)),
        "a row a turn": found(cut, gradients.flat()),
        "a row a turn, as trees": found(cut, gradients.tree(token_budget=96)),
    }
    ways["another order"] = found(whole.shuffled(), gradients.tree(token_budget=64))
    for way, (other, seen) in ways.items():
        assert gradients.distance(base, other) < TOLERANCE, way
        for key in ("loss/total", "policy/clip_fraction", "policy/entropy", "policy/ratio_mean"):
            assert seen[key] == pytest.approx(metrics[key], rel=1e-4, abs=1e-6), (way, key)
    assert ways["small rows"][1]["forest/micro_batches"] > 1
    assert ways["small trees"][1]["forest/micro_batches"] > 1
    assert ways["a row a turn, as trees"][1]["forest/sharing"] > 1.5


def shares(episodes, aggregation):
    """Return each turn's weight a token, written out from docs/math.md 4."""
    turns = {turn.id: len(turn.completion_ids) for e in episodes for turn in e.turns}
    of_episode = {turn.id: sum(len(t.completion_ids) for t in e.turns)
                  for e in episodes for turn in e.turns}  # fmt: skip
    return {
        identity: {
            "token": 1 / sum(turns.values()),
            "turn": 1 / (len(turns) * length),
            "episode": 1 / (len(episodes) * of_episode[identity]),
            "constant": 1 / (len(episodes) * 16),
        }[aggregation]
        for identity, length in turns.items()
    }


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_gradient_is_that_of_the_formula(tiny_policy, make_episodes, gradients, aggregation):
    """PPO's clipped objective, one turn at a time through the model's own forward."""
    loss = make_loss(aggregation=aggregation, **AGGREGATIONS[aggregation])
    episodes, advantages = make_episodes()
    weight, model = shares(episodes, aggregation), tiny_policy.model
    model.zero_grad()
    for turn in (turn for episode in episodes for turn in episode.turns):
        ids = torch.tensor([turn.prompt_ids + turn.completion_ids])
        begin = len(turn.prompt_ids)
        logits = model(input_ids=ids).logits[0, begin - 1 : -1] / turn.sampling.temperature
        now = logits.log_softmax(-1).gather(1, ids[0, begin:, None])[:, 0]
        ratio = (now - torch.tensor(turn.logprobs)).exp()
        advantage = advantages[turn.id][""]
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
        (-weight[turn.id] * gain.sum()).backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    samples = samples_from_episodes(episodes, advantages)
    found, _ = gradients.of(
        tiny_policy, gradients.batch(samples, loss), loss, scorer=gradients.tree()
    )
    assert gradients.distance(expected, found) < TOLERANCE


def test_a_wrong_place_would_be_seen(tiny_policy, make_episodes, gradients):
    """The comparison above has teeth: one column that is off by a token moves the gradient."""
    episodes, advantages = make_episodes()
    rows = Rows(gradients, episodes, advantages, make_loss())
    base, _ = gradients.of(tiny_policy, rows.batch(), rows.loss)
    for column in ("advantages", "proximal_logprobs", "rl_weight"):
        batch = rows.batch()
        batch.columns[column] = np.roll(batch.columns[column], 1)
        wrong, _ = gradients.of(tiny_policy, batch, rows.loss)
        assert gradients.distance(base, wrong) > 1e-2, column


def test_other_aggregations_are_other_gradients(tiny_policy, make_episodes, gradients):
    """Where lengths differ, no two of them may agree by accident."""
    episodes, advantages = make_episodes()
    found = {}
    for name, options in AGGREGATIONS.items():
        loss = make_loss(aggregation=name, **options)
        rows = Rows(gradients, episodes, advantages, loss)
        found[name], _ = gradients.of(tiny_policy, rows.batch(), loss)
    names = list(found)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            assert gradients.distance(found[one], found[other]) > 1e-2, (one, other)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("aggregation", ["token", "turn", "episode"])
def test_mini_batches_share_the_denominators_of_the_batch(
    tiny_policy, make_episodes, gradients, count, aggregation
):
    """Their mean at unmoved weights is the batch's gradient, though their sizes differ."""
    loss = make_loss(aggregation=aggregation)
    episodes, advantages = make_episodes(visits=4)
    rows = Rows(gradients, episodes, advantages, loss)
    base, _ = gradients.of(tiny_policy, rows.batch(), loss)
    parts = minibatches(by_visit(rows.samples), count, np.random.default_rng(0))
    batch = rows.batch(scale=count)
    found = [gradients.of(tiny_policy, batch, loss, rows=part)[0] for part in parts]
    mean = {name: sum(one[name] for one in found) / count for name in base}
    assert gradients.distance(base, mean) < TOLERANCE


def test_counted_turns_decide_the_denominator_alone(tiny_policy, make_episodes, gradients):
    loss = make_loss(aggregation="turn")
    episodes, advantages = make_episodes()
    samples = samples_from_episodes(episodes, advantages)
    turns = [turn.id for episode in episodes for turn in episode.turns]
    whole, _ = gradients.of(tiny_policy, gradients.batch(samples, loss), loss)
    half = gradients.batch(samples, loss, counted=turns[: len(turns) // 2])
    part, _ = gradients.of(tiny_policy, half, loss)
    scaled = {name: value * (len(turns) // 2) / len(turns) for name, value in part.items()}
    assert gradients.distance(whole, scaled) < TOLERANCE


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(4))
def test_mini_batches_keep_groups_whole_and_lose_no_row(make_episodes, count, seed):
    episodes, advantages = make_episodes(visits=8, samples=2)
    samples = samples_from_episodes(one_row_a_turn(episodes), advantages)
    parts = minibatches(by_visit(samples), count, np.random.default_rng(seed))
    assert sorted(row for part in parts for row in part) == list(range(len(samples)))
    visits = [{samples[row].turns[0].episode.visit for row in part} for part in parts]
    assert len(parts) == count
    assert sum(len(found) for found in visits) == 8
    assert max(map(len, visits)) - min(map(len, visits)) <= 1
    assert parts == minibatches(by_visit(samples), count, np.random.default_rng(seed))


def test_mini_batches_are_dealt_anew_by_chance(make_episodes):
    episodes, advantages = make_episodes(visits=8, samples=2)
    samples = samples_from_episodes(episodes, advantages)
    dealt = [minibatches(by_visit(samples), 2, np.random.default_rng(seed)) for seed in range(6)]
    assert any(one != dealt[0] for one in dealt)


def test_scores_come_back_to_their_places(tiny_policy, make_episodes):
    """`score_column` puts a row's log-probabilities where the row's tokens are, in any order."""
    episodes, advantages = make_episodes()
    samples = samples_from_episodes(episodes, advantages)
    column = score_column(
        tiny_policy.model, FlatScorer(config=ForestConfig(token_budget=64)), samples
    )
    offsets = row_offsets(samples)
    for row, offset in zip(samples, offsets, strict=True):
        (alone,) = (score_column(tiny_policy.model, FlatScorer(config=ForestConfig()), [row]),)
        here = column[offset : offset + len(row.token_ids)]
        assert here == pytest.approx(alone, abs=1e-5)
        assert not here[~row.sampled_mask].any()
        gap = here[row.sampled_mask] - row.logprobs[row.sampled_mask]
        assert 0.05 < np.abs(gap).mean() < 1.0
