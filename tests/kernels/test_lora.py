"""Adapted linear layers in few passes against PEFT's."""

import copy

import pytest
import torch
from peft import LoraConfig
from peft.tuners.lora.layer import Linear as LoraLinear
from torch import nn

from turnwise.kernels import linear, lora


def layer(bias=True, **options):
    torch.manual_seed(0)
    base = nn.Linear(24, 40, bias=bias).requires_grad_(False)
    config = LoraConfig(r=4, lora_alpha=12, **options)
    made = LoraLinear(base, "first", config=config, r=4, lora_alpha=12)
    nn.init.normal_(made.lora_B["first"].weight)
    return made.eval()


def pair(**options):
    plain = layer(**options)
    fast = copy.deepcopy(plain)
    assert lora.use(fast)
    assert not lora.use(fast), "once is enough"
    return plain, fast


def compare(plain, fast, shape=(50, 24)):
    """Compare outputs and all gradients of two layers."""
    x = torch.randn(shape, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    a, b = plain(x), fast(y)
    slope = torch.randn(a.shape)
    a.backward(slope)
    b.backward(slope)
    torch.testing.assert_close(b, a, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(y.grad, x.grad, atol=1e-4, rtol=1e-5)
    for (name, one), other in zip(plain.named_parameters(), fast.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        if one.grad is not None:
            torch.testing.assert_close(other.grad, one.grad, atol=1e-4, rtol=1e-5)


def passes(found):
    """The operations that made a tensor."""
    return type(found.grad_fn).__name__


@pytest.mark.parametrize("shape", [(50, 24), (2, 30, 24), (1, 24), (3, 1, 24)])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_peft(shape, bias):
    plain, fast = pair(bias=bias)
    assert passes(fast(torch.randn(shape))) == passes(lora._LoraFunction.apply(*arguments(fast)))
    compare(plain, fast, shape)


def arguments(fast):
    adapter, base = lora.adapter_of(fast), fast.base_layer
    return torch.randn(3, 24), base.weight, base.bias, adapter.down, adapter.up, adapter.scale


def test_one_dnn_gives_the_same():
    plain, fast = pair()
    linear.use(fast.base_layer)
    assert lora.adapter_of(fast) is not None
    compare(plain, fast)


def test_strided_gradients():
    plain, fast = pair()
    x = torch.randn(50, 24)
    for one in (plain, fast):
        one(x).t().contiguous().t().square().sum().backward()
    up = [one.lora_B["first"].weight.grad for one in (plain, fast)]
    torch.testing.assert_close(up[1], up[0], atol=1e-3, rtol=1e-5)


def off(one):
    one.enable_adapters(False)


def merge(one):
    one.merge()


def second(one):
    config = LoraConfig(r=2, init_lora_weights=False)
    one.update_layer("second", 2, lora_alpha=2, config=config)
    one.set_adapter(["first", "second"])


def train_base(one):
    one.base_layer.requires_grad_(True)


def low_precision(one):
    one.base_layer.bfloat16()


OTHERS = [off, merge, second, train_base, low_precision]


@pytest.mark.parametrize("change", OTHERS)
def test_everything_else_is_left_to_peft(change):
    plain = layer()
    torch.manual_seed(1)
    change(plain)
    fast = copy.deepcopy(plain)
    lora.use(fast)
    assert lora.adapter_of(fast) is None
    x = torch.randn(20, 24).to(fast.base_layer.weight.dtype)
    assert torch.equal(fast(x), plain(x))


def test_dropout_acts_in_training_alone():
    plain, fast = pair(lora_dropout=0.5)
    compare(plain, fast)
    x = torch.randn(50, 24)
    quiet = fast(x)
    fast.train()
    assert not torch.allclose(fast(x), quiet)
    fast.eval()
    assert torch.equal(fast(x), quiet)


def test_scale_and_adapter_are_those_of_the_moment():
    plain, fast = pair()
    for one in (plain, fast):
        one.set_scale("first", 0.5)
    compare(plain, fast)
    for one in (plain, fast):
        torch.manual_seed(2)
        second(one)
        one.set_adapter("second")
    compare(plain, fast)


def test_weights_are_what_a_layer_amounts_to():
    plain, fast = pair()
    found = lora.weights_of(fast)
    x = torch.randn(9, 24)
    torch.testing.assert_close(nn.functional.linear(x, found.merged(), found.base.bias), plain(x))
    fast.merge()
    assert lora.weights_of(fast) is None
    base = nn.Linear(3, 4)
    assert torch.equal(lora.weights_of(base).merged(), base.weight)
    assert lora.weights_of(nn.Bilinear(2, 2, 2)) is None
