"""Continuous batching for one policy.

Provides `RunningBatch`. Completions with equal tokens so far share one row; the row is copied when
they draw different tokens. Finished completions leave at once, and rows stay compact at the front.

Shapes: M members (unfinished completions), N rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnwise.engines.base import Completion, PromptKey, Request
from turnwise.engines.local.forward import Pass
from turnwise.engines.local.model_runner import CachedRows, Ids, RowStore
from turnwise.engines.local.sampler import draw
from turnwise.errors import EngineError
from turnwise.types import FinishReason, IntArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Entry:
    """A request that may be written: its uniforms, and how many tokens fit into the context."""

    request: Request
    uniforms: NDArray[np.float64]
    room: int

    @property
    def limit(self) -> int:
        """The most tokens the completion can have."""
        return min(self.request.sampling.max_tokens, self.room)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Finished:
    """The result of an entry."""

    entry: Entry
    result: Completion | EngineError


class RunningBatch:
    """The unfinished completions of one policy.

    Per member and aligned: `_row` it draws from, `_seat` where its tokens are kept, `_count` of its
    tokens, `_limit`, `_heat`. Seats are lines of the arrays of tokens, log-probabilities and
    uniforms; members come and go, seats are used again.
    """

    def __init__(
        self, rows: RowStore, *, capacity: int, stop_ids: frozenset[int], share_rows: bool
    ) -> None:
        self.rows = rows
        self.sampled = self.row_steps = self.steps = 0
        self._capacity, self._share = capacity, share_rows
        self._stop_ids = np.array(sorted(stop_ids), dtype=np.int64)
        self._row = self._seat = self._count = self._limit = np.zeros(0, dtype=np.int64)
        self._heat = np.zeros(0, dtype=np.float32)
        self._next = np.zeros(0, dtype=np.int64)
        self._entries: list[Entry | None] = [None] * capacity
        self._free_seats = list(range(capacity))[::-1]
        self._tokens = np.zeros((capacity, 0), dtype=np.int64)
        self._logprobs = np.zeros((capacity, 0), dtype=np.float32)
        self._uniforms = np.zeros((capacity, 0), dtype=np.float64)

    def __len__(self) -> int:
        """Return the number of unfinished completions."""
        return len(self._row)

    @property
    def free(self) -> int:
        """The number of further completions that fit in."""
        return self._capacity - len(self)

    @property
    def can_prepare(self) -> bool:
        """Whether its passes can be computed with others'."""
        return isinstance(self.rows, CachedRows)

    def prepare(self) -> Pass:
        """Return the pass of the rows that go on; its logits must be given to `step`."""
        assert isinstance(self.rows, CachedRows), "these rows are computed alone"
        return self.rows.prepare(self._next)

    def step(
        self, arrivals: Sequence[Entry], version: int, computed: Tensor | None = None
    ) -> list[Finished]:
        """Add `arrivals`, draw one token for every member, and return those that left.

        Each distinct prompt among the arrivals is computed once. `computed` are the logits of the
        rows that go on, where their pass has been run already.
        """
        if computed is None and self.rows.count:
            computed = self.rows.decode(self._next)
        logits = [] if computed is None else [computed]
        if arrivals:
            logits.append(self._admit(arrivals))
        self.steps += 1
        self.row_steps += self.rows.count
        every = logits[0] if len(logits) == 1 else torch.cat(logits)
        uniforms = self._uniforms[self._seat, self._count]
        tokens, logprobs = draw(every, self._row, uniforms, self._heat)
        return self._settle(tokens, logprobs, version)

    def abandon(self, entry: Entry) -> None:
        """Remove a member that nobody waits for any more."""
        keep = np.array([self._entries[seat] is not entry for seat in self._seat], dtype=bool)
        for seat in self._seat[~keep].tolist():
            self._vacate(seat)
        tokens = self._next[self._row]
        self._keep(keep)
        self._regroup(tokens[keep])

    def clear(self) -> None:
        """Remove all members and forget what their rows hold, in whatever state they are."""
        self._keep(np.zeros(len(self._row), dtype=bool))
        self._next = np.zeros(0, dtype=np.int64)
        self._entries = [None] * self._capacity
        self._free_seats = list(range(self._capacity))[::-1]
        nothing = np.zeros(0, dtype=np.int64)
        self.rows.rearrange(nothing, nothing, 0)
        self.rows.forget()

    def _admit(self, arrivals: Sequence[Entry]) -> Tensor:
        """Agent arrivals and compute each distinct prompt once; return the logits, [N, V]."""
        groups: dict[PromptKey, list[Entry]] = {}
        for entry in arrivals:
            groups.setdefault(entry.request.prompt_key, []).append(entry)
        prompts, first = list(groups), self.rows.count
        order, logits = self.rows.prefill(prompts)
        self._widen(max(entry.limit for entry in arrivals))
        rows = np.repeat(np.arange(len(order)), [len(groups[prompts[i]]) for i in order])
        entries = [entry for i in order for entry in groups[prompts[i]]]
        seats = [self._free_seats.pop() for _ in entries]
        for seat, entry in zip(seats, entries, strict=True):
            self._entries[seat] = entry
            self._uniforms[seat, : entry.limit] = entry.uniforms[: entry.limit]
        heats = [entry.request.sampling.temperature for entry in entries]
        self._row = np.append(self._row, first + rows)
        self._seat = np.append(self._seat, seats)
        self._count = np.append(self._count, np.zeros(len(entries), dtype=np.int64))
        self._limit = np.append(self._limit, [entry.limit for entry in entries])
        self._heat = np.append(self._heat, np.array(heats, dtype=np.float32))
        return logits

    def _settle(
        self, tokens: IntArray, logprobs: NDArray[np.float32], version: int
    ) -> list[Finished]:
        """Write down what was drawn; let the finished leave and the others part."""
        self._tokens[self._seat, self._count] = tokens
        self._logprobs[self._seat, self._count] = logprobs
        self._count = self._count + 1
        self.sampled += len(tokens)
        stopped = np.isin(tokens, self._stop_ids)
        broken = ~np.isfinite(logprobs)
        done = stopped | broken | (self._count == self._limit)
        self.rows.remember(self._going_on(np.flatnonzero(done & ~broken)))
        left = [
            self._leave(member, bool(stopped[member]), bool(broken[member]), version)
            for member in np.flatnonzero(done).tolist()
        ]
        self._keep(~done)
        self._regroup(tokens[~done])
        if broken.any():
            self.rows.clean()
        return left

    def _going_on(self, members: IntArray) -> list[tuple[int, PromptKey, Ids]]:
        """Return the row, prompt and completion of those that later prompts may begin with."""
        found: list[tuple[int, PromptKey, Ids]] = []
        for member in members.tolist():
            seat = int(self._seat[member])
            entry = self._entries[seat]
            assert entry is not None
            if entry.request.goes_on and self._count[member] > 1:
                wrote = tuple(self._tokens[seat, : self._count[member]].tolist())
                found.append((int(self._row[member]), entry.request.prompt_key, wrote))
        return found

    def _leave(self, member: int, stopped: bool, broken: bool, version: int) -> Finished:
        """Return a member's completion and free its seat."""
        seat, count = int(self._seat[member]), int(self._count[member])
        entry = self._vacate(seat)
        if broken:
            problem = EngineError(
                f"policy {entry.request.policy!r} gave logits that are not finite at token {count} "
                f"of turn {entry.request.id}: its weights have diverged; lower the learning rate"
            )
            return Finished(entry=entry, result=problem)
        full: FinishReason = "length"
        if entry.room < entry.request.sampling.max_tokens:
            full = "context"
        completion = Completion(
            token_ids=tuple(self._tokens[seat, :count].tolist()),
            logprobs=tuple(self._logprobs[seat, :count].tolist()),
            finish_reason="stop" if stopped else full,
            policy_version=version,
        )
        return Finished(entry=entry, result=completion)

    def _vacate(self, seat: int) -> Entry:
        """Free a seat and return who sat there."""
        entry = self._entries[seat]
        assert entry is not None
        self._entries[seat] = None
        self._free_seats.append(seat)
        return entry

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        """Drop the members that are not kept."""
        self._row, self._seat = self._row[keep], self._seat[keep]
        self._count, self._limit = self._count[keep], self._limit[keep]
        self._heat = self._heat[keep]

    def _regroup(self, tokens: IntArray) -> None:
        """Give every distinct (row, next token) a row of its own, and every row a place.

        The first of those that part keeps the row; a row whose place lies behind the last moves
        into a free one.
        """
        if (np.bincount(self._row, minlength=self.rows.count) == 1).all():  # nobody shares or left
            self._next = np.empty(len(tokens), dtype=np.int64)
            self._next[self._row] = tokens
            return
        by = [self._row, tokens] if self._share else [self._row, tokens, np.arange(len(tokens))]
        order = np.lexsort(by[::-1])
        sorted_by = np.stack(by)[:, order]
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = (sorted_by[:, 1:] != sorted_by[:, :-1]).any(0)
        group = np.empty(len(order), dtype=np.int64)
        group[order] = np.cumsum(begins) - 1
        source = sorted_by[0, begins]
        count = len(source)
        stays = np.ones(count, dtype=bool)
        stays[1:] = source[1:] != source[:-1]
        stays &= source < count
        place = source.copy()
        place[~stays] = np.setdiff1d(np.arange(count), source[stays])
        self._next = np.empty(count, dtype=np.int64)
        self._next[place] = sorted_by[1, begins]
        self._row = place[group]
        self.rows.rearrange(source[~stays], place[~stays], count)

    def _widen(self, width: int) -> None:
        """Make room for completions of `width` tokens."""
        missing = ((0, 0), (0, max(0, width - self._tokens.shape[1])))
        if missing[1][1]:
            self._tokens = np.pad(self._tokens, missing)
            self._logprobs = np.pad(self._logprobs, missing)
            self._uniforms = np.pad(self._uniforms, missing)
