"""Drafts of completions: the tokens that a policy will probably write, foretold from what it wrote.

Provides `DraftIndex`. A draft never changes what is sampled: the engine computes the logits of all
drafted positions in one pass, draws each token with its own uniform, and keeps the draft as far as
the draws agree with it (docs/speed.md). Only the number of passes depends on drafts.

An index looks up the last tokens of a sequence, long contexts first, among those of earlier
completions, and the last two tokens or one in the prompt itself. How often a kind of prediction
came true is counted, and a draft ends where it is too likely to be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnwise.engines.base import Request
from turnwise.kernels.wrapped import Model, base_of

ORDERS = (12, 6, 4, 3, 2, 1)
"""Lengths of the contexts that are looked up, in tokens; the longest known one counts."""
LONGEST = ORDERS[0]
HITS = 4
"""An entry is a token times this, plus how often it came again lately, up to one less."""
MOST_CONTEXTS = 1 << 15
"""Contexts of one generation. Two are kept: those in use outlive the older one."""
WINDOW = 256
"""Predictions of a kind after which their counts are halved."""
LAYER_WORK = 4e7
"""Floating-point operations in the time that a layer takes on a CPU whatever it computes."""
READING, GPU_READING = 12.0, 128.0
"""Tokens whose products take as long as reading the weights, on a CPU and on an accelerator."""
MOST_COPIED = 1 << 18
"""Tokens of prompts above which those of finished completions are not kept; 160 bytes for each."""
SAMPLED = 8
"""One completion in so many is learned from, and one step drafted, while drafts do not pay."""

Context = tuple[int, ...]
Arrays = dict[str, NDArray[Any]]
Copies = dict[Context, int]
"""What follows one token or two in a prompt."""
SOURCES = ("history", "prompt", "both", "history, not prompt", "prompt, not history")
Kind = tuple[str, int, int]
"""Where a prediction comes from: its source, the length of its context, its entry's hits."""


class Prediction(NamedTuple):
    """The next token, the share of such predictions that came true, and their kind."""

    token: int
    share: float
    kind: Kind


