"""The rules of an ant colony: what a turn of an ant and the end of a tick change.

Provides `play`. The verbs with their preconditions and effects are the methods of `_Turn`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from turnwise.envs.ant_colony.actions import Act, read_lines
from turnwise.envs.ant_colony.grid import COMPASS, OPEN, Grid, around, steps_to
from turnwise.envs.ant_colony.layouts import places_of_food
from turnwise.envs.ant_colony.notes import MOST_NOTES, noted_cell
from turnwise.envs.ant_colony.scents import REINFORCEABLE, SCENTS, faded, reinforced, signalled
from turnwise.envs.ant_colony.state import WHO, Ant, Colony, Laid, Trip, World

MOST_STACKS = 8
"""New stacks appear while there are fewer than this."""
EXPLORED = 25
"""The most first visits of cells that are rewarded for each ant."""
TRAILS_PAID = 4
"""The most deliveries for which an ant's trails are rewarded."""
ALONG = 3
"""The moves on another ant's trail from which a trip is one along it."""
WRONG = 0.1
"""What a note costs that names no food, or food for which the ant was rewarded before. Its deletion
returns it. Wrong notes are far more frequent than right ones, so a larger cost teaches to write
none."""
ALARM = SCENTS.index("ALARM")
INVALID = "invalid"


class Played(NamedTuple):
    """A state after a turn, the rewards of the ant, and those of other ants by number."""

    colony: Colony
    rewards: dict[str, float]
    others: dict[int, dict[str, float]]


def play(colony: Colony, number: int, text: str, noise: np.random.Generator) -> Played:
    """Return what follows from the lines of an ant's turn; `noise` draws what a tick's end needs.

    The ant is the one that acts next.
    """
    turn = _Turn(colony, number, colony.ants[number])
    read = read_lines(text)
    for act in read.acts:
        turn.take(act)
    turn.reward_memory()
    turn.invalid += read.more
    after = turn.after(len(read.acts) + read.more)
    if after.place == len(after.order):
        after = _ticked(after, noise)
    rewards = turn.rewards
    rewards["time"] = 1.0
    if turn.invalid:
        rewards["invalid_action"] = float(turn.invalid)
    elif read.acts:
        rewards["valid_action"] = 1.0
    others = turn.others
    if after.complete:
        left = 1.0 - after.tick / after.world.ticks
        rewards["time_left"] = left
    return Played(after, rewards, others)


