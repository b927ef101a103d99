"""The tasks of the search: Gymnasium envs with what prompts say of them and published scores.

Provides `SearchTask`, `TASKS`, the tasks of Prompted Policy Search (arXiv:2511.21928), and
`find_task`, which takes any other Gymnasium id as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium

from turnwise.envs.gymnasium.registry import find_spec
from turnwise.errors import ConfigError, UnknownNameError, unknown_name
from turnwise.search.envs import register_envs
from turnwise.search.published import PUBLISHED, Published

MUJOCO = "mujoco"
CLOCKWISE = "\N{UPWARDS ARROW}\N{RIGHTWARDS ARROW}\N{DOWNWARDS ARROW}\N{LEFTWARDS ARROW}"
"""The signs of the actions up, right, down and left."""
register_envs()


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchTask:
    """A task: its env, and what a prompt says of it.

    Attributes:
        name: what the command calls it.
        env: the Gymnasium id.
        options: arguments of the env.
        limit: the most steps of an episode; None is the env's own.
        optimum: the score that prompts give as about the best; None is not given.
        search_step: how far prompts ask to move parameters when exploring.
        about: the env in words, for prompts of the kind `props+`.
        grid: the rows and columns of a grid of which observations number the cells.
        signs: of the actions on that grid, one character each.
        own_rules: whether the env is turnwise's own, so that published scores do not compare.
        extra: the extra of turnwise that the env needs, if any.
    """

    name: str
    env: str
    options: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    optimum: float | None = None
    search_step: float = 1.0
    about: str = ""
    grid: tuple[int, int] | None = None
    signs: str = ""
    own_rules: bool = False
    extra: str = ""

    @property
    def published(self) -> Published | None:
        """The scores of the paper; None for other tasks."""
        return PUBLISHED.get(self.name)


TASKS: dict[str, SearchTask] = {
    task.name: task
    for task in (
        SearchTask(
            name="cart-pole",
            env="CartPole-v1",
            optimum=500.0,
            about=(
                "A cart on a track carries a pole. The inputs are the cart's position and speed, "
                "the pole's angle and its angular speed. Output 0 pushes the cart to the left, "
                "output 1 to the right. Every step gives 1. The episode ends when the pole leans "
                "more than 12 degrees, when the cart leaves the track, or after 500 steps."
            ),
        ),
        SearchTask(
            name="mountain-car",
            env="MountainCar-v0",
            optimum=-120.0,
            about=(
                "A weak car stands between two hills and has to swing up the right one. The inputs "
                "are its position, -1.2 to 0.6, and its speed, -0.07 to 0.07. Output 0 accelerates "
                "to the left, 1 does nothing, 2 accelerates to the right. Every step costs 1. The "
                "episode ends at position 0.5, or after 200 steps."
            ),
        ),
        SearchTask(
            name="mountain-car-continuous",
            env="MountainCarContinuous-v0",
            optimum=100.0,
            about=(
                "A weak car stands between two hills and has to swing up the right one. The inputs "
                "are its position, -1.2 to 0.6, and its speed, -0.07 to 0.07. The output is the "
                "force, -1 to 1. Every step costs 0.1 times the squared force; the top, at "
                "position 0.45, gives 100 and ends the episode, as 999 steps do."
            ),
        ),
        SearchTask(
            name="frozen-lake",
            env="FrozenLake-v1",
            grid=(4, 4),
            signs="\N{LEFTWARDS ARROW}\N{DOWNWARDS ARROW}\N{RIGHTWARDS ARROW}\N{UPWARDS ARROW}",
            options={"map_name": "4x4", "is_slippery": True},
            optimum=1.0,
            about=(
                "A lake of 4 rows and 4 columns; state s is row s // 4 and column s % 4. Actions: "
                "0 left, 1 down, 2 right, 3 up. The ice is slippery: the move goes where it was "
                "aimed, or to either side of that, each with probability 1/3. The start is state "
                "0. States 5, 7, 11 and 12 are holes, which end the episode with 0. State 15 is "
                "the goal, which ends it with 1. There are 100 steps."
            ),
        ),
        SearchTask(
            name="cliff-walking",
            env="CliffWalking-v1",
            grid=(4, 12),
            signs=CLOCKWISE,
            limit=100,
            optimum=-15.0,
            about=(
                "A grid of 4 rows and 12 columns; state s is row s // 12 and column s % 12. "
                "Actions: 0 up, 1 right, 2 down, 3 left. The start is state 36, bottom left, and "
                "the goal is state 47, bottom right. States 37 to 46 are a cliff: stepping there "
                "costs 100 and leads back to the start. Every other step costs 1. The episode ends "
                "at the goal, or after 100 steps."
            ),
        ),
        SearchTask(
            name="maze",
            env="turnwise/Maze-v0",
            grid=(3, 3),
            signs=CLOCKWISE,
            optimum=1.0,
            about=(
                "A maze of 3 rows and 3 columns with walls between some cells; state s is row s // "
                "3 and column s % 3. Actions: 0 up, 1 right, 2 down, 3 left; a step into a wall "
                "changes nothing. The start is state 0 and the goal state 8. Every step costs "
                "0.011; the step to the goal gives 1 and ends the episode, as 100 steps do."
            ),
            own_rules=True,
        ),
        SearchTask(
            name="nim",
            env="turnwise/Nim-v0",
            optimum=1.0,
            about=(
                "A heap of 10 stones. You and another player, who draws at random, take 1, 2 or 3 "
                "stones in turn; you begin. State s is the number of stones that are left, and "
                "actions 0, 1 and 2 take one, two and three. Whoever takes the last stone wins: 1 "
                "for you, -1 for the other."
            ),
            own_rules=True,
        ),
        SearchTask(
            name="navigation",
            env="turnwise/Navigation-v0",
            optimum=4500.0,
            about=(
                "A robot drives around a corridor in the shape of a square ring. The inputs are "
                "the distances to the wall, at most 5, to the right, half right, ahead, half left "
                "and left. Output 0 drives ahead and gives 5; 1 and 2 turn to the left and to the "
                "right and cost 0.5. Touching a wall costs 200 and ends the episode, as 1000 steps "
                "do."
            ),
            own_rules=True,
        ),
        SearchTask(
            name="pong",
            env="turnwise/Pong-v0",
            optimum=3.0,
            about=(
                "A game of Pong on a field of 1 by 1, in which yours is the right paddle. The "
                "inputs are the ball's place x and y, its speed in x and y, your paddle's y and "
                "the other's y. Output 0 stays, 1 moves your paddle up, 2 down. A point gives 1, a "
                "point of the other side -1; the first to 3 points ends the episode."
            ),
            own_rules=True,
        ),
        SearchTask(
            name="inverted-pendulum",
            env="InvertedPendulum-v5",
            optimum=1000.0,
            about=(
                "A cart carries a pole. The inputs are the cart's position, the pole's angle, and "
                "their speeds. The output is the force on the cart, -3 to 3. Every step gives 1. "
                "The episode ends when the pole leans more than 0.2, or after 1000 steps."
            ),
            extra=MUJOCO,
        ),
        SearchTask(
            name="inverted-double-pendulum",
            env="InvertedDoublePendulum-v5",
            optimum=10_000.0,
            search_step=0.1,
            about=(
                "A cart carries two poles, one on the other. The inputs are the cart's position, "
                "the sines and the cosines of both angles, the three speeds, and a force of "
                "constraint. The output is the force on the cart, -1 to 1. Every step gives about "
                "10, less for a low or a fast tip. The episode ends when the tip falls below 1, or "
                "after 1000 steps."
            ),
            extra=MUJOCO,
        ),
        SearchTask(
            name="reacher",
            env="Reacher-v5",
            optimum=-5.0,
            search_step=0.1,
            about=(
                "An arm with two joints reaches for a target. The inputs are the cosines and the "
                "sines of both angles, the target's two coordinates, the angular speeds, and the "
                "two differences from the fingertip to the target. The outputs are the torques, -1 "
                "to 1. Every step costs the distance and a little for the torques; there are 50."
            ),
            extra=MUJOCO,
        ),
        SearchTask(
            name="swimmer",
            env="Swimmer-v5",
            optimum=250.0,
            search_step=0.1,
            about=(
                "A swimmer of three links in a fluid. The inputs are the angles of the front and "
                "of the two joints, the two speeds of the front, and the three angular speeds. The "
                "outputs are the torques of the joints, -1 to 1. The reward is the speed forward, "
                "less a little for the torques; there are 1000 steps."
            ),
            extra=MUJOCO,
        ),
        SearchTask(
            name="hopper",
            env="Hopper-v5",
            optimum=1000.0,
            search_step=0.1,
            about=(
                "A leg hops forward. The inputs are the height and the angles of the torso and the "
                "three joints, and then the speeds of all of them. The outputs are the torques of "
                "hip, knee and foot, -1 to 1. Every step gives 1 and the speed forward, less a "
                "little for the torques. The episode ends when it falls, or after 1000 steps."
            ),
            extra=MUJOCO,
        ),
        SearchTask(
            name="walker",
            env="Walker2d-v5",
            optimum=7000.0,
            search_step=0.1,
            about=(
                "Two legs walk forward. The inputs are the height and the angles of the torso and "
                "the six joints, and then the speeds of all of them. The outputs are the torques "
                "of the joints, -1 to 1. Every step gives 1 and the speed forward, less a little "
                "for the torques. The episode ends when it falls, or after 1000 steps."
            ),
            extra=MUJOCO,
        ),
    )
}


def find_task(name: str) -> SearchTask:
    """Return the task of a name: one of `TASKS`, or any Gymnasium id.

    Raises:
        UnknownNameError: if there is neither.
        ConfigError: if a package that the id names cannot be imported, or it names a file.

    Example:
        >>> find_task("frozen-lake").env, find_task("Acrobot-v1").env
        ('FrozenLake-v1', 'Acrobot-v1')
    """
    if name in TASKS:
        return TASKS[name]
    for task in TASKS.values():
        if name == task.env:
            return task
    module = name.rpartition(":")[0]
    if module.endswith(".py"):
        raise ConfigError(
            f"task {name!r}: a search needs a registered id: call gymnasium.register in that file, "
            f"and name it as '{Path(module).stem}:Name-v0'"
        )
    try:
        spec = find_spec(name)
    except UnknownNameError:
        if own := ids_of(module):
            raise unknown_name("task", name, own) from None
        raise unknown_name("task", name, TASKS, "a Gymnasium id such as Acrobot-v1") from None
    return SearchTask(name=name, env=f"{module}:{spec.id}" if module else spec.id)


def ids_of(module: str) -> list[str]:
    """Return the ids of the envs whose class or function is defined in an imported module."""
    found: list[str] = []
    for name, spec in gymnasium.registry.items():
        entry = spec.entry_point
        if entry is None:
            continue
        defined = entry.partition(":")[0] if isinstance(entry, str) else entry.__module__
        if defined == module:
            found.append(f"{module}:{name}")
    return found
