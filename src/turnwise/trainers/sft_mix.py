"""The SFT mix: supervised rows beside the policy gradient, whose spans have different weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from turnwise.errors import DataError
from turnwise.formats import ReplyFormat
from turnwise.render import Renderer
from turnwise.trainers.rows import RowSource
from turnwise.types import Span, TrainingSample

Tokens = tuple[int, ...]
ANSWER, ACTION = "answer", "action"
ACTIONS = 256
"""Rows in which actions are looked for that begin with another one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SftMix:
    """Rows whose replies weigh differently from span to span.

    `spans` are the weights of iteration 0 and `final` those of the last of `iterations`, for the
    spans that it names. Rows without such a span weigh nothing. `reply_format` finds the spans.

    The weight of an action is that of every token that decides which action it is. A blank before
    its words belongs to them: in "16" it may be a token of its own and in "8" not. So does the
    token after its words, where they begin another action: "go" and "go north". Weighed otherwise,
    such actions would become more probable than others.

    Raises:
        DataError: if no row has such a span.
    """

    rows: RowSource
    spans: Mapping[str, float]
    renderer: Renderer
    reply_format: ReplyFormat
    final: Mapping[str, float] = field(default_factory=dict)
    iterations: int = 1
    _beginnings: set[Tokens] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        """Check that some row has a span, and find actions that begin with another one."""
        for row in self.rows.batch(0, ACTIONS) if ACTION in self.spans else []:
            words = self._action(_reply(row)[1])
            self._beginnings.update(words[:end] for end in range(1, len(words)))
        spans = dict.fromkeys(self.spans, 1.0)
        examples = self.rows.examples() if spans else []
        if spans and not any(self._weighed(row, spans).ce_weight.any() for row in examples):
            raise DataError(
                f"sft_mix.spans = {dict(self.spans)}: none of {len(examples)} replies has such a "
                "span; leave it out to imitate whole replies"
            )

    def batch(
        self, step: int, count: int, least_done: float = 0.0, factor: float = 1.0
    ) -> list[TrainingSample]:
        """Return the rows of iteration `step`, when at least the share `least_done` is over.

        The weight of actions is multiplied by `factor`.
        """
        rows = self.rows.batch(step, count)
        if not self.spans:
            return rows
        spans = self.spans_at(step, least_done)
        spans |= {ACTION: factor * spans[ACTION]} if ACTION in spans else {}
        return [self._weighed(row, spans) for row in rows]

    def spans_at(self, step: int, least_done: float = 0.0) -> dict[str, float]:
        """Return the weights of iteration `step`, when at least the share `least_done` is over."""
        done = max(step / max(self.iterations - 1, 1), least_done)
        return {
            name: first + done * (self.final.get(name, first) - first)
            for name, first in self.spans.items()
        }

    def _weighed(self, row: TrainingSample, spans: Mapping[str, float]) -> TrainingSample:
        start, reply = _reply(row)
        weight = np.zeros_like(row.ce_weight)
        for span in self.renderer.spans(reply, self.reply_format):
            if span.name in spans:
                first, end = self._decides(span, reply)
                weight[start + first : start + end] = spans[span.name]
        return replace(row, ce_weight=weight)

    def _decides(self, span: Span, reply: Tokens) -> tuple[int, int]:
        """Return the range of a span's tokens, with those around an action that decide it."""
        first, end = span.start, span.end
        if span.name == ACTION:
            while first and self.renderer.decode(reply[first - 1 : first]).isspace():
                first -= 1
            end += self._action(reply) in self._beginnings
        return first, end

    def _action(self, reply: Tokens) -> Tokens:
        """Return a reply from the start of its answer to the end of its action, if it has one."""
        spans = {span.name: span for span in self.renderer.spans(reply, self.reply_format)}
        if ANSWER not in spans or ACTION not in spans:
            return ()
        return reply[spans[ANSWER].start : spans[ACTION].end]


def _reply(row: TrainingSample) -> tuple[int, Tokens]:
    """Return where a row's reply begins, and its tokens."""
    start = int(np.flatnonzero(row.ce_weight)[0])
    return start, tuple(row.token_ids[start:].tolist())
