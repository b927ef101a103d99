"""Every loss and every aggregation against numbers worked out by hand, at ratios away from 1."""

import pytest
import torch

from turnwise.losses import LOSSES, make_loss, token_weights, total_loss

from .conftest import inputs_from_rows

CLIPPED = [  # ratio, advantage, loss, d loss / d log pi; bounds 0.8 and 1.28
    (1.5, 1.0, -1.28, 0.0),
    (1.5, -1.0, 1.5, 1.5),
    (0.5, 1.0, -0.5, -0.5),
    (0.5, -1.0, 0.8, 0.0),
    (1.1, 2.0, -2.2, -2.2),
    (0.9, -2.0, 1.8, 1.8),
]


def loss_and_gradient(inputs, config):
    loss = total_loss(inputs, config).loss
    return loss.item(), torch.autograd.grad(loss, inputs.logprobs)[0].tolist()


@pytest.mark.parametrize(("ratio", "advantage", "value", "slope"), CLIPPED)
def test_clipped_by_hand(ratio, advantage, value, slope, make_inputs):
    got = loss_and_gradient(make_inputs([ratio], [advantage]), make_loss())
    assert got == (pytest.approx(value), pytest.approx([slope]))


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [(4.0, -1.0, 3.0, 0.0), (2.0, -1.0, 2.0, 2.0), (4.0, 1.0, -1.28, 0.0)],
)
def test_dual_clip_bounds_negative_advantages_only(ratio, advantage, value, slope, make_inputs):
    got = loss_and_gradient(make_inputs([ratio], [advantage]), make_loss(dual_clip=3.0))
    assert got == (pytest.approx(value), pytest.approx([slope]))


def test_gspo_by_hand(make_inputs):
    """Turn 7: ratios 2 and 1, so s = sqrt 2, with A = -1; turn 300: ratio 0.9, with A = 1."""
    inputs = make_inputs([2.0, 0.9, 1.0], [-1.0, 1.0, -1.0], turn=[7, 300, 7])
    config = make_loss(kind="gspo", clip_low=0.2, clip_high=0.28)
    value, gradient = loss_and_gradient(inputs, config)
    root = 2**0.5
    assert value == pytest.approx((2 * root - 0.9) / 3)
    assert gradient == pytest.approx([root / 3, -0.9 / 3, root / 3])


def test_gspo_gives_every_token_its_own_advantage(make_inputs):
    """A turn of two spans that did well and badly: the spans are pulled apart, not averaged."""
    inputs = make_inputs([2.0, 0.5, 1.0, 1.0], [1.0, 1.0, -1.0, -1.0], turn=[5] * 4)
    value, gradient = loss_and_gradient(inputs, make_loss(kind="gspo"))
    assert value == pytest.approx(0.0)
    assert gradient == pytest.approx([-0.25, -0.25, 0.25, 0.25])


def test_gspo_clips_whole_turns_at_its_published_bounds(make_inputs):
    inputs = make_inputs([1.001, 1.001, 1.0002], [1.0, 1.0, 1.0], turn=[0, 0, 1])
    value, gradient = loss_and_gradient(inputs, make_loss(kind="gspo"))
    assert value == pytest.approx(-(2 * 1.0004 + 1.0002) / 3)
    assert gradient == pytest.approx([0.0, 0.0, -1.0002 / 3])


def test_gspo_averages_over_the_turns_tokens_that_carry_policy_gradient(make_inputs):
    inputs = make_inputs([4.0, 1.1], [1.0, 1.0], rl_weight=[0.0, 1.0])
    config = make_loss(kind="gspo", clip_low=0.2, clip_high=0.28)
    assert loss_and_gradient(inputs, config) == (
        pytest.approx(-1.1),
        pytest.approx([0.0, -1.1]),
    )


def test_cispo_by_hand(make_inputs):
    """The weight is min(r, 5); every token keeps its gradient, however far its ratio."""
    inputs = make_inputs([8.0, 2.0, 0.1], [1.0, -1.0, 1.0], logprobs=[-0.5, -1.0, -2.0])
    value, gradient = loss_and_gradient(inputs, make_loss(kind="cispo"))
    assert value == pytest.approx((5 * 0.5 - 2 * 1.0 + 0.1 * 2.0) / 3)
    assert gradient == pytest.approx([-5 / 3, 2 / 3, -0.1 / 3])


TERMS = {  # the five tokens of `batch`, by kind; gspo takes geometric means by turn
    "clipped": [-1.28, -0.5, -2.2, 1.5, 0.8],
    "gspo": [-(0.75**0.5), -(0.75**0.5), -2.2, 0.8, 0.8],
    "cispo": [1.5, 0.5, 2.2, -1.5, -0.3],
}
WEIGHTS = {  # turns of 2, 1 and 2 tokens; the first two are one episode
    "token": [1 / 5] * 5,
    "turn": [1 / 6, 1 / 6, 1 / 3, 1 / 6, 1 / 6],
    "episode": [1 / 6, 1 / 6, 1 / 6, 1 / 4, 1 / 4],
    "constant": [1 / 20] * 5,
}


