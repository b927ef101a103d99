"""Training rows from turns, with one value per token for every part of the loss.

Provides `samples_from_episodes`, which checks that each sampled token is in exactly one row. A row
ends where the next prompt does not extend it, so the tokens of a long history occur once. Ids and
log-probabilities are copied from the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from turnwise.errors import TrainingError
from turnwise.types import Episode, TrainingSample, Trajectory, Turn, TurnId

LengthRule = Literal["train", "mask", "exclude"]
Advantages = Mapping[TurnId, Mapping[str, float]]
Piece = tuple[int, int, float]
WHOLE = ""


def samples_from_episodes(
    episodes: Sequence[Episode],
    advantages: Advantages,
    *,
    truncated_completions: LengthRule = "train",
    entropy_span: str | None = None,
    reference: bool = False,
    ends: Mapping[TurnId, int] | None = None,
) -> list[TrainingSample]:
    """Return the training rows of all turns that have advantages, episode by episode.

    Args:
        episodes: what was played.
        advantages: turn -> span name -> advantage; the span `""` is the whole completion, and a
            token in no named span carries no policy gradient.
        truncated_completions: what becomes of completions cut at max_tokens: `train` trains them as
        they are
            (most have no answer and failed), `mask` gives them no loss (they stay in the baseline),
            `exclude` was applied before the credit was assigned and leaves nothing to do here.
        entropy_span: the span whose tokens count for the entropy bonus; None is all of them.
        reference: whether the tokens that carry policy gradient also carry a reference-KL weight.
        ends: the tokens of a completion that carry policy gradient at most, counted from its start;
            all of those turns that are absent.

    Raises:
        TrainingError: if a sampled token would be in no row, or in two.
    """
    rules = _Rules(truncated_completions, entropy_span, reference, ends or {})
    rows = [
        row
        for episode in episodes
        for trajectory in episode.trajectories
        for row in _rows(trajectory, advantages, rules)
    ]
    _check_token_truth(episodes, advantages, rows)
    return rows


def without_cut(episodes: Sequence[Episode]) -> list[Episode]:
    """Return the episodes without a truncated completion (`truncated_completions = "exclude"`).

    Replies of servers, which are not trained, may be cut.
    """

    def cut(turn: Turn) -> bool:
        return turn.finish_reason == "length" and not turn.text_only

    return [episode for episode in episodes if not any(map(cut, episode.turns))]


@dataclass(frozen=True, slots=True)
class _Rules:
    truncated_completions: LengthRule
    entropy_span: str | None
    reference: bool
    ends: Mapping[TurnId, int]


def _rows(trajectory: Trajectory, advantages: Advantages, rules: _Rules) -> list[TrainingSample]:
    """Cut one role's turns into rows; a turn whose prompt extends the row so far continues it.

    Each sibling beside the played path is a row of its own.
    """
    rows: list[TrainingSample] = []
    open_turns: list[Turn] = []
    ids: tuple[int, ...] = ()
    for turn in trajectory.turns:
        if turn.id not in advantages or not turn.completion_ids:
            continue
        if open_turns and not _goes_on(turn, open_turns[-1], ids):
            rows.append(_row(open_turns, advantages, rules))
            open_turns = []
        open_turns.append(turn)
        ids = turn.prompt_ids + turn.completion_ids
    if open_turns:
        rows.append(_row(open_turns, advantages, rules))
    trained = [t for t in trajectory.siblings if t.id in advantages and t.completion_ids]
    return rows + [_row([turn], advantages, rules) for turn in trained]


def _goes_on(turn: Turn, before: Turn, ids: tuple[int, ...]) -> bool:
    """Whether a turn's prompt begins with the row so far, and with what was shown in it."""
    shown = turn.media[: len(before.media)] == before.media
    return shown and turn.prompt_ids[: len(ids)] == ids


def _row(turns: Sequence[Turn], advantages: Advantages, rules: _Rules) -> TrainingSample:
    last = turns[-1]
    length = len(last.prompt_ids) + len(last.completion_ids)
    index = np.full(length, -1, dtype=np.int64)
    streams: dict[str, Any] = {
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
        if turn.finish_reason == "length" and rules.truncated_completions == "mask":
            continue
        for begin, end, value in _pieces(turn, advantages[turn.id], rules.ends.get(turn.id)):
            streams["rl_weight"][start + begin : start + end] = 1.0
            streams["advantages"][start + begin : start + end] = value
        for begin, end in _entropy_pieces(turn, rules.entropy_span):
            streams["entropy_weight"][start + begin : start + end] = 1.0
    if rules.reference:
        streams["ref_kl_weight"] = streams["rl_weight"]
    return TrainingSample.of(
        policy=last.policy,
        policy_version=last.policy_version,
        turns=tuple(turn.id for turn in turns),
        token_ids=last.prompt_ids + last.completion_ids,
        turn_index=index,
        media=last.media,
        **streams,
    )


def _pieces(turn: Turn, by_span: Mapping[str, float], limit: int | None) -> list[Piece]:
    """Return (start, end, advantage) in completion positions; absent spans have no piece."""
    whole = len(turn.completion_ids) if limit is None else limit
    spans = [span for span in turn.spans if span.name in by_span]
    pieces = [(min(s.start, whole), min(s.end, whole), by_span[s.name]) for s in spans]
    return [(0, whole, by_span[WHOLE])] if WHOLE in by_span else pieces


def _entropy_pieces(turn: Turn, name: str | None) -> list[tuple[int, int]]:
    named = [(span.start, span.end) for span in turn.spans if span.name == name]
    return [(0, len(turn.completion_ids))] if name is None else named


def _check_token_truth(
    episodes: Sequence[Episode], advantages: Advantages, rows: Sequence[TrainingSample]
) -> None:
    """Raise unless the rows hold each trained turn once, with the ids the engine drew."""
    drawn = {
        turn.id: turn.completion_ids
        for episode in episodes
        for turn in episode.sampled
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
