"""The env of a planning puzzle: a tool role that makes one call, and a planner that moves.

Provides `PlanningEnv`, which makes an env of a `Puzzle`.

Task: a position of a puzzle, to be solved. An episode has at most `rounds` rounds.
What each role sees: both see the position. In each round the seat `tool` acts first; the seat
    `planner` then also sees the call and its result. With `roles = "two"` each seat is a role of
    its own name; with `roles = "one"` both are seats of the role `player`.
Actions: the tool calls one function of the library, as in `apply UP UP RIGHT` (`library.py`), or
    with `runner = "sandbox"` writes a program that may call them. The planner answers with one
    move, or with 1 to `moves_per_turn` moves. A forbidden move is not made, and ends the list.
Rewards:
    `solved` (team): 1 for the move that solves the puzzle.
    `progress` (team): the change of the team's potential by the planner's moves. A potential is 0
        at the start, 1 when solved, and -1 where nothing can be solved any more.
    `move_useful` (agent): the change of the roles' potential by the planner's moves.
    `call_useful` (agent): the potential of where the moves that the tool proposed lead, minus that
        of its last proposal (of the start before the first). A call that proposes no moves
        proposes to stay.
    `call_failed` (process): 1 for a call that has no answer.
    `illegal` (process): 1 for a list with a forbidden move.
    The last two are for negative weights. The others telescope, so that no weights of them pay for
    moving back and forth.
End: terminated when solved; truncated when the rounds are over. The score is 1 if solved, else 0.
Measures: `rounds` begun, `moves` made.
Baselines: random; always-MOVE, a constant call and move; first-legal, which always calls `legal`
    and plays the first move of the answer; the puzzle's reflexes; optimal, the solver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, ClassVar, Generic

import numpy as np

from turnwise.envs.base import Baseline, Env, Level, Observation, Step
from turnwise.envs.planning.library import (
    APPLY,
    LEGAL,
    MOST_READ,
    CallError,
    answer,
    run_moves,
    split_moves,
)
from turnwise.envs.planning.programs import run_tool
from turnwise.envs.planning.puzzle import P, Puzzle
from turnwise.envs.planning.state import PlanningConfig, PlanState, potential
from turnwise.envs.whose_turn import check_turn
from turnwise.errors import ConfigError, DataError, IllegalActionError
from turnwise.types import Task

TOOL, PLANNER = "tool", "planner"
MOST_DRAWS = 5000
"""The most tasks drawn for one that every reflex fails."""


class PlanningEnv(Env[PlanState[P]], Generic[P]):
    """The env described in the docstring of this module; a subclass gives it a puzzle."""

    components: ClassVar[Mapping[str, Level]] = {
        "solved": "team",
        "progress": "team",
        "move_useful": "agent",
        "call_useful": "agent",
        "call_failed": "process",
        "illegal": "process",
    }

    def __init__(self, config: PlanningConfig, puzzle: Puzzle[P]) -> None:
        self.config: PlanningConfig = config
        self.puzzle = puzzle
        self.roles = ("player",) if config.roles == "one" else (TOOL, PLANNER)
        self.max_turns = 2 * config.rounds
        self.blocking = self.runs_programs = config.runner == "sandbox"

    @property
    def seats(self) -> Mapping[str, str]:
        """The seats `tool` and `planner` and their roles."""
        return {seat: self.roles[0] if len(self.roles) == 1 else seat for seat in (TOOL, PLANNER)}

    def acting(self, state: PlanState[P]) -> tuple[str, ...]:
        """Return the tool before the call of a round, the planner after it."""
        return (TOOL,) if state.call is None else (PLANNER,)

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a task that the solver solves within the rounds.

        Raises:
            ConfigError: if tasks must be hard, and the reflexes fail hardly any.
        """
        most = self.config.rounds * self.config.moves_per_turn
        for _ in range(MOST_DRAWS if self.config.hard else 1):
            data = self.puzzle.generate(rng, most)
            if not self.config.hard and self.config.round_limit is None:
                return data
            first = self.puzzle.first(data)
            rounds = self._rounds(first)
            if not self.config.hard or not self.reflex_solves(first, rounds):
                return data | {"rounds": rounds}
        raise ConfigError(
            f"{self.name}: a reflex solves all of {MOST_DRAWS} tasks within {self.config.rounds} "
            "rounds: set hard = false, lower rounds, or make the tasks harder"
        )

    def _rounds(self, first: P) -> int:
        """Return the rounds of an episode that begins in `first`."""
        if self.config.round_limit is None:
            return self.config.rounds
        moves = len(self.puzzle.solve(first) or ())
        needed = -(-moves // self.config.moves_per_turn)
        return min(self.config.rounds, ceil(self.config.round_limit * needed))

    def reflex_solves(self, first: P, rounds: int) -> bool:
        """Return whether a reflex solves a position within the rounds."""
        most = rounds * self.config.moves_per_turn
        for reflex in self.puzzle.reflexes().values():
            moves = self._ahead(reflex, first, "", most)
            if self.puzzle.rules.solved(run_moves(self.puzzle.rules, first, moves)[0]):
                return True
        return False

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return a text that is equal for tasks that are equal up to symmetry."""
        return self.puzzle.canonical(data)

    def reset(self, task: Task) -> PlanState[P]:
        """Return the first state of `task`.

        Raises:
            DataError: if the task's data are not those of a task.
        """
        first = self.puzzle.first(task.data)
        rounds, most = task.data.get("rounds", self.config.rounds), self.config.rounds
        if not isinstance(rounds, int) or not 1 <= rounds <= most:
            raise DataError(f"task {task.id!r} has rounds = {rounds!r}: give 1 to {most}")
        costs = (self.puzzle.team_cost(first), self.puzzle.role_cost(first))
        return PlanState(position=first, left=rounds, costs=costs)

    def observe(self, state: PlanState[P], role: str) -> Observation:
        """Return the position; for the planner also the call and its result."""
        lines = list(self.puzzle.lines(state.position))
        one = role == PLANNER and self.config.moves_per_turn == 1
        if role == PLANNER:
            lines += ["no call"] if state.call is None else [f"call {state.call}", state.result]
        lines.append("your call" if role == TOOL else "your move")
        return Observation(
            text="\n ".join(lines),
            legal_actions=tuple(self.puzzle.rules.moves(state.position)) if one else (),
            description=self.puzzle.description(state.position),
        )

    def state_key(self, state: PlanState[P], role: str) -> str:
        """Return the text, the rounds left, and what later rewards are measured against."""
        text, (team, own) = self.observe(state, role).text, state.costs
        proposed = f" proposed {state.proposed:.6f}" if role == TOOL else ""
        return f"{text}\n left {state.left} costs {team:g} {own:g}{proposed}"

    def step(
        self, state: PlanState[P], role: str, action: str, noise: np.random.Generator
    ) -> Step[PlanState[P]]:
        """Return the state after a call or a list of moves; nothing is random.

        Raises:
            IllegalActionError: if the planner's answer is no list of moves.
            EnvError: if the episode is over, or it is not this seat's turn.
            SandboxError: if the sandbox itself fails.
        """
        check_turn(self, state, role, ended=state.ended)
        if role == TOOL:
            run = self._program if self.config.runner == "sandbox" else self._call
            return self._called(state, *run(state.position, action))
        return self._moved(state, action)

    def _call(self, position: P, action: str) -> tuple[str, str, Sequence[str], bool]:
        """Return the call and its result as they are shown, the proposed moves, and its success."""
        rules, most = self.puzzle.rules, self.config.moves_per_call
        words = action.split() if len(action) <= MOST_READ else []
        try:
            result = answer(rules, position, words, most)
        except CallError:
            return "failed", "no result", (), False
        moves = split_moves(rules, position, words[1:], most) if words[0] == APPLY else ()
        return " ".join(words), result, moves, True

    def _program(self, position: P, action: str) -> tuple[str, str, Sequence[str], bool]:
        """Run a program; its proposal is the last line that it printed, if that is moves."""
        rules, most = self.puzzle.rules, self.config.moves_per_call
        printed, ran = run_tool(rules, action, tuple(position), most)
        lines = printed.split("\n")
        try:
            moves = split_moves(rules, position, lines[-1].split(), most) if ran else ()
        except CallError:
            moves = ()
        shown = "\n ".join(" ".join(line.split()) for line in lines)
        return "program" if ran else "failed", shown or "no result", moves, ran

    def _called(
        self, state: PlanState[P], call: str, result: str, moves: Sequence[str], ran: bool
    ) -> Step[PlanState[P]]:
        end = run_moves(self.puzzle.rules, state.position, moves)[0]
        proposed = potential(self.puzzle.role_cost(end), state.costs[1])
        rewards = {"call_useful": proposed - state.proposed, "call_failed": float(not ran)}
        after = replace(state, begun=state.begun + 1, call=call, result=result, proposed=proposed)
        return Step(state=after, rewards=rewards, terminated=False, truncated=False)

    def _moved(self, state: PlanState[P], action: str) -> Step[PlanState[P]]:
        rules, before = self.puzzle.rules, state.position
        try:
            words = action.split() if len(action) <= MOST_READ else []
            moves = split_moves(rules, before, words, self.config.moves_per_turn)
        except CallError as error:
            raise IllegalActionError(f"{action[:40]!r} is no list of moves: {error}") from None
        position, count = run_moves(rules, before, moves)
        after = replace(
            state,
            position=position,
            left=state.left - 1,
            call=None,
            result="",
            last=moves[count - 1] if count else state.last,
            moves=state.moves + count,
            solved=rules.solved(position),
        )
        team, own = state.costs
        measured = (
            ("progress", self.puzzle.team_cost, team),
            ("move_useful", self.puzzle.role_cost, own),
        )
        rewards = {
            name: potential(cost(position), start) - potential(cost(before), start)
            for name, cost, start in measured
        }
        rewards["solved"] = float(after.solved)
        rewards["illegal"] = float(count < len(moves) and not after.solved)
        ended = after.solved
        return Step(
            state=after, rewards=rewards, terminated=ended, truncated=not ended and not after.left
        )

    def score(self, state: PlanState[P]) -> float:
        """Return 1 if the puzzle is solved, else 0."""
        return float(state.solved)

    def measures(self, state: PlanState[P]) -> dict[str, float]:
        """Return the rounds begun and the moves made."""
        return {"rounds": float(state.begun), "moves": float(state.moves)}

    def random_action(self, state: PlanState[P], role: str, rng: np.random.Generator) -> str:
        """Return a random call or program of the tool, or a random list of moves of the planner.

        Functions, lengths of lists, and moves are uniform.
        """
        if role == PLANNER:
            return self._random_moves(state.position, self.config.moves_per_turn, rng)
        names = (LEGAL, APPLY, *self.puzzle.rules.QUERIES)
        name, words = names[rng.integers(len(names))], ""
        if name == APPLY:
            words = self._random_moves(state.position, self.config.moves_per_call, rng)
        elif name != LEGAL:
            words = self.puzzle.query_words(name, state.position, rng)
        if self.config.runner == "call":
            return f"{name} {words}".strip()
        said = f"print({words!r})" if name == APPLY and rng.integers(2) else ""
        return said or f"print({name}({words!r}))"

    def _random_moves(self, position: P, most: int, rng: np.random.Generator) -> str:
        known: Sequence[str] = self.puzzle.rules.moves(position)
        return " ".join(
            known[int(i)] for i in rng.integers(len(known), size=rng.integers(most) + 1)
        )

    def baselines(self) -> Mapping[str, Baseline]:
        """Return the baselines of the module docstring."""
        found = dict(super().baselines())
        for move in self.puzzle.constants:
            found[f"always-{'-'.join(move.lower().split())}"] = self._player(_always(move))
        for name, reflex in self.puzzle.reflexes().items():
            found[name] = self._player(
                lambda state, most, reflex=reflex: self._ahead(
                    reflex, state.position, state.last, most
                )
            )
        return found | {"first-legal": self._first_legal, "optimal": self._player(self._solution)}

    def _first_legal(self, state: PlanState[P], rng: np.random.Generator) -> str:
        if state.call is None:
            return LEGAL if self.config.runner == "call" else f"print({LEGAL}())"
        known: Sequence[str] = self.puzzle.rules.moves(state.position)
        legal = (
            move for move in known if self.puzzle.rules.apply(state.position, move) is not None
        )
        return next(legal, known[0])

    def _player(self, choose: Callable[[PlanState[P], int], Sequence[str]]) -> Baseline:
        """Return a player whose tool proposes, and whose planner plays, the chosen moves."""

        def play(state: PlanState[P], rng: np.random.Generator) -> str:
            if state.call is not None:
                return " ".join(choose(state, self.config.moves_per_turn))
            moves = " ".join(choose(state, self.config.moves_per_call))
            return f"{APPLY} {moves}" if self.config.runner == "call" else f"print({moves!r})"

        return play

    def _ahead(
        self, reflex: Callable[[P, str], str], position: P, last: str, most: int
    ) -> list[str]:
        """Return the next moves of a reflex, at least one, until one is forbidden or solves."""
        rules, moves = self.puzzle.rules, list[str]()
        while len(moves) < most:
            last = reflex(position, last)
            moves.append(last)
            after = rules.apply(position, last)
            if after is None or rules.solved(after):
                break
            position = after
        return moves

    def _solution(self, state: PlanState[P], most: int) -> Sequence[str]:
        """Return the next moves of a solution; the first possible move where none is known."""
        found = self.puzzle.solve(state.position)
        return found[:most] if found else self.puzzle.rules.moves(state.position)[:1]

    def vocabulary(self) -> tuple[str, ...]:
        """Return the words of the puzzle and of calls and results."""
        own = "apply legal call failed program no result ran your move none"
        return (*own.split(), *self.puzzle.rules.QUERIES, *self.puzzle.vocabulary())

    def render(self, state: PlanState[P]) -> str:
        """Return a picture of the position, with the call and its result."""
        said = [] if state.call is None else [f"call {state.call}: {state.result}"]
        return "\n".join([self.puzzle.render(state.position), *said])


def _always(move: str) -> Callable[[Any, int], list[str]]:
    return lambda state, most: [move] * most
