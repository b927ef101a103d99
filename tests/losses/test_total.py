"""The parts together: options, edges, metrics and derivatives."""

import pytest
import torch

from turnwise.errors import ConfigError, TrainingError
from turnwise.losses import combine_metrics, make_loss, total_loss

REFUSED = [
    ({"kind": "clip"}, "did you mean 'clipped'"),
    ({"kind": "cispo", "clip_low": 0.2}, "clip_low = 0.2 does not apply to kind = 'cispo'"),
    ({"kind": "clipped", "cispo_cap": 5.0}, "cispo_cap = 5.0 does not apply"),
    ({"kind": "gspo", "dual_clip": 3.0}, "dual_clip = 3.0 does not apply"),
    ({"dual_clip": 0.5}, "greater than 1"),
    ({"aggregation": "constant"}, "give constant_length"),
    ({"constant_length": 64}, "only there"),
    ({"kl": "loss_k3"}, "give a weight"),
    ({"kl_weight": 0.1}, "only there"),
    ({"entropy_span": "think"}, "without a bonus"),
    ({"clip": 0.2}, "unknown key 'clip'"),
]


@pytest.mark.parametrize(("options", "why"), REFUSED)
def test_what_does_not_apply_is_refused_with_the_reason(options, why):
    with pytest.raises(ConfigError, match=why):
        make_loss(**options)


def test_defaults_are_the_published_ones():
    clipped, gspo, cispo = (make_loss(kind=kind) for kind in ("clipped", "gspo", "cispo"))
    assert (clipped.clip_low, clipped.clip_high, clipped.dual_clip) == (0.2, 0.28, None)
    assert (gspo.clip_low, gspo.clip_high) == (3e-4, 4e-4)
    assert cispo.cispo_cap == 5.0
    for config in (clipped, gspo, cispo):
        assert make_loss(**config.model_dump()) == config


def test_the_loss_is_the_sum_of_its_parts(make_inputs):
    inputs = make_inputs(
        [1.1, 0.9],
        [1.0, -1.0],
        ce_weight=[0.5, 0.5],
        ref_kl_weight=[0.5, 0.5],
        ref_logprobs=[-2.0, -0.5],
        entropy=[1.0, 2.0],
        entropy_weight=[0.5, 0.5],
    )
    config = make_loss(kl="loss_k2", kl_weight=0.1, entropy_weight=0.01)
    output = total_loss(inputs, config)
    m = combine_metrics([output.metrics])
    assert m["loss/rl"] == pytest.approx((-1.1 + 0.9) / 2)
    assert m["loss/ce"] == pytest.approx(1.0)
    assert m["loss/kl"] == pytest.approx(0.1 * 0.5 * (1.1 * 0.5 + 0.9 * 0.125))
    assert m["loss/entropy"] == pytest.approx(-0.015)
    parts = ("loss/rl", "loss/ce", "loss/kl", "loss/entropy")
    assert m["loss/total"] == output.loss.item() == pytest.approx(sum(m[name] for name in parts))


@pytest.mark.parametrize("kl", ["loss_k2", "loss_k3"])
def test_a_missing_reference_is_an_error(kl, make_inputs):
    with pytest.raises(TrainingError, match="needs the reference's log-probabilities"):
        total_loss(make_inputs([1.0], [1.0]), make_loss(kl=kl, kl_weight=0.1))


@pytest.mark.parametrize("kind", ["clipped", "gspo"])
def test_on_policy_with_centred_advantages_the_value_is_0_and_the_gradient_is_not(
    kind, make_inputs
):
    """Two episodes that count alike, of two and one tokens."""
    inputs = make_inputs([1.0] * 3, [0.7, 0.7, -0.7], rl_weight=[0.25, 0.25, 0.5], turn=[0, 0, 1])
    loss = total_loss(inputs, make_loss(kind=kind)).loss
    gradient = torch.autograd.grad(loss, inputs.logprobs)[0]
    assert loss.item() == pytest.approx(0.0, abs=1e-12)
    assert gradient.tolist() == pytest.approx([-0.175, -0.175, 0.35])


def test_clipping_does_nothing_at_first_and_something_after_a_step(make_inputs):
    """One update per batch: ratio 1, clip fraction 0; the second one has a fraction above 0."""
    logits = torch.tensor([0.1, -0.3, 0.2]).double().requires_grad_(True)
    old = logits.detach().log_softmax(0)
    optimizer = torch.optim.SGD([logits], lr=3.0)
    fractions, ratios = [], []
    for _ in range(2):
        inputs = make_inputs(
            [1.0] * 3, [1.0, -1.0, 0.0], logprobs=logits.log_softmax(0), proximal_logprobs=old
        )
        output = total_loss(inputs, make_loss())
        fractions.append(output.metrics["policy/clip_fraction"].item())
        ratios.append(output.metrics["policy/ratio_mean"].item())
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
    assert fractions[0] == 0 and ratios[0] == pytest.approx(1, abs=1e-12)
    assert fractions[1] > 0


