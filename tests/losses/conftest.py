"""Loss inputs and rows made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from turnwise.losses import LossInputs, RowWeights
from turnwise.types import EpisodeId, TrainingSample, TurnId

F64 = torch.float64


def _inputs(
    ratio: Sequence[float],
    advantages: Sequence[float],
    *,
    logprobs: Sequence[float] | torch.Tensor | None = None,
    **given,
) -> LossInputs:
    """Return float64 inputs with current / proximal = `ratio`; weights are 1 / tokens."""
    count = len(ratio)
    current = torch.as_tensor([-1.0] * count if logprobs is None else logprobs, dtype=F64)
    if not current.requires_grad:
        current.requires_grad_(True)
    proximal = current.detach() - torch.tensor(ratio, dtype=F64).log()
    zero, share = torch.zeros(count, dtype=F64), torch.full((count,), 1 / count, dtype=F64)
    values = {
        "logprobs": current,
        "proximal_logprobs": proximal,
        "behaviour_logprobs": proximal,
        "ref_logprobs": None,
        "entropy": zero,
        "advantages": torch.tensor(advantages, dtype=F64),
        "rl_weight": share,
        "ce_weight": zero,
        "ref_kl_weight": zero,
        "entropy_weight": zero,
        "metric_weight": share,
        "sampled": torch.ones(count, dtype=torch.bool),
        "turn": torch.zeros(count, dtype=torch.long),
    }
    for name, value in given.items():
        is_list = isinstance(value, list | tuple)
        like = values[name] if values[name] is not None else zero
        values[name] = torch.tensor(value, dtype=like.dtype) if is_list else value
    return LossInputs(**values)


@pytest.fixture(scope="session")
def make_inputs():
    """The factory of loss inputs."""
    return _inputs


def _turn(sample: int, turn: int, *, visit: int = 0, role: str = "player") -> TurnId:
    return TurnId(
        episode=EpisodeId(iteration=0, visit=visit, task="t", member=sample), role=role, turn=turn
    )


@pytest.fixture(scope="session")
def turn_id():
    """The factory of turn ids."""
    return _turn


@pytest.fixture(scope="session")
def make_row():
    """Return a function: the turns of a row, as (id, tokens), each after one prompt token."""

    def make(*turns: tuple[TurnId, int], policy: str = "main", **streams) -> TrainingSample:
        index = [i for number, (_, length) in enumerate(turns) for i in (-1, *[number] * length)]
        return TrainingSample.of(
            policy=policy,
            turns=tuple(turn for turn, _ in turns),
            token_ids=list(range(len(index))),
            turn_index=index,
            **streams,
        )

    return make


def inputs_from_rows(
    rows: Sequence[TrainingSample],
    weights: Sequence[RowWeights],
    *,
    logprobs: Tensor,
    entropy: Tensor,
    proximal_logprobs: Tensor | None = None,
    ref_logprobs: Tensor | None = None,
) -> LossInputs:
    """Return the inputs of one micro-batch of whole rows.

    Args:
        rows: the micro-batch's rows.
        weights: their weights, from `token_weights` over the whole optimizer batch.
        logprobs: current log-probabilities of `row.targets`, row after row, [tokens].
        entropy: entropies of the distributions those were drawn from, [tokens].
        proximal_logprobs: the trainer's at batch start, [tokens]; None takes the behaviour's.
        ref_logprobs: the reference's, [tokens]; None where there is none.
    """

    def floats(values: Sequence[np.ndarray]) -> Tensor:
        flat = np.concatenate([v[row.targets] for v, row in zip(values, rows, strict=True)])
        return torch.as_tensor(flat, dtype=logprobs.dtype, device=logprobs.device)

    behaviour = floats([row.logprobs for row in rows])
    sampled = np.concatenate([row.sampled_mask[row.targets] for row in rows])
    return LossInputs(
        logprobs=logprobs,
        proximal_logprobs=behaviour if proximal_logprobs is None else proximal_logprobs.detach(),
        behaviour_logprobs=behaviour,
        ref_logprobs=None if ref_logprobs is None else ref_logprobs.detach(),
        entropy=entropy,
        advantages=floats([row.advantages for row in rows]),
        rl_weight=floats([row.rl for row in weights]),
        ce_weight=floats([row.ce for row in weights]),
        ref_kl_weight=floats([row.ref_kl for row in weights]),
        entropy_weight=floats([row.entropy for row in weights]),
        metric_weight=floats([row.metric for row in weights]),
        sampled=torch.as_tensor(sampled, device=logprobs.device),
        turn=torch.as_tensor(_turn_numbers(rows), device=logprobs.device),
    )


def _turn_numbers(rows: Sequence[TrainingSample]) -> np.ndarray:
    """Return the number of each target's turn within these rows, -1 for none; int64 [tokens]."""
    numbers: dict[TurnId, int] = {}
    flat = [
        numbers.setdefault(row.turns[index], len(numbers)) if index >= 0 else -1
        for row in rows
        for index in row.turn_index[row.targets].tolist()
    ]
    return np.array(flat, dtype=np.int64)
