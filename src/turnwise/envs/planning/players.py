"""Players of planning puzzles without a model: constants, reflexes and the solver.

Provides `players_of`, `moves_ahead`, `random_moves` and `any_moves`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.envs.base import Baseline
from turnwise.envs.planning.library import APPLY, LEGAL, Rules
from turnwise.envs.planning.puzzle import P, Puzzle, Reflex
from turnwise.envs.planning.state import PlanState

Choice = Callable[[PlanState[P], int], Sequence[str]]
"""From a state and the most moves to the moves of a player."""


@dataclass(frozen=True, kw_only=True)
class Calls:
    """How a tool calls: as a program or not, and the most moves of a call of `apply`."""

    program: bool
    most: int

    def propose(self, moves: Sequence[str]) -> str:
        """Return a call that proposes moves."""
        text = " ".join(moves)
        return f"print({text!r})" if self.program else f"{APPLY} {text}"

    def ask(self, name: str, words: str = "") -> str:
        """Return a call of a function."""
        said = repr(words) if words else ""
        return f"print({name}({said}))" if self.program else f"{name} {words}".strip()


def players_of(
    puzzle: Puzzle[P],
    calls: Calls,
    most_moves: int,
    calls_next: Callable[[PlanState[P]], bool],
) -> Mapping[str, Baseline]:
    """Return the players of a puzzle by name, the solver last.

    Args:
        puzzle: the puzzle.
        calls: how tools call.
        most_moves: the most moves of an answer.
        calls_next: whether a tool acts in a state.
    """

    def player(choose: Choice[P]) -> Baseline:
        def play(state: PlanState[P], rng: np.random.Generator) -> str:
            if calls_next(state):
                return calls.propose(choose(state, calls.most))
            return " ".join(choose(state, most_moves))

        return play

    def first_legal(state: PlanState[P], rng: np.random.Generator) -> str:
        if calls_next(state):
            return calls.ask(LEGAL)
        known: Sequence[str] = puzzle.rules.moves(state.position)
        legal = (move for move in known if puzzle.rules.apply(state.position, move) is not None)
        return next(legal, known[0])

    constants = {
        f"always-{'-'.join(move.lower().replace('=', ' ').split())}": player(_always(move))
        for move in puzzle.constants
    }
    reflexes = {
        name: player(_following(puzzle.rules, reflex)) for name, reflex in puzzle.reflexes().items()
    }

    def random_legal(state: PlanState[P], rng: np.random.Generator) -> str:
        proposes = calls_next(state)
        moves = random_moves(
            puzzle.rules, state.position, calls.most if proposes else most_moves, rng
        )
        return calls.propose(moves) if proposes else " ".join(moves)

    others = {
        "first-legal": first_legal,
        "random-legal": random_legal,
        "optimal": player(_solving(puzzle)),
    }
    return {**constants, **reflexes, **others}


def moves_ahead(
    rules: Rules, reflex: Reflex[P], position: P, most: int, last: str = ""
) -> list[str]:
    """Return the next moves of a reflex, at least one, until one is forbidden or solves."""
    moves = list[str]()
    while len(moves) < most:
        last = reflex(position, last)
        moves.append(last)
        after = rules.apply(position, last)
        if after is None or rules.solved(after):
            break
        position = after
    return moves


def random_moves(rules: Rules, position: Any, most: int, rng: np.random.Generator) -> list[str]:
    """Return 1 to `most` random moves, each possible after those before, until one solves.

    Where none is possible, any one is returned.
    """
    found = list[str]()
    for _ in range(int(rng.integers(most)) + 1):
        known: Sequence[str] = rules.moves(position)
        after = {move: rules.apply(position, move) for move in known}
        possible = [move for move in known if after[move] is not None] or known
        found.append(possible[int(rng.integers(len(possible)))])
        reached = after[found[-1]]
        if reached is None or rules.solved(reached):
            break
        position = reached
    return found


def _always(move: str) -> Choice[P]:
    return lambda state, most: [move] * most


def _following(rules: Rules, reflex: Reflex[P]) -> Choice[P]:
    return lambda state, most: moves_ahead(rules, reflex, state.position, most, state.last)


def _solving(puzzle: Puzzle[P]) -> Choice[P]:
    """Return the next moves of a solution; the first possible move where none is known."""

    def choose(state: PlanState[P], most: int) -> Sequence[str]:
        found = puzzle.solve(state.position)
        return found[:most] if found else puzzle.rules.moves(state.position)[:1]

    return choose


def any_moves(rules: Rules, position: Any, most: int, rng: np.random.Generator) -> list[str]:
    """Return 1 to `most` random moves of those that have a name, possible or not."""
    known: Sequence[str] = rules.moves(position)
    return [known[int(i)] for i in rng.integers(len(known), size=rng.integers(most) + 1)]
