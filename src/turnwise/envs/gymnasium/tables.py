"""Tables of dynamics, `P[state][action]`, that some gymnasium envs publish, and their optimum.

Provides the reading of such tables, the check that steps obey them, the reachable states, and exact
values.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from turnwise.envs.gymnasium.registry import Live
from turnwise.envs.gymnasium.worlds import Origin, World
from turnwise.seeding import generator

PROBES = 300
RESETS = 8
"""Number of episodes over which the table must not change."""
GRADES = 32
"""The largest number of equal parts into which the range of values is divided."""
MOST_CELLS = 50_000_000
"""The largest number of entries of a value table: steps x states x actions."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Dynamics of a finite env.

    Shapes [states, actions, outcomes]: `chance`, `after` (state), `reward`, `ends`; `first`
    [states] is the distribution of states after a reset.
    """

    chance: NDArray[np.float64]
    after: NDArray[np.int64]
    reward: NDArray[np.float64]
    ends: NDArray[np.bool_]
    first: NDArray[np.float64]

    @cached_property
    def reachable(self) -> tuple[int, ...]:
        """Reachable states that do not end the episode, ascending."""
        found = set(np.flatnonzero(self.first).tolist())
        front = list(found)
        while front:
            state = front.pop()
            goes_on = (self.chance[state] > 0) & ~self.ends[state]
            for after in set(self.after[state][goes_on].tolist()) - found:
                found.add(after)
                front.append(after)
        return tuple(sorted(found))

    def graded(self, worth: NDArray[np.float64]) -> tuple[tuple[int, ...], ...]:
        """Return the reachable states in groups of similar values [states], the best last."""
        states = np.array(self.reachable)
        low, high = worth[states].min(), worth[states].max()
        share = (worth[states] - low) / ((high - low) or 1.0)
        grade = np.rint(share * (GRADES - 1)).astype(int)
        return tuple(tuple(states[grade == g].tolist()) for g in np.unique(grade))

    def values(self, steps: int, repeat: int) -> NDArray[np.float64]:
        """Return the best expected return [decisions left + 1, states, actions], undiscounted.

        Backward induction over `steps`; a decision is `repeat` equal steps, the last one fewer.
        """
        decisions = -(-steps // repeat)
        found = np.zeros((decisions + 1, *self.chance.shape[:2]))
        for left in range(1, decisions + 1):
            count = min(repeat, steps - (decisions - left) * repeat)
            value = np.broadcast_to(found[left - 1].max(axis=1)[:, None], found.shape[1:])
            for _ in range(count):
                columns = np.arange(value.shape[1])[None, :, None]
                later = np.where(self.ends, 0.0, value[self.after, columns])
                value = (self.chance * (self.reward + later)).sum(axis=2)
            found[left] = value
        return found


def read_table(env: Live) -> Table | None:
    """Return the table of an env that has one, with its state in `s`; else None."""
    core = env.unwrapped
    fields, space, actions = vars(core), core.observation_space, core.action_space
    first, dynamics = fields.get("initial_state_distrib"), fields.get("P")
    if not (isinstance(space, spaces.Discrete) and isinstance(actions, spaces.Discrete)):
        return None
    if space.start or actions.start or first is None or not isinstance(dynamics, Mapping):
        return None
    shape = (int(space.n), int(actions.n))
    try:
        most = max(len(dynamics[s][a]) for s in range(shape[0]) for a in range(shape[1]))
        table = Table(
            chance=np.zeros((*shape, most)),
            after=np.zeros((*shape, most), dtype=np.int64),
            reward=np.zeros((*shape, most)),
            ends=np.zeros((*shape, most), dtype=bool),
            first=np.asarray(first, dtype=float),
        )
        for state, action in np.ndindex(shape):
            for k, (chance, after, reward, ends) in enumerate(dynamics[state][action]):
                place = (state, action, k)
                table.chance[place], table.after[place] = float(chance), int(after)
                table.reward[place], table.ends[place] = float(reward), bool(ends)
    except (KeyError, TypeError, ValueError):
        return None
    fits = np.allclose(table.chance.sum(axis=2), 1.0) and table.first.shape == shape[:1]
    return table if fits else None


def obeyed(table: Table, world: World) -> bool:
    """Whether steps of `world` follow `table`, tested from many states.

    Taxi's fickle passenger, for one, is not in its table.
    """
    rng = generator(0, "table")
    for number in range(PROBES):
        state = int(rng.choice(table.reachable))
        action = int(rng.integers(table.chance.shape[1]))
        begun = world.reset(Origin(seed=number, state=state))
        done = world.step(begun.memory, action, 1, rng)
        known = _is_outcome(table, (state, action), done.observation, done.reward, done.terminated)
        if not known or done.truncated:
            return False
    return True


def _is_outcome(
    table: Table, taken: tuple[int, int], after: object, reward: float, ends: bool
) -> bool:
    """Whether a step in a state, by an action, is one of those that a table has."""
    outcomes = (
        (table.chance[taken] > 0)
        & (table.after[taken] == after)
        & np.isclose(table.reward[taken], reward)
        & (table.ends[taken] == ends)
    )
    return bool(outcomes.any())


def played_table(env: Live) -> Table | None:
    """Return the table of a live env, if it has one that random episodes keep to.

    A subclass or a wrapper may change rewards or observations, and leave the table as it was.
    """
    table = read_table(env) if _plain(env) else None
    if table is None or not table.reachable or not _lasting(env):
        return None
    rng = generator(0, "played table")
    for seed in range(RESETS):
        state, over, steps = int(env.reset(seed=seed)[0]), False, 0
        if not table.first[state]:
            return None
        while not over and steps < PROBES:
            action = int(rng.integers(table.chance.shape[1]))
            after, reward, terminated, truncated, _ = env.step(action)
            if not _is_outcome(table, (state, action), after, float(reward), terminated):
                return None
            state, over, steps = int(after), terminated or truncated, steps + 1
    return table


def table_of(world: World) -> Table | None:
    """Return the table of an env, if it has one, always the same one, and keeps to it."""
    env = world.make()
    table = read_table(env) if _plain(env) else None
    if table is None or not table.reachable or not _lasting(env):
        return None
    return table if obeyed(table, world) else None


def _plain(env: Live) -> bool:
    """Whether observations and actions of the outermost wrapper are those of the table."""
    core = env.unwrapped
    same = env.observation_space == core.observation_space
    return same and env.action_space == core.action_space


def _lasting(env: Live) -> bool:
    """Whether the table stays the same over episodes; some envs draw a new map at every reset."""
    fields, rng = vars(env.unwrapped), generator(0, "lasting")
    actions = len(fields["P"][0])
    table, first = copy.deepcopy(fields["P"]), copy.deepcopy(fields["initial_state_distrib"])
    for seed in range(RESETS):
        env.reset(seed=seed)
        over = False
        while not over and rng.random() > 1 / RESETS:
            _, _, terminated, truncated, _ = env.step(int(rng.integers(actions)))
            over = terminated or truncated
        try:
            same = bool(fields["P"] == table)
        except (KeyError, ValueError):
            same = False
        if not same or not np.array_equal(fields["initial_state_distrib"], first):
            return False
    return True
