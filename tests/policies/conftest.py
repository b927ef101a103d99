import pytest
import torch
import transformers as hf
from transformers import AutoTokenizer

from turnwise.policies import NanoConfig, PolicyConfig, load_policy, make_nano

TINY = NanoConfig(hidden=16, layers=2, heads=2, kv_heads=1, head_dim=8, intermediate=32, context=64)
TEXTS = ("you r1c2", "<think> left ice </think> <answer> DOWN </answer>")


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory):
    """Hold a tiny model; tests must not write into it."""
    return make_nano(tmp_path_factory.mktemp("tiny") / "model", TEXTS, (), TINY, seed=1)


@pytest.fixture(scope="session")
def folders(tiny_dir, tmp_path_factory):
    """`folders(table)(name)`: a directory with a tiny model of that config, its weights large."""

    def of(table):
        made = {}

        def get(name):
            if name not in made:
                torch.manual_seed(0)
                model = hf.AutoModelForCausalLM.from_config(table[name]())
                with torch.no_grad():
                    for key, parameter in model.named_parameters():
                        if parameter.ndim > 1 and "A_log" not in key:
                            parameter.normal_(0, 0.2)
                made[name] = tmp_path_factory.mktemp("family") / name
                model.save_pretrained(made[name])
                AutoTokenizer.from_pretrained(tiny_dir).save_pretrained(made[name])
            return made[name]

        return get

    return of


def loader(folder):
    """`loader(folder)(name, **config)`: the policy of a model that `folders` makes."""
    return lambda name, **config: load_policy(
        "main", PolicyConfig(model=str(folder(name)), **config)
    )


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