def batch(make_row, turn_id):
    """Ratios 1.5, 0.5 | 1.1 and 1.5, 0.3; advantages 1, 1 | 2 and -1, -1."""
    one = make_row((turn_id(0, 0), 2), (turn_id(0, 1), 1), advantages=[0.0, 1.0, 1.0, 0.0, 2.0])
    two = make_row((turn_id(1, 0), 2), advantages=[0.0, -1.0, -1.0])
    return [one, two], torch.tensor([1.5, 0.5, 1.1, 1.5, 0.3]).double()


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("aggregation", WEIGHTS)
def test_every_loss_under_every_aggregation_by_hand(kind, aggregation, make_row, turn_id):
    rows, ratio = batch(make_row, turn_id)
    options = {"clip_low": 0.2, "clip_high": 0.28} if kind == "gspo" else {}
    length = 10 if aggregation == "constant" else None
    config = make_loss(kind=kind, aggregation=aggregation, constant_length=length, **options)
    inputs = inputs_from_rows(
        rows,
        token_weights(rows, config),
        logprobs=torch.full((5,), -1.0).double(),
        entropy=torch.zeros(5).double(),
        proximal_logprobs=-1.0 - ratio.log(),
    )
    expected = sum(w * x for w, x in zip(WEIGHTS[aggregation], TERMS[kind], strict=True))
    assert total_loss(inputs, config).loss.item() == pytest.approx(expected, rel=1e-6)


def test_gspo_equals_clipped_when_a_turn_is_one_token(make_inputs):
    ratio, advantages = [1.5, 0.5, 1.1, 0.9], [1.0, -1.0, 2.0, -2.0]
    one = make_inputs(ratio, advantages, turn=[3, 0, 2, 1])
    two = make_inputs(ratio, advantages, turn=[3, 0, 2, 1])
    gspo = make_loss(kind="gspo", clip_low=0.2, clip_high=0.28)
    assert loss_and_gradient(one, gspo) == loss_and_gradient(two, make_loss())


def test_cross_entropy_by_hand(make_inputs):
    inputs = make_inputs(
        [1.0, 1.0], [5.0, 5.0], logprobs=[-0.5, -2.0], rl_weight=[0.0, 0.0], ce_weight=[0.25, 0.5]
    )
    value, gradient = loss_and_gradient(inputs, make_loss())
    assert value == pytest.approx(0.25 * 0.5 + 0.5 * 2.0)
    assert gradient == pytest.approx([-0.25, -0.5])


@pytest.mark.parametrize(
    ("kl", "value", "slope"),
    # log pi = -1, log ref = -1 + log 2, ratio 3 as a weight: k2 = log(2)^2 / 2, k3 = 2 - 1 - log 2
    [("loss_k2", 3 * 0.240227, 3 * -0.693147), ("loss_k3", 3 * 0.306853, 3 * -1.0)],
)
def test_reference_kl_by_hand(kl, value, slope, make_inputs):
    inputs = make_inputs(
        [3.0], [0.0], ref_logprobs=[-1 + 0.6931471805599453], ref_kl_weight=[1.0], rl_weight=[0.0]
    )
    got = loss_and_gradient(inputs, make_loss(kl=kl, kl_weight=0.5))
    assert got == (pytest.approx(0.5 * value, rel=1e-5), pytest.approx([0.5 * slope], rel=1e-5))


def test_entropy_bonus_by_hand(make_inputs):
    entropy = torch.tensor([0.5, 1.5]).double().requires_grad_(True)
    inputs = make_inputs([1.0, 1.0], [0.0, 0.0], entropy=entropy, entropy_weight=[0.25, 0.75])
    loss = total_loss(inputs, make_loss(entropy_weight=0.1)).loss
    assert loss.item() == pytest.approx(-0.1 * (0.125 + 1.125))
    assert torch.autograd.grad(loss, entropy)[0].tolist() == pytest.approx([-0.025, -0.075])


def test_truncated_weight_multiplies_the_rl_part_without_gradient(make_inputs):
    """proximal / behaviour is 3, capped at 2, and 0.5; ratios 1.1; only rl is weighed."""
    proximal = torch.tensor([-1.0, -1.0]).double() - torch.tensor([1.1, 1.1]).double().log()
    inputs = make_inputs(
        [1.1, 1.1],
        [1.0, 1.0],
        behaviour_logprobs=proximal - torch.tensor([3.0, 0.5]).double().log(),
        ce_weight=[1.0, 0.0],
    )
    value, gradient = loss_and_gradient(inputs, make_loss(tis_cap=2.0))
    assert value == pytest.approx(-(2 * 1.1 + 0.5 * 1.1) / 2 + 1.0)
    assert gradient == pytest.approx([-1.1 - 1.0, -0.275])
