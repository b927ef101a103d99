"""Tokens from logits and uniforms, by the inverse of the distribution function.

Provides `draw`. A token is a function of its logits, temperature and uniform alone (docs/math.md 1
and 3), so it does not depend on the rest of the batch.

Shapes: R rows of logits, M draws, P distinct (row, temperature) pairs, V vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnwise.types import FloatArray, IntArray

CHUNK = 1 << 24
"""Most probabilities (pairs x vocabulary) that are worked on at once."""


def draw(
    logits_RV: Tensor, owner: IntArray, uniforms: NDArray[np.float64], temperature: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Draw one token for every member from softmax(logits / temperature) of the row it belongs to.

    A member's token is the first whose cumulative probability exceeds its uniform; probabilities
    are summed in float64, and no token of probability 0 is ever drawn. Temperature 0 takes the most
    probable token, the first of equals, and reports its log-probability at temperature 1, as no
    other finite value is true.

    Args:
        logits_RV: one row of logits each, any float type.
        owner: the row of every member, [M].
        uniforms: numbers in [0, 1), [M].
        temperature: at least 0, [M].

    Returns:
        The tokens [M] and their log-probabilities [M], float32. A log-probability that is not
        finite means that the logits were not.

    Example:
        >>> logits = torch.tensor([[0.5, 0.25, 0.25]]).log()
        >>> tokens, logprobs = draw(logits, np.array([0, 0]), np.array([0.4, 0.6]), np.ones(2))
        >>> tokens.tolist(), logprobs.round(3).tolist()
        ([0, 1], [-0.6930000185966492, -1.3860000371932983])
    """
    heats, heat = np.unique(temperature, return_inverse=True)
    if len(heats) == 1 and len(owner) == len(logits_RV):  # a member for every row, all alike
        pairs, pair = np.arange(len(owner)), owner
    else:
        pairs, pair = np.unique(owner * len(heats) + heat, return_inverse=True)
    tokens = np.empty(len(owner), dtype=np.int64)
    logprobs = np.empty(len(owner), dtype=np.float32)
    step = max(1, CHUNK // logits_RV.shape[1])
    for begin in range(0, len(pairs), step):
        part = pairs[begin : begin + step]
        members = np.flatnonzero((pair >= begin) & (pair < begin + step))
        drawn = _draw_pairs(
            logits_RV,
            rows=part // len(heats),
            heats=heats[part % len(heats)],
            pair=pair[members] - begin,
            uniforms=uniforms[members],
        )
        tokens[members], logprobs[members] = drawn
    return tokens, logprobs


def _draw_pairs(
    logits_RV: Tensor,
    *,
    rows: IntArray,
    heats: FloatArray,
    pair: IntArray,
    uniforms: NDArray[np.float64],
) -> tuple[IntArray, FloatArray]:
    """Draw for the members of some pairs, each of which is computed once."""
    device = logits_RV.device
    whole = len(rows) == len(logits_RV) and bool((np.diff(rows) == 1).all())
    scores_PV = (logits_RV if whole else logits_RV[torch.from_numpy(rows).to(device)]).float()
    divisors = np.where(heats == 0.0, 1.0, heats).astype(np.float32)
    if (divisors != 1.0).any():
        scores_PV = scores_PV / torch.from_numpy(divisors)[:, None].to(device)
    logprobs_PV = scores_PV.log_softmax(-1)
    place, width = _places(pair, len(rows))
    uniforms_PM = np.zeros((len(rows), width))
    uniforms_PM[pair, place] = uniforms
    tokens_PM = _invert(scores_PV, torch.from_numpy(uniforms_PM))
    greedy = torch.from_numpy(heats == 0.0).to(device)
    if bool((heats == 0.0).any()):
        tokens_PM = torch.where(greedy[:, None], logprobs_PV.argmax(-1, keepdim=True), tokens_PM)
    found_PM = logprobs_PV.gather(1, tokens_PM)
    return tokens_PM.cpu().numpy()[pair, place], found_PM.cpu().numpy()[pair, place]


def _invert(scores_PV: Tensor, uniforms_PM: Tensor) -> Tensor:
    """Return the tokens at which the distribution functions pass the uniforms, [P, M]."""
    probs_PV = scores_PV.softmax(-1)
    if probs_PV.device.type == "mps":  # Apple's GPU has no float64
        probs_PV = probs_PV.cpu()
    below_PV = probs_PV.cumsum(-1, dtype=torch.float64)
    total_P1 = below_PV[:, -1:].contiguous()
    target_PM = uniforms_PM.to(below_PV.device) * total_P1
    tokens_PM = torch.searchsorted(below_PV, target_PM, right=True)
    # Rounding may lift a target to the total: the last token with a probability is the end.
    last_P1 = torch.searchsorted(below_PV, total_P1)
    # Logits that are not numbers end up behind the vocabulary; their log-probabilities tell.
    last_P1 = last_P1.clamp_(max=below_PV.shape[1] - 1)
    return torch.minimum(tokens_PM, last_P1).to(scores_PV.device)


def _places(pair: IntArray, count: int) -> tuple[IntArray, int]:
    """Return each member's number among those of its pair, and the largest number of members."""
    sizes = np.bincount(pair, minlength=count)
    order = np.argsort(pair, kind="stable")
    place = np.empty(len(pair), dtype=np.int64)
    place[order] = np.arange(len(pair)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return place, int(sizes.max(initial=1))
