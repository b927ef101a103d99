"""Log-probabilities from hidden states: the LM head at target positions, in chunks.

Provides `parts_of`, the decoder body and LM head of a causal model, and `score_heads`.
Shapes: H heads (rows of logits), E edges, V vocabulary, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from turnwise.errors import ModelError
from turnwise.forest.batches import MicroBatch
from turnwise.kernels.wrapped import Model, base_of

Logits = Callable[[Tensor], Tensor]
Softmax = tuple[Tensor, Tensor]
"""Log-probabilities [E] and entropies [H]; the entropies are empty if they are not requested."""
EntropyUse = Literal["none", "measured", "trained"]
"""Whether entropies are computed, and whether they have a gradient."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """The parts of a causal language model: its decoder body and what follows it."""

    base: PreTrainedModel
    body: PreTrainedModel
    lm_head: nn.Module
    config: dict[str, object]
    attention: str
    """The attention implementation: "sdpa", "eager" or another."""

    @property
    def frozen_head(self) -> bool:
        """Whether nothing after the body is trained, as with adapters; no gradient is needed."""
        return not any(
            parameter.requires_grad
            for module in (self.lm_head, *_outside(self.base, self.body))
            for parameter in module.parameters(recurse=module is self.lm_head)
        )

    @property
    def vocab(self) -> int:
        """Entries of the vocabulary."""
        return int(str(self.config["vocab_size"]))

    def logits(self, hidden_HD: Tensor) -> Tensor:
        """Return the logits of hidden states by the model's own forward pass, [H, V].

        The body is replaced by one that returns `hidden_HD`, so soft-caps, scales and biases of
        the model apply.
        """
        states = hidden_HD[None]
        token_ids = torch.zeros(states.shape[:2], dtype=torch.long, device=states.device)
        own = vars(self.body).get("forward")
        self.body.forward = lambda *args, **kwargs: _States(last_hidden_state=states)
        try:
            return self.base(input_ids=token_ids, use_cache=False).logits[0]
        finally:
            del self.body.forward
            if own is not None:
                self.body.forward = own


@dataclass
class _States(ModelOutput):
    """The output of a body: last hidden states. Any other public attribute is None."""

    last_hidden_state: Tensor | None = None

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)


def parts_of(model: Model) -> Parts:
    """Find the decoder body and the LM head of a causal model, with or without adapters.

    Raises:
        ModelError: if the model has no LM head.
    """
    base = base_of(model)
    body, lm_head = base.get_decoder(), base.get_output_embeddings()
    if body is base:  # transformers finds no decoder in Llama 4's text model
        inside = [child for child in base.children() if isinstance(child, PreTrainedModel)]
        body = inside[0] if len(inside) == 1 else base
    if not isinstance(lm_head, nn.Module) or not isinstance(body, PreTrainedModel) or body is base:
        raise ModelError(
            f"{type(base).__name__} has no separate decoder and LM head: "
            "load it as a causal language model (AutoModelForCausalLM)"
        )
    config = body.config.get_text_config()
    attention = str(config._attn_implementation)
    return Parts(
        base=base, body=body, lm_head=lm_head, config=config.to_dict(), attention=attention
    )


def _outside(module: nn.Module, body: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of a model outside its body."""
    if module is not body:
        yield module
        for child in module.children():
            yield from _outside(child, body)


def score_heads(
    inputs: Tensor,
    logits: Logits,
    batch: MicroBatch,
    chunk_rows: int,
    entropy: EntropyUse,
    *,
    frozen: bool = False,
) -> Softmax:
    """Return log-probabilities [E] and entropies [H] of softmax(logits(inputs) / T).

    `inputs` [H, ...] is turned into logits in chunks of at most `chunk_rows` rows. With gradients
    and several chunks, the logits of a chunk are recomputed in the backward pass. If `logits` is
    `frozen` and entropies are not trained, each chunk is differentiated in the forward pass
    instead. Entropies are empty unless requested.
    """
    heads = inputs.shape[0]
    temperature = batch.head_temperature.to(inputs.device)
    edge_head, edge_token = batch.edge_head.to(inputs.device), batch.edge_token.to(inputs.device)
    scale_logits = bool((batch.head_temperature != 1).any())

    def chunk(rows: Tensor, temperature: Tensor, head: Tensor, token: Tensor) -> Softmax:
        scaled = at_least_float32(logits(rows))
        return log_softmax_at(
            scaled / temperature[:, None] if scale_logits else scaled, head, token, entropy
        )

    backward_now = (
        frozen and entropy != "trained" and inputs.requires_grad and torch.is_grad_enabled()
    )
    if heads <= chunk_rows and not backward_now:
        return chunk(inputs, temperature, edge_head, edge_token)
    bounds = list(range(0, heads, chunk_rows))
    cuts = torch.searchsorted(batch.edge_head, torch.tensor([*bounds, heads])).tolist()
    logprobs, entropies = [], []
    for start, first, last in zip(bounds, cuts[:-1], cuts[1:], strict=True):
        stop = min(start + chunk_rows, heads)
        arguments = (
            inputs[start:stop],
            temperature[start:stop],
            edge_head[first:last] - start,
            edge_token[first:last],
        )
        if backward_now:
            part = _EagerBackwardChunk.apply(chunk, *arguments)
        elif torch.is_grad_enabled():
            part = checkpoint(chunk, *arguments, use_reentrant=False)
        else:
            part = chunk(*arguments)
        logprobs.append(part[0])
        entropies.append(part[1])
    return torch.cat(logprobs), torch.cat(entropies)


