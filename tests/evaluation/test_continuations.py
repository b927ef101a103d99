"""Continuations with all their log-probabilities, against one plain forward pass each."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from turnwise.evaluation.continuations import continuations
from turnwise.policies import PolicyConfig, load_policy


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_every_row_is_the_distribution_after_its_prefix(tmp_path, temperature):
    policy = load_policy(
        "main",
        PolicyConfig(device="cpu"),
        directory=tmp_path,
        transcripts=["a b c d"],
        words=("a", "b", "c", "d"),
        seed=0,
    )
    prefixes = [(5, 6, 7), (8, 9), tuple(range(5, 15))]
    paths = continuations(policy, temperature)(prefixes, [6, 1, 4])
    for prefix, room, (tokens, rows) in zip(prefixes, (6, 1, 4), paths, strict=True):
        assert len(tokens) == len(rows) <= room
        ended = tokens[-1] in policy.stop_ids
        assert ended or len(tokens) == room
        assert not policy.stop_ids & set(tokens[:-1])
        for place, row in enumerate(rows):
            with torch.no_grad():
                logits = policy.model(torch.tensor([prefix + tokens[:place]])).logits[0, -1]
            expected = torch.log_softmax(logits.double() / temperature, dim=-1).numpy()
            assert np.abs(row - expected).max() < 1e-4
            assert row.argmax() == tokens[place]
