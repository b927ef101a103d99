"""Loss inputs and rows made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from turnwise.losses import LossInputs
from turnwise.types import Sample, TurnId

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
    return TurnId(iteration=0, visit=visit, task="t", sample=sample, role=role, turn=turn)


@pytest.fixture(scope="session")
def turn_id():
    """The factory of turn ids."""
    return _turn


@pytest.fixture(scope="session")
def make_row():
    """Return a function: the turns of a row, as (id, tokens), each after one prompt token."""

    def make(*turns: tuple[TurnId, int], policy: str = "main", **streams) -> Sample:
        index = [i for number, (_, length) in enumerate(turns) for i in (-1, *[number] * length)]
        return Sample.of(
            policy=policy,
            turns=tuple(turn for turn, _ in turns),
            token_ids=list(range(len(index))),
            turn_index=index,
            **streams,
        )

    return make
