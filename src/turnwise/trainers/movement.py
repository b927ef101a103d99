"""Updates that move a policy as far as wanted, and how far one has moved it.

Provides `update_within_band`, which undoes an update that went too far and computes it again with
another learning rate (`policies.auto_rate`), and `movement`, the KL divergence of the policy before
an update from the policy after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from turnwise.errors import NonFiniteGradientError, TrainingError
from turnwise.forest import Scorer
from turnwise.forest.score import Model
from turnwise.parallel import ALONE, ProcessGroup
from turnwise.policies.auto_rate import (
    LARGEST_LOSS,
    LEAST_MOVEMENT,
    MOST_TRIES,
    TOO_FAR,
    RateSearch,
)
from turnwise.policies.optimizer import MAX_SKIPS
from turnwise.seeding import generator
from turnwise.trainers.minibatches import Part
from turnwise.trainers.session import Session
from turnwise.trainers.trained_policy import TrainedPolicy
from turnwise.trainers.update import Batch, row_offsets, score_column
from turnwise.types import IntArray, TrainingSample, TurnId

Metrics: TypeAlias = dict[str, float]

MEASURED = 4
"""The movement is measured on the replies of one in so many groups: a pass over all rows would take
a third as long as the update."""
LEAST_ROWS = 64
"""The fewest rows on which it is measured, if there are so many."""
LEAST_INFORMATIVE = 0.05
"""The lower bound of the share of replies with an advantage in the wanted movement."""
SURE = 2.0
"""The standard errors that are subtracted from the estimated fall of the share of readable
replies before it is compared with its limit."""
WHOLE = 8.0
"""The movement of all tokens of the replies may be so many times the wanted one of the tokens with
an advantage. The SFT mix also moves the other tokens: in frozen-lake, whose rate was tuned by hand,
all tokens of a reply moved 2 to 12 times as far as those of its answer."""
FURTHEST = 0.3
"""An update with a larger movement is undone, unless a larger one is wanted. Policies whose rates
were tuned by hand moved by 0.24 at most. After a movement of 0.56 importance sampling from the old
replies failed: it estimated that as many replies were readable as before, and 40 % were not."""
LEAST_REPLIES = 16
"""The rate is not raised where fewer replies with an advantage were measured. The bound `FURTHEST`
is then for the tokens without an advantage, too."""
ROUNDING = 1e-9
"""The relative error of a rate from which many factors were multiplied."""
LARGEST = 20.0
"""The upper bound of a token's log-ratio, so that its exponential does not overflow."""


def update_within_band(
    session: Session,
    trained: TrainedPolicy,
    iteration: int,
    batch: Batch,
    failed: Collection[TurnId],
    take: Callable[[], Metrics],
) -> Metrics:
    """Take an iteration's optimizer steps so that they move the policy about as far as wanted.

    docs/math.md 6 defines the wanted movement. Nothing is measured where the schedule is at 0.

    Args:
        session: the run.
        trained: whose policy is updated; its optimizer's rate is changed.
        iteration: its number.
        batch: the rows of the update.
        failed: the turns whose replies could not be read.
        take: takes the steps, and returns their metrics.

    Returns:
        The metrics of the steps that stand. Where the movement was measured, also
        `policy/movement`, `policy/movement_wanted` and `policy/movement_whole` in nats per
        decision, `policy/readable_lost`, `optim/undone` and `optim/lr_at_cap`.

    Raises:
        TrainingError: if the ninth attempt moves the policy too far or loses too many replies.
    """
    optimizer = trained.optimizer
    optimizer.follow_wanted()
    rows = batch.rows(_measured_rows(batch, session.seed, iteration, failed))
    measured = _scored(trained, rows, session.group) if trained.low_precision else rows
    before, steps = optimizer.snapshot(), optimizer.steps
    search = RateSearch(optimizer.peak, optimizer.found)
    signal = math.sqrt(max(informative(batch, failed), LEAST_INFORMATIVE))
    while True:
        metrics, diverged = _taken(take, last=search.is_last)
        highest = max(map(optimizer.factor, range(steps, optimizer.steps)))
        if not highest:
            return metrics
        count = optimizer.steps - steps
        unscheduled = optimizer.wanted_movement(count, steps)
        largest = max(unscheduled * highest**2, LEAST_MOVEMENT)
        wanted = signal * largest
        moved = diverged or movement(
            trained.policy.model, trained.scorer, measured, failed, session.group
        )
        share, skipped = _share(moved, wanted, largest), metrics["optim/skipped"] > 0
        few, last = moved.replies < LEAST_REPLIES, search.is_last
        if search.stands(share, moved.nats, lost=moved.surely_lost, few=few, skipped=skipped):
            break
        if last:
            raise TrainingError(_why_it_stops(trained, iteration, moved, wanted, largest))
        optimizer.restore(before)
        optimizer.peak = search.peak
        session.new_weights(trained)
    at_cap = optimizer.peak >= (1 - ROUNDING) * search.most
    optimizer.peak, optimizer.found = search.peak, search.found
    optimizer.wanted = (count, unscheduled)
    return metrics | _metrics_of(moved, wanted, search.undone, at_cap=at_cap)


