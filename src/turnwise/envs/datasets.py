"""Generated data sets: the table `DATASETS` of name -> class.

Each class is a `Settings` with the options of the data set, its `columns`, and the method `rows`,
which yields rows without end. To add one, write such a class and add a line to the table.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field, field_validator

from turnwise.envs.ant_colony.data import COLUMNS as ANT_COLUMNS
from turnwise.envs.ant_colony.data import demonstration_rows
from turnwise.envs.ant_colony.tiers import TIERS
from turnwise.envs.frozen_lake.data import COLUMNS, expert_rows
from turnwise.envs.frozen_lake.maps import MapRows, check_rows
from turnwise.settings import Settings


class DataSet(Settings):
    """The options of a data set, and its rows."""

    columns: ClassVar[tuple[str, ...]]

    @abstractmethod
    def rows(self, rng: np.random.Generator) -> Iterator[Mapping[str, str]]:
        """Yield rows without end."""


class AntColonyDemonstrations(DataSet):
    """What ants see, and what the heuristic does, as prompts and completions of a warm-up.

    Example:
        >>> row = next(AntColonyDemonstrations().rows(np.random.default_rng(0)))
        >>> row["completion"].split()[0]
        'THINK:'
    """

    columns: ClassVar[tuple[str, ...]] = ANT_COLUMNS

    tier: int = Field(default=1, ge=0, le=max(TIERS))
    """The highest tier of the tasks."""
    noise: float = Field(default=0.12, ge=0, lt=1)
    """The share of turns after which a random action is played in place of the heuristic's."""

    def rows(self, rng: np.random.Generator) -> Iterator[Mapping[str, str]]:
        """Yield the turns of the heuristic's episodes, in order."""
        return demonstration_rows(self.tier, self.noise, rng)


class FrozenLakeQ(DataSet):
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


DATASETS: dict[str, type[DataSet]] = {
    "ant-colony-demonstrations": AntColonyDemonstrations,
    "frozen-lake-q": FrozenLakeQ,
}
