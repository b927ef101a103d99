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


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCount:
    """Tokens, pairs and rows of logits of a step: those sampled, and those of the update."""

    sampling: Count
    update: Count

    def operations(self, shape: Shape, *, frozen: bool) -> StepOperations:
        """Return the operations of the step."""
        return StepOperations(
            sampling=self.sampling.forward(shape), update=self.update.training(shape, frozen=frozen)
        )


NOTHING = Count(tokens=0, pairs=0, heads=0)


def _run(before: int, count: int) -> Count:
    """Count `count` tokens after `before` others; each attends to all tokens before it."""
    pairs = count * before + count * (count + 1) / 2
    return Count(tokens=count, pairs=pairs, heads=0)


def _turns(workload: Workload, index: int) -> list[tuple[int, int, int]]:
    """Return the tokens before each turn of prompt `index`, those heard in it, those said."""
    found, before, said = [], 0, workload.completion_tokens
    for heard in workload.heard(index):
        found.append((before, heard, said))
        before += heard + said
    return found


def distinct_tokens(workload: Workload) -> int:
    """Return the distinct tokens of a step whose siblings diverge at their first token."""
    asked = workload.prompt_tokens - workload.system_tokens
    own = sum(workload.tokens_of(i) - workload.prompt_tokens for i in range(workload.prompts))
    return workload.system_tokens + workload.prompts * asked + workload.group * own


def distinct_count(workload: Workload) -> StepCount:
    """Count a step that computes each distinct token once.

    Siblings diverge at their first token, as for an untrained model. The last token of an episode
    is not computed. In sampling and in the update, the last token of a prompt and each sampled
    token except the last give one row of logits.
    """
    system, said = workload.system_tokens, workload.completion_tokens
    asked = _run(system, workload.prompt_tokens - system)
    passed = _run(0, system) + asked * workload.prompts
    for index in range(workload.prompts):
        (_, prompt, _), *later = _turns(workload, index)
        episode = _run(prompt, said) + Count(tokens=-1, pairs=-workload.tokens_of(index), heads=0)
        for before, heard, completion in later:
            episode += _run(before, heard + completion)
        passed += episode * workload.group
    decoded = workload.turns * (said - 1) * workload.episodes
    first = workload.prompts + (workload.turns - 1) * workload.episodes
    trained = workload.prompts + workload.episodes * (workload.turns * said - 1)
    return StepCount(
        sampling=passed + Count(tokens=0, pairs=0, heads=decoded + first),
        update=passed + Count(tokens=0, pairs=0, heads=trained),
    )


def flat_count(workload: Workload, *, cached: bool = False) -> StepCount:
    """Count a step in which every episode is a separate row, with its prompt and history.

    In sampling each turn computes its whole history again, as each call of `generate` does, unless
    keys and values are `cached` between turns. Padding is not counted.
    """
    heads = workload.turns * workload.completion_tokens
    sampled = trained = Count(tokens=0, pairs=0, heads=heads) * workload.episodes
    for index in range(workload.prompts):
        turns, each = _turns(workload, index), NOTHING
        for number, (before, heard, said) in enumerate(turns):
            if cached:
                last = number == len(turns) - 1
                each += _run(before, heard) + _run(before + heard, said - last)
            else:
                each += _run(0, before + heard) + _run(before + heard, said - 1)
        sampled += each * workload.group
        trained += _run(0, workload.tokens_of(index)) * workload.group
    return StepCount(sampling=sampled, update=trained)


def distinct_operations(workload: Workload, shape: Shape) -> StepOperations:
    """Return the operations of `distinct_count`."""
    return distinct_count(workload).operations(shape, frozen=workload.lora)


def flat_operations(workload: Workload, shape: Shape, *, cached: bool = False) -> StepOperations:
    """Return the operations of `flat_count`."""
    return flat_count(workload, cached=cached).operations(shape, frozen=workload.lora)
