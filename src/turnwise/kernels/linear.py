"""Linear layers in float32 on CPUs for which PyTorch's default library is slow.

Owns the class that takes the place of `nn.Linear`, and when it does. PyTorch multiplies float32
matrices with MKL, which on processors of other makers than Intel leaves half of their width unused;
oneDNN, which PyTorch carries too, does not. Same precision, another order of sums.

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
_REORDER = torch.ops.mkldnn._reorder_linear_weight
_ROWS = 32
"""Rows for which packed weights are best; others can be multiplied with them too."""
_FEW = 16
"""Rows below which a product is not worth the call's own cost."""
_LARGE = 1 << 20
"""Weights from which few rows are best multiplied with packed ones, on processors of any maker."""
_MEDIUM = 1 << 17
"""Weights from which MKL multiplies few rows faster if they lie transposed."""


class Linear(nn.Linear):
    """`nn.Linear` by oneDNN, where input and weights are float32 on the CPU."""

    def forward(self, input: Tensor) -> Tensor:
        """Return `input` [..., I] times the weights, [..., O]."""
        weight, bias = self.weight, self.bias
        plain = input.dtype != torch.float32 or weight.dtype != torch.float32 or input.is_cuda
        if plain or input.numel() < _FEW * input.shape[-1] or torch.is_autocast_enabled("cpu"):
            return F.linear(input, weight, bias)
        if torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad):
            return _Product.apply(input, weight, bias)
        return multiply(input, weight, bias)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(input, weight)
        return shaped(multiply(input, weight, bias), *input.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:
        (gradient,) = slopes
        input, weight = ctx.saved_tensors
        for_input = for_weight = for_bias = None
        if ctx.needs_input_grad[0]:
            for_input = multiply(gradient, weight.t())
        rows = gradient.reshape(-1, gradient.shape[-1])
        if ctx.needs_input_grad[1]:
            for_weight = outer(rows, input.reshape(-1, input.shape[-1]), weight)
        if ctx.needs_input_grad[2]:
            for_bias = rows.sum(0)
        return for_input, for_weight, for_bias


def multiply(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `input` [..., I] @ `weight` [O, I] transposed, plus `bias` [O]."""
    return _MULTIPLY(input, weight, bias, "none", [], "")


def shaped(found: Tensor, *sizes: int) -> Tensor:
    """Return a fresh tensor in another shape, as no view.

    What an autograd function returns as a view may not be changed in place, as Gemma 3n does.
    """
    return torch.ops.aten._unsafe_view(found, sizes)


def product(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the same by whichever library is faster here."""
    return (multiply if worth_it() else F.linear)(input, weight, bias)


class Packed:
    """A linear layer's product with few rows, of weights in the order that is read fastest.

    That is oneDNN's own where it multiplies, and [I, O] for MKL, whose product of 32 rows with
    384 x 384 weights takes 36 us instead of 52 so. A copy of the weights as they were. Without
    gradients.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        weight = weight.detach()
        self.outputs = weight.shape[0]
        self._bias = None if bias is None else bias.detach().clone()
        if worth_it() or (weight.numel() >= _LARGE and _has_one_dnn()):
            self._weight, self._multiply = _REORDER(weight.contiguous(), _ROWS), multiply
        elif weight.numel() >= _MEDIUM:
            self._weight, self._multiply = weight.t().contiguous(), _multiply_transposed
        else:
            self._weight, self._multiply = weight.clone(), F.linear

    def __call__(self, input: Tensor) -> Tensor:
        """Return `input` [..., I] times the weights, plus the bias, [..., O]."""
        return self._multiply(input, self._weight, self._bias)


def _multiply_transposed(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `input` [..., I] @ `weight` [I, O], plus `bias` [O]."""
    found = torch.matmul(input, weight)
    return found if bias is None else found.add_(bias)


def outer(gradient: Tensor, input: Tensor, weight: Tensor) -> Tensor:
    """Return `gradient` [M, O] transposed @ `input` [M, I], of the shape of `weight` [O, I].

    A long sum with a small result, for which oneDNN has a primitive of its own.
    """
    found, _ = torch.ops.aten.mkldnn_linear_backward_weights(
        gradient.contiguous().to_mkldnn(), input.contiguous().to_mkldnn(), weight.detach(), False
    )
    return found.to_dense()


def _has_one_dnn() -> bool:
    return torch.backends.mkldnn.is_available() and platform.machine() in ("x86_64", "AMD64")


@cache
def worth_it() -> bool:
    """Whether float32 products are faster by oneDNN here: a property of the machine, not a clock's.

    Equal machines must decide alike, as sums in another order give other last bits.
    """
    if not _has_one_dnn():
        return False
    try:
        return "GenuineIntel" not in Path("/proc/cpuinfo").read_text()
    except OSError:
        return "intel" not in platform.processor().lower()


def is_plain(module: nn.Module) -> bool:
    """Whether `module` is a linear layer and nothing else."""
    return type(module) in (nn.Linear, Linear)


def use(module: nn.Module) -> bool:
    """Let `module` multiply by oneDNN if it is a plain linear layer; return whether it does."""
    if type(module) is not nn.Linear:
        return False
    module.__class__ = Linear
    return True