def test_tokens_without_policy_gradient_may_be_anything(make_inputs):
    """A prompt token with ce weight has no proximal log-probability: its ratio is nonsense."""
    inputs = make_inputs(
        [1.1, 1.0],
        [1.0, 0.0],
        logprobs=[-1.0, -800.0],
        proximal_logprobs=[-1.0 - 0.0953101798, -1e9],
        behaviour_logprobs=[-1.0 - 0.0953101798, 0.0],
        rl_weight=[1.0, 0.0],
        metric_weight=[1.0, 0.0],
        ce_weight=[0.0, 1.0],
        sampled=[True, False],
        turn=[0, -1],
    )
    output = total_loss(inputs, make_loss(tis_cap=2.0))
    assert output.loss.item() == pytest.approx(800 - 1.1)
    assert torch.autograd.grad(output.loss, inputs.logprobs)[0].tolist() == pytest.approx(
        [-1.1, -1.0]
    )
    metrics = combine_metrics([output.metrics])
    assert metrics["policy/ratio_max"] == pytest.approx(1.1)


OPTIONS = [
    {"kind": "clipped"},
    {"kind": "clipped", "dual_clip": 3.0},
    {"kind": "gspo", "clip_low": 0.2, "clip_high": 0.28},
    {"kind": "clipped", "tis_cap": 1.05, "entropy_weight": 0.3},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_gradients_equal_finite_differences(options, make_inputs):
    """At ratios on either side of every bound, never on it; a turn has one advantage."""
    ratio = [1.5, 1.5, 0.5, 0.9, 1.1, 4.0, 0.5]
    start = make_inputs(ratio, [1.0, -1.0, 1.0, 1.0, 2.0, -1.0, -1.0])

    def loss(logprobs, entropy):
        inputs = make_inputs(
            ratio,
            start.advantages.tolist(),
            logprobs=logprobs,
            proximal_logprobs=start.proximal_logprobs,
            behaviour_logprobs=start.proximal_logprobs - 0.1,
            ref_logprobs=[-0.3, -2.0, -1.0, -1.5, -0.7, -1.1, -0.9],
            ce_weight=[0.0, 0.1, 0.2, 0.3, 0.0, 0.1, 0.0],
            entropy=entropy,
            entropy_weight=[1 / 7] * 7,
            turn=[0, 1, 2, 2, 3, 4, 5],
        )
        return total_loss(inputs, make_loss(**options)).loss

    entropy = torch.linspace(0.5, 1.5, 7).double().requires_grad_(True)
    assert torch.autograd.gradcheck(loss, (start.logprobs, entropy))


def test_policy_metrics_by_hand(make_inputs):
    """clipped: 1.5 with A > 0 and 0.5 with A < 0 lose their gradient, 4 under the dual clip."""
    inputs = make_inputs([1.5, 0.5, 1.0, 4.0], [1.0, -1.0, 1.0, -1.0], entropy=[1.0, 2.0, 3.0, 4.0])
    metrics = combine_metrics([total_loss(inputs, make_loss(dual_clip=3.0)).metrics])
    assert metrics["policy/clip_fraction_high"] == 0.25
    assert metrics["policy/clip_fraction_low"] == 0.25
    assert metrics["policy/clip_fraction_dual"] == 0.25
    assert metrics["policy/clip_fraction"] == 0.75
    assert metrics["policy/ratio_mean"] == pytest.approx(1.75)
    assert metrics["policy/ratio_max"] == pytest.approx(4.0)
    assert metrics["policy/entropy"] == pytest.approx(2.5)
    assert metrics["engine/mismatch_k3"] == 0.0


def test_tokens_without_advantage_have_nothing_to_clip(make_inputs):
    metrics = total_loss(make_inputs([1.5, 0.5], [0.0, 0.0]), make_loss()).metrics
    assert metrics["policy/clip_fraction"].item() == 0.0


def test_engine_metrics_by_hand(make_inputs):
    """proximal / behaviour is 2 and 1: k3 = 2 - 1 - log 2; one of two weights is capped."""
    proximal = torch.tensor([-1.0, -1.0]).double()
    behaviour = proximal - torch.tensor([2.0, 1.0]).double().log()
    inputs = make_inputs([1.0, 1.0], [1.0, 1.0], behaviour_logprobs=behaviour)
    metrics = combine_metrics([total_loss(inputs, make_loss(tis_cap=1.5)).metrics])
    assert metrics["engine/mismatch_k3"] == pytest.approx((1 - 0.6931471805599453) / 2)
    assert metrics["engine/tis_cap_fraction"] == 0.5


def test_a_broadcast_is_a_bug_of_ours(make_inputs):
    with pytest.raises(AssertionError, match="advantages"):
        make_inputs([1.0, 1.0], [1.0])
