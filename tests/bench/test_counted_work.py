"""The operations of a step, counted: a benchmark without noise.

Each distinct token is computed once when sampled and once when trained. Seconds are measured by
`turnwise bench`; here it is tokens, passes, query-key pairs and bytes of keys and values.
"""

import dataclasses
from dataclasses import asdict

import pytest

from turnwise.app.build import plan_of
from turnwise.bench.flops import (
    Count,
    Shape,
    distinct_count,
    distinct_operations,
    flat_count,
    flat_operations,
)
from turnwise.bench.run_turnwise import open_session, recipe_of
from turnwise.bench.step import _prompts
from turnwise.bench.workloads import WORKLOADS, Words, Workload, count_words, make_model, make_rows
from turnwise.kernels.blocks import SMALL
from turnwise.trainers import Silent, train_grpo

GROUPS = Workload(
    name="groups", model="pico", prompts=3, group=4, prompt_tokens=50, completion_tokens=9
)
TURNS = Workload(
    name="turns", model="pico", prompts=2, group=3, prompt_tokens=30, completion_tokens=6, turns=4,
    observed_tokens=15,
)  # fmt: skip
DIALOGUE = Workload(
    name="dialogue", model="pico", prompts=2, group=2, prompt_tokens=1200, completion_tokens=5,
    turns=4, observed_tokens=20, observed_spread=15, system_tokens=1170, micro_rows=(4, 2),
)  # fmt: skip
KEPT = 2 * 2 * 1 * 32 * 4
"""Bytes of a token's keys and values: both, two layers of one head of 32, in float32."""


class Once(Silent):
    """Remembers the first iteration's metrics and asks for no other."""

    def __init__(self):
        self.metrics = None

    def advance(self, done, metrics):
        self.metrics = self.metrics or dict(metrics)


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    """`step(work)`: the metrics of one whole training step."""

    def run(workload):
        folder = tmp_path_factory.mktemp(workload.name)
        model = make_model(workload, folder / "model")
        words = count_words(workload, model)
        rows = _prompts(workload, words, folder / "rows.jsonl")
        recipe = recipe_of(workload, words, model, rows, checkpointing=False)
        trainer = recipe.trainer.model_copy(update={"iterations": 1})
        recipe = recipe.model_copy(update={"trainer": trainer})
        watcher = Once()
        session = open_session(recipe, folder, watcher)
        assert session.trained["main"].scorer.layout == "packed"
        assert session.engine.reason("main").startswith("cache")
        assert train_grpo(session, plan_of(recipe), None)
        session.metrics.close()
        return watcher.metrics

    return run


def test_every_prompt_is_played(tmp_path):
    workload = dataclasses.replace(GROUPS, prompts=64)
    words = Words(first=4, later=1)
    recipe = recipe_of(
        workload, words, tmp_path, make_rows(workload, words, tmp_path / "rows.jsonl"), False
    )
    assert len(recipe.env.make("training").tasks("train")) == 64


def nodes(workload):
    """Tokens on which something depends, if siblings part at their first token."""
    own = workload.row_tokens - workload.prompt_tokens - 1
    return workload.prompts * workload.prompt_tokens + workload.episodes * own


def test_a_group_costs_its_prompt_once(step):
    found = step(GROUPS)
    parted = nodes(GROUPS)
    said_alike = parted - found["forest/tokens_distinct"]
    assert 0 <= said_alike <= 12  # two of a group may begin with the same word
    assert found["forest/tokens_padded"] == found["forest/tokens_distinct"]
    assert found["forest/tokens_flat"] == GROUPS.episodes * (GROUPS.row_tokens - 1)
    assert found["forest/micro_batches"] == 1
    assert found["engine/prefill_tokens"] == GROUPS.prompts * GROUPS.prompt_tokens
    assert found["engine/sampled_tokens"] == GROUPS.episodes * GROUPS.completion_tokens
    decoded = GROUPS.episodes * (GROUPS.completion_tokens - 1)
    assert decoded - 12 <= found["engine/decode_tokens"] <= decoded
    assert found["engine/forward_calls"] == GROUPS.completion_tokens + 1  # one is the prompts'
    # every prompt is remembered once, and nothing else is ever moved but words said alike
    assert found["engine/copied_bytes"] <= (GROUPS.prompts * GROUPS.prompt_tokens + 12 * 8) * KEPT


def test_attention_computes_a_row_and_a_block_for_each_node(step):
    found = step(GROUPS)
    padded = found["forest/tokens_distinct"] + SMALL
    assert found["forest/attention_pairs"] <= padded * (GROUPS.row_tokens + SMALL)


def test_in_many_turns_each_token_is_computed_once(step):
    found = step(TURNS)
    assert found["forest/tokens_distinct"] <= nodes(TURNS)
    assert found["forest/tokens_distinct"] >= nodes(TURNS) - 12
    heard = TURNS.episodes * (TURNS.turns - 1) * (TURNS.observed_tokens + 1)
    computed = found["engine/prefill_tokens"] + found["engine/decode_tokens"]
    computed -= found["engine/drafted_tokens"] - found["engine/accepted_tokens"]
    assert found["engine/prefill_tokens"] == TURNS.prompts * TURNS.prompt_tokens + heard
    assert computed <= nodes(TURNS) * 1.02


def test_a_system_message_with_tools_is_computed_once_for_all_prompts(step):
    found, counted = step(DIALOGUE), distinct_count(DIALOGUE)
    assert 0 <= counted.update.tokens - found["forest/tokens_distinct"] <= 12
    assert found["forest/tokens_flat"] == flat_count(DIALOGUE, cached=True).sampling.tokens
    computed = found["engine/prefill_tokens"] + found["engine/decode_tokens"]
    assert computed <= counted.sampling.tokens * 1.05
    assert found["forest/attention_pairs"] <= counted.update.pairs * 1.1


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_count_of_operations_is_that_of_its_parts(name):
    """Without attention and logits a step's operations are tokens times weights."""
    workload = WORKLOADS[name]
    shape = Shape(linear=1.0, pair=0.0, logits=0.0)
    heard = [sum(workload.heard(index)[1:]) for index in range(workload.prompts)]
    said = workload.turns * workload.completion_tokens
    asked = workload.prompt_tokens - workload.system_tokens
    own = workload.group * sum(each + said - 1 for each in heard)
    tokens = workload.system_tokens + workload.prompts * asked + own
    whole = own + workload.episodes * workload.prompt_tokens
    assert distinct_operations(workload, shape).sampling == 2 * tokens
    assert distinct_operations(workload, shape).update == 2 * tokens * (2 if workload.lora else 3)
    assert flat_operations(workload, shape).update > distinct_operations(workload, shape).update
    cached = flat_operations(workload, shape, cached=True).sampling
    assert cached == 2 * whole
    assert (cached == flat_operations(workload, shape).sampling) == (workload.turns == 1)


def test_a_run_of_tokens_sees_all_before_it():
    shape = Shape(linear=0.0, pair=1.0, logits=0.0)
    time_workload = dataclasses.replace(
        GROUPS, prompts=1, group=1, prompt_tokens=3, completion_tokens=2, turns=1
    )
    assert distinct_operations(time_workload, shape).sampling == 2 * (1 + 2 + 3 + 4)
    assert Count(tokens=1, pairs=2, heads=3) * 2 == Count(tokens=2, pairs=4, heads=6)
    assert set(asdict(distinct_operations(time_workload, shape))) == {"sampling", "update"}