@dataclass(slots=True)
class _Turn:
    """The turn of an ant, in which its lines take effect one after the other."""

    colony: Colony
    number: int
    ant: Ant
    slots: set[str] = field(default_factory=set)
    results: list[str] = field(default_factory=list)
    noted: str = ""
    deleted: str = ""
    invalid: int = 0
    rewards: dict[str, float] = field(default_factory=dict)
    others: dict[int, dict[str, float]] = field(default_factory=dict)

    def take(self, act: Act | None) -> None:
        """Do what a line says, if it is an action that is possible."""
        result = None
        if act is not None and act.slot not in self.slots:
            self.slots.add(act.slot)
            result = _VERBS[act.verb](self, act.argument)
        if result is None:
            self.invalid += 1
        self.results.append(result or INVALID)

    def move(self, direction: str) -> str | None:
        """Go a step; walls are bumped into."""
        ant, grid = self.ant, self.colony.world.grid
        cell = ant.cell + grid.steps()[COMPASS.index(direction)]
        if grid.cells[cell] != OPEN:
            return f"bumped {direction}"
        nearer = _progress(self.colony, ant, cell)
        if nearer:
            self.rewards["progress"] = float(nearer)
        visited, bit = ant.visited, 1 << cell
        if not visited & bit and visited.bit_count() <= EXPLORED:
            self.rewards["exploration"] = 1.0
        met = _trail(self.colony, cell)
        trip, on_trail, number = ant.trip, 0, self.number
        if met is not None:
            who, when = met
            on_trail = 1
            if who != number or when < trip.began:
                trip = trip._replace(met=trip.met | 1 << who, shared=trip.shared + (who != number))
        self.ant = ant._replace(
            cell=cell,
            visited=visited | bit,
            seen=ant.seen | seen_from(grid, cell, self.colony.world.far),
            moves=ant.moves + 1,
            trail_moves=ant.trail_moves + on_trail,
            trip=trip,
        )
        self._meet_empty_stack(cell)
        return f"moved {direction}"

    def _meet_empty_stack(self, cell: int) -> None:
        """Count a trip to a stack that another ant has emptied, once for each ant."""
        colony = self.colony
        knows, bit = colony.emptied.get(cell), 1 << self.number
        if knows is None or knows & bit or self.ant.carrying or cell in colony.food:
            return
        self.colony = colony._replace(
            emptied={**colony.emptied, cell: knows | bit},
            duplicates=colony.duplicates + 1,
        )

    def pick_up(self, _: str) -> str | None:
        """Take a unit of the food here."""
        colony, cell = self.colony, self.ant.cell
        units = colony.food.get(cell, 0)
        if self.ant.carrying or not units:
            return None
        food = {**colony.food, cell: units - 1}
        emptied = colony.emptied
        if units == 1:
            del food[cell]
            emptied = {**emptied, cell: emptied.get(cell, 0) | 1 << self.number}
        self.colony = colony._replace(food=food, emptied=emptied)
        self.ant = self.ant._replace(carrying=True)
        self.rewards["pick_up"] = 1.0
        return "took"

    def drop(self, _: str) -> str | None:
        """Leave the unit here, which takes back the reward of picking it up."""
        colony, cell = self.colony, self.ant.cell
        if not self.ant.carrying or cell == colony.world.nest:
            return None
        self.colony = colony._replace(food={**colony.food, cell: colony.food.get(cell, 0) + 1})
        self.ant = self.ant._replace(carrying=False)
        self.rewards["pick_up"] = -1.0
        return "dropped"

    def deposit(self, _: str) -> str | None:
        """Deliver the unit to the nest; trails that the trip has met are rewarded."""
        colony, ant = self.colony, self.ant
        if not ant.carrying or ant.cell != colony.world.nest:
            return None
        self.rewards["delivery"] = 1.0
        self.others = {
            other: {"shared_delivery": 1.0}
            for other in range(len(colony.ants))
            if other != self.number
        }
        trip = ant.trip
        self.ant = ant._replace(carrying=False, trip=Trip(began=colony.tick))
        ants = list(colony.ants)
        for other in range(len(ants)):
            layer = self.ant if other == self.number else ants[other]
            if trip.met >> other & 1 and layer.paid < TRAILS_PAID:
                self._reward_trail(other)
                paid = layer._replace(paid=layer.paid + 1)
                if other == self.number:
                    self.ant = paid
                else:
                    ants[other] = paid
        self.colony = colony._replace(
            ants=tuple(ants),
            delivered=colony.delivered + 1,
            along=colony.along + (trip.shared >= ALONG),
        )
        return "delivered"

    def _reward_trail(self, other: int) -> None:
        if other == self.number:
            self.rewards["pheromone"] = 1.0
        else:
            self.others[other]["pheromone"] = 1.0

    def signal(self, scent: str) -> str | None:
        """Lay a scent here."""
        which = SCENTS.index(scent)
        fields = signalled(self.colony.fields, which, self.ant.cell)
        self.colony = self.colony._replace(fields=fields, laid=self._laid(which))
        return "signalled"

    def reinforce(self, scent: str) -> str | None:
        """Make a scent that is here stronger."""
        which = SCENTS.index(scent)
        fields = reinforced(self.colony.fields, which, self.ant.cell)
        if fields is None:
            return None
        self.colony = self.colony._replace(fields=fields, laid=self._laid(which))
        return "reinforced"

    def _laid(self, scent: int) -> Laid:
        """Return who laid which scent last, with this ant here; ALARM is no trail."""
        if scent == ALARM:
            return self.colony.laid
        laid = self.colony.laid.copy()
        laid[self.ant.cell] = self.colony.tick * WHO + self.number + 1
        laid.setflags(write=False)
        return laid

    def remember(self, note: str) -> str | None:
        """Append a note."""
        if len(self.ant.notes) >= MOST_NOTES:
            return None
        self.ant = self.ant._replace(notes=(*self.ant.notes, note))
        self.noted = note
        return "noted"

    def forget(self, number: str) -> str | None:
        """Delete a note."""
        notes, place = self.ant.notes, int(number) - 1
        if place >= len(notes):
            return None
        self.ant = self.ant._replace(notes=(*notes[:place], *notes[place + 1 :]))
        self.deleted = notes[place]
        return "forgot"

    def reward_memory(self) -> None:
        """Reward the line of memory by the food that is there when all lines have taken effect.

        A cell with food counts once for each ant. Every other note costs what its deletion returns,
        so that no sequence of lines, and none of picking up and dropping, gains without end.
        """
        note = self.noted or self.deleted
        if not note:
            return
        cell = noted_cell(self.colony.world.grid, note)
        right, bit = cell in self.colony.food, 0 if cell is None else 1 << cell
        if self.deleted:
            self.rewards["note"] = -1.0 if right else WRONG
        elif right and not self.ant.credited & bit:
            self.rewards["note"] = 1.0
            self.ant = self.ant._replace(credited=self.ant.credited | bit)
        else:
            self.rewards["note"] = -WRONG

    def after(self, lines: int) -> Colony:
        """Return the state after the turn, before the end of the tick."""
        ant = self.ant._replace(
            last=tuple(self.results),
            lines=self.ant.lines + lines,
            invalid=self.ant.invalid + self.invalid,
        )
        ants = self.colony.ants
        return self.colony._replace(
            ants=(*ants[: self.number], ant, *ants[self.number + 1 :]),
            place=self.colony.place + 1,
        )


