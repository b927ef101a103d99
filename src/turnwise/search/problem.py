"""The evaluation of a policy by episodes, played on Gymnasium directly.

Provides `Problem`: the env of a task, its policy, and `play`. Where Gymnasium has a vector env of
its own, all episodes of an evaluation are played side by side in it; elsewhere one after the other.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from turnwise.envs.gymnasium.registry import Live, find_spec
from turnwise.envs.gymnasium.tables import Table, played_table
from turnwise.envs.user_calls import UserErrors
from turnwise.errors import ConfigError, EnvError, MissingDependencyError
from turnwise.search.policies import Actor, Policy, TablePolicy, policy_for
from turnwise.search.space import Params
from turnwise.search.tasks import SearchTask
from turnwise.seeding import generator
from turnwise.utils.user_code import MISTAKES

SEEDS = 1 << 31
MOST_RETURN = 1e100
"""The largest size of a return: squares of larger ones overflow."""
LONGEST = 100_000
"""The most steps of an episode of an env that has no limit of its own."""
Step = tuple[int, int, float]
"""A step of an episode: state, action, reward."""


class CheckedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The live env of a task, whose errors and wrong observations become an `EnvError`.

    States are checked, and the shape of vectors, and that their values are finite.

    Args:
        env: the env.
        name: of the task, for messages.
    """

    def __init__(self, env: Live, name: str) -> None:
        super().__init__(env)
        space = env.observation_space
        self._name, self._errors = name, user_errors(name)
        self._states: range | None = None
        self._shape = space.shape
        if isinstance(space, spaces.Discrete):
            self._states = range(int(space.start), int(space.start + space.n))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the env; return the observation and information."""
        with self._errors:
            result = self.env.reset(seed=seed, options=options)
            seen, told = self._values(result, 2, "reset", "(observation, info)")
            return self._known(seen), told

    def step(self, action: Any) -> Any:
        """Take a step; return Gymnasium's five values."""
        with self._errors:
            result = self.env.step(action)
            expected = "(observation, reward, terminated, truncated, info)"
            seen, reward, terminated, truncated, told = self._values(result, 5, "step", expected)
            try:
                values = float(reward), bool(terminated), bool(truncated)
            except MISTAKES as error:
                raise self._wrong(
                    "step of its env returned (reward, terminated, truncated) = "
                    f"{_shown((reward, terminated, truncated))}, expected a number and two bools"
                ) from error
            return self._known(seen), *values, told

    def _values(self, result: Any, count: int, method: str, expected: str) -> Sequence[Any]:
        """Return the values that a method has returned, if it is that many."""
        if not isinstance(result, tuple | list):
            found = type(result).__name__
        elif len(result) != count:
            found = f"{len(result)} values"
        else:
            return result
        raise self._wrong(f"{method} of its env returned {found}, expected {expected}")

    def _known(self, seen: Any) -> Any:
        """Return an observation, which is a state or a vector of the shape with finite values."""
        try:
            if self._states is not None:
                known = index(seen) in self._states
            else:
                vector = seen if isinstance(seen, np.ndarray) else np.asarray(seen, np.float64)
                known = vector.shape == self._shape and (
                    math.isfinite(vector.sum()) or bool(np.isfinite(vector).all())
                )
        except MISTAKES:
            known = False
        if known:
            return seen
        finite = "" if self._states is not None else " with finite values"
        raise self._wrong(
            f"the observation {_shown(seen)} is none of {self.env.observation_space}{finite}",
            ", or its observation_space",
        )

    def _wrong(self, said: str, otherwise: str = "") -> EnvError:
        return EnvError(f"task {self._name!r}: {said}: mend the env{otherwise}")


def _shown(value: Any) -> str:
    """Return the first 80 characters of a value, on one line."""
    return " ".join(repr(value).split())[:80]


