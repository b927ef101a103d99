import pytest
import torch

from turnwise.policies import NanoConfig, make_nano

TINY = NanoConfig(hidden=16, layers=2, heads=2, kv_heads=1, head_dim=8, intermediate=32, context=64)
TEXTS = ("you r1c2", "<think> left ice </think> <answer> DOWN </answer>")


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory):
    """Hold a tiny model; tests must not write into it."""
    return make_nano(tmp_path_factory.mktemp("tiny") / "model", TEXTS, (), TINY, seed=1)


def logits_of(model):
    ids = torch.arange(10, 22).reshape(2, 6)
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits


def shake(policy, scale=0.1, seed=0):
    """Move all trainable weights, so that an adapter is not at its neutral start."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)


def backward(policy):
    """Put gradients of some loss on the policy."""
    ids = torch.arange(10, 22).reshape(2, 6)
    policy.model(input_ids=ids, use_cache=False).logits.float().pow(2).mean().backward()