def _metrics_of(moved: Moved, wanted: float, undone: int, *, at_cap: bool) -> Metrics:
    """Return the metrics of an update that stands, after `undone` that did not."""
    return {
        "policy/movement": moved.nats,
        "policy/movement_wanted": wanted,
        "policy/movement_whole": moved.whole,
        "policy/readable_lost": moved.lost,
        "optim/undone": float(undone),
        "optim/lr_at_cap": float(at_cap),
    }


def _taken(take: Callable[[], Metrics], *, last: bool) -> tuple[Metrics, Moved | None]:
    """Take the steps of an attempt; return their metrics, and how far if that cannot be measured.

    Raises:
        NonFiniteGradientError: of the last attempt, if gradients were not finite thrice in a row.
    """
    try:
        return take(), None
    except NonFiniteGradientError:
        if last:
            raise
        return {"optim/skipped": float(MAX_SKIPS)}, DIVERGED


def _share(moved: Moved, wanted: float, largest: float) -> float:
    """Return how many times as far as wanted a policy has moved.

    That is the larger of the ratio for the tokens with an advantage and that for all tokens of the
    replies. It is above `TOO_FAR` where the movement is above `FURTHEST` and above the wanted one,
    and infinite where a figure is not finite.
    """
    if not all(map(math.isfinite, (moved.nats, moved.whole, moved.lost, moved.error))):
        return math.inf
    share = max(moved.nats / wanted, moved.whole / (WHOLE * largest))
    few = moved.replies < LEAST_REPLIES
    nats, most = max(moved.nats, moved.whole) if few else moved.nats, max(FURTHEST, wanted)
    return max(share, TOO_FAR * nats / most) if nats > most else share


