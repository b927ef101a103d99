"""The options of the frozen lake: maps, dynamics and starts."""

from __future__ import annotations

from math import inf
from typing import Literal

from pydantic import Field, model_validator

from turnwise.envs.frozen_lake.maps import LARGEST, MapRows, lake_of
from turnwise.settings import Settings


class FrozenLakeConfig(Settings):
    """The maps of the lakes, their dynamics and their starts."""

    size: int = Field(default=4, ge=4, le=LARGEST)
    """Rows and columns of random maps."""
    largest: int | None = Field(default=None, ge=4, le=LARGEST)
    """The largest size of random maps, drawn evenly from `size` on; None is `size` itself."""
    map: MapRows | None = None
    """One map for all tasks, as rows of S, F, H, G; None draws a map for every task. With a given
    map every split has the same task: no test is unseen, and task sources say `seen`."""
    slippery: bool = False
    """Whether steps slip to the sides, as in gymnasium's `is_slippery`."""
    sight: int | None = Field(default=None, ge=1, le=LARGEST)
    """The number of rows and columns that the player sees in each direction. Cells are then given
    by their offset, without names and description. None shows the whole map."""
    clock: bool = True
    """Whether state keys include the steps left, which no player sees. With false, all turns in
    one cell are compared, which suits lakes where the steps left hardly matter."""
    frozen_probability: float = Field(default=0.8, gt=0, le=1)
    """Probability of ice, against hole, in random maps; gymnasium's default."""
    step_limit: float = Field(default=2.0, ge=1)
    """Steps in an episode, as a multiple of the shortest path from the start, rounded."""
    steps: int | None = Field(default=None, ge=1)
    """Steps in an episode whatever the map, instead of `step_limit`; 1 makes every state a task."""
    start: Literal["corner", "random", "anywhere"] = "corner"
    """The start of an episode: on the S of the map; on the S, moved to a random cell with a path to
    the goal; or on any ice cell, with the S unchanged, so that states are those of play. Scores are
    comparable for starts on the S of the map."""
    traps: float = Field(default=0.0, ge=0, le=1)
    """The share of random starts before or in a dead end, where a safe step towards the goal may be
    wrong. Few cells are of this kind, and most of what can be learned is learned there."""
    corners: float = Field(default=0.0, ge=0, le=1)
    """The share of random starts on the S of the map, where all episodes start when scores are
    taken. An episode that starts elsewhere rarely visits the S."""
    data: str | None = None
    """A .csv or .jsonl file of states with an expert's values (`turnwise data frozen-lake-q`). Each
    row is a task of one step, and replaces the random draws."""
    mirrored: bool = False
    """Whether maps are mirrored at random, so that the goal may be in any corner. On such maps no
    action is better than another before the map is read."""
    solvable: bool = True
    """False generates maps for warm-up, which show every kind of observation: a path to the goal is
    not required, and the S and the player are on two independent random cells."""

    @model_validator(mode="after")
    def _check(self) -> FrozenLakeConfig:
        given = self.model_fields_set
        if self.map is not None:
            lake = lake_of(self.map)
            idle = sorted(given & {"size", "largest", "frozen_probability"})
            if idle:
                raise ValueError(f"{idle[0]} is for random maps and a map is given: leave one out")
            if self.solvable and lake.distances[lake.start] == inf:
                raise ValueError(f"map {list(self.map)} has no way from S to G: melt a hole")
        if self.data is not None and "start" in given:
            raise ValueError("data says where play begins: leave start out (start = none)")
        if self.steps is not None and "step_limit" in given:
            raise ValueError("steps and step_limit both limit an episode: leave one out")
        if self.largest is not None and self.largest < self.size:
            raise ValueError(f"largest = {self.largest} is below size = {self.size}: raise it")
        self._check_shares()
        if not self.solvable and "start" in given and self.start != "random":
            raise ValueError(
                f'start = "{self.start}" has no effect with solvable = false, where starts are '
                "random: leave start out"
            )
        return self

    def _check_shares(self) -> None:
        shares = f"traps = {self.traps} and corners = {self.corners}"
        random = self.start == "random" and self.solvable
        if (self.traps or self.corners) and not random:
            raise ValueError(
                f"{shares} are shares of random starts on solvable maps: set start = 'random', or "
                "leave them out"
            )
        if self.traps and self.map is not None:
            raise ValueError(f"traps = {self.traps} is for random maps: leave it or the map out")
        if self.traps + self.corners > 1:
            raise ValueError(f"{shares} are shares of one whole: lower one of them")
