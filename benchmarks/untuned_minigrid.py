"""What an agent of MiniGrid sees, in words, for `benchmarks/untuned.py`."""

from __future__ import annotations

from typing import Any

COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
OBJECTS = ("?", ".", "#", ".", "door", "key", "ball", "box", "goal", "lava", "agent")
DOORS = ("open", "closed", "locked")
NEAR = range(3, 7), range(1, 6)
"""The rows and columns of the view that are shown, of 7 each: what is ahead, the agent last."""


def view(observation: dict[str, Any]) -> str:
    """Return the cells in front of the agent, and what it carries, the farthest row first."""
    cells = observation["image"]  # [column, row, (object, colour, state)]; the agent is at [3, 6]
    rows = [" ".join(_word(*cells[x][y].tolist()) for x in NEAR[1]) for y in NEAR[0]]
    return "\n".join(rows)


def _word(kind: int, colour: int, state: int) -> str:
    name = OBJECTS[kind]
    if name == "door":
        return f"{DOORS[state]}-door"
    return f"{COLOURS[colour]}-{name}" if name in ("key", "ball", "box") else name
