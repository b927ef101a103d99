import math

import pytest
import torch
from pydantic import ValidationError

from turnwise.errors import ConfigError, TrainingError
from turnwise.policies import (
    LoraSettings,
    OptimizerConfig,
    PolicyConfig,
    learning_rate,
    load_policy,
    make_nano,
    make_optimizer,
)

from .conftest import TEXTS, TINY, backward, logits_of


def load(tiny_dir, **config):
    return load_policy("main", PolicyConfig(model=str(tiny_dir), **config))


def rates(total, **config):
    made = OptimizerConfig(lr=2.0, **config)
    return [learning_rate(made, step, total) for step in range(total + 1)]


def test_schedules_by_hand():
    assert rates(3) == [2.0] * 4
    assert rates(4, schedule="linear") == [2.0, 1.5, 1.0, 0.5, 0.0]
    assert rates(4, warmup_steps=2) == [1.0, 2.0, 2.0, 2.0, 2.0]
    assert rates(4, warmup_steps=2, schedule="linear") == [1.0, 2.0, 2.0, 1.0, 0.0]
    half = 1.0 + math.cos(math.pi / 4)
    assert rates(4, schedule="cosine") == pytest.approx([2.0, half, 1.0, 2.0 - half, 0.0])
    assert learning_rate(OptimizerConfig(schedule="linear"), 99, 4) == 0.0


def test_a_step_is_adamw_by_hand(tiny_dir):
    policy = load(tiny_dir)
    config = OptimizerConfig(lr=0.1, weight_decay=0.5, max_grad_norm=math.inf)
    optimizer = make_optimizer(policy, config, total_steps=1)
    before = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
    for parameter in policy.trainable_parameters():
        parameter.grad = torch.full_like(parameter, 3.0)
    metrics = optimizer.step()
    count = sum(p.numel() for p in policy.trainable_parameters())
    assert metrics == {
        "optim/lr": 0.1,
        "optim/skipped": 0.0,
        "optim/grad_norm": pytest.approx(3.0 * math.sqrt(count), rel=1e-5),
    }
    for name, parameter in policy.model.named_parameters():
        # The first step of Adam moves by the rate, whatever the gradient; matrices decay first.
        decayed = parameter.ndim > 1 and "embed" not in name
        kept = before[name] * (1 - 0.1 * 0.5) if decayed else before[name]
        torch.testing.assert_close(parameter.detach(), kept - 0.1, msg=name)


def test_muon_steps_the_layers_matrices_alone(tiny_dir):
    policy = load(tiny_dir)
    config = OptimizerConfig(kind="muon", lr=0.01, weight_decay=0.5, max_grad_norm=math.inf)
    optimizer = make_optimizer(policy, config, total_steps=1)
    before = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
    torch.manual_seed(0)
    for parameter in policy.trainable_parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    by_muon = 0
    for name, parameter in policy.model.named_parameters():
        if parameter.ndim > 1 and "embed" not in name and "lm_head" not in name:
            step = parameter.detach() - before[name] * (1 - 0.01 * 0.5)
            # An orthogonal matrix has singular values of 1; Muon's are near it by construction.
            values = torch.linalg.svdvals(step) / (0.01 * 0.2 * math.sqrt(max(step.shape)))
            assert values.min() > 0.5 and values.max() < 1.3, name
            by_muon += 1
        elif parameter.ndim == 1 or "embed" in name:
            moved = parameter.detach() - before[name]
            assert moved.abs().max() == pytest.approx(0.01, rel=1e-3), name
    assert by_muon == 7 * policy.base.config.num_hidden_layers


