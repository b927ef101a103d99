"""The unit of a loss is never the row (docs/math.md 4)."""

import numpy as np
import pytest
import torch

from turnwise.errors import TrainingError
from turnwise.losses import (
    LOSSES,
    combine_metrics,
    make_loss,
    token_weights,
    total_loss,
)
from turnwise.types import TrainingSample

from .conftest import inputs_from_rows

VOCABULARY, WIDTH = 7, 5
AGGREGATIONS = ["token", "turn", "episode", "constant"]


def config_of(kind, aggregation, **options):
    length = 8 if aggregation == "constant" else None
    if kind == "gspo":
        options |= {"clip_low": 0.2, "clip_high": 0.28}
    return make_loss(kind=kind, aggregation=aggregation, constant_length=length, **options)


class Causal:
    """A tiny causal model: the mean of the prefix's embeddings through tanh and a head."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        shape = (2, VOCABULARY, WIDTH)
        self.weights = torch.randn(shape, generator=generator).double().requires_grad_(True)

    def __call__(self, row):
        """Return log-probabilities and entropies of the row's targets."""
        embedding, head = self.weights
        ids = torch.as_tensor(row.token_ids)
        sums = embedding[ids].cumsum(0)
        hidden = torch.tanh(sums / torch.arange(1, len(ids) + 1)[:, None])
        logprobs = torch.log_softmax(hidden @ head.T, dim=-1)
        at = torch.as_tensor(row.targets)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs[at - 1, ids[at]], entropy[at - 1]

    def rows(self, rows):
        """Return both for many rows, one after the other."""
        logprobs, entropy = zip(*(self(row) for row in rows), strict=True)
        return torch.cat(logprobs), torch.cat(entropy)


CURRENT, PROXIMAL, REFERENCE = Causal(0), Causal(1), Causal(2)


def play(turn_id):
    """Return two episodes as (id, observation ids, completion ids, advantage) by turn."""
    return [
        [
            (turn_id(0, 0), [1, 2], [3, 4, 5], 1.0),
            (turn_id(0, 1), [2], [6], 1.0),
            (turn_id(0, 2), [0, 1], [2, 3], 1.0),
        ],
        [(turn_id(1, 0), [1, 2], [5, 5], -0.5)],
    ]


def row_of(turns, trained):
    """Return one row of `turns`; only those numbered in `trained` carry weights."""
    ids, index = [], []
    streams = {name: [] for name in ("advantages", "ce_weight", "ref_kl_weight", "entropy_weight")}
    kept = [turns[number][0] for number in trained]
    for number, (identity, observation, completion, advantage) in enumerate(turns):
        place = kept.index(identity) if number in trained else -1
        on = float(number in trained)
        ids += observation + completion
        index += [-1] * len(observation) + [place] * len(completion)
        for name, first, rest in (
            ("advantages", advantage * on, advantage * on),
            ("ce_weight", 0.5 * on, 0.0),
            ("ref_kl_weight", on, on),
            ("entropy_weight", 0.0, on),
        ):
            values = [first] + [rest] * (len(completion) - 1)
            streams[name] += [0.0] * len(observation) + values
    return TrainingSample.of(
        policy="main", turns=tuple(kept), token_ids=ids, turn_index=index, **streams
    )


def one_row_an_episode(turn_id):
    return [row_of(turns, range(len(turns))) for turns in play(turn_id)]


def one_row_a_turn(turn_id):
    return [
        row_of(turns[: number + 1], [number])
        for turns in play(turn_id)
        for number in range(len(turns))
    ]


