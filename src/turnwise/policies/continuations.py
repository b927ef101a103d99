"""What a policy is most likely to say, and everything else that it might have said on the way.

Owns the greedy continuation of token prefixes with all log-probabilities, for where probabilities
are computed and not sampled. Knows nothing of messages or answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from turnwise.policies.policy import Policy

Ids = tuple[int, ...]
Path = tuple[Ids, NDArray[np.float64]]


def continuations(
    policy: Policy, temperature: float = 1.0
) -> Callable[[Sequence[Ids], Sequence[int]], list[Path]]:
    """Return the function that continues prefixes by their most probable tokens.

    It takes N prefixes of ids and the most tokens of each, and returns for each its tokens, up to
    and including an end token, and log softmax(logits / temperature) of every token that could
    have stood at each place, float64 [tokens, vocabulary]. It follows the weights as they change.
    """

    @torch.inference_mode()
    def of(prefixes: Sequence[Ids], room: Sequence[int]) -> list[Path]:
        ids, real = _padded_left(prefixes, policy.renderer.pad_id)
        ids, real = ids.to(policy.device), real.to(policy.device)
        tokens: list[list[int]] = [[] for _ in prefixes]
        rows: list[list[NDArray[np.float64]]] = [[] for _ in prefixes]
        places = (real.cumsum(dim=1) - 1).clamp(min=0)
        cache = None
        while True:
            out = policy.model(
                input_ids=ids,
                attention_mask=real,
                position_ids=places,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            logprobs = torch.log_softmax(out.logits[:, -1].double() / temperature, dim=-1)
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
            cache, ids = out.past_key_values, best[:, None]
            real = torch.cat([real, torch.ones_like(real[:, :1])], dim=1)
            places = places[:, -1:] + 1
        return [(tuple(t), np.array(r)) for t, r in zip(tokens, rows, strict=True)]

    return of


def _padded_left(prefixes: Sequence[Ids], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and mask, [N, longest], with all prefixes ending at one place."""
    longest = max(len(prefix) for prefix in prefixes)
    ids = [[pad] * (longest - len(prefix)) + list(prefix) for prefix in prefixes]
    real = [[0] * (longest - len(prefix)) + [1] * len(prefix) for prefix in prefixes]
    return torch.tensor(ids), torch.tensor(real)
