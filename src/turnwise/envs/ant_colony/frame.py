"""The picture of an ant colony: walls, food, ants, and the scents as colours.

Provides `frame_of`.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnwise.envs.ant_colony.grid import OPEN
from turnwise.envs.ant_colony.scents import MOST
from turnwise.envs.ant_colony.state import Colony
from turnwise.envs.ant_colony.view import NEST, rows_of
from turnwise.envs.frames import Cell, Frame, Rgb, mixed

FOOD_SCENT: Rgb = (0, 158, 115)
HOME_SCENT: Rgb = (0, 114, 178)
ALARM_SCENT: Rgb = (213, 94, 0)
WALL_COLOUR: Rgb = (90, 90, 90)
ANT_COLOUR: Rgb = (0, 0, 0)
CARRIER_COLOUR: Rgb = (160, 0, 120)
NEST_COLOUR: Rgb = (120, 60, 0)
FOOD_COLOUR: Rgb = (0, 90, 20)
STRONGEST = 0.8
"""The strength of the colour of the strongest scent."""


def frame_of(colony: Colony) -> Frame | None:
    """Return the picture of a state at the begin of a tick or the end; None within a tick.

    FOOD is green, HOME blue and ALARM orange. Ants are letters, capital where they carry food, and
    food is the number of its units.
    """
    if colony.place and not colony.ended:
        return None
    marks = _marks(colony)
    rows = tuple(tuple(_cell(colony, cell, marks) for cell in row) for row in rows_of(colony))
    world = colony.world
    caption = (
        f"tier {world.tier} tick {colony.tick} of {world.ticks} "
        f"home {colony.delivered} of {colony.appeared}"
    )
    return Frame(cells=rows, caption=caption)


def _marks(colony: Colony) -> Mapping[int, tuple[str, Rgb]]:
    """Return the character of each cell that has one, with its colour."""
    marks = {cell: (str(min(units, 9)), FOOD_COLOUR) for cell, units in colony.food.items()}
    marks[colony.world.nest] = (NEST, NEST_COLOUR)
    for number, ant in reversed(list(enumerate(colony.ants))):
        letter = chr(ord("a") + number)
        marks[ant.cell] = (letter.upper(), CARRIER_COLOUR) if ant.carrying else (letter, ANT_COLOUR)
    return marks


def _cell(colony: Colony, cell: int, marks: Mapping[int, tuple[str, Rgb]]) -> Cell:
    if colony.world.grid.cells[cell] != OPEN:
        return Cell(behind=WALL_COLOUR)
    levels = colony.fields[:, cell].tolist()
    scents = zip((FOOD_SCENT, HOME_SCENT, ALARM_SCENT), levels, strict=True)
    behind = mixed([(colour, STRONGEST * (level / MOST) ** 0.5) for colour, level in scents])
    text, colour = marks.get(cell, ("", ANT_COLOUR))
    return Cell(text=text, colour=colour, behind=behind)
