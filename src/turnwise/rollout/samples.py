"""Turns become training rows: the token truth, with a value a token for every part of the loss.

Owns the cutting of rows and the check that each sampled token is in exactly one row. Rows are cut
where a prompt does not extend the row before it, so a longer history costs its tokens only once.
Knows nothing of tensors; ids and log-probabilities are copied from the engine, never re-made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from turnwise.errors import TrainingError
from turnwise.types import Episode, Sample, Trajectory, Turn, TurnId

LengthRule = Literal["train", "mask", "exclude"]
Advantages = Mapping[TurnId, Mapping[str, float]]
WHOLE = ""


def samples_from_episodes(
    episodes: Sequence[Episode],
    advantages: Advantages,
    *,
    on_length: LengthRule = "train",
    entropy_span: str | None = None,
    reference: bool = False,
) -> list[Sample]:
    """Return the training rows of all turns that have advantages, episode by episode.

    Args:
        episodes: what was played.
        advantages: turn -> span name -> advantage; the span `""` is the whole completion, and a
            token in no named span carries no policy gradient.
        on_length: what becomes of completions cut at max_tokens: `train` trains them as they are
            (most have no answer and failed), `mask` gives them no loss (they stay in the baseline),
            `exclude` was applied before the credit was assigned and leaves nothing to do here.
        entropy_span: the span whose tokens count for the entropy bonus; None is all of them.
        reference: whether the tokens that carry policy gradient also carry a reference-KL weight.

    Raises:
        TrainingError: if a sampled token would be in no row, or in two.
    """
    rules = _Rules(on_length=on_length, entropy_span=entropy_span, reference=reference)
    rows = [
        row
        for episode in episodes
        for trajectory in episode.trajectories
        for row in _rows(trajectory, advantages, rules)
    ]
    _check_token_truth(episodes, advantages, rows)
    return rows


def without_cut(episodes: Sequence[Episode]) -> list[Episode]:
    """Return the episodes without a completion cut at max_tokens (`on_length = "exclude"`)."""
    return [e for e in episodes if all(turn.finish_reason != "length" for turn in e.turns)]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rules:
    on_length: LengthRule
    entropy_span: str | None
    reference: bool


def _rows(trajectory: Trajectory, advantages: Advantages, rules: _Rules) -> list[Sample]:
    """Cut one role's turns into rows; a turn whose prompt extends the row so far continues it."""
    rows: list[Sample] = []
    open_turns: list[Turn] = []
    ids: tuple[int, ...] = ()
    for turn in trajectory.turns:
        if turn.id not in advantages or not turn.completion_ids:
            continue
        if open_turns and turn.prompt_ids[: len(ids)] != ids:
            rows.append(_row(open_turns, advantages, rules))
            open_turns = []
        open_turns.append(turn)
        ids = turn.prompt_ids + turn.completion_ids
    if open_turns:
        rows.append(_row(open_turns, advantages, rules))
    return rows


def _row(turns: Sequence[Turn], advantages: Advantages, rules: _Rules) -> Sample:
    last = turns[-1]
    length = len(last.prompt_ids) + len(last.completion_ids)
    index = np.full(length, -1, dtype=np.int64)
    streams = {
        name: np.zeros(length, dtype=np.float32)
        for name in ("rl_weight", "logprobs", "advantages", "entropy_weight")
    }
    streams["temperature"] = np.ones(length, dtype=np.float32)
    for number, turn in enumerate(turns):
        start = len(turn.prompt_ids)
        here = slice(start, start + len(turn.completion_ids))
        index[here] = number
        streams["logprobs"][here] = turn.logprobs
        streams["temperature"][here] = 1.0 if turn.sampling.greedy else turn.sampling.temperature
        if turn.finish_reason == "length" and rules.on_length == "mask":
            continue
        for begin, end, value in _pieces(turn, advantages[turn.id]):
            streams["rl_weight"][start + begin : start + end] = 1.0
            streams["advantages"][start + begin : start + end] = value
        for begin, end in _entropy_pieces(turn, rules.entropy_span):
            streams["entropy_weight"][start + begin : start + end] = 1.0
    if rules.reference:
        streams["ref_kl_weight"] = streams["rl_weight"]
    return Sample.of(
        policy=last.policy,
        policy_version=last.policy_version,
        turns=tuple(turn.id for turn in turns),
        token_ids=last.prompt_ids + last.completion_ids,
        turn_index=index,
        **streams,
    )


def _pieces(turn: Turn, by_span: Mapping[str, float]) -> list[tuple[int, int, float]]:
    """Return (start, end, advantage) in completion positions; absent spans have no piece."""
    if WHOLE in by_span:
        return [(0, len(turn.completion_ids), by_span[WHOLE])]
    return [(s.start, s.end, by_span[s.name]) for s in turn.spans if s.name in by_span]


def _entropy_pieces(turn: Turn, name: str | None) -> list[tuple[int, int]]:
    if name is None:
        return [(0, len(turn.completion_ids))]
    return [(span.start, span.end) for span in turn.spans if span.name == name]


def _check_token_truth(
    episodes: Sequence[Episode], advantages: Advantages, rows: Sequence[Sample]
) -> None:
    """Raise unless the rows hold each trained turn once, with the ids the engine drew."""
    drawn = {
        turn.id: turn.completion_ids
        for episode in episodes
        for turn in episode.turns
        if turn.id in advantages and turn.completion_ids
    }
    for row in rows:
        for number, identity in enumerate(row.turns):
            ids = tuple(row.token_ids[row.turn_index == number].tolist())
            if drawn.pop(identity, None) != ids:
                raise TrainingError(f"turn {identity} is in two rows, or its row holds other ids")
        if not np.array_equal(row.sampled_mask, row.turn_index >= 0):
            raise TrainingError(f"sampled_mask of the row of {row.turns[0]} misses a drawn token")
    if drawn:
        raise TrainingError(
            f"{len(drawn)} sampled turns are in no row, the first {next(iter(drawn))}"
        )