_VERBS = {
    "MOVE": _Turn.move,
    "PICK_UP": _Turn.pick_up,
    "DROP": _Turn.drop,
    "DEPOSIT": _Turn.deposit,
    "SIGNAL": _Turn.signal,
    "REINFORCE": _Turn.reinforce,
    "REMEMBER": _Turn.remember,
    "FORGET": _Turn.forget,
}


def _progress(colony: Colony, ant: Ant, cell: int) -> int:
    """Return how many steps nearer to its goal an ant comes by going to `cell`.

    The goal is the nest for an ant with food, else the nearest food; without any it is 0. Other
    ants may move the goal by picking up and dropping food between its turns.
    """
    grid, here = colony.world.grid, ant.cell
    if ant.carrying:
        steps = steps_to(grid, colony.world.nest)
        return steps[here] - steps[cell]
    ways = [steps_to(grid, goal) for goal in colony.food]
    if not ways:
        return 0
    return min([each[here] for each in ways]) - min([each[cell] for each in ways])


def _trail(colony: Colony, cell: int) -> tuple[int, int] | None:
    """Return who laid the trail in a cell and when; None where there is none that smells."""
    mark = int(colony.laid[cell])
    if not mark or max(colony.fields[0, cell], colony.fields[1, cell]) < REINFORCEABLE:
        return None
    when, who = divmod(mark - 1, WHO)
    return who, when


@lru_cache(maxsize=1 << 15)
def seen_from(grid: Grid, cell: int, far: bool) -> int:
    """Return the cells that are seen from `cell`, as a bit mask."""
    return sum(1 << seen for seen in around(grid, cell, far))


def _ticked(colony: Colony, noise: np.random.Generator) -> Colony:
    """Return the state at the begin of the next tick: scents fade, food may appear."""
    world, tick = colony.world, colony.tick + 1
    many = len(colony.ants)
    order = tuple(noise.permutation(many).tolist()) if many > 1 else colony.order
    fields = faded(world.grid, colony.fields) if colony.fields.any() else colony.fields
    food, appeared = colony.food, colony.appeared
    if world.respawn and tick % world.respawn == 0 and len(food) < MOST_STACKS:
        cell = _place_of_food(world, food, noise)
        if cell is not None:
            food, appeared = {**food, cell: world.units}, appeared + world.units
    return colony._replace(
        tick=tick, place=0, order=order, fields=fields, food=food, appeared=appeared
    )


def _place_of_food(world: World, food: Mapping[int, int], noise: np.random.Generator) -> int | None:
    free = [cell for cell in places_of_food(world.grid, world.nest) if cell not in food]
    return free[noise.integers(len(free))] if free else None