def user_errors(name: str) -> UserErrors:
    """Return the context in which errors of a task's env become an `EnvError`."""
    return UserErrors(f"task {name!r}: its env", EnvError, "mend it, and go on with --resume")


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """The episodes of one evaluation: their returns, their lengths, and the first one's steps.

    `steps` are kept only if they were asked for, of policies that are tables.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    steps: tuple[Step, ...] = ()


class Problem:
    """A task with its live env, which plays one evaluation at a time.

    Args:
        task: the task.
        seed: of all episodes; an episode's seed is a function of it, of the evaluation's name and
            of the episode's number.
        relabel: the seed of the permutations by which states and actions are numbered anew; None
            is as the env numbers them.

    Raises:
        ConfigError: if the env cannot be made, or no policy fits it.
        MissingDependencyError: if a package that the env needs is not installed.

    Example:
        >>> from turnwise.search.tasks import find_task
        >>> problem = Problem(find_task("cart-pole"), seed=0)
        >>> played = problem.play((0,) * 10, episodes=3, name="a")
        >>> [8 <= value <= 11 for value in played.returns]  # it always pushes to the left
        [True, True, True]
    """

    def __init__(self, task: SearchTask, seed: int, relabel: int | None = None) -> None:
        self.task, self._seed = task, seed
        self.env = make_env(task)
        space = self.env.action_space
        self.policy: Policy = policy_for(self.env.observation_space, space, task.name)
        if relabel is not None:
            if not isinstance(self.policy, TablePolicy):
                raise ConfigError(
                    f"relabel = {relabel} numbers states anew, but the observations of task "
                    f"{task.name!r} are vectors: leave relabel out"
                )
            self.policy = self.policy.relabelled(generator(relabel, "search relabel"))
        self.space = self.policy.space
        self._vectors: dict[int, VectorEnv[Any, Any, Any]] = {}
        spec = find_spec(task.env)
        self._side_by_side = spec.vector_entry_point is not None and task.limit is None

    def play(
        self, params: Params, *, episodes: int, name: str, first_steps: int = 0
    ) -> Played:  # fmt: skip
        """Play a policy.

        Args:
            params: of the policy.
            episodes: how many.
            name: of the evaluation: equal names have equal episodes.
            first_steps: the most steps of the first episode that are kept.

        Raises:
            EnvError: if a return cannot be averaged.
        """
        seeds = self._seeds(name, episodes)
        if self._side_by_side:
            played = self._play_vector(self.policy.batch(params), episodes, int(seeds[0]))
        else:
            played = self.play_actor(self.policy.actor(params), seeds, first_steps)
        return played

    def play_actor(self, act: Actor, seeds: NDArray[np.int64], first_steps: int = 0) -> Played:
        """Play one episode for each seed with any function from observations to actions."""
        env, returns, lengths, kept = self.env, [], [], []
        for number, seed in enumerate(seeds):
            seen, _ = env.reset(seed=int(seed))
            total, length, over = 0.0, 0, False
            while not over and length < LONGEST:
                action = act(seen)
                after, reward, terminated, truncated, _ = env.step(action)
                shown = number == 0 and length < first_steps
                if shown and isinstance(self.policy, TablePolicy):
                    kept.append((*self.policy.labels(seen, action), float(reward)))
                seen, over = after, terminated or truncated
                total += float(reward)
                length += 1
            returns.append(self.checked(total))
            lengths.append(length)
        return Played(returns=tuple(returns), lengths=tuple(lengths), steps=tuple(kept))

    def checked(self, value: float) -> float:
        """Return a reward or a return.

        Raises:
            EnvError: if it cannot be averaged, as it is not finite or too large.
        """
        if abs(value) <= MOST_RETURN:
            return value
        raise EnvError(
            f"task {self.task.name!r}: a return or a reward is {value}: a search needs finite ones "
            f"of at most {MOST_RETURN:g}: mend the env"
        )

    def fresh_seeds(self, episodes: int) -> NDArray[np.int64]:
        """Return the seeds of episodes that no evaluation of the search plays."""
        return self._seeds("fresh", episodes)

    def exact(self, params: Params) -> float | None:
        """Return the expected return of a policy, where the env publishes its dynamics.

        It is computed from `P[state][action]` within the limit of steps; None for other envs, and
        for one whose episodes differ from that.
        """
        table, limit = self._table, self.limit
        if table is None or limit is None:
            return None
        assert isinstance(self.policy, TablePolicy), "tables are of discrete observations"
        return exact_return(table, self.policy.actions_of(params), limit)

    def optimum(self) -> float | None:
        """Return the best expected return of any policy; None where it cannot be computed."""
        table, limit = self._table, self.limit
        if table is None or limit is None:
            return None
        return float(table.first @ table.values(limit, 1)[limit].max(axis=1))

    @cached_property
    def _table(self) -> Table | None:
        return played_table(self.env)

    @property
    def limit(self) -> int | None:
        """The most steps of an episode, or None."""
        return None if self.env.spec is None else self.env.spec.max_episode_steps

    def close(self) -> None:
        """Close the envs."""
        self.env.close()
        for vector in self._vectors.values():
            vector.close()

    def _seeds(self, name: str, episodes: int) -> NDArray[np.int64]:
        return generator(self._seed, "search episodes", name).integers(SEEDS, size=episodes)

    def _play_vector(self, act: Actor, episodes: int, seed: int) -> Played:
        """Play the first episode of each env of Gymnasium's vector env."""
        with user_errors(self.task.name):
            returns, lengths = _first_episodes(self._vector(episodes), act, seed)
        checked = tuple(self.checked(value) for value in returns.tolist())
        return Played(returns=checked, lengths=tuple(lengths.tolist()))

    def _vector(self, episodes: int) -> VectorEnv[Any, Any, Any]:
        if episodes not in self._vectors:
            self._vectors[episodes] = gymnasium.make_vec(
                self.task.env, num_envs=episodes, vectorization_mode="vector_entry_point",
                **self.task.options,
            )  # fmt: skip
        return self._vectors[episodes]


