"""Frozen lake: cross a grid of ice to the goal without falling into a hole.

Task: a map of S (start), F (ice), H (hole) and G (goal), random or given. Dynamics are gymnasium's
    FrozenLake-v1, slips included (`is_slippery`: the intended direction or one of the two beside
    it, a third each); a move off the edge stays where it is.
What each role sees: the only role, `player`, reads every cell by name (`r0c0` is upper left) and
    its own; with `sight`, the cells around it. It sees neither steps left nor kind of ice.
Actions: LEFT, DOWN, RIGHT, UP.
Rewards: `goal` (agent), 1 on reaching the goal; `fall` (agent), 1 on falling, so that recipes give
    it a negative weight; `progress` (process), the decrease of the shortest path to the goal in
    steps, 0 on falling; `expert` (process), the action's optimal value (discount 0.99, no step
    limit), or its value in a file of expert values, min-max normalised over the four actions; 1 for
    each if all four are equal.
End: terminated on the goal or in a hole; truncated at the step limit: `step_limit` times the
    shortest path from the start, or `steps`. The score is 1 on the goal, else 0.
Measures: `steps`, those taken; `falls`, 1 in a hole.
Baselines: random, always-left, -down, -right, -up, safe-walk, reflex, shortest-path, optimal.

Example:
    >>> env = FrozenLake(FrozenLakeConfig(map=("SF", "HG")))
    >>> task = Task(id="t", env=env.name, seed=0, data=env.generate(np.random.default_rng(0)))
    >>> state = env.reset(task)
    >>> print(env.observe(state, "player").text)
    lake
     r0c0 start r0c1 ice
     r1c0 hole r1c1 goal
     you r0c0
    >>> env.observe(state, "player").description
    'LEFT edge DOWN r1c0 hole RIGHT r0c1 ice UP edge'
    >>> step = env.step(state, "player", "RIGHT", np.random.default_rng(0))
    >>> dict(step.rewards)
    {'goal': 0.0, 'fall': 0.0, 'progress': 1.0, 'expert': 1.0}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, isfinite
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from turnwise.envs.base import ActionProbabilities, Baseline, Env, Exact, Level, Observation, Step
from turnwise.envs.frozen_lake.baselines import lake_baselines
from turnwise.envs.frozen_lake.data import task_of_row
from turnwise.envs.frozen_lake.exact import free_cells, measures
from turnwise.envs.frozen_lake.maps import (
    ACTIONS,
    CONTENTS,
    LARGEST,
    MOST_DRAWS,
    MapRows,
    any_start,
    draw_rows,
    lake_of,
    layout,
    mirror,
    move_start,
    trap_cells,
)
from turnwise.envs.frozen_lake.solver import action_values, advantages, normalised, slide
from turnwise.envs.frozen_lake.state import LakeState, render_lake, shortest_path
from turnwise.envs.frozen_lake.views import observe_lake
from turnwise.envs.split import split_of
from turnwise.errors import ConfigError, DataError, EnvError, IllegalActionError
from turnwise.settings import Settings
from turnwise.types import Split, Task
from turnwise.utils.data_files import read_numbered


class FrozenLakeConfig(Settings):
    """The maps of the lakes, their dynamics and their starts."""

    size: int = Field(default=4, ge=4, le=LARGEST)
    """Rows and columns of random maps."""
    largest: int | None = Field(default=None, ge=4, le=LARGEST)
    """The largest size of random maps, drawn evenly from `size` on; None is `size` itself."""
    map: MapRows | None = None
    """One map for all tasks, as rows of S, F, H, G; None draws a map for every task. With a given
    map every split has the same task: no test is unseen, and task sources say `seen`."""
    slippery: bool = False
    """Whether steps slip to the sides, as in gymnasium's `is_slippery`."""
    sight: int | None = Field(default=None, ge=1, le=LARGEST)
    """The number of rows and columns that the player sees in each direction. Cells are then given
    by their offset, without names and description. None shows the whole map."""
    clock: bool = True
    """Whether state keys include the steps left, which no player sees. With false, all turns in
    one cell are compared, which suits lakes where the steps left hardly matter."""
    frozen_probability: float = Field(default=0.8, gt=0, le=1)
    """Probability of ice, against hole, in random maps; gymnasium's default."""
    step_limit: float = Field(default=2.0, ge=1)
    """Steps in an episode, as a multiple of the shortest path from the start, rounded."""
    steps: int | None = Field(default=None, ge=1)
    """Steps in an episode whatever the map, instead of `step_limit`; 1 makes every state a task."""
    start: Literal["corner", "random", "anywhere"] = "corner"
    """The start of an episode: on the S of the map; on the S, moved to a random cell with a path to
    the goal; or on any ice cell, with the S unchanged, so that states are those of play. Scores are
    comparable for starts on the S of the map."""
    traps: float = Field(default=0.0, ge=0, le=1)
    """The share of random starts before or in a dead end, where a safe step towards the goal may be
    wrong. Few cells are of this kind, and most of what can be learned is learned there."""
    corners: float = Field(default=0.0, ge=0, le=1)
    """The share of random starts on the S of the map, where all episodes start when scores are
    taken. An episode that starts elsewhere rarely visits the S."""
    data: str | None = None
    """A .csv or .jsonl file of states with an expert's values (`turnwise data frozen-lake-q`). Each
    row is a task of one step, and replaces the random draws."""
    mirrored: bool = False
    """Whether maps are mirrored at random, so that the goal may be in any corner. On such maps no
    action is better than another before the map is read."""
    solvable: bool = True
    """False generates maps for warm-up, which show every kind of observation: a path to the goal is
    not required, and the S and the player are on two independent random cells."""

    @model_validator(mode="after")
    def _check(self) -> FrozenLakeConfig:
        given = self.model_fields_set
        if self.map is not None:
            lake = lake_of(self.map)
            idle = sorted(given & {"size", "largest", "frozen_probability"})
            if idle:
                raise ValueError(f"{idle[0]} is for random maps and a map is given: leave one out")
            if self.solvable and lake.distances[lake.start] == inf:
                raise ValueError(f"map {list(self.map)} has no way from S to G: melt a hole")
        if self.data is not None and "start" in given:
            raise ValueError("data says where play begins: leave start out (start = none)")
        if self.steps is not None and "step_limit" in given:
            raise ValueError("steps and step_limit both limit an episode: leave one out")
        if self.largest is not None and self.largest < self.size:
            raise ValueError(f"largest = {self.largest} is below size = {self.size}: raise it")
        self._check_shares()
        if not self.solvable and "start" in given and self.start != "random":
            raise ValueError(
                f'start = "{self.start}" has no effect with solvable = false, where starts are '
                "random: leave start out"
            )
        return self

    def _check_shares(self) -> None:
        shares = f"traps = {self.traps} and corners = {self.corners}"
        random = self.start == "random" and self.solvable
        if (self.traps or self.corners) and not random:
            raise ValueError(
                f"{shares} are shares of random starts on solvable maps: set start = 'random', or "
                "leave them out"
            )
        if self.traps and self.map is not None:
            raise ValueError(f"traps = {self.traps} is for random maps: leave it or the map out")
        if self.traps + self.corners > 1:
            raise ValueError(f"{shares} are shares of one whole: lower one of them")


