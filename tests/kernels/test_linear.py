"""Products by oneDNN against PyTorch's own."""

import copy

import pytest
import torch
from torch import nn

from turnwise.kernels import linear


@pytest.fixture
def pair():
    torch.manual_seed(0)
    plain = nn.Linear(24, 40)
    fast = copy.deepcopy(plain)
    assert linear.use(fast)
    return plain, fast


@pytest.mark.parametrize("shape", [(64, 24), (2, 50, 24), (3, 24), (33, 1, 24)])
def test_values_and_gradients_are_those_of_a_linear_layer(pair, shape):
    plain, fast = pair
    x = torch.randn(shape, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    slope = torch.randn(*shape[:-1], 40)
    plain(x).backward(slope)
    fast(y).backward(slope)
    assert torch.allclose(plain(x), fast(y), atol=1e-6)
    assert torch.allclose(x.grad, y.grad, atol=1e-5)
    assert torch.allclose(plain.weight.grad, fast.weight.grad, atol=1e-4)
    assert torch.allclose(plain.bias.grad, fast.bias.grad, atol=1e-4)


def test_frozen_weights_and_inputs_get_no_gradient(pair):
    _, fast = pair
    fast.requires_grad_(False)
    x = torch.randn(20, 24, requires_grad=True)
    fast(x).sum().backward()
    assert fast.weight.grad is None
    assert x.grad is not None
    fast.weight.requires_grad_(True)
    fast(x.detach()).sum().backward()
    assert fast.weight.grad is not None


def test_long_strided_and_transposed_gradients(pair):
    plain, fast = pair
    x = torch.randn(50, 24)
    for layer in pair:
        layer.zero_grad()
        layer(x).t().contiguous().t().square().sum().backward()
    assert torch.allclose(plain.weight.grad, fast.weight.grad, rtol=1e-5, atol=1e-4)


def test_other_types_are_left_to_pytorch(pair):
    plain, fast = pair
    x = torch.randn(20, 24, dtype=torch.float64)
    assert torch.equal(plain.double()(x), fast.double()(x))
    assert torch.equal(plain.bfloat16()(x.bfloat16()), fast.bfloat16()(x.bfloat16()))
    assert not linear.use(nn.Bilinear(2, 2, 2))
    assert not linear.use(fast)


def test_a_copied_layer_has_weights_of_its_own(pair):
    _, fast = pair
    other = copy.deepcopy(fast)
    with torch.no_grad():
        other.weight.zero_()
        other.bias.zero_()
    x = torch.randn(20, 24)
    with torch.no_grad():
        assert not other(x).any()
        assert fast(x).any()
