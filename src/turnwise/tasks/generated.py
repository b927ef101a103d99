"""The tasks of one split of an env, drawn or listed.

Provides `GeneratedTasks`. It numbers drawn tasks and gives only those of its own split. Knows no
models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, get_args

from turnwise.envs import ENVS
from turnwise.envs.base import Env
from turnwise.envs.split import split_of
from turnwise.errors import ConfigError, unknown_name
from turnwise.seeding import generator
from turnwise.tasks.counting import Problems, count_problems
from turnwise.types import Split, Task

MOST_DRAWS = 2_000
_COUNTED = "_turnwise_problems"
_BY_OPTIONS: dict[tuple[type[Env[Any]], str], Problems] = {}


class GeneratedTasks:
    """A numbered source of tasks: task i is a function of (seed, split, i) alone.

    Where the env lists its tasks (`Env.tasks`), they follow one another in passes, each in an
    order of its own; `count` is how many one pass has, None where tasks are drawn without end.

    Tasks are drawn until their canonical problem falls into the split, so that no source of one
    split ever gives a problem of another, whatever the seeds and the env's other options. Every
    split has all problems if there are fewer than 20, if one split would have fewer than 3 or would
    hardly ever be drawn, or if the env says `single_task`. The source then says `seen`: its test is
    not unseen. `problems` counts them.

    Example:
        >>> from turnwise.envs import make_env
        >>> tasks = GeneratedTasks(make_env("frozen-lake"), "test", seed=0)
        >>> tasks.task(3) == tasks.take(4)[3], tasks.seen
        (True, False)
    """

    def __init__(self, env: Env[Any], split: Split, seed: int) -> None:
        if split not in get_args(Split):
            raise unknown_name("split", split, get_args(Split))
        self.env, self.split, self.seed = env, split, seed
        self.problems = _problems_of(env)
        listed = self.problems.listed
        self._listed = env.tasks(split) if listed is None else listed[split]
        self._order: tuple[int, Sequence[int]] = (-1, ())
        self._taken: list[Task] = []
        self.count = None if self._listed is None else len(self._listed)

    @cached_property
    def seen(self) -> bool:
        """Whether training meets some of these problems: they also occur in its split."""
        if self.env.single_task or self.problems.same:
            return True
        if self.split == "train" or not self._listed:
            return False
        return self.problems.met([self.env.canonical(data) for data in self._listed]) > 0

    def task(self, index: int) -> Task:
        """Return task number `index`.

        Raises:
            ConfigError: if the env hardly ever draws a problem of the split, or lists none.
        """
        if self._listed is not None:
            return self._task(self._of_pass(index), index)
        rng = generator(self.seed, "tasks", self.split, index)
        for _ in range(MOST_DRAWS):
            data = self.env.generate(rng)
            problem = self.env.canonical(data)
            if self.seen or split_of(problem) == self.split:
                return self._task(data, index)
        raise ConfigError(
            f"{self.env.name}: no {self.split} problem in {MOST_DRAWS} draws: let `generate` draw "
            "all problems about equally often, or list them (`Env.tasks`)"
        )

    @staticmethod
    def number_of(task: Task) -> int:
        """Return the number of a task of such a source: `task` returns it for that."""
        return int(task.id.rpartition("-")[2])

    def take(self, count: int) -> list[Task]:
        """Return tasks 0 to `count` - 1, drawn once; no more than one pass of a list has."""
        count = min(count, self.count or count)
        self._taken += [self.task(index) for index in range(len(self._taken), count)]
        return self._taken[:count]

    def _task(self, data: Mapping[str, Any], index: int) -> Task:
        problem = self.env.canonical(data)
        short = hashlib.blake2b(problem.encode(), digest_size=4).hexdigest()
        name = f"{self.env.name}-{short}-{index}"
        return Task(id=name, env=self.env.name, seed=self.seed, data=data)

    def _of_pass(self, index: int) -> Mapping[str, Any]:
        if not self._listed:
            raise ConfigError(f"{self.env.name} lists no {self.split} problem: give it some")
        number, place = divmod(index, len(self._listed))
        if self._order[0] != number:
            rng = generator(self.seed, "pass", self.split, number)
            self._order = (number, rng.permutation(len(self._listed)).tolist())
        return self._listed[self._order[1][place]]


def _problems_of(env: Env[Any]) -> Problems:
    """Return the problems of an env, counted once for each instance.

    Those of a shipped env that draws its tasks are counted once for its options: a run makes such
    an env several times, and 2,000 draws take a quarter of a second.
    """
    kept = vars(env.unwrapped)
    if _COUNTED not in kept:
        options = _deciding_options(env.unwrapped)
        found = None if options is None else _BY_OPTIONS.get(options)
        kept[_COUNTED] = found or count_problems(env)
        if options is not None:
            _BY_OPTIONS[options] = kept[_COUNTED]
    return kept[_COUNTED]


def _deciding_options(env: Env[Any]) -> tuple[type[Env[Any]], str] | None:
    """Return the class and the options that decide the problems; None if other things may."""
    options = env.config.model_dump() if type(env) in ENVS.values() else {}
    reads = any(options.get(name) is not None for name in env.files)
    if not options or reads or env.branching != "pure" or env.tasks("train") is not None:
        return None
    return type(env), env.config.model_dump_json()