def test_muon_leaves_an_output_layer_of_its_own_to_adamw(tmp_path):
    sizes = TINY.model_copy(update={"tied_embeddings": False})
    policy = load(make_nano(tmp_path / "untied", TEXTS, (), sizes, seed=1))
    optimizer = make_optimizer(policy, OptimizerConfig(kind="muon", lr=0.01), total_steps=1)
    state = optimizer.state_dict()
    layers = 7 * sizes.layers
    assert len(state["muon"]["param_groups"][0]["params"]) == layers
    in_adamw = sum(len(group["params"]) for group in state["adamw"]["param_groups"])
    assert in_adamw == len(policy.trainable_parameters()) - layers


def test_muon_takes_no_step_without_a_gradient(tiny_dir):
    policy = load(tiny_dir)
    optimizer = make_optimizer(policy, OptimizerConfig(kind="muon", lr=0.01), total_steps=3)
    layers = optimizer.state_dict()["muon"]["param_groups"][0]["params"]
    for size in (1.0, 0.0, 1.0):
        before = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
        torch.manual_seed(0)
        for parameter in policy.trainable_parameters():
            parameter.grad = size * torch.randn_like(parameter)
        metrics = optimizer.step()
        still = [n for n, p in policy.model.named_parameters() if torch.equal(p, before[n])]
        assert len(still) == (0 if size else len(layers))
        assert (metrics["optim/grad_norm"] > 0) == bool(size)


class Odd(torch.nn.Module):
    """A layer whose weights are not all matrices of linear layers."""

    def __init__(self):
        super().__init__()
        self.matrix = torch.nn.Linear(4, 3)
        self.gate = torch.nn.Linear(4, 1)
        self.position_bias = torch.nn.Parameter(torch.ones(3, 4))
        self.rates = torch.nn.Parameter(torch.ones(3, 4))


def test_only_matrices_of_linear_layers_are_muons_and_biases_never_decay(tiny_dir):
    policy = load(tiny_dir)
    odd = policy.model.odd = Odd()
    config = OptimizerConfig(kind="muon", lr=0.01, weight_decay=0.5)
    plain = make_optimizer(policy, config.model_copy(update={"kind": "adamw"}), total_steps=1)
    optimizer = make_optimizer(policy, config, total_steps=1)
    rules = {name: rule.param_groups for name, rule in optimizer._rules.items()}
    places = {
        id(weight): (name, group["weight_decay"])
        for name, groups in rules.items()
        for group in groups
        for weight in group["params"]
    }
    assert places[id(odd.matrix.weight)] == ("muon", 0.5)
    assert places[id(odd.gate.weight)] == places[id(odd.rates)] == ("adamw", 0.5)
    for bias in (odd.matrix.bias, odd.gate.bias, odd.position_bias):
        assert places[id(bias)] == ("adamw", 0.0)
    assert len(places) == sum(len(g["params"]) for g in plain._rules["adamw"].param_groups)


