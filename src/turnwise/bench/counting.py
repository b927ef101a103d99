"""What a training step must compute, counted from its shapes: operations, not seconds.

Owns the count. A multiplication and an addition are two operations; norms, activations and softmax
are not counted. The backward pass of a linear layer is twice its forward pass, once where the
weights are frozen; that of attention two and a half times.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers import AutoConfig

from turnwise.bench.works import Work


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The sizes of a decoder, in multiplications a token, a query-key pair and a row of logits."""

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
    """Tokens through the decoder, query-key pairs of a layer, and rows of logits, of one pass."""

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
class Needed:
    """Operations of a step, in sampling and in the update."""

    sampling: float
    update: float

    @property
    def seconds(self) -> float:
        """Operations of the whole step (called like the parts that are timed)."""
        return self.sampling + self.update


def _run(before: int, count: int) -> Count:
    """Count a run of `count` tokens after `before` others, each of which sees all before it."""
    pairs = count * before + count * (count + 1) / 2
    return Count(tokens=count, pairs=pairs, heads=0)


def distinct_tokens(work: Work) -> int:
    """Return the distinct tokens of a step, all siblings parting at their first token."""
    return work.prompts * work.prompt_tokens + work.episodes * (
        work.row_tokens - work.prompt_tokens
    )


def distinct(work: Work, shape: Shape) -> Needed:
    """Return what must be computed if each distinct token is computed once.

    Siblings part at their first token, as those of a model that has learnt nothing do; nothing
    depends on the last token of an episode. A prompt's last token and each sampled one but the last
    give a row of logits in sampling, and so they do in the update.
    """
    said = work.completion_tokens
    prompt = _run(0, work.prompt_tokens) * work.prompts
    rest, before = Count(tokens=0, pairs=0, heads=0), work.prompt_tokens
    for turn in range(work.turns):
        if turn:
            rest += _run(before, work.observed_tokens)
            before += work.observed_tokens
        last = turn == work.turns - 1
        rest += _run(before, said - last)
        before += said
    decoded = work.turns * (said - 1) * work.episodes
    first = work.prompts + (work.turns - 1) * work.episodes
    passed = prompt + rest * work.episodes
    sampled = Count(tokens=passed.tokens, pairs=passed.pairs, heads=decoded + first)
    trained = Count(
        tokens=passed.tokens,
        pairs=passed.pairs,
        heads=work.prompts + work.episodes * (work.turns * said - 1),
    )
    return Needed(sampling=sampled.forward(shape), update=trained.training(shape, frozen=work.lora))


def row_by_row(work: Work, shape: Shape, *, cached: bool = False) -> Needed:
    """Return what is computed if every episode is a row: prompts and histories again and again.

    In sampling each turn reads its whole history anew, as `generate` does for each call, unless
    keys and values are `cached` from turn to turn.
    """
    sampled, before = Count(tokens=0, pairs=0, heads=0), 0
    for turn in range(work.turns):
        heard = work.observed_tokens if turn else work.prompt_tokens
        before += heard
        if cached:
            said = work.completion_tokens - (turn == work.turns - 1)
            sampled += _run(before - heard, heard) + _run(before, said)
        else:
            sampled += _run(0, before) + _run(before, work.completion_tokens - 1)
        before += work.completion_tokens
    heads = work.turns * work.completion_tokens
    sampled = Count(tokens=sampled.tokens, pairs=sampled.pairs, heads=heads) * work.episodes
    whole = _run(0, work.row_tokens)
    trained = Count(tokens=whole.tokens, pairs=whole.pairs, heads=heads) * work.episodes
    return Needed(sampling=sampled.forward(shape), update=trained.training(shape, frozen=work.lora))
