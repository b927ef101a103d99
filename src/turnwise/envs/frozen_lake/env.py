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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, ClassVar, Literal

import numpy as np

from turnwise.envs.base import (
    ActionProbabilities,
    Baseline,
    Env,
    Exact,
    Level,
    Observation,
    Relabelled,
    Step,
)
from turnwise.envs.frozen_lake.baselines import lake_baselines
from turnwise.envs.frozen_lake.config import FrozenLakeConfig
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

    def relabel(self, task: Task, actions: Sequence[str]) -> Relabelled | None:
        """Return the lake whose goal is the last ice that was reached, on firm ice.

        The actions are those up to the first arrival there.
        """
        state, cells = self.reset(task), list[int]()
        if state.slippery:
            return None
        start = state.position
        for action in actions:
            state = self.step(state, "player", action, np.random.default_rng(0)).state
            if state.in_hole:
                break
            cells.append(state.position)
        if not cells or cells[-1] == start or state.lake.letters[cells[-1]] == "S":
            return None
        goal, lake = cells[-1], lake_of(tuple(task.data["map"]))
        letters = lake.letters.replace("G", "F")
        letters = f"{letters[:goal]}G{letters[goal + 1 :]}"
        rows = [letters[i : i + lake.columns] for i in range(0, len(letters), lake.columns)]
        data = {name: value for name, value in task.data.items() if name != "values"}
        return Relabelled(
            data=data | {"map": rows},
            actions=tuple(actions[: cells.index(goal) + 1]),
            closeness=1 / (1 + lake.distances[goal]),
        )

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
