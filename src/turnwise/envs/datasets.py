"""Data that turnwise can make by itself, by name: a config, the columns, and endless rows.

Owns the table `DATASETS`. To add one: a `Settings` class of options with `columns` and `rows`, and
a line in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field, field_validator

from turnwise.envs.lake_data import COLUMNS, expert_rows
from turnwise.envs.lake_maps import Rows, check_rows
from turnwise.settings import Settings


class FrozenLakeQ(Settings):
    """Expert play on one lake: each state with the value of every action.

    Example:
        >>> rows = FrozenLakeQ().rows(np.random.default_rng(0))
        >>> next(rows)["action"]
        '0'
    """

    columns: ClassVar[tuple[str, ...]] = COLUMNS

    map: Rows = ("SFFF", "FHFH", "FFFH", "HFFG")
    """The lake, as rows of S, F, H, G; gymnasium's 4x4 map by default."""
    slippery: bool = True
    """Whether steps slip to the sides, in play and in the values."""
    steps: int = Field(default=100, ge=1)
    """Steps after which an episode of the expert is cut, as gymnasium's registered limit."""

    @field_validator("map")
    @classmethod
    def _is_a_map(cls, rows: Rows) -> Rows:
        check_rows(rows)
        return rows

    def rows(self, rng: np.random.Generator) -> Iterator[Mapping[str, str]]:
        """Yield the states of the expert's episodes, in order."""
        return expert_rows(self.map, slippery=self.slippery, steps=self.steps, rng=rng)


DATASETS: dict[str, type[FrozenLakeQ]] = {"frozen-lake-q": FrozenLakeQ}
