"""The processes of a run beside the user's: when they start, and what they are told.

Provides `Processes` and `Job`. `turnwise.app.worker` is what each of them runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import torch

from turnwise.errors import ConfigError
from turnwise.parallel.launch import Launcher
from turnwise.recipe.schema import Recipe
from turnwise.runs import Run
from turnwise.trainers import Session

WORKER = "turnwise.app.worker"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What a process needs to know of a run: the recipe with the threads of each process."""

    recipe: Recipe
    folder: Run
    resumed: bool


class Processes:
    """A context manager: the processes beside this one, which start inside the block.

    Args:
        recipe: how many there are (`Recipe.processes`), and what they run.
        folder: the run.
        resumed: whether it goes on from its latest checkpoint.
        cure: returns what the user can do when a process is lost.

    Raises:
        ConfigError: if other processes cannot build the run.
    """

    def __init__(
        self, recipe: Recipe, folder: Run, *, resumed: bool, cure: Callable[[], str]
    ) -> None:
        self._recipe, self._folder, self._resumed, self._cure = recipe, folder, resumed, cure
        self._launcher: Launcher | None = None
        self._told = False

    def __enter__(self) -> Processes:
        count = self._recipe.processes or 1
        if count > 1:
            check_rebuilt(self._recipe, self._folder)
            self._launcher = Launcher(WORKER, count, self._cure)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._launcher is not None:
            self._launcher.close(finished=kind is None)

    def take_in(self, session: Session) -> None:
        """Let a session go on in all processes, which build theirs now."""
        if self._launcher is None:
            return
        group = self._launcher.group
        if not self._told:
            threads = {"threads": torch.get_num_threads()}
            recipe = self._recipe.model_copy(update=threads)
            group.broadcast(Job(recipe=recipe, folder=self._folder, resumed=self._resumed))
            self._told = True
        group.wait_for_first()  # the others build their parts after this one has made its models
        session.join(group)


def check_rebuilt(recipe: Recipe, folder: Run) -> None:
    """Raise if another process cannot build the run's env and rewards.

    Raises:
        ConfigError: if they were passed in Python and are in no file.
    """
    if folder.needs_python:
        raise ConfigError(
            f"processes = {recipe.processes}, but the env or a reward was passed in Python and is "
            "in no file, so that another process cannot import it: put it into a file and name it "
            "'file.py:Name', or leave processes out"
        )