class DraftIndex:
    """Predicts the next tokens of completions from earlier ones and from their prompts.

    Example:
        >>> index = DraftIndex(frozenset({9}))
        >>> for _ in range(3):
        ...     index.learn((1, 2), (3, 4, 5, 9))
        >>> index.draft((1, 2, 3), {}, threshold=0.2, most=8)
        [4, 5]
    """

    def __init__(self, stop_ids: frozenset[int]) -> None:
        self._stop_ids = stop_ids
        self._entries: dict[Context, int] = {}
        self._older: dict[Context, int] = {}
        self._trust: dict[int, int] = {}  # last token -> whether its prompt or history was right
        self._counts: dict[Kind, list[float]] = {}  # kind -> [came true, all]
        self._share = 1.0
        self._seen = self._steps = 0

    def draft(self, context: Context, copies: Copies, *, threshold: float, most: int) -> list[int]:
        """Return the tokens that probably follow, none after an end.

        Args:
            context: the last `LONGEST` tokens of the prompt and of what was written after it.
            copies: what follows what in the prompt (see `copies_of`).
            threshold: the least probability, as counted, that all tokens of the draft are right.
            most: the most tokens.
        """
        found: list[int] = []
        share = 1.0
        while len(found) < most:
            prediction = self._predict(context, copies)
            if prediction is None or prediction.token in self._stop_ids:
                break
            share *= prediction.share
            if share < threshold:
                break
            found.append(prediction.token)
            context = (*context, prediction.token)[-LONGEST:]
        return found

    def pays(self, threshold: float) -> bool:
        """Whether a draft is worth looking for in this step."""
        self._steps += 1
        return self._share >= threshold / 2 or self._steps % SAMPLED == 0

    def learn(self, prompt: Context, completion: Context, copies: Copies | None = None) -> None:
        """Count which predictions of a completion come true, and remember it.

        `copies` are `copies_of(prompt)`, where the caller has them.
        A context is remembered with the contexts that are longer; shorter ones keep what they
        predict where no longer one is known, as in prediction by partial matching.
        """
        self._seen += 1
        if self._share < 0.25 and self._seen % SAMPLED:
            return
        copies = copies_of(prompt) if copies is None else copies
        entries, older = self._entries, self._older
        context = prompt[-LONGEST:] + completion
        at = len(context) - len(completion)
        right = 0
        for token in completion:
            known: int = 0
            end: Context = ()
            entry: int | None = None
            for order in ORDERS:
                if order > at:
                    continue
                end = context[at - order : at]
                entry = entries.get(end)
                if entry is None and older:
                    entry = older.get(end)
                if entry is None:
                    entries[end] = token * HITS
                    continue
                known = order
                break
            prediction = self._choose(entry, known, context[max(0, at - 2) : at], copies, token)
            if prediction is not None:
                right += self._count(prediction, token)
            if entry is not None:
                entries[end] = _updated(entry, token)
            at += 1
        weight = min(1.0, len(completion) / WINDOW)
        self._share += weight * (right / max(len(completion), 1) - self._share)
        if len(entries) > MOST_CONTEXTS:
            self._older, self._entries = entries, {}

    def state(self) -> Arrays:
        """Return everything that later drafts depend on."""
        found: Arrays = {
            "counts": np.array(
                [[SOURCES.index(k[0]), *k[1:], *c] for k, c in self._counts.items()]
            ),
            "trust": np.array(list(self._trust.items()), dtype=np.int64),
            "totals": np.array([self._share, self._seen, self._steps]),
        }
        for name, entries in (("entries", self._entries), ("older", self._older)):
            parts: dict[int, list[Context]] = {order: [] for order in ORDERS}
            for context, entry in entries.items():
                parts[len(context)].append((*context, entry))
            for order, lines in parts.items():
                flat = np.fromiter(chain.from_iterable(lines), np.int64, (order + 1) * len(lines))
                found[f"{name} {order}"] = flat.reshape(len(lines), order + 1)
        return found

    def restore(self, state: Arrays) -> None:
        """Go on from what `state` returned."""
        counts = state["counts"].reshape(-1, 5).tolist()
        self._counts = {(SOURCES[int(s)], int(n), int(h)): [t, a] for s, n, h, t, a in counts}
        trust: list[list[int]] = state["trust"].reshape(-1, 2).tolist()
        self._trust = {pair[0]: pair[1] for pair in trust}
        share, seen, steps = state["totals"].tolist()
        self._share, self._seen, self._steps = share, int(seen), int(steps)
        for name, entries in (("entries", self._entries), ("older", self._older)):
            entries.clear()
            for order in ORDERS:
                for line in state[f"{name} {order}"].reshape(-1, order + 1).tolist():
                    entries[tuple(line[:order])] = line[order]

    def _predict(self, context: Context, copies: Copies) -> Prediction | None:
        """Return the most trusted prediction of what follows a context."""
        entries, older, length = self._entries, self._older, len(context)
        for order in ORDERS:
            if order <= length:
                end = context[-order:]
                entry = entries.get(end)
                if entry is None and older:
                    entry = older.get(end)
                if entry is not None:
                    return self._choose(entry, order, context[-2:], copies)
        return self._choose(None, 0, context[-2:], copies)

    def _choose(
        self,
        entry: int | None,
        order: int,
        last: Context,
        copies: Copies,
        actual: int | None = None,
    ) -> Prediction | None:
        """Choose between earlier completions and the prompt.

        Where they predict different tokens, the one that was right more often after the same last
        token is taken. `actual` is the token that came, where it is known.
        """
        copied, length = copies.get(last), 2
        if copied is None:
            copied, length = copies.get(last[-1:]), 1
        if entry is None:
            return None if copied is None else self._of(copied, ("prompt", length, 0))
        token, hits = divmod(entry, HITS)
        if copied is None:
            return self._of(token, ("history", order, hits))
        if copied == token:
            return self._of(token, ("both", order, hits))
        trust = self._trust.get(last[-1], 0)
        if actual == copied:
            self._trust[last[-1]] = min(trust + 1, HITS)
        elif actual == token:
            self._trust[last[-1]] = max(trust - 1, -HITS)
        if trust > 0:
            return self._of(copied, ("prompt, not history", min(trust, HITS - 1), 0))
        return self._of(token, ("history, not prompt", order, hits))

    def _of(self, token: int, kind: Kind) -> Prediction:
        counts = self._counts.get(kind)
        return Prediction(token, 0.5 if counts is None else counts[0] / counts[1], kind)

    def _count(self, prediction: Prediction, token: int) -> bool:
        """Count whether a prediction came true; return it."""
        counts = self._counts.setdefault(prediction.kind, [1.0, 2.0])
        right = prediction.token == token
        counts[0] += right
        counts[1] += 1.0
        if counts[1] > WINDOW:
            counts[0], counts[1] = counts[0] / 2, counts[1] / 2
        return right


