"""Mini-batches of one iteration: whole groups, in a random order of groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnwise.credit import Credit
from turnwise.types import TrainingSample

Part = tuple[int, str]
"""A unit that is not split over mini-batches: the number of a visit, and the group within it."""


def parts_of(samples: Sequence[TrainingSample], credit: Credit) -> list[Part | None]:
    """Return the part that each row belongs to; None for supervised rows.

    Rows of one group are one part. Where the group is the whole batch, a visit is a part.
    """
    groups = {
        turn: str(group.key)
        for group in credit.groups
        if group.key.visit is not None
        for unit in group.units
        for turn in unit.turns
    }
    return [
        (row.turns[0].episode.visit, groups.get(row.turns[0], "")) if row.turns else None
        for row in samples
    ]


def minibatches(
    parts: Sequence[Part | None], count: int, order: np.random.Generator
) -> list[list[int]]:
    """Return the rows of each mini-batch: whole parts, in a random order of parts.

    Rows without a part are shared out evenly, in a random order: neighbours may be of different
    roles, which each mini-batch needs.
    """
    if count == 1:
        return [list(range(len(parts)))]
    names = sorted({part for part in parts if part is not None})
    places = {names[n]: i % count for i, n in enumerate(order.permutation(len(names)))}
    count = max(1, min(count, len(names)))
    batches: list[list[int]] = [[] for _ in range(count)]
    free = iter(order.permutation(sum(part is None for part in parts)))
    for row, part in enumerate(parts):
        batches[next(free) % count if part is None else places[part]].append(row)
    return [batch for batch in batches if batch]
