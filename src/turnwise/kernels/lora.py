"""Linear layers with a LoRA adapter (arXiv:2106.09685), in few passes over their activations.

Provides `LoraLayer`, which replaces the layer of PEFT where one plain adapter acts on frozen
weights, and `weights_of`, the merged weights of such a layer. PEFT scales and adds the adapter's
output and its gradient in separate passes; here these operations are part of the adapter's matrix
products.

Shapes: M rows, I inputs, O outputs, R rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from peft.tuners.lora.layer import Linear as LoraLinear
from torch import Tensor, nn

from turnwise.kernels import linear


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Adapter:
    """An adapter that adds `scale` times `up` [O, R] @ `down` [R, I] to the weights."""

    down: Tensor
    up: Tensor
    scale: float


class LoraLayer(nn.Module):
    """PEFT's linear layer, faster if `adapter_of` finds an adapter in float32 on the CPU."""

    base_layer: Any

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the layer's output of `x` [..., I], [..., O]."""
        adapter = None if args or kwargs else adapter_of(self)
        if adapter is None or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            return super().forward(x, *args, **kwargs)
        base = self.base_layer
        return _LoraFunction.apply(
            x, base.weight, base.bias, adapter.down, adapter.up, adapter.scale
        )


class _LoraFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        down: Tensor,
        up: Tensor,
        scale: float,
    ) -> Tensor:
        rows = input.reshape(-1, input.shape[-1])
        low = rows @ down.t()
        found = linear.product(rows, weight, bias).addmm_(low, up.t(), alpha=scale)
        ctx.save_for_backward(input, weight, down, up, low)
        ctx.scale = scale
        return linear.reshaped(found, *input.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:
        input, weight, down, up, low = ctx.saved_tensors
        rows, scale = input.reshape(-1, input.shape[-1]), ctx.scale
        gradient = slopes[0].reshape(-1, len(weight))
        for_low = gradient @ up
        for_input = for_down = for_up = None
        if ctx.needs_input_grad[0]:
            for_input = linear.product(gradient, weight.t()).addmm_(for_low, down, alpha=scale)
            for_input = for_input.view(input.shape)
        if ctx.needs_input_grad[3]:
            for_down = (for_low.t() @ rows).mul_(scale)
        if ctx.needs_input_grad[4]:
            for_up = (gradient.t() @ low).mul_(scale)
        return for_input, None, None, for_down, for_up, None


def is_additive(layer: Any) -> bool:
    """Whether a LoRA layer is the sum of its weights' product and its adapters' products."""
    return not (layer.merged or layer.disable_adapters or layer.lora_variant)


def adapter_of(layer: Any) -> Adapter | None:
    """Return the single plain adapter of a LoRA layer with frozen float32 weights, or None.

    The result is None if the layer has a second adapter, a variant, a bias or active dropout, or
    if its weights are not those of a plain linear layer.
    """
    base = layer.base_layer
    if not is_additive(layer) or not linear.is_plain(base):
        return None
    names = [name for name in layer.active_adapters if name in layer.lora_A]
    if len(names) != 1:
        return None
    down, up = layer.lora_A[names[0]], layer.lora_B[names[0]]
    idle = not layer.training or isinstance(layer.lora_dropout[names[0]], nn.Identity)
    parts = [down.weight, up.weight, *base.parameters()]
    frozen = not any(part.requires_grad for part in base.parameters())
    cpu_float32 = all(part.dtype == torch.float32 and not part.is_cuda for part in parts)
    if not (idle and frozen and cpu_float32) or up.bias is not None:
        return None
    return Adapter(down=down.weight, up=up.weight, scale=layer.scaling[names[0]])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerWeights:
    """The weights of a linear layer, with its adapter if it has one."""

    base: nn.Linear
    adapter: Adapter | None

    @property
    def parts(self) -> list[Tensor]:
        """The tensors of the weights and the adapter."""
        beside = [self.adapter.down, self.adapter.up] if self.adapter else []
        return [*self.base.parameters(), *beside]

    @property
    def scale(self) -> float:
        """The adapter's scale; 0 without one."""
        return self.adapter.scale if self.adapter else 0.0

    def merged(self) -> Tensor:
        """Return the weights with the adapter merged, [O, I]: the layer's own or a new tensor."""
        weight = self.base.weight.detach()
        if self.adapter is None:
            return weight
        up, down = self.adapter.up.detach(), self.adapter.down.detach()
        return torch.addmm(weight, up, down, alpha=self.adapter.scale)


def weights_of(module: Any) -> LayerWeights | None:
    """Return the weights of a plain linear layer, or of one with a plain adapter."""
    if linear.is_plain(module):
        return LayerWeights(base=module, adapter=None)
    if not isinstance(module, LoraLinear):
        return None
    layer: Any = module
    adapter = adapter_of(layer)
    return None if adapter is None else LayerWeights(base=layer.base_layer, adapter=adapter)


def use(module: nn.Module) -> bool:
    """Use this code in `module` if it is PEFT's linear layer; return whether it was changed."""
    if type(module) is not LoraLinear:
        return False
    module.__class__ = type("Linear", (LoraLayer, LoraLinear), {})
    return True
