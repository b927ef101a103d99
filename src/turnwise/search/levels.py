"""The tries of a search as a trained searcher is shown them: levels in place of values.

Provides `LevelSpace`, between the parameters of a policy and the levels of the env `policy-search`,
`Labels`, by which a searcher is shown them, `check_size` and `task_data`. Actions are levels
themselves. Weights have the nine levels -6, -4.5, ..., 6, so that each is one digit; weights
between them are shown as the nearest one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.envs.policy_search.env import CHOICES, PolicySearchConfig
from turnwise.envs.policy_search.functions import Levels
from turnwise.envs.policy_search.text import read_levels
from turnwise.errors import ConfigError, IllegalActionError
from turnwise.search.config import Control
from turnwise.search.history import History
from turnwise.search.parsing import UnreadableError
from turnwise.search.space import Params, ParamSpace
from turnwise.seeding import generator

WEIGHT_LEVELS = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelSpace:
    """The levels of a space of parameters.

    Example:
        >>> space = LevelSpace(space=ParamSpace(count=2, low=-60, high=60, decimals=1))
        >>> space.levels_of((-60, 8)), space.params_of((0, 5))
        ((0, 5), (-60, 15))
    """

    space: ParamSpace

    @property
    def levels(self) -> int:
        """The number of levels."""
        return self.space.size if self.space.choices else WEIGHT_LEVELS

    @property
    def _width(self) -> float:
        """The steps between two levels."""
        return (self.space.high - self.space.low) / (self.levels - 1)

    def levels_of(self, params: Params) -> Levels:
        """Return the nearest levels of parameters."""
        low = self.space.low
        return tuple(round((value - low) / self._width) for value in params)

    def params_of(self, levels: Levels) -> Params:
        """Return the parameters of levels."""
        return tuple(self.space.low + round(level * self._width) for level in levels)

    def tries_of(self, history: History) -> list[tuple[Levels, float]]:
        """Return the levels and the mean of each try that has parameters, in their order."""
        return [
            (self.levels_of(each.params), each.mean)
            for each in history.tries
            if each.params is not None
        ]

    def read(self, text: str, space: ParamSpace) -> Params:
        """Return the parameters of an answer.

        Raises:
            UnreadableError: if it is none.
        """
        try:
            return self.params_of(read_levels(text, self.space.count, self.levels))
        except IllegalActionError as error:
            raise UnreadableError(str(error)) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Labels:
    """Other places and levels by which a searcher is shown parameters.

    A small model prefers some names to others, and would find sooner what is called by these. With
    labels that are drawn for each prompt no parameter and no level is preferred on average.

    Attributes:
        places: of each place that is shown, the place of its parameter.
        levels: of each level, the level as which it is shown.

    Example:
        >>> labels = Labels(places=(2, 0, 1), levels=(1, 0))
        >>> labels.shown((0, 0, 1)), labels.meant((0, 1, 1))
        ((0, 1, 1), (0, 0, 1))
    """

    places: tuple[int, ...]
    levels: tuple[int, ...]

    @classmethod
    def drawn(cls, count: int, levels: int, ordered: bool, rng: np.random.Generator) -> Labels:
        """Draw labels: any order of places and levels, or of amounts theirs or the opposite one."""
        places = tuple(rng.permutation(count).tolist())
        if not ordered:
            return cls(places=places, levels=tuple(rng.permutation(levels).tolist()))
        step = 1 if rng.random() < 0.5 else -1
        return cls(places=places, levels=tuple(range(levels))[::step])

    def shown(self, params: Levels) -> Levels:
        """Return the levels of parameters as they are shown."""
        return tuple(self.levels[params[place]] for place in self.places)

    def meant(self, shown: Levels) -> Levels:
        """Return the levels of the parameters that are shown so."""
        by_place = dict(zip(self.places, shown, strict=True))
        return tuple(self.levels.index(by_place[place]) for place in range(len(shown)))


def check_size(space: ParamSpace, trained: PolicySearchConfig, task: str, run: str) -> None:
    """Check that a searcher was trained on tasks of the size of a search.

    Raises:
        ConfigError: if not.
    """
    if not trained.least_params <= space.count <= trained.most_params:
        option = "least_params" if space.count < trained.least_params else "most_params"
        raise ConfigError(
            f"task {task!r} has {space.count} parameters, and the run '{run}' was trained with "
            f"least_params = {trained.least_params} to most_params = {trained.most_params}: choose "
            "another task, or train a searcher with "
            f"`turnwise train policy-search --set env.options.{option}={space.count}`"
        )
    least, most = CHOICES
    if space.choices and not least <= space.size <= most:
        raise ConfigError(
            f"task {task!r} has {space.size} actions, and a searcher is trained with {least} to "
            f"{most}: choose another task"
        )


def task_data(
    levels: LevelSpace, labels: Labels, history: History, control: Control, seed: int, slot: int
) -> dict[str, Any]:
    """Return the task of the env `policy-search` that a history is.

    Args:
        levels: of the parameters.
        labels: by which they are shown.
        history: what was tried.
        control: whether tries are left out, or their scores shuffled.
        seed: of the shuffle.
        slot: the number of the evaluation.
    """
    tries = levels.tries_of(history)
    scores = np.array([score for _, score in tries])
    if control == "shuffled":
        generator(seed, "search control", slot).shuffle(scores)
    shown = [
        [list(labels.shown(own)), float(score)]
        for (own, _), score in zip(tries, scores, strict=True)
    ]
    return {
        "count": levels.space.count, "levels": levels.levels,
        "ordered": not levels.space.choices, "tries": [] if control == "blank" else shown,
    }  # fmt: skip
