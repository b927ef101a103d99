"""The `ant-colony` env: ants find food on a grid, carry it to their nest, and signal by scents.

Task: a square map with walls, one nest and stacks of food. One to six ants begin in the nest. Each
    ant carries one unit of food at a time. `tier` chooses one of seven tiers, from 5x5 open cells
    to a maze of 30x30 in which food appears again (`tiers`).
What each role sees: the tick, its position, whether it carries food, the food in the nest, the
    results of its last turn, the cells up to two steps away, the scents in its cell and next to it,
    and its notes. The direction of the nest is seen from everywhere in tiers 0 to 3; from tier 4
    on walls hide what is behind them, and the nest is only seen nearby. Seats `ant-1`, `ant-2`, ...
    have the role `ant`; with `roles = "two"` the seats `scout-1`, `carrier-1`, ... have two.
Actions: up to three lines of text, which take effect in their order. A turn has one action of the
    body (`MOVE N`, `PICK_UP`, `DROP`, `DEPOSIT`), one of scent (`SIGNAL FOOD`, `REINFORCE HOME`)
    and one of memory (`REMEMBER "food x3 y1"`, `FORGET 1`). A line that is no action, that is not
    possible, or that is a second one of its kind has no effect and counts as invalid. Walking into
    a wall is valid. In each tick all ants act, in an order that is drawn.
Rewards: `delivery` (agent), 1 for a unit brought to the nest; `shared_delivery` (agent), 1 for each
    other ant then; `pick_up` (process), 1 for a unit picked up, -1 for one dropped; `exploration`
    (process), 1 for each of the first 25 cells that an ant visits after
    the one where it begins; `progress` (process), 1 for a
    step nearer to the nest with food, or to the nearest food without, seen or not, and -1 for one
    away; `valid_action` (process), 1 for a turn without an invalid line; `invalid_action`
    (process), the number of invalid lines; `note` (process), 1 for the first note of a cell that
    has food at the end of the turn, -0.1 for any other note, 0.1 for deleting a note of no food, -1
    for deleting one of food; `time` (process), 1 for every turn; `pheromone` (agent), 1 for each of
    the first 4 deliveries on whose way lay a trail of the ant; `time_left` (team), the share of
    ticks left when all food is home.
End: all food in the nest terminates the episode, the last tick truncates it. The score is the share
    of the food that is in the nest.
Baselines: random, random-possible, random-walk, heuristic, scent-user and its twin without scents,
    oracle (`players`).
Measures: `food` in the nest; `food_share`; `valid_actions`, the share of lines; `duplicate_trips`
    to a stack that another ant had emptied; `trail_reuse`, the share of moves on a trail;
    `deliveries_along` another ant's trail.

Example:
    >>> env = AntColony(AntColonyConfig(tier=0))
    >>> data = {"rows": ["..."] * 3, "nest": [0, 0], "food": [[2, 0, 1]], "tier": 0, "ants": 1,
    ...         "ticks": 9, "units": 1, "respawn": 0, "far": True, "order": [0]}
    >>> state = env.reset(Task(id="t", env="ant-colony", seed=0, data=data))
    >>> env.observe(state, "ant-1").description
    'empty food E 2 nest here wall N W'
    >>> rng = np.random.default_rng(0)
    >>> for action in ("MOVE E", "MOVE E", "PICK_UP", "MOVE W", "MOVE W", "DEPOSIT"):
    ...     step = env.step(state, "ant-1", action, rng)
    ...     state = step.state
    >>> step.rewards["delivery"], step.terminated, env.score(state)
    (1.0, True, 1.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from turnwise.envs.ant_colony.frame import frame_of
from turnwise.envs.ant_colony.layouts import draw_map
from turnwise.envs.ant_colony.maps import read_map
from turnwise.envs.ant_colony.players import ASIDE, MOVES, PLAYERS, acting
from turnwise.envs.ant_colony.rules import play
from turnwise.envs.ant_colony.scents import SCENTS, no_scents
from turnwise.envs.ant_colony.starts import ants_at, draw_start
from turnwise.envs.ant_colony.state import Colony, nobody
from turnwise.envs.ant_colony.symmetry import canonical_map
from turnwise.envs.ant_colony.tiers import TIERS, AntColonyConfig
from turnwise.envs.ant_colony.view import (
    description_of,
    picture_of,
    smelled,
    text_of,
    vocabulary,
)
from turnwise.envs.base import Baseline, Env, Level, Observation, Step
from turnwise.envs.frames import Frame
from turnwise.envs.whose_turn import check_turn
from turnwise.settings import Settings
from turnwise.types import Task

ANT, SCOUT, CARRIER = "ant", "scout", "carrier"
BODY = (*MOVES, "PICK_UP", "DROP", "DEPOSIT")


class AntColony(Env[Colony]):
    """Ants that bring food to their nest.

    Example:
        >>> list(AntColony(AntColonyConfig(tier=2)).seats.values())
        ['ant', 'ant']
        >>> list(AntColony(AntColonyConfig(tier=4, roles="two")).seats)
        ['scout-1', 'carrier-1', 'scout-2']
    """

    name: ClassVar[str] = "ant-colony"
    config_class: ClassVar[type[Settings]] = AntColonyConfig
    roles: tuple[str, ...] = (ANT,)
    components: ClassVar[Mapping[str, Level]] = {
        "delivery": "agent",
        "shared_delivery": "agent",
        "pick_up": "process",
        "exploration": "process",
        "progress": "process",
        "valid_action": "process",
        "invalid_action": "process",
        "note": "process",
        "time": "process",
        "pheromone": "agent",
        "time_left": "team",
    }
    config: AntColonyConfig

    def __init__(self, config: AntColonyConfig | None = None) -> None:
        super().__init__(config or AntColonyConfig())
        self._tiers = self.config.parameters
        most = max(tier.ants for tier in self._tiers.values())
        needed = 2 if self.config.roles == "two" else 1  # every role has a seat
        many = max(most, self.config.seats or 0, needed)
        if self.config.roles == "two":
            self.roles = (SCOUT, CARRIER)
            names = [f"{self.roles[number % 2]}-{number // 2 + 1}" for number in range(many)]
        else:
            names = [f"{ANT}-{number + 1}" for number in range(many)]
        self._seats = {name: name.partition("-")[0] for name in names}
        self._names = tuple(names)
        self._numbers = {name: number for number, name in enumerate(names)}
        # tasks of other tiers may be played
        playable = [tier for tier in TIERS.values() if tier.ants <= many]
        ticks = [tier.ticks for tier in (*self._tiers.values(), *playable)]
        # a reply that fails is a turn without a tick
        self.max_turns = 2 * many * (self.config.ticks or max(ticks))

    @property
    def seats(self) -> Mapping[str, str]:
        """The seats of the ants, each with its role."""
        return self._seats

    def acting(self, state: Colony) -> tuple[str, ...]:
        """Return the ant that acts next: in each tick all act, in an order that is drawn."""
        return (self._names[acting(state)],)

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a map of the tier, or of one of the tiers up to it."""
        number = self.config.tier
        if self.config.up_to:
            number = int(rng.integers(number + 1))
        tier = self._tiers[number]
        rows, nest, food = draw_map(tier, rng)
        data: dict[str, Any] = {
            "tier": number,
            "rows": rows,
            "nest": nest,
            "food": [[x, y, tier.units] for x, y in food],
            "ants": tier.ants,
            "ticks": tier.ticks,
            "units": tier.units,
            "respawn": tier.respawn,
            "far": tier.far,
            "order": rng.permutation(tier.ants).tolist(),
        }
        if self.config.start == "nest":
            return data
        return data | {"start": draw_start(data, rng, self.config.noted)}

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the map, equal for maps that rotations and reflections make equal."""
        return canonical_map(data)

    def reset(self, task: Task) -> Colony:
        """Return the first state of `task`, without scents.

        All ants are in the nest and have no notes, or as `start` says (`draw_start`).

        Raises:
            DataError: if the data are not those of a map, of an ant for each seat at most, and of
                a start that is possible on it (`maps.read_map`).
        """
        world, food, at, notes, order, units = read_map(task, len(self._names))
        return Colony(
            world=world,
            ants=ants_at(world, at, notes),
            food=food,
            fields=no_scents(world.grid),
            laid=nobody(world.grid),
            order=order,
            delivered=units - sum(food.values()) - sum(carries for *_, carries in at),
            appeared=units,
            emptied={},
        )

    def observe(self, state: Colony, role: str) -> Observation:
        """Return what an ant sees and smells around it, what it carries, and its notes.

        A seat without an ant sees the nest from afar: a task of another tier has fewer ants.
        """
        number, options = self._numbers[role], self.config
        if number >= len(state.ants):
            return Observation(text=f"tier {state.world.tier} no ant", legal_actions=())
        smell = smelled(state, number, options.scents)
        return Observation(
            text=text_of(state, number, smell, clock=options.clock),
            legal_actions=(),
            description=description_of(state, number, smell),
        )

    def state_key(self, state: Colony, role: str) -> str:
        """Return the text of the seat with the food that is left and the tick."""
        left = " ".join(f"{cell}:{units}" for cell, units in sorted(state.food.items()))
        return f"{self.observe(state, role).text}\nleft {left} tick {state.tick}"

    def step(
        self, state: Colony, role: str, action: str, noise: np.random.Generator
    ) -> Step[Colony]:
        """Return what follows from the lines of an ant; any text is an action.

        Raises:
            EnvError: if the episode is over, or it is not this ant's turn.
        """
        check_turn(self, state, role, ended=state.ended)
        after, rewards, others = play(state, self._numbers[role], action, noise)
        return Step(
            state=after,
            rewards=rewards,
            terminated=after.complete,
            truncated=after.ended and not after.complete,
            others={self._names[number]: paid for number, paid in others.items()},
        )

    def score(self, state: Colony) -> float:
        """Return the share of the food that is in the nest."""
        return state.delivered / max(1, state.appeared)

    def measures(self, state: Colony) -> dict[str, float]:
        """Return the measures of the module docstring."""
        ants, delivered = state.ants, state.delivered
        lines, moves = sum(ant.lines for ant in ants), sum(ant.moves for ant in ants)
        return {
            "food": float(delivered),
            "food_share": self.score(state),
            "valid_actions": 1.0 - sum(ant.invalid for ant in ants) / max(1, lines),
            "duplicate_trips": float(state.duplicates),
            "trail_reuse": sum(ant.trail_moves for ant in ants) / max(1, moves),
            "deliveries_along": float(state.along),
        }

    def random_action(self, state: Colony, role: str, rng: np.random.Generator) -> str:
        """Return a uniform action of the body, and sometimes a line of scent or of memory."""
        lines = [str(rng.choice(BODY))]
        if rng.random() < ASIDE:
            verb = ("SIGNAL", "REINFORCE")[rng.integers(2)]
            lines.append(f"{verb} {SCENTS[rng.integers(len(SCENTS))]}")
        if rng.random() < ASIDE:
            x, y = state.world.grid.at(state.ants[self._numbers[role]].cell)
            note = f'REMEMBER "at x{x} y{y}"'
            lines.append((note, "FORGET 1")[rng.integers(2)])
        return "\n".join(lines)

    def baselines(self) -> Mapping[str, Baseline]:
        """Return the baselines of the module docstring."""
        return {**super().baselines(), **PLAYERS}

    def vocabulary(self) -> tuple[str, ...]:
        """Return the words of observations and actions."""
        return vocabulary()

    def frame(self, state: Colony) -> Frame | None:
        """Return the map with its scents as colours, once in a tick."""
        return frame_of(state)

    def render(self, state: Colony) -> str:
        """Return the map for people."""
        return picture_of(state)