class FrozenLake(Env[LakeState]):
    """The env described in the docstring of this module."""

    name: ClassVar[str] = "frozen-lake"
    config_class: ClassVar[type[Settings]] = FrozenLakeConfig
    files: ClassVar[tuple[str, ...]] = ("data",)
    components: ClassVar[Mapping[str, Level]] = {
        "goal": "agent",
        "fall": "agent",
        "progress": "process",
        "expert": "process",
    }

    def __init__(self, config: FrozenLakeConfig | None = None) -> None:
        self.config = config or FrozenLakeConfig()
        self.max_turns = self.config.steps or round(self.config.step_limit * LARGEST**2)

    @property
    def single_task(self) -> bool:
        """Whether one map was given for all tasks."""
        return self.config.map is not None

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw the data of a task: `map`, `slippery`, `limit`; `position` if it is not the S.

        Raises:
            ConfigError: if the options rarely give a solvable map.
        """
        config = self.config
        start = self._kind_of_start(rng)
        rows = config.map or self._draw(rng, trapped=start == "trap")
        if config.mirrored:
            down, right = rng.random(2) < 0.5
            rows = mirror(rows, upside_down=bool(down), left_right=bool(right))
        if start == "trap":
            cells = trap_cells(rows)
            rows = move_start(rows, cells[rng.integers(len(cells))])
        elif start == "random":
            rows = move_start(rows, any_start(rows, rng, reachable=config.solvable))
        cell = lake_of(rows).start
        place = {}
        if not config.solvable or config.start == "anywhere":
            cell = any_start(rows, rng, reachable=False)
            place = {"position": cell}
        limit = config.steps or self._limit(rows, cell)
        return {"map": list(rows), "slippery": config.slippery, "limit": limit, **place}

    def _limit(self, rows: MapRows, cell: int) -> int:
        """Return `step_limit` times the path length from `cell` to the goal, or across the map."""
        distance = lake_of(rows).distances[cell]
        steps = distance if isfinite(distance) else len(rows) + len(rows[0]) - 2
        return max(1, round(self.config.step_limit * steps))

    def _kind_of_start(self, rng: np.random.Generator) -> Literal["corner", "trap", "random"]:
        config = self.config
        if config.start != "random" and config.solvable:
            return "corner"
        place = rng.random() if config.traps or config.corners else 1.0
        if place < config.traps:
            return "trap"
        return "corner" if place < config.traps + config.corners else "random"

    def _draw(self, rng: np.random.Generator, *, trapped: bool) -> MapRows:
        """Return a random map; one with traps if `trapped`."""
        config = self.config
        size, largest = config.size, config.largest or config.size
        if largest > size:
            size = int(rng.integers(size, largest + 1))
        for _ in range(MOST_DRAWS):
            rows = draw_rows(rng, size, config.frozen_probability, solvable=config.solvable)
            if not trapped or trap_cells(rows):
                return rows
        raise ConfigError(
            f"no {size}x{size} map with a dead end in {MOST_DRAWS} draws with frozen_probability = "
            f"{config.frozen_probability}: lower it, or set traps = 0"
        )

    def tasks(self, split: Split) -> list[dict[str, Any]] | None:
        """Return the tasks of `data` in the split, or all of them if one map is given for all.

        Raises:
            DataError: if the file is malformed or empty, or a row is no state of a lake.
        """
        if self.config.data is None:
            return None
        found = []
        if not (rows := read_numbered(self.config.data)):
            raise DataError(f"'{self.config.data}' has no rows: add states of lakes")
        for line, row in rows:
            try:
                task = task_of_row(row, slippery=self.config.slippery)
            except DataError as error:
                raise DataError(f"'{self.config.data}' line {line}: {error}") from None
            if self.single_task or split_of(self.canonical(task)) == split:
                found.append(task)
        return found

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the layout of holes and goals, the same for mirror images and other starts."""
        return layout(data["map"])

    def reset(self, task: Task) -> LakeState:
        """Return the first state of `task`.

        Raises:
            DataError: if the task's data are not those of a lake.
        """
        data = task.data
        missing = [key for key in ("map", "slippery", "limit") if key not in data]
        if missing:
            raise DataError(f"task {task.id!r} has no {missing[0]}: expected map, slippery, limit")
        rows = tuple(data["map"])
        state = LakeState(
            map=rows,
            position=data.get("position", lake_of(rows).start),
            steps=0,
            limit=data["limit"],
            slippery=data["slippery"],
            values=tuple(data["values"]) if "values" in data else None,
        )
        inside = state.position in range(len(state.lake.letters))
        if not inside or state.ended:
            raise DataError(
                f"task {task.id!r} begins at its end (position {state.position}, limit "
                f"{state.limit}): start on ice with at least one step"
            )
        return state

    def observe(self, state: LakeState, role: str) -> Observation:
        """Return the lake in words (see `views.py`)."""
        return observe_lake(state, self.config.sight)

    def step(
        self, state: LakeState, role: str, action: str, noise: np.random.Generator
    ) -> Step[LakeState]:
        """Return the result of `action`; one uniform number is drawn, as in gymnasium.

        Raises:
            IllegalActionError: if `action` is not one of the four.
            EnvError: if the episode is over.
        """
        if action not in ACTIONS:
            raise IllegalActionError(f"{action!r} is none of {', '.join(ACTIONS)}")
        if state.ended:
            raise EnvError(f"{self.name}: the episode is over, so it takes no step: reset a task")
        intended, uniform = ACTIONS.index(action), noise.random()
        moved = slide(intended, uniform) if state.slippery else intended
        after = LakeState(
            map=state.map,
            position=state.lake.moves[state.position][moved],
            steps=state.steps + 1,
            limit=state.limit,
            slippery=state.slippery,
        )
        terminated = after.at_goal or after.in_hole
        return Step(
            state=after,
            rewards=_rewards(state, intended, after),
            terminated=terminated,
            truncated=not terminated and after.left <= 0,
            info={"slipped": moved != intended},
        )

    def score(self, state: LakeState) -> float:
        """Return 1 on the goal, else 0."""
        return float(state.at_goal)

    def measures(self, state: LakeState) -> dict[str, float]:
        """Return the steps taken, and whether the player fell."""
        return {"steps": float(state.steps), "falls": float(state.in_hole)}

    def state_key(self, state: LakeState, role: str) -> str:
        """Return map, kind of ice, cell and, unless `clock` is off, steps left."""
        ice = "slippery" if state.slippery else "firm"
        left = f"/{state.left}" if self.config.clock else ""
        return f"{state.lake.digest}/{ice}/{state.lake.name(state.position)}{left}"

    def baselines(self) -> Mapping[str, Baseline]:
        """Return the baselines of `baselines.py`."""
        return lake_baselines()

    def exact(self, task: Task) -> Exact[LakeState]:
        """Return a function that computes the exact measures of a policy on the task's map.

        The action may depend on the cell only, because the player does not see the steps left. The
        measures are those of `exact.measures`.
        """
        first = self.reset(task)
        lake, cells = first.lake, free_cells(first.map)
        names = {cell: lake.name(cell) for cell in cells}

        def measure(probabilities: ActionProbabilities) -> dict[str, float]:
            player = np.zeros((len(lake.letters), len(ACTIONS)))
            for cell, name in names.items():
                player[cell] = [probabilities[name].get(action, 0.0) for action in ACTIONS]
            return measures(first.map, first.slippery, first.limit, first.position, player)

        best = action_values(first.map, first.slippery).argmax(axis=1)
        players: dict[str, ActionProbabilities] = {
            "random": {name: dict.fromkeys(ACTIONS, 0.25) for name in names.values()}
        }
        for action in ACTIONS:
            players[f"always-{action.lower()}"] = {n: {action: 1.0} for n in names.values()}
        players["stationary"] = {name: {ACTIONS[best[c]]: 1.0} for c, name in names.items()}
        states = {name: replace(first, position=cell, steps=0) for cell, name in names.items()}
        return Exact(decisions=states, players=players, measure=measure)

    def vocabulary(self) -> tuple[str, ...]:
        """Return every word of observations, descriptions and answers, for lakes of any size."""
        cells = [f"r{row}c{column}" for row in range(LARGEST) for column in range(LARGEST)]
        directions = [action.lower() for action in ACTIONS]
        return ("lake", "you", "edge", *CONTENTS.values(), *directions, *ACTIONS, *cells)

    def render(self, state: LakeState) -> str:
        """Return the map with the player in brackets."""
        return render_lake(state)

    def shortest_path(self, state: LakeState) -> tuple[str, ...]:
        """Return the actions of a shortest path to the goal on firm ice; empty if there is none."""
        return shortest_path(state)


def _rewards(state: LakeState, action: int, after: LakeState) -> dict[str, float]:
    distances = state.lake.distances
    gained = distances[state.position] - distances[after.position]
    worth = advantages(state.map, state.slippery)[state.position]
    if state.values is not None:
        worth = normalised(np.array(state.values)).tolist()
    return {
        "goal": float(after.at_goal),
        "fall": float(after.in_hole),
        "progress": float(gained) if isfinite(gained) else 0.0,
        "expert": worth[action],
    }
