"""The state of an ant colony: the world, which is fixed, and what changes.

Provides `World`, `Ant` and `Colony`. All are immutable. What changes in every turn are named
tuples, which are copied in a fifth of the time of dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnwise.envs.ant_colony.grid import Grid
from turnwise.envs.ant_colony.scents import Fields

Laid = NDArray[np.int32]
"""Cell -> who laid its scent last, and when, as `tick * WHO + number + 1`; 0 for nobody."""
WHO = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """What an episode does not change: the map, the nest, and the rules of its tier.

    With `far` walls hide nothing, and ants know the way to the nest from everywhere. `units` is the
    size of a new stack, `respawn` the number of ticks between new stacks, 0 for none.
    """

    grid: Grid
    nest: int
    tier: int
    ticks: int
    units: int
    respawn: int
    far: bool


class Trip(NamedTuple):
    """An ant's way since its last delivery: when it began, and whose trails it has met.

    `met` has bit k for a trail of ant k, `shared` is the number of moves on other ants' trails.
    """

    began: int = 0
    met: int = 0
    shared: int = 0


class Ant(NamedTuple):
    """An ant: where it is, what it carries, its notes, and what is counted of it.

    `last` are the results of its last turn. `seen`, `visited` and `credited`, those with food for
    whose notes it was rewarded, are sets of cells as bit masks.
    `lines` are all lines of its turns, `invalid` those without an effect that are no bumps.
    """

    cell: int
    carrying: bool = False
    notes: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    seen: int = 0
    visited: int = 0
    credited: int = 0
    lines: int = 0
    invalid: int = 0
    moves: int = 0
    trail_moves: int = 0
    paid: int = 0
    trip: Trip = Trip()


class Colony(NamedTuple):
    """A state: the ants, the food that is left by cell, the scents, and the turn.

    Ant `order[place]` acts next. `appeared` are all units so far. `emptied` are cells of empty
    stacks with the ants that know of them, as a bit mask. `duplicates` are trips to a stack that
    another ant had emptied, `along` are deliveries along another ant's trail.
    """

    world: World
    ants: tuple[Ant, ...]
    food: Mapping[int, int]
    fields: Fields
    laid: Laid
    order: tuple[int, ...]
    emptied: Mapping[int, int]
    place: int = 0
    tick: int = 0
    delivered: int = 0
    appeared: int = 0
    duplicates: int = 0
    along: int = 0

    @property
    def complete(self) -> bool:
        """Whether all food is in the nest and none will appear."""
        return self.delivered == self.appeared and not self.world.respawn

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.complete or self.tick >= self.world.ticks


def nobody(grid: Grid) -> Laid:
    """Return the marks of a map on which nobody has laid a scent."""
    marks = np.zeros(len(grid.cells), dtype=np.int32)
    marks.setflags(write=False)
    return marks
