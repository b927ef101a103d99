"""The env of a planning puzzle: a tool role that makes one call, and a planner that moves.

Provides `PlanningEnv`, which makes an env of a `Puzzle`.

Task: a position of a puzzle, to be solved. An episode has at most `rounds` rounds.
What each role sees: both see the position. In each round the seat `tool` acts first; the seat
    `planner` then also sees the call and its result. With `tools = n` the seats `tool-1` to
    `tool-n` call one after another. With `planners = n` the seats `planner-1` to `planner-n`
    propose moves, and the seat `judge` sees all calls and proposals and moves. With `roles =
    "two"` each kind of seat is a role; with `roles = "one"` all are seats of the role `player`.
Actions: the tool calls one function of the library, as in `apply UP UP RIGHT` (`library.py`), or
    with `runner = "sandbox"` writes a program that may call them. The planner answers with one
    move, or with 1 to `moves_per_turn` moves, and so does the judge. A forbidden move is not made,
    and ends the list. With `waits = n` who moves may answer `wait` in up to n rounds running: no
    move is made, and the next rounds show the calls of these rounds, too.
Rewards:
    `solved` (team): 1 for the move that solves the puzzle.
    `progress` (team): the change of the team's potential by the moves that are made. A potential
        is 0 at the start, 1 when solved, and never below -1.
    `move_useful` (agent): the change of the roles' potential by the moves that are made. It is -1
        where the role's cost is infinite: nothing can be solved any more. With `cost = "moves"`
        both potentials are the share of the moves of a shortest solution that are done.
    `call_useful` (agent): the potential of where the moves that a seat proposed lead, minus that
        of its last proposal (of the start before the first). A call that proposes no moves
        proposes to stay.
    `call_failed` (process): 1 for a call that has no answer.
    `illegal` (process): 1 for a list with a forbidden move, of any seat but a tool.
    `idle` (process): 1 for moves that leave the position as it is, and for `wait`. Without a cost,
        a policy whose moves are often wrong waits, and never learns which one is right.
    `call_idle` (process): 1 for a call or a proposal of no moves that change the position, such as
        a question. With a cost of its own a team may ask before it moves.
    The last four are for negative weights. The others telescope, so that no weights of them pay
    for moving back and forth.
End: terminated when solved, and with `end_when_lost` when a role's cost is infinite; truncated when
    the rounds are over. The score is 1 if solved, else 0.
Measures: `rounds` begun, `moves` made.
Baselines: random; always-MOVE, a constant call and move; first-legal, which always calls `legal`
    and plays the first move of the answer; random-legal, random moves that are possible; the
    puzzle's reflexes; optimal, the solver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, inf
from typing import Any, ClassVar, Generic

import numpy as np

from turnwise.envs.base import Baseline, Env, Level, Observation, Step
from turnwise.envs.planning.library import (
    APPLY,
    LEGAL,
    MOST_READ,
    WAIT,
    CallError,
    run_moves,
    split_moves,
)
from turnwise.envs.planning.players import Calls, any_moves, moves_ahead, players_of
from turnwise.envs.planning.puzzle import P, Puzzle
from turnwise.envs.planning.state import (
    PLANNER,
    TOOL,
    PlanningConfig,
    PlanState,
    Seating,
    potential,
)
from turnwise.envs.planning.tool_calls import ToolResult, answer_call, run_program
from turnwise.envs.whose_turn import check_turn
from turnwise.errors import ConfigError, DataError, IllegalActionError
from turnwise.types import Task

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
        "idle": "process",
        "call_idle": "process",
    }

    def __init__(self, config: PlanningConfig, puzzle: Puzzle[P]) -> None:
        self.config: PlanningConfig = config
        self.puzzle = puzzle
        self.seating = Seating.of(config)
        kinds = tuple(dict.fromkeys(map(self.seating.kind, self.seating.order)))
        self.roles = ("player",) if config.roles == "one" else kinds
        self.max_turns = len(self.seating.order) * config.rounds
        self.blocking = self.runs_programs = config.runner == "sandbox"

    @property
    def seats(self) -> Mapping[str, str]:
        """The seats in the order of their turns, and their roles."""
        one = self.config.roles == "one"
        return {seat: "player" if one else self.seating.kind(seat) for seat in self.seating.order}

    def acting(self, state: PlanState[P]) -> tuple[str, ...]:
        """Return the seat whose turn it is in the round."""
        return (self.seating.order[state.turn],)

    def calls_next(self, state: PlanState[P]) -> bool:
        """Whether a tool acts in `state`."""
        return state.turn < len(self.seating.tools)

    def may_wait(self, state: PlanState[P], seat: str) -> bool:
        """Whether a seat may answer `wait` in this round."""
        return seat == self.seating.mover and state.waited < self.config.waits

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a task that the solver solves within the rounds.

        Raises:
            ConfigError: if a task must be hard, and the reflexes fail hardly any.
        """
        most = self.config.rounds * self.config.moves_per_turn
        share = self.config.hard_share
        hard = self.config.hard and (share == 1 or rng.random() < share)
        for _ in range(MOST_DRAWS if hard else 1):
            data = self.puzzle.generate(rng, most, hard)
            if not hard and self.config.round_limit is None:
                return data
            first = self.puzzle.first(data)
            rounds = self._rounds(first)
            if not hard or not self.reflex_solves(first, rounds):
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
            moves = moves_ahead(self.puzzle.rules, reflex, first, most)
            if self.puzzle.rules.solved(run_moves(self.puzzle.rules, first, moves)[0]):
                return True
        return False

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return a text that is equal for tasks that are equal up to symmetry."""
        return self.puzzle.canonical(data)

    def reset(self, task: Task) -> PlanState[P]:
        """Return the first state of `task`.

        Raises:
            DataError: if the task's data are not those of a task, or the puzzle is solved or has no
                solution: potentials are shares of what it costs.
        """
        first = self.puzzle.first(task.data)
        rounds, most = task.data.get("rounds", self.config.rounds), self.config.rounds
        if type(rounds) is not int or not 1 <= rounds <= most:
            raise DataError(f"task {task.id!r} has rounds = {rounds!r}: give 1 to {most}")
        costs = self.costs(first)
        if not all(0 < cost < inf for cost in costs):
            raise DataError(
                f"task {task.id!r} costs {costs[0]:g} and {costs[1]:g}: expected numbers above 0; "
                "it is solved already, or no solution of it is found: give another"
            )
        proposed = (0.0,) * (len(self.seating.order) - 1)
        left = min(rounds, self.config.cut_after or rounds)
        return PlanState(position=first, left=left, costs=costs, proposed=proposed)

    def costs(self, position: P) -> tuple[float, float]:
        """Return the costs of the team and of the roles; infinite where nothing can be solved."""
        if self.config.cost == "moves":
            moves = self.puzzle.solve(position)
            cost = inf if moves is None else float(len(moves))
            return cost, cost
        return self.puzzle.team_cost(position), self.puzzle.role_cost(position)

    def observe(self, state: PlanState[P], role: str) -> Observation:
        """Return the position, and the calls and proposals that are made before the seat acts."""
        seats, lines = self.seating, list(self.puzzle.lines(state.position))
        described, tools = self.config.described, seats.tools
        calls = state.calls[: tools.index(role)] if role in tools else state.calls
        shown = (*state.earlier_calls, *calls)
        takes_in = described and not self.runs_programs  # programs may print anything
        told = [result for _, result in shown if takes_in and self.puzzle.takes_in(result)]
        description = self.puzzle.description(state.position, told)
        # after the calls it is at one distance from the answer, however many calls there are
        last = described and bool(self.config.waits or told)
        if described and not last:
            lines.append(description)
        if self.config.last_moves:
            lines.append(f"last {' '.join(state.tried) or 'none'}")
        if role not in tools:  # of calls before this round, what they found is enough
            shown = (*(call for call in state.earlier_calls if call[1] not in told), *calls)
            if not calls:
                lines.append("no call")
        for call, result in shown:
            lines += [f"call {call}"] if result in told else [f"call {call}", result]
        if role not in tools:
            most = seats.planners.index(role) if role in seats.planners else len(state.plans)
            lines += [f"plan {plan}" for plan in state.plans[:most]]
        if last:
            lines.append(description)
        one = role not in tools and self.config.moves_per_turn == 1
        waits = (WAIT,) if self.may_wait(state, role) else ()
        asked = {TOOL: "call", PLANNER: "plan" if seats.planners else "move"}
        lines.append(" or ".join((f"your {asked.get(seats.kind(role), 'move')}", *waits)))
        return Observation(
            text="\n ".join(lines),
            legal_actions=(*self.puzzle.rules.moves(state.position), *waits) if one else (),
            description="" if described else description,
        )

    def state_key(self, state: PlanState[P], role: str) -> str:
        """Return the text, the rounds left, and what later rewards are measured against."""
        text, (team, own) = self.observe(state, role).text, state.costs
        place = self.seating.order.index(role)
        proposed = f" proposed {state.proposed[place]:.6f}" if role != self.seating.mover else ""
        return f"{text}\n left {state.left} costs {team:g} {own:g}{proposed}"

    def step(
        self, state: PlanState[P], role: str, action: str, noise: np.random.Generator
    ) -> Step[PlanState[P]]:
        """Return the state after a call, a proposal or a list of moves; nothing is random.

        Raises:
            IllegalActionError: if the answer of a planner or of the judge is no list of moves.
            EnvError: if the episode is over, or it is not this seat's turn.
            SandboxError: if the sandbox itself fails.
        """
        check_turn(self, state, role, ended=state.ended)
        if role in self.seating.tools:
            run = run_program if self.runs_programs else answer_call
            most = self.config.moves_per_call
            return self._called(state, run(self.puzzle.rules, state.position, action, most))
        if role in self.seating.planners:
            return self._planned(state, action)
        return self._moved(state, action)

    def _called(self, state: PlanState[P], made: ToolResult) -> Step[PlanState[P]]:
        useful, proposed, _, idle = self._proposed(state, made.moves)
        begun = state.begun + (not state.calls)
        calls = (*state.calls, (made.call, made.result))
        after = replace(state, begun=begun, calls=calls, proposed=proposed)
        failed = float(not made.ran)
        rewards = {"call_useful": useful, "call_failed": failed, "call_idle": idle}
        return Step(state=after, rewards=rewards, terminated=False, truncated=False)

    def _planned(self, state: PlanState[P], action: str) -> Step[PlanState[P]]:
        moves = self._moves_of(state, action)
        useful, proposed, illegal, idle = self._proposed(state, moves)
        after = replace(state, plans=(*state.plans, " ".join(moves)), proposed=proposed)
        rewards = {"call_useful": useful, "illegal": illegal, "call_idle": idle}
        return Step(state=after, rewards=rewards, terminated=False, truncated=False)

    def _proposed(
        self, state: PlanState[P], moves: Sequence[str]
    ) -> tuple[float, tuple[float, ...], float, float]:
        """Return what a proposal of the acting seat is worth, and its `_faults`.

        In between are the potentials of all seats' last proposals.
        """
        place = state.turn
        end, count = run_moves(self.puzzle.rules, state.position, moves)
        value = potential(self.costs(end)[1], state.costs[1])
        known = state.proposed
        proposed = (*known[:place], value, *known[place + 1 :])
        faults = self._faults(state.position, end, count < len(moves))
        return value - known[place], proposed, *faults

    def _faults(self, before: P, after: P, stopped: bool) -> tuple[float, float]:
        """Return whether a forbidden move `stopped` moves, and whether they change nothing."""
        illegal = stopped and not self.puzzle.rules.solved(after)
        return float(illegal), float(after == before)

    def _moves_of(self, state: PlanState[P], action: str) -> Sequence[str]:
        """Return the moves of a planner's or a judge's answer.

        Raises:
            IllegalActionError: if it is no list of moves.
        """
        if len(action) > MOST_READ:
            raise IllegalActionError(
                f"{action[:40]!r}... is no list of moves: it has {len(action)} characters; give at "
                f"most {MOST_READ}"
            )
        words = action.split()
        try:
            return split_moves(self.puzzle.rules, state.position, words, self.config.moves_per_turn)
        except CallError as error:
            raise IllegalActionError(f"{action[:40]!r} is no list of moves: {error}") from None

    def _moved(self, state: PlanState[P], action: str) -> Step[PlanState[P]]:
        rules, before = self.puzzle.rules, state.position
        waits = action.strip() == WAIT and self.may_wait(state, self.seating.mover)
        moves = () if waits else self._moves_of(state, action)
        position, count = run_moves(rules, before, moves)
        costs = self.costs(position)
        after = replace(
            state,
            position=position,
            left=state.left - 1,
            calls=(),
            earlier_calls=state.shown_calls if waits else (),
            waited=state.waited + 1 if waits else 0,
            plans=(),
            last=moves[count - 1] if count else state.last,
            tried=self._tried(state, moves[: count + 1]),
            moves=state.moves + count,
            solved=rules.solved(position),
            lost=self.config.end_when_lost and costs[1] == inf,
        )
        measured = zip(
            ("progress", "move_useful"), costs, self.costs(before), state.costs, strict=True
        )
        rewards = {
            name: potential(now, start) - potential(earlier, start)
            for name, now, earlier, start in measured
        }
        rewards["solved"] = float(after.solved)
        rewards["illegal"], rewards["idle"] = self._faults(before, position, count < len(moves))
        ended = after.solved or after.lost
        return Step(
            state=after, rewards=rewards, terminated=ended, truncated=not ended and not after.left
        )

    def _tried(self, state: PlanState[P], moves: Sequence[str]) -> tuple[str, ...]:
        """Return the last moves that observations tell after `moves`."""
        told = self.config.last_moves
        return (*state.tried, *moves)[-told:] if told else ()

    def score(self, state: PlanState[P]) -> float:
        """Return 1 if the puzzle is solved, else 0."""
        return float(state.solved)

    def measures(self, state: PlanState[P]) -> dict[str, float]:
        """Return the rounds begun and the moves made."""
        return {"rounds": float(state.begun), "moves": float(state.moves)}

    def random_action(self, state: PlanState[P], role: str, rng: np.random.Generator) -> str:
        """Return a random call or program of a tool, or a random list of moves of another seat.

        Functions, lengths of lists, and moves are uniform.
        """
        if role not in self.seating.tools:
            number = len(self.puzzle.rules.moves(state.position)) + 1
            if self.may_wait(state, role) and not rng.integers(number):
                return WAIT
            most = self.config.moves_per_turn
            return " ".join(any_moves(self.puzzle.rules, state.position, most, rng))
        names = (LEGAL, APPLY, *self.puzzle.rules.QUERIES)
        name, words = names[rng.integers(len(names))], ""
        if name == APPLY:
            most = self.config.moves_per_call
            words = " ".join(any_moves(self.puzzle.rules, state.position, most, rng))
        elif name != LEGAL:
            words = self.puzzle.query_words(name, state.position, rng)
        if self.runs_programs and name == APPLY and rng.integers(2):
            return self.calls.propose(words.split())
        return self.calls.ask(name, words)

    def baselines(self) -> Mapping[str, Baseline]:
        """Return the baselines of the module docstring."""
        own = players_of(self.puzzle, self.calls, self.config.moves_per_turn, self.calls_next)
        return {**super().baselines(), **own}

    @property
    def calls(self) -> Calls:
        """How players without a model call."""
        return Calls(program=self.config.runner == "sandbox", most=self.config.moves_per_call)

    def vocabulary(self) -> tuple[str, ...]:
        """Return the words of the puzzle and of calls and results."""
        own = "apply legal call failed program no result ran your move none plan last"
        waits = ("or", WAIT) if self.config.waits else ()
        return (*own.split(), *waits, *self.puzzle.rules.QUERIES, *self.puzzle.vocabulary())

    def render(self, state: PlanState[P]) -> str:
        """Return a picture of the position, with the calls, their results, and the proposals."""
        said = [f"call {call}: {result}" for call, result in state.shown_calls]
        said += [f"plan {plan}" for plan in state.plans]
        return "\n".join([self.puzzle.render(state.position), *said])
