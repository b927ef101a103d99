"""What a planning puzzle must provide: `Puzzle`.

A puzzle is its rules (a module, see `library.Rules`), a generator, a solver, reflexes, texts, and
costs that measure how far a position is from solved. It knows no roles, rounds or rewards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from turnwise.envs.planning.library import Rules

P = TypeVar("P", bound=tuple[Any, ...])
Reflex = Callable[[P, str], str]
"""The next move from a position and the move before it, "" at first. It draws nothing."""


class Puzzle(ABC, Generic[P]):
    """A puzzle of positions `P`, which are NamedTuples of plain values.

    Attributes:
        rules: the rules, which also run in the sandbox (`library.Rules`).
        constants: moves that a constant player repeats.
    """

    rules: ClassVar[Rules]
    constants: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def generate(
        self, rng: np.random.Generator, most_moves: int, hard: bool = False
    ) -> dict[str, Any]:
        """Draw the JSON-able data of a task that `solve` solves in at most `most_moves` moves.

        With `hard`, tasks that a reflex solves are drawn again by the env. A puzzle may leave out
        tasks that a reflex solves in `most_moves` itself, where that is faster. The env may allow
        fewer moves.
        """

    @abstractmethod
    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return a text that is equal for tasks that are equal up to symmetry."""

    @abstractmethod
    def first(self, data: Mapping[str, Any]) -> P:
        """Return the first position of a task.

        Raises:
            DataError: if the data are not those of a task.
        """

    @abstractmethod
    def solve(self, position: P) -> Sequence[str] | None:
        """Return moves that solve a position; None where there are none or they are not found."""

    def reflexes(self) -> Mapping[str, Reflex[P]]:
        """Return players that look one move ahead, by name."""
        return {}

    @abstractmethod
    def team_cost(self, position: P) -> float:
        """Return what is left to do, at least 0; 0 where the position is solved."""

    def role_cost(self, position: P) -> float:
        """Return the cost that a role's own reward compares; infinite in a dead position."""
        return self.team_cost(position)

    @abstractmethod
    def lines(self, position: P) -> Sequence[str]:
        """Return the lines that both roles see: they tell all of the position."""

    def description(self, position: P, results: Sequence[str] = ()) -> str:
        """Return what matters in `lines`, true and without advice; "" where there is nothing.

        A puzzle may also say what matters in `results` of calls, those that it `takes_in`.
        """
        return ""

    def takes_in(self, result: str) -> bool:
        """Whether `description` takes in the result of a call, which is then not shown itself."""
        return False

    @abstractmethod
    def render(self, position: P) -> str:
        """Return a picture for people."""

    def query_words(self, name: str, position: P, rng: np.random.Generator) -> str:
        """Return random arguments of the query `name`; by default none."""
        return ""

    @abstractmethod
    def vocabulary(self) -> tuple[str, ...]:
        """Return all words of lines, descriptions, moves and results."""
