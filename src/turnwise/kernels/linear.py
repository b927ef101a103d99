"""Linear layers in float32 on CPUs where PyTorch's default library is slow.

Provides `Linear`, which replaces `nn.Linear`, and `prefers_onednn`, which decides when. PyTorch
multiplies float32 matrices with MKL, which uses half of the vector width on processors of other
makers than Intel. oneDNN, which is part of PyTorch, uses the full width. The precision is the same;
the order of summation differs.

Shapes: M rows, I inputs, O outputs.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_MULTIPLY = torch.ops.mkldnn._linear_pointwise
_MIN_ROWS = 16
"""With fewer rows the overhead of a oneDNN call exceeds its gain."""


class Linear(nn.Linear):
    """`nn.Linear` computed by oneDNN if input and weights are float32 on the CPU."""

    def forward(self, input: Tensor) -> Tensor:
        """Return `input` [..., I] times the weights, [..., O]."""
        weight, bias = self.weight, self.bias
        plain = input.dtype != torch.float32 or weight.dtype != torch.float32 or input.is_cuda
        if plain or input.numel() < _MIN_ROWS * input.shape[-1] or torch.is_autocast_enabled("cpu"):
            return F.linear(input, weight, bias)
        if torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad):
            return _LinearFunction.apply(input, weight, bias)
        return multiply(input, weight, bias)


class _LinearFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(input, weight)
        return reshaped(multiply(input, weight, bias), *input.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:
        (gradient,) = slopes
        input, weight = ctx.saved_tensors
        for_input = for_weight = for_bias = None
        if ctx.needs_input_grad[0]:
            for_input = multiply(gradient, weight.t())
        rows = gradient.reshape(-1, gradient.shape[-1])
        if ctx.needs_input_grad[1]:
            for_weight = weight_gradient(rows, input.reshape(-1, input.shape[-1]), weight)
        if ctx.needs_input_grad[2]:
            for_bias = rows.sum(0)
        return for_input, for_weight, for_bias


def multiply(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `input` [..., I] @ `weight` [O, I] transposed, plus `bias` [O]."""
    return _MULTIPLY(input, weight, bias, "none", [], "")


def reshaped(found: Tensor, *sizes: int) -> Tensor:
    """Return a fresh tensor in another shape, not marked as a view.

    A view returned by an autograd function may not be changed in place, as Gemma 3n does.
    """
    return torch.ops.aten._unsafe_view(found, sizes)


def weight_gradient(gradient: Tensor, input: Tensor, weight: Tensor) -> Tensor:
    """Return `gradient` [M, O] transposed @ `input` [M, I], of the shape of `weight` [O, I].

    oneDNN has its own primitive for this long sum with a small result.
    """
    found, _ = torch.ops.aten.mkldnn_linear_backward_weights(
        gradient.contiguous().to_mkldnn(), input.contiguous().to_mkldnn(), weight.detach(), False
    )
    return found.to_dense()


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and platform.machine() in ("x86_64", "AMD64")


@cache
def prefers_onednn() -> bool:
    """Whether oneDNN multiplies float32 faster on this machine, decided by the processor's maker.

    A measured time could differ between equal machines, and the order of summation with it.
    """
    if not _has_onednn():
        return False
    try:
        return "GenuineIntel" not in Path("/proc/cpuinfo").read_text()
    except OSError:
        return "intel" not in platform.processor().lower()


def use(module: nn.Module) -> bool:
    """Use oneDNN in `module` if it is a plain `nn.Linear`; return whether it was changed."""
    if type(module) is not nn.Linear:
        return False
    module.__class__ = Linear
    return True
