"""Generated data sets: the table `DATASETS` of name -> class.

Each class is a `Settings` with the options of the data set, its `columns`, and the method `rows`,
which yields rows without end. To add one, write such a class and add a line to the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field, field_validator

from turnwise.envs.frozen_lake.data import COLUMNS, expert_rows
from turnwise.envs.frozen_lake.maps import MapRows, check_rows
from turnwise.settings import Settings


class FrozenLakeQ(Settings):
    """The states of an expert's episodes on one FrozenLake map, with the value of every action.

    Example:
        >>> rows = FrozenLakeQ().rows(np.random.default_rng(0))
        >>> next(rows)["action"]
        '0'
    """

    columns: ClassVar[tuple[str, ...]] = COLUMNS

    map: MapRows = ("SFFF", "FHFH", "FFFH", "HFFG")
    """The map, as rows of S, F, H, G. The default is Gymnasium's 4x4 map."""
    slippery: bool = True
    """Whether moves may slip to the sides, in the episodes and in the action values."""
    steps: int = Field(default=100, ge=1)
    """The maximum steps of an episode. The default is Gymnasium's registered limit."""

    @field_validator("map")
    @classmethod
    def _is_a_map(cls, rows: MapRows) -> MapRows:
        check_rows(rows)
        return rows

    def rows(self, rng: np.random.Generator) -> Iterator[Mapping[str, str]]:
        """Yield the states of the expert's episodes, in order."""
        return expert_rows(self.map, slippery=self.slippery, steps=self.steps, rng=rng)


DATASETS: dict[str, type[FrozenLakeQ]] = {"frozen-lake-q": FrozenLakeQ}
