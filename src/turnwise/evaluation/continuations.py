"""The greedy continuation of token prefixes, with the log-probabilities of all next tokens.

Provides `continuations`, for computations of probabilities without sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.errors import ModelError
from turnwise.kernels import reachable_lengths
from turnwise.kernels.cache_name import CACHE
from turnwise.policies.policy import Policy

Ids = tuple[int, ...]
Path = tuple[Ids, NDArray[np.float64]]
PROBE, LONGEST_PROBE, STEPS = 24, 1024, 3
"""Tokens on which the cache is measured, beyond the lengths at which layers change; the most
tokens that this may take; and the tokens appended."""
TOLERANCE, LOW_TOLERANCE = 1e-4, 2e-2
"""Mean difference of log-probabilities that is rounding, in float32 and in shorter types."""


def continuations(
    policy: Policy, temperature: float = 1.0
) -> Callable[[Sequence[Ids], Sequence[int]], list[Path]]:
    """Return the function that continues prefixes by their most probable tokens.

    It takes N prefixes of ids and the most tokens of each, and returns for each its tokens, up to
    and including an end token, and log softmax(logits / temperature) of every token that could
    have stood at each place, float64 [tokens, vocabulary]. It follows the weights as they change.
    """
    kept: list[bool] = []  # whether the cache can be trusted, once that was measured

    @torch.inference_mode()
    def of(prefixes: Sequence[Ids], room: Sequence[int]) -> list[Path]:
        if not kept:
            kept.append(_cache_agrees(policy))
        steps = (_Cached if kept[0] else _Whole)(policy, prefixes)
        tokens: list[list[int]] = [[] for _ in prefixes]
        rows: list[list[NDArray[np.float64]]] = [[] for _ in prefixes]
        while True:
            logprobs = torch.log_softmax(steps.logits().double() / temperature, dim=-1)
            best = logprobs.argmax(dim=-1)
            open_rows = False
            for row, token in enumerate(best.tolist()):
                if len(tokens[row]) < room[row] and not policy.stop_ids & set(tokens[row][-1:]):
                    tokens[row].append(token)
                    rows[row].append(logprobs[row].cpu().numpy())
                    ended = token in policy.stop_ids or len(tokens[row]) == room[row]
                    open_rows = open_rows or not ended
            if not open_rows:
                break
            steps.append(best)
        return [(tuple(t), np.array(r)) for t, r in zip(tokens, rows, strict=True)]

    return of


class _Cached:
    """Sequences that grow by a token each, whose keys and values are kept."""

    def __init__(self, policy: Policy, prefixes: Sequence[Ids]) -> None:
        ids, real = _padded_left(prefixes, policy.renderer.pad_id)
        self._model, self._cache = policy.model, None
        self._ids, self._real = ids.to(policy.device), real.to(policy.device)
        self._places = (self._real.cumsum(dim=1) - 1).clamp(min=0)

    def logits(self) -> torch.Tensor:
        """Return the logits after every sequence, [N, V]."""
        out = self._model(
            input_ids=self._ids,
            attention_mask=self._real,
            position_ids=self._places,
            use_cache=True,
            logits_to_keep=1,
            **{CACHE: self._cache},
        )
        self._cache = getattr(out, CACHE)
        return out.logits[:, -1]

    def append(self, tokens: torch.Tensor) -> None:
        """Append one token to each sequence."""
        self._ids = tokens[:, None]
        self._real = torch.cat([self._real, torch.ones_like(self._real[:, :1])], dim=1)
        self._places = self._places[:, -1:] + 1


class _Whole:
    """Sequences that grow by a token each, computed anew for each token, padded to the right."""

    def __init__(self, policy: Policy, prefixes: Sequence[Ids]) -> None:
        self._model, self._device = policy.model, policy.device
        self._rows = [list(prefix) for prefix in prefixes]

    def logits(self) -> torch.Tensor:
        """Return the logits after every sequence, [N, V]."""
        ends = [len(row) - 1 for row in self._rows]
        ids = [row + [0] * (max(ends) + 1 - len(row)) for row in self._rows]
        given = torch.tensor(ids, device=self._device)
        logits = self._model(input_ids=given, use_cache=False).logits
        return logits[torch.arange(len(ends), device=self._device), ends]

    def append(self, tokens: torch.Tensor) -> None:
        """Append one token to each sequence."""
        for row, token in zip(self._rows, tokens.tolist(), strict=True):
            row.append(token)


def _cache_agrees(policy: Policy) -> bool:
    """Whether a few tokens have the same logits with keys and values kept as without.

    Rows are of different lengths, and longer than what layers look back; where that takes too many
    tokens, the cache is not trusted.

    Raises:
        ModelError: if rows have other logits beside longer ones than alone.
    """
    fields = policy.base.config.get_text_config().to_dict()
    vocabulary, matter = int(fields["vocab_size"]), reachable_lengths(fields, policy.context)
    if matter.get("sliding_window", 0) > LONGEST_PROBE:
        del matter["sliding_window"]  # transformers' own caches know it by its name
    needed = min(PROBE + max(matter.values(), default=0), max(1, policy.context - STEPS))
    length = min(needed, LONGEST_PROBE)
    draw = torch.Generator().manual_seed(0)
    given = torch.randint(vocabulary, (3, length), generator=draw).to(policy.device)
    prefixes = [tuple(row[: max(1, length // (1 + n))].tolist()) for n, row in enumerate(given)]
    whole = _Whole(policy, prefixes)
    expected = [_alone(policy, row, given[n, :STEPS]) for n, row in enumerate(prefixes)]
    logits: list[torch.Tensor] = []
    for step in range(STEPS):
        logits.append(whole.logits().float().log_softmax(-1))
        gap = float((logits[-1] - torch.stack([row[step] for row in expected])).abs().mean())
        if not gap <= _tolerance(policy) * 10:
            raise ModelError(
                f"policy {policy.name!r} gives other numbers in a padded batch than alone "
                f"({gap:.1g} nats in the mean), so its probabilities cannot be computed: use a "
                "causal decoder"
            )
        whole.append(given[:, step])
    if length < needed:
        return False
    cached = _Cached(policy, prefixes)
    try:
        for step in range(STEPS):
            gap = (cached.logits().float().log_softmax(-1) - logits[step]).abs().mean()
            if not gap <= _tolerance(policy):
                return False
            cached.append(given[:, step])
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError, KeyError):
        return False  # a model without such a cache
    return True


def _alone(policy: Policy, prefix: Ids, reply: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities after a prefix and after each token of a reply, [S, V]."""
    ids = torch.tensor([[*prefix, *reply[:-1].tolist()]], device=policy.device)
    logits = policy.model(input_ids=ids, use_cache=False).logits[0, -len(reply) :]
    return logits.float().log_softmax(-1)


def _tolerance(policy: Policy) -> float:
    return TOLERANCE if policy.model.dtype == torch.float32 else LOW_TOLERANCE


def _padded_left(prefixes: Sequence[Ids], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, [N, longest], with all prefixes ending at one place."""
    longest = max(len(prefix) for prefix in prefixes)
    ids = [[pad] * (longest - len(prefix)) + list(prefix) for prefix in prefixes]
    real = [[0] * (longest - len(prefix)) + [1] * len(prefix) for prefix in prefixes]
    return torch.tensor(ids), torch.tensor(real)
