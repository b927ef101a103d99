"""The gradients of the KL estimators by enumeration of a small vocabulary (docs/math.md 3)."""

import pytest
import torch

from turnwise.errors import ConfigError
from turnwise.losses import make_loss, total_loss
from turnwise.losses.parts import k2, k3

REFERENCE = torch.tensor([0.2, -0.4, 1.0]).double().log_softmax(0)
OLD = torch.tensor([0.5, 0.9, -0.1]).double().log_softmax(0)


def current():
    logits = torch.tensor([1.0, -0.5, 0.3]).double().requires_grad_(True)
    return logits, logits.log_softmax(0)


def kl(p, q):
    return (p.exp() * (p - q)).sum()


def gradient(value, logits):
    return torch.autograd.grad(value, logits)[0]


TARGETS = {"loss_k2": lambda p: kl(p, REFERENCE), "loss_k3": lambda p: kl(REFERENCE, p)}


@pytest.mark.parametrize("name", TARGETS)
def test_k2_has_the_gradient_of_kl_pi_ref_and_k3_of_kl_ref_pi(name, make_inputs):
    logits, logprobs = current()
    expected = gradient(TARGETS[name](logprobs), logits)
    logits, logprobs = current()
    inputs = make_inputs(
        [1.0] * 3,
        [0.0] * 3,
        logprobs=logprobs,
        ref_logprobs=REFERENCE,
        ref_kl_weight=logprobs.detach().exp(),
    )
    loss = total_loss(inputs, make_loss(kl=name, kl_weight=0.7)).loss
    assert torch.allclose(gradient(loss, logits), 0.7 * expected, atol=1e-12)


@pytest.mark.parametrize("name", TARGETS)
def test_after_the_first_update_the_ratio_keeps_the_gradients_true(name, make_inputs):
    """Tokens are samples of the old policy, OLD."""
    logits, logprobs = current()
    expected = gradient(TARGETS[name](logprobs), logits)
    logits, logprobs = current()
    inputs = make_inputs(
        [1.0] * 3,
        [0.0] * 3,
        logprobs=logprobs,
        proximal_logprobs=OLD,
        ref_logprobs=REFERENCE,
        ref_kl_weight=OLD.exp(),
    )
    loss = total_loss(inputs, make_loss(kl=name, kl_weight=1.0)).loss
    assert torch.allclose(gradient(loss, logits), expected, atol=1e-12)


def test_the_value_of_k3_is_kl_pi_ref():
    _, logprobs = current()
    value = (logprobs.exp() * k3(logprobs, REFERENCE)).sum()
    assert value.item() == pytest.approx(kl(logprobs, REFERENCE).item())
    assert (k3(logprobs, REFERENCE) > 0).all() and (k2(logprobs, REFERENCE) > 0).all()


def test_k1_as_a_loss_has_no_gradient_and_is_refused():
    logits, logprobs = current()
    expected = gradient((logprobs.detach().exp() * (logprobs - REFERENCE)).sum(), logits)
    assert torch.allclose(expected, torch.zeros(3).double(), atol=1e-12)
    with pytest.raises(ConfigError, match="loss_k2"):
        make_loss(kl="loss_k1", kl_weight=0.1)


def test_k1_in_the_reward_is_no_part_of_the_loss(make_inputs):
    """It is in the advantages already (`credit`), whatever reference the loss is shown."""
    logits, logprobs = current()
    inputs = make_inputs([1.0] * 3, [1.0, -2.0, 0.5], logprobs=logprobs, ref_logprobs=REFERENCE)
    without = gradient(total_loss(inputs, make_loss()).loss, logits)
    logits, logprobs = current()
    inputs = make_inputs([1.0] * 3, [1.0, -2.0, 0.5], logprobs=logprobs)
    got = total_loss(inputs, make_loss(kl="reward_k1", kl_weight=0.7))
    assert torch.equal(gradient(got.loss, logits), without)
    assert got.metrics["loss/kl"] == 0
