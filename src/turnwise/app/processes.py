"""The processes of a run beside the user's: how many, when they start, what they are told.

Provides `Processes` and `Job`. `turnwise.app.worker` is what each of them runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import torch

from turnwise.engines import RemoteConfig
from turnwise.envs import ENVS, GymnasiumEnv, PettingZooEnv
from turnwise.errors import ConfigError, ProcessError
from turnwise.parallel.cores import free_memory, second_core_is_free
from turnwise.parallel.launch import Launcher
from turnwise.policies import PRESETS, PolicyConfig, cores_are_chosen, default_threads, is_nano
from turnwise.recipe.schema import Recipe
from turnwise.runs import Run
from turnwise.trainers import Session
from turnwise.utils.user_code import is_import_name

WORKER = "turnwise.app.worker"
LONG = 10_000
"""Rows of a run from which on a second process saves more time than its start takes: starting one
takes about 5 seconds, in which one process plays or imitates some 1,000 rows of a nano model."""
MEMORY = 4 << 30
"""Bytes of memory that must be free for a second process to be started unasked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What a process needs to know of a run: the recipe with the threads of each process."""

    recipe: Recipe
    folder: Run
    resumed: bool


class Processes:
    """A context manager: the processes beside this one, which start inside the block.

    A new run whose recipe does not say how many there are gets two where `gains_from_two` and a
    second core is free, and keeps the number.

    Args:
        recipe: how many there are (`Recipe.processes`), and what they run.
        folder: the run.
        resumed: whether it goes on from its latest checkpoint.
        cure: returns what the user can do when a process is lost.
        note: told which number was chosen.

    Raises:
        ConfigError: if other processes cannot build the run.
    """

    def __init__(
        self,
        recipe: Recipe,
        folder: Run,
        *,
        resumed: bool,
        cure: Callable[[], str],
        note: Callable[[str], None],
    ) -> None:
        self._folder, self._resumed, self._note = folder, resumed, note
        self._cure = lambda: f"{cure()}, with `--set processes=1` if it happens again"
        self.recipe = recipe
        self._launcher: Launcher | None = None
        self._told = False

    def __enter__(self) -> Processes:
        count = self.recipe.processes or 1
        if count > 1:
            check_rebuilt(self.recipe, self._folder)
            self._launcher = Launcher(WORKER, count, self._cure)
        elif self.recipe.processes is None and not self._resumed:
            self._start_unasked()
        return self

    def _start_unasked(self) -> None:
        """Start a second process where it makes the run faster, and keep that in its recipe."""
        if not gains_from_two(self.recipe) or not second_core_is_free():
            return
        try:
            self._launcher = Launcher(WORKER, 2, self._cure)
        except (ProcessError, OSError):  # a sandbox without a loopback, for example
            return
        with ExitStack() as failed:
            failed.callback(self._launcher.close, finished=False)
            self._folder.keep_setting("processes", 2, "a second core was free at the start")
            self.recipe = self.recipe.model_copy(update={"processes": 2})
            self._note(
                "processes = 2, as a second core is free; `--set processes=1` leaves it free"
            )
            failed.pop_all()

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
            recipe = self.recipe.model_copy(update=threads)
            group.broadcast(Job(recipe=recipe, folder=self._folder, resumed=self._resumed))
            self._told = True
        group.wait_for_first()  # the others build their parts after this one has made its models
        session.join(group)


def gains_from_two(recipe: Recipe) -> bool:
    """Whether a second process makes a run faster and can do no harm, if a core is free for it.

    It does in long runs of small models on a CPU. Code of the user's own may use what there is
    once, such as a port or a file, and an env that waits for programs has them on the other core.
    """
    env = ENVS.get(recipe.env.name, GymnasiumEnv)
    return (
        sys.platform == "linux"
        and not (issubclass(env, GymnasiumEnv | PettingZooEnv) or env.blocking)
        and not _has_own_code(recipe.model_dump(mode="json"))
        and recipe.threads is None
        and not cores_are_chosen()
        and recipe.device in ("auto", "cpu")
        and not torch.cuda.is_available()
        and torch.distributed.is_available()
        and torch.distributed.is_gloo_available()
        and all(map(_is_small, recipe.policies.values()))
        and recipe.rows_before_training + recipe.episodes_of_training >= LONG
        and free_memory() >= MEMORY
    )


def _has_own_code(value: object) -> bool:
    """Whether a recipe's values name an object of the user's, as "file.py:Name"."""
    if isinstance(value, dict):
        return any(map(_has_own_code, value.values()))
    if isinstance(value, list):
        return any(map(_has_own_code, value))
    return isinstance(value, str) and is_import_name(value)


def _is_small(policy: PolicyConfig | RemoteConfig) -> bool:
    """Whether a policy is a model made on the spot that is surely computed on one thread."""
    if policy.kind != "weights" or not is_nano(policy.model):
        return False
    sizes = policy.nano or PRESETS[policy.model]
    embeddings = sizes.hidden * sizes.max_words * (1 if sizes.tied_embeddings else 2)
    return default_threads(sizes.layer_weights + embeddings) is not None


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
