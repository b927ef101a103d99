"""Credit where invalid replies have a lower advantage than all valid ones.

Provides `assign_below_worst`. A penalty in the return has two faults. It must exceed what any valid
episode can lose, which is known only after play. And a penalty of that size is nearly all of the
returns' variance: it changes the advantages of all turns of the episode for one reply, and the
differences between valid episodes are small beside it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from turnwise.credit.assign import Credit, assign_advantages, counted_turns
from turnwise.credit.config import WHOLE, CreditConfig
from turnwise.credit.returns import Penalties
from turnwise.credit.units import trajectories, without_infrastructure_failures
from turnwise.types import Episode, Turn, TurnId

RARE = 0.01
"""The quantile of the probabilities of valid replies' least probable tokens, and the share of that
quantile below which a token of an invalid reply counts as improbable."""
MARGIN = 0.05
"""The distance of an invalid reply's advantage to the least other one, as a share of the range."""


def assign_below_worst(
    episodes: Sequence[Episode],
    config: CreditConfig,
    *,
    penalties: Penalties | None = None,
    team: Collection[str] = (),
    baselines: Mapping[str, float] | None = None,
) -> Credit:
    """Return the advantages of a batch in which invalid replies have the lowest one.

    Episodes that an invalid reply ended are compared with no other episode. The invalid reply has
    an advantage below every other one of the batch, by `MARGIN` of their range, or of -1 where they
    do not differ; the turns before it have 0. An invalid reply after which the episode goes on has
    the same advantage, and the other turns have those of the scheme.

    Where an invalid reply has a token that is far less probable than those of valid replies, the
    tokens after it carry no advantage: they follow a context that the policy hardly ever samples.

    Args:
        episodes: all episodes of one batch.
        config: as `assign_advantages` takes it, with `invalid_below_worst`.
        penalties: as there.
        team: as there.
        baselines: as there.
    """
    kept = without_infrastructure_failures(episodes)
    ended = {episode.id for episode in kept if episode.error is not None}
    honest = [episode for episode in episodes if episode.id not in ended]
    credit = assign_advantages(honest, config, penalties=penalties, team=team, baselines=baselines)
    values = [value for spans in credit.advantages.values() for value in spans.values()]
    least, most = min([0.0, *values]), max([0.0, *values])
    below = least - (MARGIN * (most - least) or 1.0)
    advantages = dict(credit.advantages)
    failed = 0
    usual, ends = _usual(kept), dict[TurnId, int]()
    for trajectory in trajectories(kept):
        for turn in trajectory.turns:
            if turn.error is not None:
                advantages[turn.id] = {WHOLE: below}
                if (end := _end_of_improbable(turn, usual)) is not None:
                    ends[turn.id] = end
                failed += 1
            elif turn.id not in advantages:
                advantages[turn.id] = {WHOLE: 0.0}
    return replace(
        credit,
        advantages=advantages,
        metrics={**credit.metrics, "credit/invalid": float(failed)},
        counted=counted_turns(advantages, config),
        ends=ends,
    )


def _usual(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return, by policy, the `RARE` quantile of the log-probabilities of least probable tokens.

    They are those of valid replies, one token of each.
    """
    least: dict[str, list[float]] = {}
    for turn in (turn for episode in episodes for turn in episode.turns):
        if turn.error is None and turn.logprobs:
            least.setdefault(turn.policy, []).append(min(turn.logprobs))
    return {policy: float(np.quantile(values, RARE)) for policy, values in least.items()}


def _end_of_improbable(turn: Turn, usual: Mapping[str, float]) -> int | None:
    """Return the end of a reply's least probable token, if that is far less probable than usual.

    None if it is not, or if there are no log-probabilities to compare.
    """
    if not turn.logprobs or turn.policy not in usual:
        return None
    place = int(np.argmin(turn.logprobs))
    return place + 1 if turn.logprobs[place] < usual[turn.policy] + math.log(RARE) else None
