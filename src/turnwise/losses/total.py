"""The loss of a micro-batch: `rl + ce + ref_kl - entropy bonus`, and its metrics.

Provides `total_loss` and `combine_metrics`. Supervised, hindsight and policy-gradient training
differ in weights only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from turnwise.errors import TrainingError
from turnwise.losses import parts
from turnwise.losses.config import LossConfig
from turnwise.losses.inputs import LossInputs
from turnwise.losses.table import LOSSES
from turnwise.losses.terms import RlTerm

MAX_SUFFIX = "_max"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LossOutput:
    """The scalar loss with gradient, and detached scalars that add up over micro-batches.

    A metric whose name ends in `_max` combines by its maximum instead (`combine_metrics`).
    """

    loss: Tensor
    metrics: Mapping[str, Tensor]


def total_loss(inputs: LossInputs, config: LossConfig) -> LossOutput:
    """Return the loss of one micro-batch; its sum over micro-batches is the loss of the batch.

    Raises:
        TrainingError: if the loss has a KL part and `inputs.ref_logprobs` is None.
    """
    if config.has_kl_loss and inputs.ref_logprobs is None:
        raise TrainingError(
            f"kl = {config.kl!r} needs the reference's log-probabilities, got none: score the "
            "batch with the reference policy, or set kl = 'none'"
        )
    term = LOSSES[config.kind].function(inputs, config)
    weight = inputs.rl_weight if config.tis_cap is None else _truncated(inputs, config.tis_cap)
    rl = (weight * term.loss).sum()
    ce = parts.cross_entropy(inputs.logprobs, inputs.ce_weight)
    kl = _kl(inputs, config) if config.has_kl_loss else ce.new_zeros(())
    bonus = config.entropy_weight * (inputs.entropy_weight * inputs.entropy).sum()
    loss = rl + ce + kl - bonus
    contributions = {"total": loss, "rl": rl, "ce": ce, "kl": kl, "entropy": -bonus}
    with torch.no_grad():
        metrics = {f"loss/{name}": value.detach() for name, value in contributions.items()}
        metrics |= _policy_metrics(inputs, term) | _engine_metrics(inputs, config)
    return LossOutput(loss=loss, metrics=metrics)


def combine_metrics(batches: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    """Return a batch's metrics from those of its micro-batches: sums, or maxima for `..._max`.

    Example:
        >>> one, two = torch.tensor(1.0), torch.tensor(2.0)
        >>> combine_metrics([{"a": one, "b_max": one}, {"a": two, "b_max": two}])
        {'a': 3.0, 'b_max': 2.0}
    """
    names = dict.fromkeys(name for metrics in batches for name in metrics)
    return {
        name: (max if name.endswith(MAX_SUFFIX) else sum)(
            metrics[name].item() for metrics in batches if name in metrics
        )
        for name in names
    }


def _truncated(inputs: LossInputs, cap: float) -> Tensor:
    """Return the policy gradient's weights times min(proximal / behaviour, `cap`), [tokens]."""
    weight = parts.truncated_weight(inputs.proximal_logprobs, inputs.behaviour_logprobs, cap)
    return inputs.rl_weight * torch.where(inputs.sampled, weight, torch.ones_like(weight))


def _kl(inputs: LossInputs, config: LossConfig) -> Tensor:
    """Return the weighted KL divergence from the reference."""
    assert inputs.ref_logprobs is not None and config.kl_weight is not None
    estimator = parts.k2 if config.kl == "loss_k2" else parts.k3
    distance = estimator(inputs.logprobs, inputs.ref_logprobs) * parts.importance(inputs.log_ratio)
    return config.kl_weight * (inputs.ref_kl_weight * distance).sum()


def _policy_metrics(inputs: LossInputs, term: RlTerm) -> dict[str, Tensor]:
    """Return this micro-batch's contributions to means over the batch's trained tokens."""
    weight, zero = inputs.metric_weight, inputs.logprobs.new_zeros(())
    ratio = torch.where(inputs.has_rl, term.ratio, torch.zeros_like(term.ratio))
    metrics = {
        "policy/ratio_mean": (weight * ratio).sum(),
        "policy/ratio_max": ratio.max() if len(ratio) else zero,
        "policy/entropy": (weight * inputs.entropy).sum(),
    }
    sides = {f"policy/clip_fraction_{k}": (weight * v).sum() for k, v in term.clipped.items()}
    metrics["policy/clip_fraction"] = sum(sides.values(), start=zero)
    if inputs.ref_logprobs is not None:
        metrics["policy/ref_k3"] = (weight * parts.k3(inputs.logprobs, inputs.ref_logprobs)).sum()
    return metrics | sides


def _engine_metrics(inputs: LossInputs, config: LossConfig) -> dict[str, Tensor]:
    """Return the distance of the engine's log-probabilities from the trainer's at batch start."""
    weight = inputs.metric_weight
    behaviour, proximal = inputs.behaviour_logprobs, inputs.proximal_logprobs
    metrics = {"engine/mismatch_k3": (weight * parts.k3(behaviour, proximal)).sum()}
    if config.tis_cap is not None:
        capped = (proximal - behaviour).exp() > config.tis_cap
        metrics["engine/tis_cap_fraction"] = (weight * capped).sum()
    return metrics