class _EagerBackwardChunk(torch.autograd.Function):
    """A chunk that is differentiated in the forward pass, so that its logits are not stored.

    The gradient of a log-probability has the width of a hidden state, whatever the vocabulary. Each
    edge gets a row of its own, because few rows have more than one edge.
    """

    @staticmethod
    def forward(
        ctx: Any,
        chunk: Callable[..., Softmax],
        rows: Tensor,
        temperature: Tensor,
        head_E: Tensor,
        token_E: Tensor,
    ) -> Softmax:
        with torch.enable_grad():
            own = rows.detach()[head_E].requires_grad_()
            each = torch.arange(len(head_E), device=rows.device)
            logprobs, of_edges = chunk(own, temperature[head_E], each, token_E)
            (gradients,) = torch.autograd.grad(logprobs.sum(), own)
        ctx.save_for_backward(gradients, head_E)
        ctx.rows = rows.shape
        entropies = of_edges.detach()
        if len(entropies):
            entropies = entropies.new_zeros(len(rows)).index_copy_(0, head_E, entropies)
        ctx.mark_non_differentiable(entropies)
        return logprobs.detach(), entropies

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:
        gradients, head_E = ctx.saved_tensors
        by_edge = slopes[0][:, None].to(gradients.dtype) * gradients
        for_rows = gradients.new_zeros(ctx.rows).index_add_(0, head_E, by_edge)
        return None, for_rows, None, None, None


def at_least_float32(values: Tensor) -> Tensor:
    """Return values of shorter types as float32, and others as they are.

    Example:
        >>> at_least_float32(torch.zeros(1, dtype=torch.bfloat16)).dtype
        torch.float32
        >>> at_least_float32(torch.zeros(1, dtype=torch.float64)).dtype
        torch.float64
    """
    return values.to(torch.promote_types(values.dtype, torch.float32))


def log_softmax_at(
    scaled_HV: Tensor, head_E: Tensor, token_E: Tensor, entropy: EntropyUse
) -> Softmax:
    """Return log softmax(scaled)[head, token] [E], and the entropies [H] if requested.

    Example:
        >>> even = torch.zeros(1, 4)
        >>> at = torch.tensor([0]), torch.tensor([2])
        >>> logprobs, entropies = log_softmax_at(even, *at, "measured")
        >>> bool(torch.allclose(-logprobs, entropies))
        True
    """
    if entropy == "trained":
        all_logprobs = scaled_HV.log_softmax(-1)
        return all_logprobs[head_E, token_E], -(all_logprobs.exp() * all_logprobs).sum(-1)
    return _LogSoftmaxAt.apply(scaled_HV, head_E, token_E, entropy == "measured")


class _LogSoftmaxAt(torch.autograd.Function):
    """Log-probabilities at edges; probabilities are computed once, for entropy and gradient."""

    @staticmethod
    def forward(
        ctx: Any, scaled_HV: Tensor, head_E: Tensor, token_E: Tensor, entropy: bool
    ) -> tuple[Tensor, Tensor]:
        all_logprobs = scaled_HV.log_softmax(-1)
        logprobs = all_logprobs[head_E, token_E]
        needs_grad = ctx.needs_input_grad[0]
        probabilities = all_logprobs.exp() if entropy or needs_grad else None
        entropies = all_logprobs.new_empty(0)
        if entropy:
            assert probabilities is not None
            entropies = torch.linalg.vecdot(probabilities, all_logprobs).neg_()
        if needs_grad:
            ctx.save_for_backward(probabilities, head_E, token_E)
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:
        for_logprobs = slopes[0]  # entropies have none
        probabilities, head_E, token_E = ctx.saved_tensors
        by_head = probabilities.new_zeros(len(probabilities)).index_add_(0, head_E, for_logprobs)
        gradient = probabilities * by_head.neg_()[:, None]
        gradient.index_put_((head_E, token_E), for_logprobs, accumulate=True)
        return gradient, None, None, None
