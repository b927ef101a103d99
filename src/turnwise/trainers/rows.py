"""Supervised rows: where they come from, and those of a file.

Provides `RowSource`, `supervised_row` and `FileRows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from turnwise.errors import DataError
from turnwise.render import Renderer
from turnwise.seeding import generator
from turnwise.tasks import SftRow, sft_rows
from turnwise.types import Prompt, TrainingSample


class RowSource(Protocol):
    """A source of supervised rows."""

    def batch(self, step: int, count: int) -> list[TrainingSample]:
        """Return the `count` rows of an optimizer step."""
        ...

    def examples(self) -> list[TrainingSample]:
        """Return all rows there are; of endlessly many, some."""
        ...


def supervised_row(
    policy: str, prompt_ids: tuple[int, ...], completion_ids: tuple[int, ...]
) -> TrainingSample:
    """Return a row whose completion is imitated (`ce_weight` 1); nothing of it was sampled."""
    length = len(prompt_ids) + len(completion_ids)
    weight = np.zeros(length, dtype=np.float32)
    weight[len(prompt_ids) :] = 1.0
    return TrainingSample.of(
        policy=policy,
        turns=(),
        token_ids=prompt_ids + completion_ids,
        turn_index=np.full(length, -1),
        ce_weight=weight,
    )


class FileRows:
    """The rows of a JSONL or CSV file, in a new order every pass.

    Args:
        path: the file.
        renderer: of the policy.
        policy: the policy's name.
        seed: decides the orders.
        context: the most tokens of a row; None is no limit.
        first: the number of rows that were shown before.
        roles: role -> whether the policy plays it. Rows that name a role of another policy are left
            out. None takes every row, whatever role it names.

    Raises:
        DataError: if the file is malformed, a row has more tokens than `context` or names a role
            that is not in `roles`, or no row is left.
    """

    def __init__(
        self,
        path: Path,
        renderer: Renderer,
        policy: str,
        seed: int,
        *,
        context: int | None = None,
        first: int = 0,
        roles: Mapping[str, bool] | None = None,
    ) -> None:
        rows: list[SftRow] = sft_rows(path)
        if not rows:
            raise DataError(f"'{path}' has no rows: expected prompt and completion, or messages")
        numbered = list(enumerate(rows, start=1))
        if roles is not None:
            numbered = _of_roles(numbered, roles, path, policy)
        self._rows = [
            supervised_row(
                policy,
                renderer.prompt_ids(Prompt(messages=row.messages)),
                renderer.completion_ids(row.completion),
            )
            for _, row in numbered
        ]
        for (number, _), row in zip(numbered, self._rows, strict=True):
            if context is not None and len(row.token_ids) > context:
                raise DataError(
                    f"'{path}' row {number} has {len(row.token_ids)} tokens, but policy {policy!r} "
                    f"has a context of {context}: shorten the row, or take a longer context"
                )
        self._seed, self._first = seed, first

    def batch(self, step: int, count: int) -> list[TrainingSample]:
        """Return the rows of an optimizer step; passes over the file follow one another."""
        size = len(self._rows)
        places = range(self._first + step * count, self._first + (step + 1) * count)
        orders = {p // size: self._order(p // size) for p in (places[0], places[-1])}
        orders |= {n: self._order(n) for n in range(min(orders), max(orders))}
        return [self._rows[orders[place // size][place % size]] for place in places]

    def examples(self) -> list[TrainingSample]:
        """Return all rows, in the order of the file."""
        return self._rows

    def _order(self, number: int) -> np.ndarray:
        return generator(self._seed, "pass", number).permutation(len(self._rows))


def _of_roles(
    rows: Sequence[tuple[int, SftRow]], roles: Mapping[str, bool], path: Path, policy: str
) -> list[tuple[int, SftRow]]:
    """Return the numbered rows for every role, and those for the roles that the policy plays."""
    for number, row in rows:
        if row.role is not None and row.role not in roles:
            raise DataError(
                f"'{path}' row {number} has role = {row.role!r}, which is not a role of the env "
                f"(roles: {', '.join(roles)}): correct it, or give the column another name"
            )
    kept = [(number, row) for number, row in rows if row.role is None or roles[row.role]]
    if not kept:
        raise DataError(
            f"'{path}' has no row for policy {policy!r}, which plays "
            f"{', '.join(role for role, own in roles.items() if own)}: add rows with these roles, "
            "or leave the column `role` out"
        )
    return kept
