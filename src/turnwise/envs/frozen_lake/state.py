"""The state of a lake episode, and its rendering for people."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from turnwise.envs.frozen_lake.maps import ACTIONS, Lake, MapRows, lake_of

COLOURS = {"S": "36", "F": "37", "H": "34", "G": "32"}
PLAYER = "1;30;43"


@dataclass(frozen=True, kw_only=True, slots=True)
class LakeState:
    """The state of an episode; other facts follow from its map.

    Example:
        >>> state = LakeState(map=("SF", "HG"), position=1, steps=1, limit=4, slippery=False)
        >>> state.at_goal, state.left, shortest_path(state)
        (False, 3, ('DOWN',))
    """

    map: MapRows
    position: int
    steps: int
    limit: int
    slippery: bool
    values: tuple[float, ...] | None = None
    """An expert's value of each action in this state, if the task has them."""

    @property
    def lake(self) -> Lake:
        """The properties of the map."""
        return lake_of(self.map)

    @property
    def letter(self) -> str:
        """The letter of the player's cell."""
        return self.lake.letters[self.position]

    @property
    def at_goal(self) -> bool:
        """Whether the player is on a goal."""
        return self.letter == "G"

    @property
    def in_hole(self) -> bool:
        """Whether the player is in a hole."""
        return self.letter == "H"

    @property
    def left(self) -> int:
        """The number of steps left."""
        return self.limit - self.steps

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.letter in "GH" or self.left <= 0


def shortest_path(state: LakeState) -> tuple[str, ...]:
    """Return the actions of a shortest path to a goal on firm ice; empty if there is none."""
    lake, cell, path = state.lake, state.position, []
    if lake.distances[cell] == inf:
        return ()
    while lake.distances[cell] > 0:
        action = min(range(len(ACTIONS)), key=lambda a: lake.distances[lake.moves[cell][a]])
        path.append(ACTIONS[action])
        cell = lake.moves[cell][action]
    return tuple(path)


def render_lake(state: LakeState, *, colour: bool = False) -> str:
    """Return the map with the player in brackets, and the steps left; with ANSI colours if asked.

    Example:
        >>> state = LakeState(map=("SF", "HG"), position=1, steps=1, limit=4, slippery=False)
        >>> print(render_lake(state))
         S [F]
         H  G
        at r0c1, 3 of 4 steps left
    """
    lake = state.lake
    cells = [f" {letter} " for letter in lake.letters]
    cells[state.position] = f"[{lake.letters[state.position]}]"
    if colour:
        codes = [COLOURS[letter] for letter in lake.letters]
        codes[state.position] = PLAYER
        cells = [f"\x1b[{code}m{cell}\x1b[0m" for code, cell in zip(codes, cells, strict=True)]
    lines = [cells[i : i + lake.columns] for i in range(0, len(cells), lake.columns)]
    grid = "\n".join("".join(line).rstrip() for line in lines)
    return f"{grid}\nat {lake.name(state.position)}, {_left(state)}"


def _left(state: LakeState) -> str:
    if state.at_goal:
        return "the goal"
    if state.in_hole:
        return "fallen into a hole"
    ice = ", slippery ice" if state.slippery else ""
    return f"{state.left} of {state.limit} steps left{ice}"