def gradient_and_metrics(rows, config, splits):
    """Sum the gradients of micro-batches; `splits` says where the rows are cut."""
    weights = token_weights(rows, config)
    total, metrics = torch.zeros_like(CURRENT.weights), []
    for start, end in zip([0, *splits], [*splits, len(rows)], strict=True):
        some = rows[start:end]
        logprobs, entropy = CURRENT.rows(some)
        inputs = inputs_from_rows(
            some,
            weights[start:end],
            logprobs=logprobs,
            entropy=entropy,
            proximal_logprobs=PROXIMAL.rows(some)[0],
            ref_logprobs=REFERENCE.rows(some)[0],
        )
        output = total_loss(inputs, config)
        total += torch.autograd.grad(output.loss, CURRENT.weights)[0]
        metrics.append(output.metrics)
    return total, combine_metrics(metrics)


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_neither_rows_nor_micro_batches_change_the_gradient(kind, aggregation, turn_id):
    options = {"kl": "loss_k3", "kl_weight": 0.3, "entropy_weight": 0.2, "tis_cap": 2.0}
    config = config_of(kind, aggregation, **options)
    whole, apart = one_row_an_episode(turn_id), one_row_a_turn(turn_id)
    assert (len(whole), len(apart)) == (2, 4)
    expected, metrics = gradient_and_metrics(whole, config, [])
    assert expected.norm() > 0.01
    ratio = metrics["policy/ratio_max"]
    assert abs(ratio - 1) > 0.2
    for rows, splits in ((whole, [1]), (apart, []), (apart, [1, 2, 3]), (apart, [3])):
        got, got_metrics = gradient_and_metrics(rows, config, splits)
        assert (got - expected).norm() <= 1e-6 * expected.norm()
        assert got_metrics == pytest.approx(metrics, rel=1e-6)


def test_inputs_hold_every_target_occurrence_of_the_rows_in_order(make_row, turn_id):
    """Two drawn tokens and a first, taught one, which was not drawn and is of no turn."""
    taught = TrainingSample.of(
        policy="main", turns=(), token_ids=[1, 2], turn_index=[-1, -1], ce_weight=[0, 1]
    )
    drawn = make_row((turn_id(1, 0), 2), logprobs=[0, -0.25, -0.5], advantages=[0, 2, 3])
    rows = [taught, drawn]
    current = torch.tensor([-1.0, -2.0, -3.0])
    inputs = inputs_from_rows(
        rows, token_weights(rows, make_loss()), logprobs=current, entropy=torch.zeros(3)
    )
    assert inputs.sampled.tolist() == [False, True, True]
    assert inputs.turn.tolist() == [-1, 0, 0]
    assert inputs.advantages.tolist() == [0, 2, 3]
    assert inputs.ce_weight.tolist() == [1, 0, 0]
    assert inputs.rl_weight.tolist() == [0, 0.5, 0.5]
    assert inputs.behaviour_logprobs.tolist() == [0, -0.25, -0.5]
    assert inputs.proximal_logprobs.tolist() == [0, -0.25, -0.5]
    assert inputs.log_ratio.tolist() == [0, -1.75, -2.5]
    assert inputs.ref_logprobs is None


def test_weights_by_hand(make_row, turn_id):
    """Turns of 2 and 1 tokens in one episode, a turn of 2 in the other."""
    rows = [make_row((turn_id(0, 0), 2), (turn_id(0, 1), 1)), make_row((turn_id(1, 0), 2))]

    def got(aggregation):
        weights = token_weights(rows, config_of("clipped", aggregation))
        return np.concatenate([row.rl for row in weights]).tolist()

    third, quarter, fifth, sixth = 1 / 3, 1 / 4, 1 / 5, 1 / 6
    assert got("token") == pytest.approx([0, fifth, fifth, 0, fifth, 0, fifth, fifth])
    assert got("turn") == pytest.approx([0, sixth, sixth, 0, third, 0, sixth, sixth])
    assert got("episode") == pytest.approx([0, sixth, sixth, 0, sixth, 0, quarter, quarter])
    assert got("constant") == pytest.approx([0, 1 / 16, 1 / 16, 0, 1 / 16, 0, 1 / 16, 1 / 16])


def test_roles_visits_and_samples_are_episodes_of_their_own(make_row, turn_id):
    turns = [turn_id(0, 0), turn_id(0, 0, role="critic"), turn_id(0, 0, visit=1), turn_id(1, 0)]
    rows = [make_row((turn, 2)) for turn in turns]
    weights = token_weights(rows, config_of("clipped", "episode"))
    assert [row.rl.tolist() for row in weights] == [pytest.approx([0, 1 / 8, 1 / 8])] * 4


