"""Root-mean-square norms in few passes (Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4).

Provides `FusedNorm`, which replaces a model's norm if it gives the same numbers. Decoders write
this norm as six operations, and PyTorch's own `RMSNorm` has a slow backward pass on CPUs.

Shapes: vectors [..., D].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

TOLERANCE = 1e-5
"""Largest difference from the model's own norm, whose outputs are about 1 in size."""
EPSILONS = ("variance_epsilon", "eps")
"""The names of the number under the root in transformers."""


class FusedNorm(nn.Module):
    """A root-mean-square norm in float32 on the CPU; other inputs use the model's own code.

    `offset` is added to the weights: 1 for models with weights around 0 (Gemma).
    """

    offset = 0.0
    weight: Tensor

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return `hidden_states` [..., D] divided by their root mean squares, times the weights."""
        x, weight = hidden_states, self.weight
        if args or kwargs or x.is_cuda or not x.dtype == weight.dtype == torch.float32:
            return super().forward(hidden_states, *args, **kwargs)
        weight = weight + self.offset if self.offset else weight
        epsilon = epsilon_of(self)
        if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
            return _NormFunction.apply(x, weight, epsilon)
        return rms_norm(x, weight, epsilon)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Return vectors [..., D] divided by their root mean squares, times `weight`."""
    return (x * _scale(x, epsilon)).mul_(weight)


class _NormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        scale = _scale(x, epsilon)
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:
        (gradient,) = slopes
        x, weight, scale = ctx.saved_tensors
        width, for_weight = x.shape[-1], None
        product = gradient * x
        if ctx.needs_input_grad[1]:
            for_weight = scale.reshape(1, -1).mm(product.reshape(-1, width))[0]
        along = product.reshape(-1, width).mv(weight).view(scale.shape)
        along.mul_(scale.pow(3)).div_(-width)
        for_x = torch.mul(gradient, weight, out=product).mul_(scale)
        return for_x.addcmul_(x, along), for_weight, None


def _scale(x: Tensor, epsilon: float) -> Tensor:
    """Return 1 / root mean square of each vector, [..., 1]."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return length.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()


def epsilon_of(module: nn.Module) -> float:
    """Return the number under the root, by any of its names."""
    return next(float(getattr(module, name)) for name in EPSILONS if hasattr(module, name))


def offset_of(module: nn.Module) -> float:
    """Return the number that is added to the weights; 0 for the model's own norm."""
    return module.offset if isinstance(module, FusedNorm) else 0.0


def use(module: nn.Module) -> bool:
    """Use `FusedNorm` in `module` if it gives the same numbers; return whether it was changed."""
    own, weight = type(module), vars(module).get("_parameters", {}).get("weight")
    if issubclass(own, FusedNorm) or not own.__name__.endswith("RMSNorm"):
        return False
    if not isinstance(weight, nn.Parameter):
        return False
    known = any(hasattr(module, name) for name in EPSILONS)
    if not known or weight.dtype != torch.float32 or weight.is_cuda:
        return False
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(4, weight.shape[0], generator=draw)
    with torch.no_grad():
        expected = module(x)
        for offset in (0.0, 1.0):
            found = x * _scale(x, epsilon_of(module)) * (weight + offset)
            if (found - expected).abs().max() <= TOLERANCE:
                module.__class__ = type(own.__name__, (FusedNorm, own), {"offset": offset})
                return True
    return False
