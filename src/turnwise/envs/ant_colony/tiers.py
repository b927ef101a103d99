"""The seven tiers of the ant colony, and the options that replace their parameters.

Provides `Tier`, `TIERS` and `AntColonyConfig`. Tiers 0 to 3 are frozen: their baselines are in
`docs/ant-colony.md`, and scores of other versions cannot be compared with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field, model_validator

from turnwise.settings import Settings

MOST_ANTS = 6
LARGEST = 30
Layout = Literal["open", "walls", "rooms", "maze"]
Scents = Literal["shown", "hidden", "shuffled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tier:
    """The parameters of a tier.

    `walls` is the share of wall cells in the layout `walls`, and the share of wall cells that are
    opened in `rooms` and `maze`. `respawn` is the number of ticks between new stacks, 0 for none.

    Example:
        >>> TIERS[0].size, TIERS[6].respawn
        (5, 20)
    """

    size: int
    layout: Layout
    walls: float
    ants: int
    stacks: int
    units: int
    ticks: int
    respawn: int = 0

    @property
    def far(self) -> bool:
        """Whether an ant sees through walls, and the nest from everywhere."""
        return self.layout in ("open", "walls")


def _tier(
    size: int,
    layout: Layout,
    walls: float,
    colony: tuple[int, int, int, int],
    respawn: int = 0,
) -> Tier:
    """Return a tier; `colony` has the ants, the stacks, the units of each and the ticks."""
    ants, stacks, units, ticks = colony
    return Tier(
        size=size,
        layout=layout,
        walls=walls,
        ants=ants,
        stacks=stacks,
        units=units,
        ticks=ticks,
        respawn=respawn,
    )


TIERS: Mapping[int, Tier] = {
    0: _tier(5, "open", 0.0, (1, 2, 2, 40)),
    1: _tier(7, "open", 0.0, (1, 3, 2, 60)),
    2: _tier(10, "walls", 0.10, (2, 4, 2, 60)),
    3: _tier(12, "walls", 0.18, (2, 4, 3, 90)),
    4: _tier(15, "rooms", 0.25, (3, 5, 3, 120)),
    5: _tier(21, "maze", 0.15, (4, 6, 3, 200)),
    6: _tier(30, "maze", 0.15, (6, 8, 3, 300), respawn=20),
}
"""Tier -> its parameters."""
CHANGEABLE = ("size", "layout", "walls", "ants", "stacks", "units", "ticks", "respawn")


class AntColonyConfig(Settings):
    """Options of the `ant-colony` env."""

    tier: int = Field(default=0, ge=0, le=max(TIERS))
    """The tier, from 0 (one ant on 5x5 open cells) to 6 (six ants in a maze of 30x30)."""
    up_to: bool = False
    """Whether tasks are of all tiers up to `tier`, drawn uniformly. The options below that replace
    parameters of a tier hold for all of them."""
    roles: Literal["one", "two"] = "one"
    """The roles: with `one` every ant has the role `ant`; with `two` the ants are `scout` and
    `carrier` in turn, which can do the same."""
    seats: int | None = Field(default=None, ge=1, le=MOST_ANTS)
    """The number of seats, of which a task with fewer ants uses the first ones; None is the number
    of ants. A run that plays several tiers needs the largest."""
    scents: Scents = "shown"
    """What ants smell: the scents, nothing (`hidden`), or those of other cells (`shuffled`)."""
    start: Literal["nest", "anywhere"] = "nest"
    """Where episodes begin: with all ants in the nest and all food in its place; or with the ants
    in random cells, half of them carrying food, and a random part of the food in the nest. More
    ants than in uniform cells can deposit or pick up, or see no food, which random play rarely
    leads to (`starts.draw_start`). Use it with few `ticks` for training tasks. Scores are
    comparable for episodes that begin in the nest."""
    noted: float = Field(default=0.0, ge=0, le=1)
    """With `start = "anywhere"` the share of ants that begin with a note of a place, three in four
    of them of a stack of food."""
    clock: bool = True
    """Whether an ant sees the number of the tick."""
    size: int | None = Field(default=None, ge=3, le=LARGEST)
    """The rows and columns; None is the tier's, as for the options below."""
    layout: Layout | None = None
    """The map: `open`, single `walls`, `rooms` or a `maze`."""
    walls: float | None = Field(default=None, ge=0, le=0.4)
    """The share of wall cells in `walls`; of wall cells that are opened in `rooms` and `maze`."""
    ants: int | None = Field(default=None, ge=1, le=MOST_ANTS)
    """The number of ants."""
    stacks: int | None = Field(default=None, ge=1, le=12)
    """The number of stacks of food."""
    units: int | None = Field(default=None, ge=1, le=9)
    """The units of food in each stack."""
    ticks: int | None = Field(default=None, ge=1, le=2000)
    """The ticks of an episode. In each tick every ant has one turn."""
    respawn: int | None = Field(default=None, ge=0)
    """The ticks between new stacks; 0 for none."""

    @model_validator(mode="after")
    def _check_noted(self) -> AntColonyConfig:
        if self.noted and self.start == "nest":
            raise ValueError(
                f'noted = {self.noted:g} is for start = "anywhere": in the nest no ant has noted '
                'anything; set start = "anywhere", or leave noted out'
            )
        return self

    @property
    def parameters(self) -> Mapping[int, Tier]:
        """The tiers of tasks, with the options that replace their parameters."""
        given = {name: value for name, value in self if name in CHANGEABLE and value is not None}
        tiers = range(0 if self.up_to else self.tier, self.tier + 1)
        return {tier: replace(TIERS[tier], **given) for tier in tiers}
