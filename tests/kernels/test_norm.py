"""The norm in few passes against the models' own."""

import copy

import pytest
import torch
from torch import nn
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from turnwise.kernels import norm

KINDS = (LlamaRMSNorm, Qwen3RMSNorm, GemmaRMSNorm)


def pair(kind):
    torch.manual_seed(0)
    own = kind(32)
    nn.init.normal_(own.weight)
    fast = copy.deepcopy(own)
    assert norm.use(fast)
    assert isinstance(fast, kind)
    return own, fast


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 50, 32), (3, 4, 7, 32), (1, 32)])
def test_values_and_gradients_are_the_models_own(kind, shape):
    own, fast = pair(kind)
    x = torch.randn(shape, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    slope = torch.randn(shape)
    own(x).backward(slope)
    fast(y).backward(slope)
    with torch.no_grad():
        assert torch.allclose(own(x), fast(y), atol=1e-5)
    assert torch.allclose(x.grad, y.grad, atol=1e-5)
    assert torch.allclose(own.weight.grad, fast.weight.grad, atol=1e-4)


def test_transposed_inputs():
    own, fast = pair(Qwen3RMSNorm)
    x = torch.randn(2, 32, 5, requires_grad=True)
    slope = torch.randn(2, 5, 32)
    expected = torch.autograd.grad(own(x.transpose(1, 2)), x, slope)[0]
    assert torch.allclose(
        torch.autograd.grad(fast(x.transpose(1, 2)), x, slope)[0], expected, atol=1e-5
    )


def test_what_is_no_such_norm_is_left_alone():
    class OddRMSNorm(nn.Module):
        eps = 1e-6

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))

        def forward(self, x):
            return x / x.abs().amax(-1, keepdim=True) * self.weight

    odd, layer = OddRMSNorm(), nn.LayerNorm(8)
    assert not norm.use(odd)
    assert not norm.use(layer)
    assert type(odd) is OddRMSNorm
    low = Qwen3RMSNorm(8).bfloat16()
    assert not norm.use(low)


def test_other_types_are_left_to_the_model():
    own, fast = pair(LlamaRMSNorm)
    x = torch.randn(4, 32, dtype=torch.bfloat16)
    assert torch.equal(own.bfloat16()(x), fast.bfloat16()(x))
