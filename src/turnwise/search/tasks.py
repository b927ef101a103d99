"""The tasks of the search: Gymnasium envs with what prompts say of them and published scores.

Provides `SearchTask`, `TASKS`, the tasks of Prompted Policy Search (arXiv:2511.21928), and
`find_task`, which takes any other Gymnasium id as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turnwise.envs.gymnasium.registry import find_spec
from turnwise.errors import UnknownNameError, unknown_name

MUJOCO = "mujoco"


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """Published mean scores and their spread over 10 seeds, with GPT-4o."""

    props: tuple[float, float]
    props_plus: tuple[float, float]
    best_baseline: tuple[str, float, float]


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
        published: scores of the paper; None for others.
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
    published: Published | None = None
    own_rules: bool = False
    extra: str = ""


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
            published=Published(
                props=(478.27, 65.17),
                props_plus=(500.0, 0.0),
                best_baseline=("TRPO", 465.34, 62.32),
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
            published=Published(
                props=(-126.11, 21.67),
                props_plus=(-116.71, 15.20),
                best_baseline=("DQN", -194.36, 1.47),
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
            published=Published(
                props=(87.21, 29.28),
                props_plus=(89.16, 29.72),
                best_baseline=("SAC", 86.65, 0.84),
            ),
        ),
        SearchTask(
            name="frozen-lake",
            env="FrozenLake-v1",
            options={"map_name": "4x4", "is_slippery": True},
            optimum=1.0,
            about=(
                "A lake of 4 rows and 4 columns; state s is row s // 4 and column s % 4. Actions: "
                "0 left, 1 down, 2 right, 3 up. The ice is slippery: the move goes where it was "
                "aimed, or to either side of that, each with probability 1/3. The start is state "
                "0. States 5, 7, 11 and 12 are holes, which end the episode with 0. State 15 is "
                "the goal, which ends it with 1. There are 100 steps."
            ),
            published=Published(
                props=(0.57, 0.17), props_plus=(0.19, 0.05), best_baseline=("TRPO", 0.22, 0.05)
            ),
        ),
        SearchTask(
            name="cliff-walking",
            env="CliffWalking-v1",
            limit=100,
            optimum=-15.0,
            about=(
                "A grid of 4 rows and 12 columns; state s is row s // 12 and column s % 12. "
                "Actions: 0 up, 1 right, 2 down, 3 left. The start is state 36, bottom left, and "
                "the goal is state 47, bottom right. States 37 to 46 are a cliff: stepping there "
                "costs 100 and leads back to the start. Every other step costs 1. The episode ends "
                "at the goal, or after 100 steps."
            ),
            published=Published(
                props=(-100.0, 0.0),
                props_plus=(-96.40, 22.90),
                best_baseline=("TRPO", -66.60, 13.61),
            ),
        ),
    )
}


def find_task(name: str) -> SearchTask:
    """Return the task of a name: one of `TASKS`, or any Gymnasium id.

    Raises:
        UnknownNameError: if there is neither.
        ConfigError: if a package that the id names cannot be imported.

    Example:
        >>> find_task("frozen-lake").env, find_task("Acrobot-v1").env
        ('FrozenLake-v1', 'Acrobot-v1')
    """
    if name in TASKS:
        return TASKS[name]
    for task in TASKS.values():
        if name == task.env:
            return task
    try:
        spec = find_spec(name)
    except UnknownNameError:
        raise unknown_name("task", name, TASKS, "a Gymnasium id such as Acrobot-v1") from None
    module = name.rpartition(":")[0]
    return SearchTask(name=name, env=f"{module}:{spec.id}" if module else spec.id)