def _measured_rows(
    batch: Batch, seed: int, iteration: int, failed: Collection[TurnId] = ()
) -> list[int]:
    """Return the rows of some groups, those with advantages first; all rows where there are few."""
    rows: dict[Part, list[int]] = {}
    for row, part in enumerate(batch.parts):
        if part is not None:
            rows.setdefault(part, []).append(row)
    has = [any(row) for row in _has_advantage(batch, failed)]
    has_advantage = {part for part, own in rows.items() if any(has[row] for row in own)}
    parts = sorted(rows)
    order = [
        parts[place] for place in generator(seed, "measured", iteration).permutation(len(parts))
    ]
    enough = max(LEAST_ROWS, sum(map(len, rows.values())) // MEASURED)
    found: list[int] = []
    for part in sorted(order, key=lambda each: each not in has_advantage):
        if len(found) < enough:
            found += rows[part]
    return sorted(found)


def _scored(trained: TrainedPolicy, batch: Batch, group: ProcessGroup) -> Batch:
    """Return a batch with the log-probabilities of its rows alone as those before the update.

    Below float32 they depend on which rows are scored together by more than a small update changes
    them.
    """
    column = batch.columns["proximal_logprobs"].copy()
    found = score_column(trained.policy.model, trained.scorer, batch.samples, group)
    begins = row_offsets(batch.samples)
    for sample, begin, place in zip(batch.samples, begins, batch.offsets, strict=True):
        size = len(sample.token_ids)
        column[place : place + size] = found[begin : begin + size]
    return replace(batch, columns=batch.columns | {"proximal_logprobs": column})


def _why_it_stops(
    trained: TrainedPolicy, iteration: int, last: Moved, wanted: float, largest: float
) -> str:
    """Return the message of the error that ends a run whose updates all go too far."""
    most = min(TOO_FAR * wanted, max(FURTHEST, wanted))
    did = (
        f"moved the policy by {last.nats:.2g} nats per decision, expected {wanted:.2g} and at most "
        f"{most:.2g}, and by {last.whole:.2g} over all tokens of its replies, expected at most "
        f"{TOO_FAR * WHOLE * largest:.2g}"
    )
    if last.surely_lost > LARGEST_LOSS:
        did = f"made {last.lost:.0%} more of its replies unreadable, expected {LARGEST_LOSS:.0%}"
    return (
        f"policy {trained.name!r}: {MOST_TRIES + 1} attempts at the update of iteration "
        f"{iteration} failed. The last, at a learning rate of {trained.optimizer.peak:.1e}, {did}. "
        "Look for extreme advantages in `episodes/`, lower optimizer.movement, or set optimizer.lr "
        "to a number"
    )


class Moved(NamedTuple):
    """How far an update has moved a policy, and by how much the share of readable replies fell.

    Attributes:
        nats: KL(before, after) over the tokens with an advantage other than 0, in nats per
            decision, without the replies that are left out (`movement`).
        whole: the same over all sampled tokens.
        lost: the estimated fall of the share of readable replies.
        error: its standard error.
        replies: the number of replies with an advantage other than 0.
    """

    nats: float
    whole: float
    lost: float
    error: float
    replies: int

    @property
    def surely_lost(self) -> float:
        """The fall of the share of readable replies, less `SURE` standard errors."""
        return self.lost - SURE * self.error


DIVERGED = Moved(math.inf, math.inf, 0.0, 0.0, LEAST_REPLIES)
"""The movement of an attempt whose gradients were not finite."""


def informative(batch: Batch, failed: Collection[TurnId] = ()) -> float:
    """Return the share of the replies in a batch's rows that have an advantage other than 0.

    Those that `movement` leaves out do not count.
    """
    found = [each for row in _has_advantage(batch, failed) for each in row]
    return float(np.mean(found)) if found else 0.0


def _has_advantage(batch: Batch, failed: Collection[TurnId]) -> list[list[bool]]:
    """Return, for each row, which of the replies that count have an advantage other than 0."""
    left_out, found = _left_out(batch, failed), list[list[bool]]()
    for sample, place in zip(batch.samples, batch.offsets, strict=True):
        drawn, has_advantage = _tokens(batch, sample, place)
        has = np.bincount(sample.turn_index[has_advantage], minlength=len(sample.turns)) > 0
        turns = np.unique(sample.turn_index[drawn])
        found.append([bool(has[turn]) for turn in turns if sample.turns[turn] not in left_out])
    return found


def _left_out(batch: Batch, failed: Collection[TurnId]) -> set[TurnId]:
    """Return the turns in a batch's rows that the movement leaves out.

    These are the unreadable replies that the update is to make less likely, if there are others.
    """
    found: set[TurnId] = set()
    others = False
    for sample, place in zip(batch.samples, batch.offsets, strict=True):
        drawn, _ = _tokens(batch, sample, place)
        paid = batch.columns["advantages"][place : place + len(drawn)] > 0
        likelier = np.bincount(sample.turn_index[drawn & paid], minlength=len(sample.turns)) > 0
        for turn in np.unique(sample.turn_index[drawn]):
            if sample.turns[turn] in failed and not likelier[turn]:
                found.add(sample.turns[turn])
            else:
                others = True
    return found if others else set()


def movement(
    model: Model,
    scorer: Scorer,
    batch: Batch,
    failed: Collection[TurnId] = (),
    group: ProcessGroup = ALONE,
) -> Moved:
    """Return how far an update has moved a policy, measured on the rows of its batch.

    The movement is KL(before, after), in nats per decision: of the tokens with an advantage other
    than 0, and of all sampled tokens. Each token adds exp(r) - 1 - r, where r is the logarithm of
    its probability after the update over that before it; the mean over draws of the policy before
    the update is its KL divergence (k3 of Schulman 2020,
    http://joschu.net/blog/kl-approx.html). The number of decisions in a reply is
    (sum s)^2 / sum s^2, where s is the surprisal of a token before the update: the number of tokens
    if all are as uncertain, and 1 if one of them is uncertain and the others follow from it.

    Unreadable replies without a positive advantage are left out, unless there are no others. They
    have tokens that the policy hardly ever draws, and the update is to make them less likely: one
    such reply may add more than all others.

    The mean of the probability ratio over readable replies, where others count 0, is the policy's
    probability of a readable reply after the update (importance sampling). Nothing is sampled.

    Args:
        model: the policy after the update.
        scorer: its scorer.
        batch: the rows, with the log-probabilities from before the update.
        failed: the turns whose replies could not be read.
        group: the processes that share the rows.

    Returns:
        The movement, the estimated fall of the share of readable replies, and the number of
        replies with an advantage; all 0 where the rows have no sampled token.
    """
    left_out = _left_out(batch, failed)
    after = score_column(model, scorer, batch.samples, group)
    begins = row_offsets(batch.samples)
    total, whole, moved, falls = np.zeros(2), np.zeros(2), 0, []
    for sample, begin, place in zip(batch.samples, begins, batch.offsets, strict=True):
        size = len(sample.token_ids)
        drawn, has_advantage = _tokens(batch, sample, place)
        before = batch.columns["proximal_logprobs"][place : place + size].astype(np.float64)
        ratio = np.minimum(after[begin : begin + size] - before, LARGEST)
        added = np.expm1(ratio) - ratio
        out = [number for number, turn in enumerate(sample.turns) if turn in left_out]
        counts = np.isin(sample.turn_index, out, invert=True)
        for sums, chosen in ((total, has_advantage), (whole, drawn)):
            tokens = chosen & counts
            sums += added[tokens].sum(), _decisions(-before[tokens], sample.turn_index[tokens])
        moved += len(np.unique(sample.turn_index[has_advantage & counts]))
        falls += _falls(sample, drawn, ratio, failed)
    if not falls:
        return Moved(0.0, 0.0, 0.0, 0.0, 0)
    error = float(np.std(falls)) / math.sqrt(len(falls))
    nats, all_nats = (float(each[0] / max(each[1], 1.0)) for each in (total, whole))
    return Moved(nats, all_nats, float(np.mean(falls)), error, moved)


def _falls(
    sample: TrainingSample,
    drawn: NDArray[np.bool_],
    ratio: NDArray[np.float64],
    failed: Collection[TurnId],
) -> list[float]:
    """Return 1 - p/q of each sampled reply of a row, and 0 of unreadable ones.

    p and q are its probabilities after and before the update, `ratio` log(p/q) of each token.
    """
    turns = sample.turn_index[drawn]
    of_reply = np.bincount(turns, weights=ratio[drawn], minlength=len(sample.turns))
    return [
        0.0 if sample.turns[turn] in failed else 1 - math.exp(min(of_reply[turn], LARGEST))
        for turn in np.unique(turns)
    ]


def _decisions(surprisal: NDArray[np.float64], reply: IntArray) -> float:
    """Return the number of decisions in all replies, from their tokens' surprisal, [tokens]."""
    sums = np.bincount(reply, weights=surprisal)
    squares = np.bincount(reply, weights=surprisal**2)
    return float((sums[squares > 0] ** 2 / squares[squares > 0]).sum())


def _tokens(
    batch: Batch, sample: TrainingSample, place: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which tokens of a row were sampled, and which of those have an advantage, [tokens]."""
    where = slice(place, place + len(sample.token_ids))
    drawn = batch.columns["sampled"][where] != 0
    return drawn, drawn & (batch.columns["advantages"][where] != 0)
