"""Tasks that a file describes, row by row, of one split and no other.

Owns the way from a .csv or .jsonl file to tasks. What a row means is the env's to say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnwise.envs.base import Env
from turnwise.errors import DataError
from turnwise.noise import generator
from turnwise.tasks.files import numbered_rows
from turnwise.tasks.split import split_of
from turnwise.types import Split, Task


class FileTasks:
    """An endless source of a file's tasks: task i is row number i of passes in random orders.

    Rows of problems of other splits are left out, unless the env has one problem for all splits.

    Raises:
        DataError: if the file is malformed, a row is no task of the env (with its line), or none of
            its rows is of the split.
    """

    def __init__(self, env: Env[Any], path: str | Path, split: Split, seed: int) -> None:
        self.env, self.split, self.seed = env, split, seed
        self._data = []
        for line, row in numbered_rows(path):
            try:
                data = env.task_of_row(row)
                env.reset(Task(id=f"line-{line}", env=env.name, seed=seed, data=data))
            except DataError as error:
                raise DataError(f"'{path}' line {line}: {error}") from None
            if env.fixed or split_of(env.canonical(data)) == split:
                self._data.append((line, data))
        if not self._data:
            raise DataError(f"'{path}' has no task of the {split} split: give more rows")

    def task(self, index: int) -> Task:
        """Return task number `index`."""
        turn, place = divmod(index, len(self._data))
        order = generator(self.seed, "file", self.split, turn).permutation(len(self._data))
        line, data = self._data[order[place]]
        name = f"{self.env.name}-line-{line}-{turn}"
        return Task(id=name, env=self.env.name, seed=self.seed, data=data)