def _updated(entry: int, token: int) -> int:
    """Return an entry after `token` came: it holds the token that came most often lately."""
    known, hits = divmod(entry, HITS)
    if known == token:
        return entry if hits == HITS - 1 else entry + 1
    return entry - 1 if hits else token * HITS


def copies_of(prompt: Context) -> Copies:
    """Return what follows each token, and each pair of tokens, in a prompt, its last time.

    Example:
        >>> copies_of((7, 8, 7, 9))[(7,)], copies_of((7, 8, 7, 9))[(7, 8)]
        (9, 7)
    """
    found: Copies = dict(zip(zip(prompt, strict=False), prompt[1:], strict=False))
    found |= zip(pairwise(prompt), prompt[2:], strict=False)
    return found


def spare_tokens(model: Model) -> float:
    """Return how many tokens take about as long as the fixed part of a pass.

    On a CPU that is the time of Python and of small operations, worth `LAYER_WORK` operations a
    layer, and the reading of the weights, worth `READING` tokens. It is counted and not timed, so
    that equal runs stay equal.
    """
    base = base_of(model)
    if base.device.type != "cpu":
        return GPU_READING
    weights = sum(parameter.numel() for parameter in base.parameters())
    layers = base.config.get_text_config().num_hidden_layers
    return layers * LAYER_WORK / (2 * weights) + READING


class Drafts:
    """The drafts of one policy, from an index for each stream and role.

    `spare` is how many tokens take as long as the fixed part of a pass; 0 makes no drafts. A
    drafted token that is right saves its row a part of the next pass, one that is wrong costs the
    time of a token: in a pass of N rows a draft goes on while the probability that all of it is
    right is above N / (N + spare).
    """

    def __init__(self, stop_ids: frozenset[int], spare: float) -> None:
        self._stop_ids, self._spare = stop_ids, spare
        self._indexes: dict[tuple[str, str], DraftIndex] = {}
        self._copies: dict[Context, Copies] = {}
        self._copied = 0  # tokens of their prompts

    def pay(self, rows: int) -> bool:
        """Whether drafts of `rows` rows are worth looking for in this step."""
        pay = [index.pays(self._threshold(rows)) for index in self._indexes.values()]
        return self._spare > 0 and any(pay)

    def of(self, request: Request, wrote: Context, rows: int, most: int) -> list[int]:
        """Return what will probably follow, after the last tokens `wrote` of a completion."""
        index = self._index(request)
        prompt = request.prompt_ids
        copies = self._copies.get(prompt)
        if copies is None:
            copies = self._copies[prompt] = copies_of(prompt)
            self._copied += len(prompt)
        context = (prompt[-LONGEST:] + wrote)[-LONGEST:]
        return index.draft(context, copies, threshold=self._threshold(rows), most=most)

    def learn(self, completions: Iterable[tuple[Request, Context]]) -> None:
        """Learn from finished completions; equal ones count once."""
        if not self._spare:
            return
        known: set[tuple[Context, Context]] = set()
        for request, completion in completions:
            prompt = request.prompt_ids
            if (prompt, completion) not in known:
                known.add((prompt, completion))
                self._index(request).learn(prompt, completion, self._copies.get(prompt))
            if self._copied > MOST_COPIED and self._copies.pop(prompt, None) is not None:
                self._copied -= len(prompt)

    def end_iteration(self) -> None:
        """Forget prompts, and everything that is not of training."""
        self._copies.clear()
        self._copied = 0
        self._indexes = {key: each for key, each in self._indexes.items() if key[0] == "train"}

    def state(self) -> Arrays:
        """Return everything that later drafts depend on, by stream, role and name."""
        return {
            f"{stream}/{role}/{name}": array
            for (stream, role), index in self._indexes.items()
            for name, array in index.state().items()
        }

    def restore(self, state: Arrays) -> None:
        """Go on from what `state` returned."""
        parts: dict[tuple[str, str], Arrays] = {}
        for key, array in state.items():
            stream, rest = key.split("/", 1)
            role, name = rest.rsplit("/", 1)  # a role may be named "black/white"
            parts.setdefault((stream, role), {})[name] = array
        self._indexes = {}
        for key, arrays in parts.items():
            self._indexes[key] = DraftIndex(self._stop_ids)
            self._indexes[key].restore(arrays)

    def _threshold(self, rows: int) -> float:
        return rows / (rows + self._spare)

    def _index(self, request: Request) -> DraftIndex:
        key = (request.stream, request.id.role)
        if key not in self._indexes:
            self._indexes[key] = DraftIndex(self._stop_ids)
        return self._indexes[key]
