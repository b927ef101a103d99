"""Players of the ant colony without a model: they see, smell and note what an ant does.

Provides `PLAYERS`: name -> player.

- `random-possible` takes a uniform action of the body that is possible, and sometimes a line of
  scent or memory that is.
- `random-walk` takes food, delivers it, and else walks in a random direction.
- `heuristic` carries food to the nest along cells that it has seen, goes to the nearest food that
  it sees or has noted, and else to the nearest cell next to unseen ones. It notes food and deletes
  the note where it finds none. It neither lays scents nor smells any.
- `scent-user` does the same, and signals. It lays FOOD on its way home from a stack that has more,
  and follows such trails away from the nest. It lays HOME where it explores, and explores first
  where there is none of it.
- `oracle` knows the whole map: each ant goes to the unit that is nearest to it and is not another
  ant's, on shortest paths.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from turnwise.envs.ant_colony.grid import COMPASS, OPEN, around, distances
from turnwise.envs.ant_colony.notes import MOST_NOTES, noted_cell
from turnwise.envs.ant_colony.oracle import oracle
from turnwise.envs.ant_colony.scents import REINFORCEABLE, SCENTS
from turnwise.envs.ant_colony.state import Colony
from turnwise.envs.ant_colony.view import food_seen, smelled
from turnwise.envs.base import Baseline

LOST, HELD = re.compile(r"lost (\d{1,4})", re.ASCII), 25
"""The note of an ant that has followed a trail to no food, with the tick, and the ticks for which
it then follows no other, unless it comes to the nest."""
FOLLOWED = 0.5
"""The least level of FOOD that is followed."""
MARKED, DETOUR = 0.5, 3
"""The least level of HOME that marks explored cells, and the steps that are walked to avoid it."""


MOVES = tuple(f"MOVE {way}" for way in COMPASS)
ASIDE = 0.1
"""The share of random turns with a line of scent, and of those with a line of memory."""


def acting(colony: Colony) -> int:
    """Return the number of the ant that acts next."""
    return colony.order[min(colony.place, len(colony.order) - 1)]


def random_possible(state: Colony, rng: np.random.Generator) -> str:
    """Return a uniform possible action of the body, and sometimes possible lines besides."""
    ant, here = state.ants[acting(state)], [*MOVES]
    at_nest = ant.cell == state.world.nest
    if ant.carrying:
        here.append("DEPOSIT" if at_nest else "DROP")
    elif ant.cell in state.food:
        here.append("PICK_UP")
    lines = [str(rng.choice(here))]
    if rng.random() < ASIDE:  # before a step, which leads to other scents
        number = int(rng.integers(len(SCENTS)))
        strong = bool(state.fields[number, ant.cell] >= REINFORCEABLE)
        verb = ("SIGNAL", "REINFORCE")[int(rng.integers(1 + strong))]
        lines.insert(0, f"{verb} {SCENTS[number]}")
    if rng.random() < ASIDE:
        x, y = state.world.grid.at(ant.cell)
        known = len(ant.notes)
        choices = [f'REMEMBER "at x{x} y{y}"'] if known < MOST_NOTES else []
        choices += [f"FORGET {rng.integers(known) + 1}"] if known else []
        lines.append(str(rng.choice(choices)))
    return "\n".join(lines)


def random_walk(state: Colony, rng: np.random.Generator) -> str:
    """Take food, deliver it, and else walk in a random direction."""
    ant = state.ants[acting(state)]
    if ant.carrying and ant.cell == state.world.nest:
        return "DEPOSIT"
    if not ant.carrying and ant.cell in state.food:
        return "PICK_UP"
    return f"MOVE {COMPASS[rng.integers(4)]}"


def heuristic(state: Colony, rng: np.random.Generator, *, scents: bool) -> str:
    """Return the lines of the heuristic, with or without scents."""
    return _Mind(state, acting(state), rng, scents).lines()


@dataclass
class _Mind:
    """The choice of an ant in one turn."""

    colony: Colony
    number: int
    rng: np.random.Generator
    scents: bool

    def __post_init__(self) -> None:
        colony = self.colony
        self.ant, self.world = colony.ants[self.number], colony.world
        self.grid, self.cell = self.world.grid, self.ant.cell
        self.food = food_seen(colony, self.number)
        self.noted = {
            cell: place
            for place, note in enumerate(self.ant.notes, start=1)
            if (cell := noted_cell(self.grid, note)) is not None
        }
        self.lost = next(
            (
                (place, int(found[1]))
                for place, note in enumerate(self.ant.notes, start=1)
                if (found := LOST.fullmatch(note))
            ),
            None,
        )
        self.smell = smelled(colony, self.number, "shown" if self.scents else "hidden")
        self.seen = f"{self.ant.seen:0{len(self.grid.cells)}b}"[::-1]
        self.turns = [int(step) for step in self.rng.permutation(4)]

    def lines(self) -> str:
        """Return the lines of the turn: of the body, of scent, of memory."""
        found = [self.body(), self.scent() if self.scents else "", self.memory()]
        return "\n".join(line for line in found if line)

    def body(self) -> str:
        """Return what the body does."""
        if self.ant.carrying:
            if self.cell == self.world.nest:
                return "DEPOSIT"
            return self._to(lambda cell: cell == self.world.nest)
        if self.cell in self.food:
            return "PICK_UP"
        known = {*self.food, *(cell for cell in self.noted if cell not in self._empty)}
        if known:
            return self._to(lambda cell: cell in known)
        return (self._along_trail() if self.scents else "") or self._explore()

    @property
    def _empty(self) -> list[int]:
        """The noted cells in which the ant sees no food."""
        seen = around(self.grid, self.cell, self.world.far)
        return [cell for cell in self.noted if cell in seen and cell not in self.food]

    def memory(self) -> str:
        """Return a line that deletes a wrong note, or that notes food."""
        if self.lost is not None:
            place, tick = self.lost
            if self.cell == self.world.nest or self.colony.tick - tick > HELD:
                return f"FORGET {place}"
        if self._empty:
            return f"FORGET {self.noted[self._empty[0]]}"
        if len(self.ant.notes) == MOST_NOTES:
            return ""
        if self.scents and self._at_end_of_trail():
            return f'REMEMBER "lost {self.colony.tick}"'
        for cell in self.food:
            if cell not in self.noted:
                x, y = self.grid.at(cell)
                return f'REMEMBER "food x{x} y{y}"'
        return ""

    def scent(self) -> str:
        """Return a line that lays FOOD on the way home from a stack, or HOME where it explores."""
        if self.ant.carrying:
            more = set(self.noted) - set(self._empty)
            return "SIGNAL FOOD" if more and self.cell != self.world.nest else ""
        return "SIGNAL HOME" if not self.food and self.smell[1][0] < MARKED else ""

    def _at_end_of_trail(self) -> bool:
        here = self.smell[0][0] >= FOLLOWED and self.lost is None
        lost = here and not self.ant.carrying and not self.food and self.cell != self.world.nest
        return lost and not self._along_trail()

    def _along_trail(self) -> str:
        """Return the step along a trail of food, away from the nest; "" where there is none."""
        if self.lost is not None or max(self.smell[0][1:]) < FOLLOWED:
            return ""
        known = distances(self.grid, self.world.nest, _Known(self.seen))
        best, level = "", FOLLOWED
        for turn in self.turns:
            there = self.cell + self.grid.steps()[turn]
            smell = self.smell[0][turn + 1]
            if smell >= level and known.get(there, 0) > known.get(self.cell, 0):
                best, level = f"MOVE {COMPASS[turn]}", smell
        return best

    def _explore(self) -> str:
        """Return the step to the nearest cell next to unseen ones, past what smells of HOME."""
        marked = [turn for turn in range(4) if self.smell[1][turn + 1] >= MARKED]
        if not marked:
            return self._to(self._is_frontier)
        ways = [(self._steps_to_frontier(turn) + DETOUR * (turn in marked), turn)
                for turn in self.turns]  # fmt: skip
        steps, turn = min(ways, key=lambda way: way[0])
        return f"MOVE {COMPASS[turn]}" if steps < len(self.seen) else self._anywhere()

    def _is_frontier(self, cell: int) -> bool:
        return any(self.seen[cell + step] == "0" for step in self.grid.steps())

    def _steps_to_frontier(self, turn: int) -> int:
        """Return the steps to a frontier that begin with `turn`; many where there is none."""
        start = self.cell + self.grid.steps()[turn]
        if self.grid.cells[start] != OPEN:
            return 2 * len(self.seen)
        found = self._search(start, self._is_frontier, {self.cell})
        return 2 * len(self.seen) if found is None else found[1]

    def _to(self, wanted: Callable[[int], bool]) -> str:
        """Return the first step to the nearest wanted cell, on cells that were seen."""
        found = self._search(self.cell, wanted, set())
        if found is None or found[0] is None:
            return self._anywhere()
        return f"MOVE {COMPASS[found[0]]}"

    def _search(
        self, start: int, wanted: Callable[[int], bool], closed: set[int]
    ) -> tuple[int | None, int] | None:
        """Return the first step to the nearest wanted cell, and the number of steps."""
        steps, cells, seen = self.grid.steps(), self.grid.cells, self.seen
        waiting = deque[tuple[int, int | None, int]]([(start, None, 0)])
        reached = {start, *closed}
        while waiting:
            cell, first, far = waiting.popleft()
            if wanted(cell):
                return first, far
            for turn in self.turns:
                near = cell + steps[turn]
                if near not in reached and cells[near] == OPEN and seen[near] == "1":
                    reached.add(near)
                    waiting.append((near, turn if first is None else first, far + 1))
        return None

    def _anywhere(self) -> str:
        """Return a step to a random open cell."""
        steps = self.grid.steps()
        free = [turn for turn in self.turns if self.grid.cells[self.cell + steps[turn]] == OPEN]
        return f"MOVE {COMPASS[free[0]]}" if free else ""


class _Known:
    """The cells that were seen, as a container."""

    def __init__(self, seen: str) -> None:
        self._seen = seen

    def __contains__(self, cell: object) -> bool:
        return isinstance(cell, int) and self._seen[cell] == "1"


PLAYERS: Mapping[str, Baseline] = {
    "random-possible": random_possible,
    "random-walk": random_walk,
    "heuristic": partial(heuristic, scents=False),
    "scent-user": partial(heuristic, scents=True),
    "oracle": oracle,
}
