"""Adapters on one base: their rows share passes, and nothing else."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from turnwise.engines import EngineConfig, LocalEngine

PROMPT = (5, 6, 7, 8, 9)


@pytest.fixture
def three(models, weights, tools):
    """Policies a, b and c: three adapters on one base."""
    first = copy.deepcopy(models("qwen3-lora"))
    members = {"a": first, "b": tools.adapted(first, 5), "c": tools.adapted(first, 6)}
    return {name: weights(model, name) for name, model in members.items()}


def workload(tools, names, visits=4, each=3, **options):
    return [
        tools.request(
            (*PROMPT[: 2 + visit % 3], 10 + visit),
            id=tools.turn(visit, sample),
            policy=name,
            max_tokens=4 + visit % 3,
            **options,
        )
        for visit in range(visits)
        for sample in range(each)
        for name in names
    ]


def alone(policies, asked, tools, **options):
    """The completions of each policy in an engine of its own, and all engines' counts."""
    said, counted = {}, {}
    for name, policy in policies.items():
        engine = LocalEngine({name: policy}, EngineConfig(**options), 0)
        own = [one for one in asked if one.policy == name]
        said |= {(name, one.id): c for one, c in zip(own, tools.ask(engine, own), strict=True)}
        for key, value in engine.metrics().items():
            counted[key] = counted.get(key, 0) + value
    return [said[one.policy, one.id] for one in asked], SimpleNamespace(**counted)


def test_each_policy_says_what_it_says_alone(three, tools):
    asked = workload(tools, three)
    expected, _ = alone(three, asked, tools)
    engine = LocalEngine(three, EngineConfig(), 0)
    found = tools.ask(engine, asked)
    for one, completion, other in zip(asked, found, expected, strict=True):
        assert completion.token_ids == other.token_ids
        np.testing.assert_allclose(completion.logprobs, other.logprobs, atol=1e-4)
        true = tools.true_logprobs(three[one.policy].model, one.prompt_ids, completion.token_ids)
        np.testing.assert_allclose(completion.logprobs, true, atol=1e-4)
    by_policy = [tuple(c.token_ids for c in found[i::3]) for i in range(3)]
    assert len(set(by_policy)) == 3


def test_passes_are_shared_and_nothing_else(three, tools):
    asked = workload(tools, three)
    _, before = alone(three, asked, tools, drafts=False)
    engine = LocalEngine(three, EngineConfig(drafts=False), 0)
    tools.ask(engine, asked)
    now = engine.metrics()
    for same in ("prompt_tokens", "prefill_tokens", "sampled_tokens", "decode_tokens"):
        assert now[f"engine/{same}"] == vars(before)[f"engine/{same}"]
    steps = max(one.sampling.max_tokens for one in asked)
    assert vars(before)["engine/forward_calls"] == 3 * steps
    assert now["engine/forward_calls"] == steps


def test_policies_with_identical_prompts_share_nothing(three, tools):
    engine = LocalEngine(three, EngineConfig(), 0)
    asked = [tools.request(PROMPT, id=tools.turn(0), policy=name) for name in three]
    tools.ask(engine, asked)
    assert engine.metrics()["engine/prefill_tokens"] == 3 * len(PROMPT)
    engine.update_weights("b")  # the others keep what they know
    asked = [tools.request((*PROMPT, 3), id=tools.turn(1), policy=name) for name in three]
    tools.ask(engine, asked)
    assert engine.metrics()["engine/prefill_tokens"] == 2 + len(PROMPT) + 1


def test_equal_runs_are_equal_to_the_bit(three, tools):
    asked = workload(tools, three, visits=7)
    engines = [LocalEngine(three, EngineConfig(max_rows=8), 0) for _ in range(2)]
    first, second = (tools.ask(engine, asked) for engine in engines)
    assert first == second


def test_new_weights_of_one_are_seen(three, tools):
    engine = LocalEngine(three, EngineConfig(), 0)
    asked = workload(tools, three)
    before = tools.ask(engine, asked)
    with torch.no_grad():
        for name, parameter in three["b"].model.named_parameters():
            if "lora_B" in name:
                parameter.mul_(-1)
    three["b"].version += 1
    engine.update_weights("b")
    after = tools.ask(engine, asked)
    for one, old, new in zip(asked, before, after, strict=True):
        assert (old.token_ids == new.token_ids) == (one.policy != "b" or old == new)
        true = tools.true_logprobs(three[one.policy].model, one.prompt_ids, new.token_ids)
        np.testing.assert_allclose(new.logprobs, true, atol=1e-4)


def test_a_base_that_changes_is_no_longer_shared(three, tools):
    engine = LocalEngine(three, EngineConfig(), 0)
    asked = workload(tools, three)
    tools.ask(engine, asked)
    model = three["c"].model
    for name, module in model.named_modules():
        if name.endswith("q_proj.base_layer"):
            module.weight = torch.nn.Parameter(module.weight * 0.5, requires_grad=False)
    three["c"].version += 1
    engine.update_weights("c")
    for one, completion in zip(asked, tools.ask(engine, asked), strict=True):
        true = tools.true_logprobs(three[one.policy].model, one.prompt_ids, completion.token_ids)
        np.testing.assert_allclose(completion.logprobs, true, atol=1e-4)


OTHERS = {
    "another base": lambda first: copy.deepcopy(first),
    "DoRA": lambda first: get_peft_model(
        first.get_base_model(),
        LoraConfig(r=2, target_modules=["q_proj"], use_dora=True, task_type="CAUSAL_LM"),
    ).eval(),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_pairs_are_computed_apart(kind, models, weights, tools):
    first = copy.deepcopy(models("qwen3-lora"))
    second = OTHERS[kind](copy.deepcopy(first))
    policies = {"a": weights(first, "a"), "b": weights(second, "b")}
    engine = LocalEngine(policies, EngineConfig(), 0)
    asked = workload(tools, policies)
    for one, completion in zip(asked, tools.ask(engine, asked), strict=True):
        true = tools.true_logprobs(policies[one.policy].model, one.prompt_ids, completion.token_ids)
        np.testing.assert_allclose(completion.logprobs, true, atol=1e-4)
    assert engine._families._found == []


def test_members_can_be_copied_and_trained(three, tools):
    engine = LocalEngine(three, EngineConfig(), 0)
    tools.ask(engine, workload(tools, three))
    tokens = torch.tensor([PROMPT])
    for policy in (three["a"], three["b"]):
        twin = copy.deepcopy(policy.model)
        assert torch.equal(twin(tokens).logits, policy.model(tokens).logits)
        policy.model(tokens, labels=tokens).loss.backward()
    changed = {n for n, p in three["a"].model.named_parameters() if p.grad is not None}
    assert changed
    assert all("lora_" in name for name in changed)