def test_each_part_has_its_own_denominator(make_row, turn_id):
    """Two of four tokens carry rl, one ce of half strength; a weight is not normalised away."""
    row = make_row(
        (turn_id(0, 0), 4),
        rl_weight=[0, 1, 1, 0, 0],
        ce_weight=[0, 0, 0, 0.5, 0],
        entropy_weight=[0, 1, 1, 1, 1],
    )
    weights = token_weights([row], make_loss())[0]
    assert weights.rl.tolist() == [0, 0.5, 0.5, 0, 0]
    assert weights.ce.tolist() == [0, 0, 0, 0.5, 0]
    assert weights.ref_kl.tolist() == [0] * 5
    assert weights.entropy.tolist() == [0, 0.25, 0.25, 0.25, 0.25]
    assert weights.metric.tolist() == weights.rl.tolist()


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("token", [1 / 3] * 5), ("turn", [1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])],
)
def test_kept_units_alone_count_in_the_denominator(aggregation, expected, make_row, turn_id):
    """The turn of three tokens is kept; the other one's weight meets advantages of 0."""
    rows = [make_row((turn_id(0, 0), 2)), make_row((turn_id(1, 0), 3))]
    config = config_of("clipped", aggregation)
    weights = token_weights(rows, config, counted={turn_id(1, 0)})
    assert np.concatenate([row.rl[1:] for row in weights]).tolist() == pytest.approx(expected)
    nothing = token_weights(rows, config, counted=set())
    assert not any(row.rl.any() for row in nothing)


def test_rows_of_two_policies_are_refused(make_row, turn_id):
    rows = [make_row((turn_id(0, 0), 1)), make_row((turn_id(1, 0), 1), policy="other")]
    with pytest.raises(TrainingError, match="got those of main, other"):
        token_weights(rows, make_loss())


def test_a_reference_weight_the_loss_would_ignore_is_refused(make_row, turn_id):
    row = make_row((turn_id(0, 0), 1), ref_kl_weight=[0, 1])
    with pytest.raises(TrainingError, match="kl = 'none' is no term of the loss"):
        token_weights([row], make_loss())


def test_policy_gradient_on_tokens_that_were_not_sampled_is_refused():
    row = TrainingSample.of(
        policy="main", turns=(), token_ids=[1, 2], turn_index=[-1, -1], rl_weight=[0, 1]
    )
    with pytest.raises(TrainingError, match="were not sampled"):
        token_weights([row], make_loss())


@pytest.mark.parametrize(
    "aggregation",
    [
        {"aggregation": "token"},
        {"aggregation": "turn"},
        {"aggregation": "episode"},
        {"aggregation": "constant", "constant_length": 5},
    ],
)
def test_cross_entropy_is_a_mean_over_tokens_whatever_the_aggregation(
    make_row, turn_id, aggregation
):
    def supervised(*weights):
        zeros = [-1] * (len(weights) + 1)
        return TrainingSample.of(
            policy="main", turns=(), token_ids=zeros, turn_index=zeros, ce_weight=[0, *weights]
        )

    played = make_row((turn_id(0, 0), 2))
    rows = [played, supervised(2), supervised(1, 1)]
    found = token_weights(rows, make_loss(**aggregation))
    expected = [[2 / 3], [1 / 3, 1 / 3]]
    assert [row.ce[1:].tolist() for row in found[1:]] == [pytest.approx(row) for row in expected]
    alone = token_weights([played], make_loss(**aggregation))[0].rl
    assert found[0].rl.tolist() == alone.tolist()


def test_other_tokens_without_a_turn_aggregate_by_token_only(turn_id):
    row = TrainingSample.of(
        policy="main",
        turns=(turn_id(0, 0),),
        token_ids=[1, 2, 3],
        turn_index=[-1, -1, 0],
        entropy_weight=[0, 1, 0],
    )
    assert token_weights([row], make_loss())[0].entropy.tolist() == [0, 1, 0]
    with pytest.raises(TrainingError, match="1 have turn_index -1"):
        token_weights([row], make_loss(aggregation="turn"))


def test_an_empty_batch_has_no_weights():
    assert token_weights([], make_loss(aggregation="episode")) == []
