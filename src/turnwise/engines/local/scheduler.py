"""Continuous batching for one policy.

Provides `RunningBatch`. Completions with equal tokens so far share one row; the row is copied when
they draw different tokens. Finished completions leave at once, and rows stay compact at the front.

A pass computes the logits after a row's last token and after each token of its draft. Every member
draws at each of these positions with its own uniform, and keeps its draws up to the first that the
draft did not foretell. So it has the tokens that it would have drawn one by one.

Shapes: M members (unfinished completions), N rows, D positions at which members draw, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from turnwise.engines.base import Completion, PromptKey, Request
from turnwise.engines.local.drafts import LONGEST, Drafts
from turnwise.engines.local.forward import Pass
from turnwise.engines.local.model_runner import CachedRows
from turnwise.engines.local.row_store import Ids, NewTokens, RowStore
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
    uniforms; members come and go, seats are used again. Per row: `_next`, the token that its next
    pass begins with; `_held`, how many tokens were appended to it; and for the last rows, which are
    new, `_rests`, the end of the prompt with which their first pass begins.
    """

    def __init__(
        self,
        rows: RowStore,
        *,
        capacity: int,
        stop_ids: frozenset[int],
        share_rows: bool,
        drafts: Drafts,
    ) -> None:
        self.rows, self.drafts = rows, drafts
        self.reset_counts()
        self._capacity, self._share = capacity, share_rows
        self._stop_ids = np.array(sorted(stop_ids), dtype=np.int64)
        self._row = self._seat = self._count = self._limit = np.zeros(0, dtype=np.int64)
        self._heat = np.zeros(0, dtype=np.float32)
        self._next = self._held = np.zeros(0, dtype=np.int64)
        self._rests: list[Ids] = []
        self._new = _nothing()
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

    def reset_counts(self) -> None:
        """Begin to count anew."""
        self.sampled = self.row_steps = self.steps = self.drafted = self.accepted = 0

    @property
    def can_prepare(self) -> bool:
        """Whether its passes can be computed with others'."""
        return isinstance(self.rows, CachedRows)

    def admit(self, arrivals: Sequence[Entry]) -> None:
        """Add members; each distinct prompt among them gets one row."""
        if not arrivals:
            return
        groups: dict[PromptKey, list[Entry]] = {}
        for entry in arrivals:
            groups.setdefault(entry.request.prompt_key, []).append(entry)
        prompts, first = list(groups), self.rows.count
        order, rests = self.rows.prefill(prompts)
        self._rests += rests
        self._held = np.append(self._held, np.zeros(len(order), dtype=np.int64))
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

    def prepare(self) -> Pass:
        """Return the next pass of all rows; its logits must be given to `step`."""
        assert isinstance(self.rows, CachedRows), "these rows are computed alone"
        return self.rows.prepare(self._take_new())

    def step(self, version: int, computed: Tensor | None = None) -> list[Finished]:
        """Draw one token or more for every member, and return those that left.

        `computed` are the logits of the pass that `prepare` returned, where it has been run.
        """
        if computed is None:
            computed = self.rows.decode(self._take_new())
        self.steps += 1
        self.row_steps += self.rows.count
        drawn = self._draw(computed)
        return self._settle(*drawn, version)

    def abandon(self, entry: Entry) -> None:
        """Remove a member that nobody waits for any more."""
        keep = np.array([self._entries[seat] is not entry for seat in self._seat], dtype=bool)
        for seat in self._seat[~keep].tolist():
            self._vacate(seat)
        tokens, held = self._next[self._row], self._held[self._row]
        self._keep(keep)
        self._regroup(tokens[keep], held[keep])

    def clear(self) -> None:
        """Remove all members and forget what their rows hold, in whatever state they are."""
        nothing = np.zeros(0, dtype=np.int64)
        self._keep(np.zeros(len(self._row), dtype=bool))
        self._next, self._held, self._rests = nothing, nothing, []
        self._entries = [None] * self._capacity
        self._free_seats = list(range(self._capacity))[::-1]
        self.rows.rearrange(nothing, nothing, nothing)
        self.rows.forget()

    def _take_new(self) -> NewTokens:
        """Return what the next pass appends to the rows: what they must begin with, and drafts."""
        old, count = len(self._next), self.rows.count
        drafts = self._find_drafts()
        if old == count and drafts is None:
            ones = np.ones(count, dtype=np.int64)
            self._new = NewTokens(
                tokens=self._next, sizes=ones, wanted=ones, prompt=np.zeros_like(ones)
            )
            return self._new
        begins = [(token,) for token in self._next.tolist()] + self._rests
        drafts = [[]] * count if drafts is None else drafts
        pairs = zip(begins, drafts, strict=True)
        parts = [token for begin, draft in pairs for token in (*begin, *draft)]
        sizes = np.array([len(part) for part in begins], dtype=np.int64)
        more = np.array([len(part) for part in drafts], dtype=np.int64)
        self.drafted += int(more.sum())
        self._rests = []
        self._new = NewTokens(
            tokens=np.array(parts, dtype=np.int64),
            sizes=sizes + more,
            wanted=1 + more,
            prompt=np.where(np.arange(count) < old, 0, sizes),
        )
        return self._new

    def _find_drafts(self) -> list[list[int]] | None:
        """Return the draft of each row, from one of its members; None if none is worth it."""
        rows = self.rows.count
        if not self.drafts.pay(rows):
            return None
        members = np.zeros(rows, dtype=np.int64)
        members[self._row] = np.arange(len(self._row))
        seats, counts = self._seat[members], self._count[members]
        most = (self._limit[members] - counts - 1).tolist()
        found: list[list[int]] = []
        for seat, count, room in zip(seats.tolist(), counts.tolist(), most, strict=True):
            entry = self._entries[seat]
            assert entry is not None
            wrote = self._tokens[seat, max(0, count - LONGEST) : count]
            found.append(self.drafts.of(entry.request, tuple(wrote.tolist()), rows, room))
        return found if any(found) else None

    def _draw(self, logits: Tensor) -> tuple[IntArray, NDArray[np.float32], IntArray]:
        """Draw for every member along its row's draft.

        Returns:
            Tokens and log-probabilities, [M, D], and how many of them the member keeps, [M].
        """
        wanted = self._new.wanted
        first = np.cumsum(wanted) - wanted
        if len(self._new.tokens) == len(wanted) or int(wanted.max()) == 1:
            uniforms = self._uniforms[self._seat, self._count]
            tokens, logprobs = draw(logits, self._row, uniforms, self._heat)
            return tokens[:, None], logprobs[:, None], np.ones(len(tokens), dtype=np.int64)
        sizes = np.minimum(wanted[self._row], self._limit - self._count)
        member = np.repeat(np.arange(len(sizes)), sizes)
        place = np.arange(len(member)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        uniforms = self._uniforms[self._seat[member], self._count[member] + place]
        owner = first[self._row[member]] + place
        found = draw(logits, owner, uniforms, self._heat[member])
        shape = (len(sizes), int(sizes.max()))
        tokens, logprobs = np.full(shape, -1, dtype=np.int64), np.zeros(shape, dtype=np.float32)
        tokens[member, place], logprobs[member, place] = found
        # A draw is followed by the next one if the draft foretold it.
        goes_on = np.zeros(shape, dtype=bool)
        inner = place + 1 < sizes[member]
        ends = np.cumsum(self._new.sizes)
        drafted = ends[self._row[member]] - wanted[self._row[member]] + 1 + place
        foretold = self._new.tokens[np.minimum(drafted, len(self._new.tokens) - 1)]
        goes_on[member, place] = inner & (foretold == found[0]) & np.isfinite(found[1])
        kept = 1 + np.argmin(goes_on, axis=1)
        return tokens, logprobs, kept

    def _settle(
        self,
        tokens: IntArray,
        logprobs: NDArray[np.float32],
        kept: IntArray,
        version: int,
    ) -> list[Finished]:
        """Write down what was drawn; let the finished leave and the others part."""
        member = np.repeat(np.arange(len(kept)), kept)
        place = np.arange(len(member)) - np.repeat(np.cumsum(kept) - kept, kept)
        where = self._seat[member], self._count[member] + place
        self._tokens[where] = tokens[member, place]
        self._logprobs[where] = logprobs[member, place]
        self._count = self._count + kept
        self.sampled += len(member)
        begun = self._held + self._new.sizes - self._new.wanted  # before the first logits' token
        held = begun[self._row] + kept
        self.accepted += self._followed(kept)
        last = np.arange(len(kept)), kept - 1
        ended, broken = np.isin(tokens[last], self._stop_ids), ~np.isfinite(logprobs[last])
        done = ended | broken | (self._count == self._limit)
        self.rows.remember(self._going_on(np.flatnonzero(done & ~broken)))
        left = [
            self._leave(number, bool(ended[number]), bool(broken[number]), version)
            for number in np.flatnonzero(done).tolist()
        ]
        self._keep(~done)
        self._regroup(tokens[last][~done], held[~done])
        if broken.any():
            self.rows.clean()
        self.drafts.learn(
            (gone.entry.request, gone.result.token_ids)
            for gone in left
            if isinstance(gone.result, Completion)
        )
        return left

    def _followed(self, kept: IntArray) -> int:
        """Return how many drafted tokens a member of their row kept."""
        longest = np.ones(self.rows.count, dtype=np.int64)
        np.maximum.at(longest, self._row, kept)
        return int(longest.sum()) - self.rows.count

    def _going_on(self, members: IntArray) -> list[tuple[int, PromptKey, Ids]]:
        """Return the row, prompt and completion of those that later prompts may begin with."""
        found: list[tuple[int, PromptKey, Ids]] = []
        for member in members.tolist():
            seat = int(self._seat[member])
            entry = self._entries[seat]
            assert entry is not None
            if entry.request.goes_on:
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

    def _regroup(self, tokens: IntArray, held: IntArray) -> None:
        """Give all members with the same tokens so far a row of their own, and every row a place.

        The first of those that part keeps the row; a row whose place lies behind the last moves
        into a free one.

        Args:
            tokens: each member's next token.
            held: how many tokens of its row come before it, [M].
        """
        if (np.bincount(self._row, minlength=self.rows.count) == 1).all():  # nobody shares or left
            self._next, self._held = np.empty_like(tokens), np.empty_like(held)
            self._next[self._row], self._held[self._row] = tokens, held
            nothing = np.zeros(0, dtype=np.int64)
            self.rows.rearrange(nothing, nothing, self._held)
            return
        by = [self._row, held, tokens]
        by = by if self._share else [*by, np.arange(len(tokens))]
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
        self._next, self._held = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        self._held[place], self._next[place] = sorted_by[1:3, begins]
        self._row = place[group]
        self.rows.rearrange(source[~stays], place[~stays], self._held)

    def _widen(self, width: int) -> None:
        """Make room for completions of `width` tokens."""
        missing = ((0, 0), (0, max(0, width - self._tokens.shape[1])))
        if missing[1][1]:
            self._tokens = np.pad(self._tokens, missing)
            self._logprobs = np.pad(self._logprobs, missing)
            self._uniforms = np.pad(self._uniforms, missing)


def _nothing() -> NewTokens:
    nothing = np.zeros(0, dtype=np.int64)
    return NewTokens(tokens=nothing, sizes=nothing, wanted=nothing, prompt=nothing)
