"""The number of floating-point operations of a training step, computed from its shapes.

A multiplication and an addition are two operations. Norms, activations and softmax are not counted.
The backward pass of a linear layer costs twice its forward pass, or once if the weights are frozen;
that of attention costs two and a half times its forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers import AutoConfig

from turnwise.bench.workloads import Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The sizes of a decoder: multiplications per token, query-key pair and row of logits."""

    linear: float
    pair: float
    logits: float

    @classmethod
    def of(cls, model: Path) -> Shape:
        """Read the sizes of the model in a directory."""
        config = AutoConfig.from_pretrained(model)
        query, shared = config.num_attention_heads, config.num_key_value_heads
        attention = config.hidden_size * config.head_dim * 2 * (query + shared)
        block = attention + 3 * config.hidden_size * config.intermediate_size
        return cls(
            linear=float(config.num_hidden_layers * block),
            pair=float(config.num_hidden_layers * 2 * query * config.head_dim),
            logits=float(config.hidden_size * config.vocab_size),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """Tokens, query-key pairs per layer and rows of logits of a forward pass."""

    tokens: float
    pairs: float
    heads: float

    def __add__(self, other: Count) -> Count:
        return Count(
            tokens=self.tokens + other.tokens,
            pairs=self.pairs + other.pairs,
            heads=self.heads + other.heads,
        )

    def __mul__(self, times: float) -> Count:
        return Count(tokens=self.tokens * times, pairs=self.pairs * times, heads=self.heads * times)

    def forward(self, shape: Shape) -> float:
        """Return the operations of a forward pass."""
        return 2 * (
            self.tokens * shape.linear + self.pairs * shape.pair + self.heads * shape.logits
        )

    def training(self, shape: Shape, *, frozen: bool) -> float:
        """Return the operations of a forward and a backward pass."""
        linear = self.tokens * shape.linear + self.heads * shape.logits
        return 2 * (linear * (2 if frozen else 3) + self.pairs * shape.pair * 3.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOperations:
    """Operations of a step, in sampling and in the update."""

    sampling: float
    update: float

    @property
    def seconds(self) -> float:
        """Operations of the whole step. The name matches the key of the measured times."""
        return self.sampling + self.update


def _run(before: int, count: int) -> Count:
    """Count `count` tokens after `before` others; each attends to all tokens before it."""
    pairs = count * before + count * (count + 1) / 2
    return Count(tokens=count, pairs=pairs, heads=0)


def distinct_tokens(workload: Workload) -> int:
    """Return the distinct tokens of a step whose siblings diverge at their first token."""
    return workload.prompts * workload.prompt_tokens + workload.episodes * (
        workload.row_tokens - workload.prompt_tokens
    )


def distinct_operations(workload: Workload, shape: Shape) -> StepOperations:
    """Return the operations if each distinct token is computed once.

    Siblings diverge at their first token, as for an untrained model. The last token of an episode
    is not computed. In sampling and in the update, the last token of a prompt and each sampled
    token except the last give one row of logits.
    """
    said = workload.completion_tokens
    prompt = _run(0, workload.prompt_tokens) * workload.prompts
    rest, before = Count(tokens=0, pairs=0, heads=0), workload.prompt_tokens
    for turn in range(workload.turns):
        if turn:
            rest += _run(before, workload.observed_tokens)
            before += workload.observed_tokens
        last = turn == workload.turns - 1
        rest += _run(before, said - last)
        before += said
    decoded = workload.turns * (said - 1) * workload.episodes
    first = workload.prompts + (workload.turns - 1) * workload.episodes
    passed = prompt + rest * workload.episodes
    sampled = Count(tokens=passed.tokens, pairs=passed.pairs, heads=decoded + first)
    trained = Count(
        tokens=passed.tokens,
        pairs=passed.pairs,
        heads=workload.prompts + workload.episodes * (workload.turns * said - 1),
    )
    return StepOperations(
        sampling=sampled.forward(shape), update=trained.training(shape, frozen=workload.lora)
    )


def flat_operations(workload: Workload, shape: Shape, *, cached: bool = False) -> StepOperations:
    """Return the operations if every episode is a separate row, with its prompt and history.

    In sampling each turn computes its whole history again, as each call of `generate` does, unless
    keys and values are `cached` between turns.
    """
    sampled, before = Count(tokens=0, pairs=0, heads=0), 0
    for turn in range(workload.turns):
        heard = workload.observed_tokens if turn else workload.prompt_tokens
        before += heard
        if cached:
            said = workload.completion_tokens - (turn == workload.turns - 1)
            sampled += _run(before - heard, heard) + _run(before, said)
        else:
            sampled += _run(0, before) + _run(before, workload.completion_tokens - 1)
        before += workload.completion_tokens
    heads = workload.turns * workload.completion_tokens
    sampled = Count(tokens=sampled.tokens, pairs=sampled.pairs, heads=heads) * workload.episodes
    whole = _run(0, workload.row_tokens)
    trained = Count(tokens=whole.tokens, pairs=whole.pairs, heads=heads) * workload.episodes
    return StepOperations(
        sampling=sampled.forward(shape), update=trained.training(shape, frozen=workload.lora)
    )
