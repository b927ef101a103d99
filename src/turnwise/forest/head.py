"""From hidden states to log-probabilities: the LM head where a target needs it, in chunks.

Owns the parts of a causal model (`parts_of`) and the chunked log-softmax. Knows nothing of masks.

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
"""Log-probabilities [E] and entropies [H]; no entropies where none were asked for."""
EntropyUse = Literal["none", "measured", "trained"]
"""Whether entropies are wanted, and with a gradient."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """A causal language model taken apart: decoder body, and everything that comes after it."""

    base: PreTrainedModel
    body: PreTrainedModel
    lm_head: nn.Module
    config: dict[str, object]
    attention: str
    """The attention implementation: "sdpa", "eager" or another."""

    @property
    def frozen_head(self) -> bool:
        """Whether nothing after the body is trained, as beside adapters: it needs no gradient."""
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
        """Return the logits that the model's own forward makes of hidden states, [H, V].

        The forward runs with a body that returns `hidden_HD`, so soft caps, scales and biases are
        the model's own.
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
    """What a body returns: last hidden states, and nothing else that a forward might ask for."""

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
    if body is base:  # Llama 4's text model is found by no name that transformers looks for
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
    """Yield the modules of a model that are not in its body."""
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

    `inputs` [H, ...] is turned into logits at most `chunk_rows` rows at a time. With gradients and
    more than one chunk, each chunk's logits are made again in the backward pass, unless `logits` is
    `frozen` and entropies are not trained: then each chunk is differentiated at once. Entropies
    are empty unless asked for.
    """
    heads = inputs.shape[0]
    temperature = batch.head_temperature.to(inputs.device)
    edge_head, edge_token = batch.edge_head.to(inputs.device), batch.edge_token.to(inputs.device)
    warm = bool((batch.head_temperature != 1).any())

    def chunk(rows: Tensor, warmth: Tensor, head: Tensor, token: Tensor) -> Softmax:
        scaled = logits(rows).float()
        return log_softmax_at(scaled / warmth[:, None] if warm else scaled, head, token, entropy)

    at_once = frozen and entropy != "trained" and inputs.requires_grad and torch.is_grad_enabled()
    if heads <= chunk_rows and not at_once:
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
        if at_once:
            part = _AtOnce.apply(chunk, *arguments)
        elif torch.is_grad_enabled():
            part = checkpoint(chunk, *arguments, use_reentrant=False)
        else:
            part = chunk(*arguments)
        logprobs.append(part[0])
        entropies.append(part[1])
    return torch.cat(logprobs), torch.cat(entropies)


class _AtOnce(torch.autograd.Function):
    """A chunk that is differentiated while its logits are at hand, so that none are kept.

    A log-probability's gradient has the width of a hidden state, whatever the vocabulary. Every
    edge gets a row of its own: few rows have more than one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        chunk: Callable[..., Softmax],
        rows: Tensor,
        warmth: Tensor,
        head_E: Tensor,
        token_E: Tensor,
    ) -> Softmax:
        with torch.enable_grad():
            own = rows.detach()[head_E].requires_grad_()
            each = torch.arange(len(head_E), device=rows.device)
            logprobs, of_edges = chunk(own, warmth[head_E], each, token_E)
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


def log_softmax_at(
    scaled_HV: Tensor, head_E: Tensor, token_E: Tensor, entropy: EntropyUse
) -> Softmax:
    """Return log softmax(scaled)[head, token] [E], and the entropies [H] if asked for.

    Example:
        >>> even = torch.zeros(1, 4)
        >>> at = torch.tensor([0]), torch.tensor([2])
        >>> logprobs, entropies = log_softmax_at(even, *at, "measured")
        >>> bool(torch.allclose(-logprobs, entropies))
        True
    """
    if entropy == "trained":
        every = scaled_HV.log_softmax(-1)
        return every[head_E, token_E], -(every.exp() * every).sum(-1)
    return _LogSoftmaxAt.apply(scaled_HV, head_E, token_E, entropy == "measured")


class _LogSoftmaxAt(torch.autograd.Function):
    """Log-probabilities at edges; probabilities are computed once, for entropies and gradient."""

    @staticmethod
    def forward(
        ctx: Any, scaled_HV: Tensor, head_E: Tensor, token_E: Tensor, entropy: bool
    ) -> tuple[Tensor, Tensor]:
        every = scaled_HV.log_softmax(-1)
        logprobs = every[head_E, token_E]
        wanted = ctx.needs_input_grad[0]
        shares = every.exp() if entropy or wanted else None
        entropies = every.new_empty(0)
        if entropy:
            assert shares is not None
            entropies = torch.linalg.vecdot(shares, every).neg_()
        if wanted:
            ctx.save_for_backward(shares, head_E, token_E)
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:
        for_logprobs = slopes[0]  # entropies have none
        shares, head_E, token_E = ctx.saved_tensors
        by_head = shares.new_zeros(len(shares)).index_add_(0, head_E, for_logprobs)
        gradient = shares * by_head.neg_()[:, None]
        gradient.index_put_((head_E, token_E), for_logprobs, accumulate=True)
        return gradient, None, None, None
