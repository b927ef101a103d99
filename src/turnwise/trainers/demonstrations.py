"""Rows to imitate: what the env's states look like, or what a file says.

Provides supervised rows. Demonstrations show how to see and how to speak, never what to do: their
actions are drawn uniformly, so whatever a later curve shows is reinforcement learning.
Every row is a function of (seed, step, number), so a resumed warm-up sees the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from turnwise.agents import AgentConfig, Exchange, demonstration, prompt_for
from turnwise.envs import Env, Observation, first_turn
from turnwise.errors import DataError
from turnwise.evaluation.perception import WALK, StatesRule
from turnwise.formats import ReplyFormat
from turnwise.render import Renderer
from turnwise.rollout.random_play import RandomGame, random_conversation, random_game
from turnwise.seeding import generator
from turnwise.tasks import GeneratedTasks, SftRow, sft_rows
from turnwise.types import Prompt, TrainingSample

EXAMPLES = 32
"""Demonstrations that are looked at before any is learned from."""
LONG_GAME, MOST_OF_A_GAME = 16, 8
"""Turns of a mean random game that are worth one row of it, and the most rows of one game: long
games cost more to play than rows cost to learn."""


class RowSource(Protocol):
    """A source of supervised rows."""

    def batch(self, step: int, count: int) -> list[TrainingSample]:
        """Return the `count` rows of an optimizer step."""
        ...

    def examples(self) -> list[TrainingSample]:
        """Return all rows there are; of endlessly many, some."""
        ...


@dataclass(frozen=True, kw_only=True)
class Demonstrations:
    """States of fresh tasks, truly described, each with a uniformly random legal action.

    `states` are those that tasks begin in, or uniformly drawn turns of games of random actions,
    with their past; a turn whose row has more tokens than `context` is replaced by an earlier one.
    """

    env: Env[Any]
    tasks: GeneratedTasks
    agent: AgentConfig
    renderer: Renderer
    policy: str
    seed: int
    states: StatesRule = "first"
    context: int | None = None

    def row(self, index: int) -> TrainingSample:
        """Return row number `index`."""
        return self._row_of_game(index) if self.states == "play" else self._first_row(index)

    def _row_of_game(self, index: int) -> TrainingSample:
        """Return a row of a random game; neighbouring rows may share one."""
        game, rng = self._game(index // self._shared), generator(self.seed, "turn", index)
        turn = int(rng.integers(len(game.states)))
        while True:
            state = game.states[turn]
            observation = self.env.observe(state, game.seat)
            action = self.env.random_action(state, game.seat, rng)
            row = self._imitated(list(game.past[:turn]), observation, action)
            if not turn or self.context is None or len(row.token_ids) <= self.context:
                return row
            turn //= 2

    def _game(self, number: int) -> RandomGame:
        if number not in self._latest:
            rng, task = generator(self.seed, "random game", number), self.tasks.task(number)
            self._latest.clear()
            self._latest[number] = random_game(self.env, task, self.agent, self.renderer, rng)
        return self._latest[number]

    @cached_property
    def _latest(self) -> dict[int, RandomGame]:
        """The game that the latest row was taken from, by its number."""
        return {}

    @cached_property
    def _shared(self) -> int:
        """The number of rows taken from one game."""
        length = np.mean([len(self._game(number).states) for number in range(EXAMPLES)])
        return int(np.clip(length // LONG_GAME, 1, MOST_OF_A_GAME))

    def _first_row(self, index: int) -> TrainingSample:
        rng = generator(self.seed, "demonstration", index)
        task, past = self.tasks.task(index), []
        state, seat = first_turn(self.env, task, self.agent.role, rng)
        observation = self.env.observe(state, seat)
        if observation.tools:  # later turns look different: results of calls come before them
            found = random_conversation(self.env, task, self.agent, self.renderer, rng, WALK)
            state, seat, past = found.state, found.seat, list(found.past)
            observation = self.env.observe(state, seat)
        return self._imitated(past, observation, self.env.random_action(state, seat, rng))

    def _imitated(
        self, past: list[Exchange], observation: Observation, action: str
    ) -> TrainingSample:
        """Return the row in which `action` is the reply to `observation`."""
        reply = demonstration(self.agent, observation.description, action)
        reply = self.renderer.spoken(reply) if observation.tools else reply
        prompt_ids = self.renderer.prompt_ids(prompt_for(self.agent, past, observation))
        return supervised_row(self.policy, prompt_ids, self.renderer.completion_ids(reply))


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternating:
    """The demonstrations of several roles in turn: row number k is of source k modulo their number.

    `first` is the number of the first row: two ranges of numbers that do not overlap hold different
    rows.
    """

    sources: Sequence[Demonstrations]
    first: int = 0

    def batch(self, step: int, count: int) -> list[TrainingSample]:
        """Return the rows of an optimizer step."""
        return self._rows(self.first + step * count, count)

    def examples(self) -> list[TrainingSample]:
        """Return the first few rows."""
        return self._rows(self.first, EXAMPLES * len(self.sources))

    def _rows(self, start: int, count: int) -> list[TrainingSample]:
        numbers = range(start, start + count)
        return [self.sources[number % len(self.sources)].row(number) for number in numbers]


class FileRows:
    """The rows of a JSONL or CSV file, in a new order every pass.

    Args:
        path: the file.
        renderer: of the policy.
        policy: the policy's name.
        seed: decides the orders.
        context: the most tokens of a row; None is no limit.
        first: the number of rows that were shown before.
        roles: role -> whether the policy plays it. Rows that name a role of another policy are left
            out. None takes every row, whatever role it names.

    Raises:
        DataError: if the file is malformed, a row has more tokens than `context` or names a role
            that is not in `roles`, or no row is left.
    """

    def __init__(
        self,
        path: Path,
        renderer: Renderer,
        policy: str,
        seed: int,
        *,
        context: int | None = None,
        first: int = 0,
        roles: Mapping[str, bool] | None = None,
    ) -> None:
        rows: list[SftRow] = sft_rows(path)
        if not rows:
            raise DataError(f"'{path}' has no rows: expected prompt and completion, or messages")
        numbered = list(enumerate(rows, start=1))
        if roles is not None:
            numbered = _of_roles(numbered, roles, path, policy)
        self._rows = [
            supervised_row(
                policy,
                renderer.prompt_ids(Prompt(messages=row.messages)),
                renderer.completion_ids(row.completion),
            )
            for _, row in numbered
        ]
        for (number, _), row in zip(numbered, self._rows, strict=True):
            if context is not None and len(row.token_ids) > context:
                raise DataError(
                    f"'{path}' row {number} has {len(row.token_ids)} tokens, but policy {policy!r} "
                    f"has a context of {context}: shorten the row, or take a longer context"
                )
        self._seed, self._first = seed, first

    def batch(self, step: int, count: int) -> list[TrainingSample]:
        """Return the rows of an optimizer step; passes over the file follow one another."""
        size = len(self._rows)
        places = range(self._first + step * count, self._first + (step + 1) * count)
        orders = {p // size: self._order(p // size) for p in (places[0], places[-1])}
        orders |= {n: self._order(n) for n in range(min(orders), max(orders))}
        return [self._rows[orders[place // size][place % size]] for place in places]

    def examples(self) -> list[TrainingSample]:
        """Return all rows, in the order of the file."""
        return self._rows

    def _order(self, number: int) -> np.ndarray:
        return generator(self._seed, "pass", number).permutation(len(self._rows))


def _of_roles(
    rows: Sequence[tuple[int, SftRow]], roles: Mapping[str, bool], path: Path, policy: str
) -> list[tuple[int, SftRow]]:
    """Return the numbered rows for every role, and those for the roles that the policy plays."""
    for number, row in rows:
        if row.role is not None and row.role not in roles:
            raise DataError(
                f"'{path}' row {number} has role = {row.role!r}, which is not a role of the env "
                f"(roles: {', '.join(roles)}): correct it, or give the column another name"
            )
    kept = [(number, row) for number, row in rows if row.role is None or roles[row.role]]
    if not kept:
        raise DataError(
            f"'{path}' has no row for policy {policy!r}, which plays "
            f"{', '.join(role for role, own in roles.items() if own)}: add rows with these roles, "
            "or leave the column `role` out"
        )
    return kept


@dataclass(frozen=True, kw_only=True, slots=True)
class SftMix:
    """Rows whose replies weigh differently from span to span.

    `spans` are the weights of iteration 0 and `final` those of the last of `iterations`, for the
    spans that it names. Rows without such a span weigh nothing. `reply_format` finds the spans.

    Raises:
        DataError: if that is so of all of them.
    """

    rows: RowSource
    spans: Mapping[str, float]
    renderer: Renderer
    reply_format: ReplyFormat
    final: Mapping[str, float] = field(default_factory=dict)
    iterations: int = 1

    def __post_init__(self) -> None:
        """Look whether there is anything to rehearse."""
        spans = dict.fromkeys(self.spans, 1.0)
        examples = self.rows.examples() if spans else []
        if spans and not any(self._weighed(row, spans).ce_weight.any() for row in examples):
            raise DataError(
                f"sft_mix.spans = {dict(self.spans)}: none of {len(examples)} replies has such a "
                "span; leave it out to rehearse whole replies"
            )

    def batch(self, step: int, count: int) -> list[TrainingSample]:
        """Return the rows of iteration `step`."""
        rows = self.rows.batch(step, count)
        if not self.spans:
            return rows
        spans = self.spans_at(step)
        return [self._weighed(row, spans) for row in rows]

    def spans_at(self, step: int) -> dict[str, float]:
        """Return the weights of iteration `step`."""
        done = step / max(self.iterations - 1, 1)
        return {
            name: first + done * (self.final.get(name, first) - first)
            for name, first in self.spans.items()
        }

    def _weighed(self, row: TrainingSample, spans: Mapping[str, float]) -> TrainingSample:
        start = int(np.flatnonzero(row.ce_weight)[0])
        weight = np.zeros_like(row.ce_weight)
        reply = tuple(row.token_ids[start:].tolist())
        for span in self.renderer.spans(reply, self.reply_format):
            if span.name in spans:
                weight[start + span.start : start + span.end] = spans[span.name]
        return replace(row, ce_weight=weight)


def supervised_row(
    policy: str, prompt_ids: tuple[int, ...], completion_ids: tuple[int, ...]
) -> TrainingSample:
    """Return a row whose completion is imitated (`ce_weight` 1); nothing of it was sampled."""
    length = len(prompt_ids) + len(completion_ids)
    weight = np.zeros(length, dtype=np.float32)
    weight[len(prompt_ids) :] = 1.0
    return TrainingSample.of(
        policy=policy,
        turns=(),
        token_ids=prompt_ids + completion_ids,
        turn_index=np.full(length, -1),
        ce_weight=weight,
    )
