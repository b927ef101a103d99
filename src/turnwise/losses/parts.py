"""Further terms of the loss: cross-entropy, KL divergence from a reference, importance weights.

Provides one function for each, on tensors of shape [tokens]. Sources: k2 and k3 estimators,
Schulman 2020, "Approximating KL divergence"; truncated importance sampling, Yao et al. 2025, "Your
efficient RL framework secretly brings you off-policy RL training".
"""

from __future__ import annotations

from torch import Tensor


def cross_entropy(logprobs: Tensor, weight: Tensor) -> Tensor:
    """Return `-sum(weight * log pi)`, a scalar."""
    return -(weight * logprobs).sum()


def k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Return `(log pi - log ref)^2 / 2`; on samples of pi its gradient is that of KL(pi, ref)."""
    return 0.5 * (logprobs - ref_logprobs) ** 2


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """Return `ref / pi - 1 - log(ref / pi)`, never negative.

    On samples of pi its mean is KL(pi, ref), but its gradient is that of KL(ref, pi).

    Example:
        >>> import torch
        >>> k3(torch.zeros(1), torch.zeros(1)).item()
        0.0
    """
    difference = ref_logprobs - logprobs
    return difference.exp() - 1 - difference


def importance(log_ratio: Tensor) -> Tensor:
    """Return the ratio current / proximal as a weight without gradient.

    After the first update the tokens are samples of an older policy. This weight makes the k2 and
    k3 gradients those of the current policy.
    """
    return log_ratio.detach().exp()


def truncated_weight(proximal: Tensor, behaviour: Tensor, cap: float) -> Tensor:
    """Return `min(proximal / behaviour, cap)`, without gradient.

    Example:
        >>> import torch
        >>> truncated_weight(torch.tensor([2.0]).log(), torch.zeros(1), cap=1.5).item()
        1.5
    """
    return (proximal - behaviour).detach().exp().clamp(max=cap)
