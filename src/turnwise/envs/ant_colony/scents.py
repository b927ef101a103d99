"""The scents of an ant colony: three fields on the map that are laid, fade and spread.

Provides `faded`, `signalled` and `reinforced`. A field is a float array [scents, cells]; functions
return new arrays. The fields' rows are in the order of `SCENTS`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnwise.envs.ant_colony.grid import OPEN, Grid

Fields = NDArray[np.float64]
SCENTS = ("FOOD", "HOME", "ALARM")
KEPT = np.array([[0.93], [0.97], [0.85]])
"""The share of each scent that is left after a tick."""
SPREAD = 0.04
"""The share of a cell's scent that spreads to its open neighbours in a tick."""
LEAST, MOST = 0.05, 10.0
"""A level below the first is 0; no level is above the second."""
LAID = 3.0
REINFORCED, ADDED, REINFORCEABLE = 1.5, 1.0, 0.5
"""REINFORCE multiplies a level of at least the third by the first, and adds at least the second."""


class _Flow(NamedTuple):
    """How scents spread: the share that stays, the share for each neighbour, the open cells."""

    stays: Fields
    share: Fields
    open: Fields


@lru_cache(maxsize=256)
def _flow(grid: Grid) -> _Flow:
    cells = np.frombuffer(grid.cells.encode("ascii"), dtype=np.uint8) == ord(OPEN)
    neighbours = sum(np.roll(cells, step) for step in grid.steps()) * cells
    spreads = SPREAD * (neighbours > 0)
    share = spreads / np.maximum(neighbours, 1)
    return _Flow(stays=KEPT * (1.0 - spreads), share=KEPT * share, open=cells.astype(np.float64))


def no_scents(grid: Grid) -> Fields:
    """Return fields without any scent."""
    return _fixed(np.zeros((len(SCENTS), len(grid.cells))))


def faded(grid: Grid, fields: Fields) -> Fields:
    """Return the fields after a tick: they fade, and then a part of each cell's scent spreads.

    The border of the map is walls, so rows can be shifted as one line of cells.
    """
    flow, width = _flow(grid), grid.width
    moved = fields * flow.share
    found = fields * flow.stays
    found[:, 1:] += moved[:, :-1]
    found[:, :-1] += moved[:, 1:]
    found[:, width:] += moved[:, :-width]
    found[:, :-width] += moved[:, width:]
    found *= flow.open
    found *= found >= LEAST
    return _fixed(found)


def signalled(fields: Fields, scent: int, cell: int) -> Fields:
    """Return the fields with more of a scent in a cell."""
    return _changed(fields, scent, cell, fields[scent, cell] + LAID)


def reinforced(fields: Fields, scent: int, cell: int) -> Fields | None:
    """Return the fields with a stronger scent in a cell; None where there is too little of it."""
    level = fields[scent, cell]
    if level < REINFORCEABLE:
        return None
    return _changed(fields, scent, cell, max(level * REINFORCED, level + ADDED))


def _changed(fields: Fields, scent: int, cell: int, level: float) -> Fields:
    found = fields.copy()
    found[scent, cell] = min(level, MOST)
    return _fixed(found)


def _fixed(fields: Fields) -> Fields:
    fields.setflags(write=False)
    return fields