def test_muon_without_a_torch_that_has_it_is_refused(tiny_dir, monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(ConfigError, match="'muon' needs torch 2.9 or newer, and torch .* install"):
        make_optimizer(load(tiny_dir), OptimizerConfig(kind="muon"), total_steps=1)


def test_adapters_decay_and_the_base_never_moves(tiny_dir):
    policy = load(tiny_dir, lora=LoraSettings(rank=2))
    frozen = {n: p.clone() for n, p in policy.model.named_parameters() if not p.requires_grad}
    optimizer = make_optimizer(policy, OptimizerConfig(lr=0.1, weight_decay=0.5), total_steps=1)
    first = next(p for n, p in policy.model.named_parameters() if "lora_A" in n)
    before = first.detach().clone()
    first.grad = torch.zeros_like(first)
    optimizer.step()
    torch.testing.assert_close(first.detach(), before * 0.95)
    now = dict(policy.model.named_parameters())
    assert all(torch.equal(now[name], value) for name, value in frozen.items())


def test_the_norm_is_clipped_but_reported_whole(tiny_dir):
    policy = load(tiny_dir)
    optimizer = make_optimizer(policy, OptimizerConfig(max_grad_norm=1.0), total_steps=1)
    for parameter in policy.trainable_parameters():
        parameter.grad = torch.ones_like(parameter)
    metrics = optimizer.step()
    assert metrics["optim/grad_norm"] > 10
    clipped = torch.stack([p.grad.norm() for p in policy.trainable_parameters()]).norm()
    assert clipped.item() == pytest.approx(1.0, rel=1e-3)
    optimizer.zero()
    assert all(p.grad is None for p in policy.trainable_parameters())


def poison(policy):
    for parameter in policy.trainable_parameters():
        parameter.grad = torch.full_like(parameter, float("nan"))


def test_non_finite_gradients_skip_and_the_third_in_a_row_stops(tiny_dir):
    policy = load(tiny_dir)
    optimizer = make_optimizer(policy, OptimizerConfig(), total_steps=9)
    digest = policy.digest()
    for _ in range(2):
        poison(policy)
        assert optimizer.step() == {"optim/lr": 1e-4, "optim/skipped": 1.0}
    assert policy.digest() == digest
    backward(policy)
    assert optimizer.step()["optim/skipped"] == 0.0
    assert policy.digest() != digest
    for _ in range(2):
        poison(policy)
        optimizer.step()
    poison(policy)
    with pytest.raises(TrainingError, match="policy 'main': the gradient was not finite 3 steps"):
        optimizer.step()
    assert (optimizer.steps, optimizer.skipped) == (6, 5)
    assert torch.isfinite(logits_of(policy.model)).all()


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resumed_optimizer_continues_to_the_same_bits(tiny_dir, tmp_path, dtype, kind):
    config = OptimizerConfig(kind=kind, lr=0.01, schedule="cosine")
    straight = load(tiny_dir, dtype=dtype)
    optimizer = make_optimizer(straight, config, total_steps=4)

    def take(policy, optimizer):
        backward(policy)
        optimizer.step()
        optimizer.zero()

    take(straight, optimizer)
    take(straight, optimizer)
    straight.save(tmp_path / "saved")
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    take(straight, optimizer)
    resumed = load(tiny_dir, dtype=dtype)
    resumed.load_weights(tmp_path / "saved")
    again = make_optimizer(resumed, config, total_steps=4)
    again.load_state_dict(torch.load(tmp_path / "optimizer.pt"))
    take(resumed, again)
    assert resumed.digest() == straight.digest()


def test_updates_below_half_a_bfloat16_unit_add_up(tiny_dir):
    policy = load(tiny_dir, dtype="bfloat16")
    norm = policy.model.model.norm.weight
    optimizer = make_optimizer(policy, OptimizerConfig(lr=1e-3), total_steps=20)
    for _ in range(20):
        norm.grad = torch.ones_like(norm)
        optimizer.step()
    # In bfloat16 itself 1 - 0.001 rounds back to 1.
    assert norm.float().mean().item() == pytest.approx(0.98, abs=0.004)


def test_masters_follow_weights_that_were_loaded(tiny_dir):
    policy = load(tiny_dir, dtype="bfloat16")
    optimizer = make_optimizer(policy, OptimizerConfig(lr=1e-6), total_steps=1)
    norm = policy.model.model.norm.weight
    with torch.no_grad():
        norm.fill_(5.0)
    norm.grad = torch.ones_like(norm)
    optimizer.step()
    assert norm.float().mean().item() == 5.0


def test_what_cannot_be_trained_is_refused(tiny_dir):
    with pytest.raises(ConfigError, match="'main' has nothing to train: set trainable"):
        make_optimizer(load(tiny_dir, trainable=False), OptimizerConfig(), total_steps=1)
    with pytest.raises(ConfigError, match="warmup_steps = 5 outlasts the 3 steps"):
        make_optimizer(load(tiny_dir), OptimizerConfig(warmup_steps=5), total_steps=3)
    with pytest.raises(ValidationError, match="lr"):
        OptimizerConfig(lr=0)
