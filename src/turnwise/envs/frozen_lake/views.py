"""Texts of a lake for observations: the whole map by names, or the cells around the player.

Provides `view`s of a state: two texts, and the description of the neighbouring cells.
"""

from __future__ import annotations

from turnwise.envs.base import Observation
from turnwise.envs.frozen_lake.maps import ACTIONS
from turnwise.envs.frozen_lake.state import LakeState


def observe_lake(state: LakeState, sight: int | None) -> Observation:
    """Return the observation: the whole map, or the cells within `sight` of the player."""
    if sight is None:
        return named_map(state)
    return Observation(text=surroundings(state, sight), legal_actions=ACTIONS)


def named_map(state: LakeState) -> Observation:
    """Return every cell by name, the player's last; the description says where actions lead."""
    lake, here = state.lake, state.position
    near = []
    for action, cell in zip(ACTIONS, lake.moves[here], strict=True):
        what = "edge" if cell == here else f"{lake.name(cell)} {lake.content(cell)}"
        near.append(f"{action} {what}")
    text = f"{lake.text}\n you {lake.name(here)}"
    return Observation(text=text, legal_actions=ACTIONS, description=" ".join(near))


def surroundings(state: LakeState, sight: int) -> str:
    """Return the cells at most `sight` rows and columns away, with the player in the middle.

    A cell at a given offset has the same place in the text in every state. Cells off the map are
    "edge". The last line names the player's cell.

    Example:
        >>> state = LakeState(map=("SF", "HG"), position=1, steps=1, limit=4, slippery=False)
        >>> print(surroundings(state, 1))
        lake
         edge edge edge
         start you edge
         hole goal edge
         you r0c1
    """
    lake, size = state.lake, len(state.map)
    row, column = divmod(state.position, lake.columns)

    def word(y: int, x: int) -> str:
        if (y, x) == (row, column):
            return "you"
        inside = 0 <= y < size and 0 <= x < lake.columns
        return lake.content(y * lake.columns + x) if inside else "edge"

    reach = range(-sight, sight + 1)
    lines = [" ".join(word(row + down, column + right) for right in reach) for down in reach]
    return "\n ".join(["lake", *lines, f"you {lake.name(state.position)}"])