def _first_episodes(
    vector: VectorEnv[Any, Any, Any], act: Actor, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the returns and the lengths of the first episode of each env, each [envs]."""
    seen, _ = vector.reset(seed=seed)
    returns, lengths = np.zeros(vector.num_envs), np.zeros(vector.num_envs, dtype=np.int64)
    running = np.ones(vector.num_envs, dtype=bool)
    while running.any():
        seen, rewards, terminated, truncated, _ = vector.step(act(seen))
        returns[running] += rewards[running]
        lengths[running] += 1
        running &= ~(terminated | truncated) & (lengths < LONGEST)
    return returns, lengths


def exact_return(table: Table, params: Params, steps: int) -> float:
    """Return the expected return of a table of actions [states] within a number of steps."""
    rows = np.arange(len(params))
    actions = np.asarray(params)
    chance, after = table.chance[rows, actions], table.after[rows, actions]
    reward, ends = table.reward[rows, actions], table.ends[rows, actions]
    value = np.zeros(len(params))
    for _ in range(steps):
        value = (chance * (reward + np.where(ends, 0.0, value[after]))).sum(axis=1)
    return float(table.first @ value)


def make_env(task: SearchTask, **options: Any) -> Live:
    """Make the env of a task, with further arguments of `gymnasium.make`.

    Raises:
        MissingDependencyError: if a package is not installed.
        ConfigError: if it cannot be made.
    """
    limit = {} if task.limit is None else {"max_episode_steps": task.limit}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = gymnasium.make(
                task.env, disable_env_checker=True, **limit, **task.options, **options
            )
            return CheckedEnv(env, task.name)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as cause:
        cure = f"pip install 'turnwise[{task.extra}]'" if task.extra else str(cause)
        raise MissingDependencyError(
            f"task {task.name!r} needs a package that is not installed: {cure}"
        ) from cause
    except (*MISTAKES, gymnasium.error.Error) as cause:
        raise ConfigError(
            f"task {task.name!r} cannot be made ({cause!r}): mend its env, or choose another task"
        ) from cause
