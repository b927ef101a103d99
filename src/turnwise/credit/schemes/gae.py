"""Generalised advantage estimation whose state values are means over the batch's episodes.

Source: Schulman et al. 2015 (arXiv 1506.02438), with the state-dependent decay of Sutton and Barto
2018 (section 12.8). A value is not learned: it is the mean return-to-go of the other episodes'
visits of the state, as in GiGPO (arXiv 2505.10978).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from turnwise.credit.config import VisitCreditConfig
from turnwise.credit.returns import Floats, Payments, returns_to_go, turn_rewards
from turnwise.credit.schemes.base import Comparison, Scheme, visit_key
from turnwise.credit.schemes.grpo import mean_centred
from turnwise.credit.units import episode_units, require_state_key
from turnwise.types import EpisodeId, Trajectory, TurnId

PRIOR = 6.0
"""The number of visits that the value of the coarser comparison counts as."""
KNOWN = 1.0
"""The number of other visits at which a state's value is trusted half."""
PASSES = 4
"""How often values are computed where episodes were left: a return that goes on with a value needs
values that go on with values."""


class GaeConfig(VisitCreditConfig):
    """Turns are compared with the mean return from their state, and with what the next is worth.

    Example:
        >>> GaeConfig().gae_lambda
        0.3
    """

    scheme: Literal["gae"] = "gae"
    std: Literal["none", "batch_returns", "batch_advantages"] = "batch_advantages"
    """The standard deviation that advantages are divided by: that of all returns of the role in
    the batch, or of all its advantages, as in PPO."""
    gamma: float = Field(default=0.95, ge=0, le=1)
    """Discount of the return-to-go."""
    gae_lambda: float = Field(default=0.3, ge=0, le=1)
    """How much a turn's advantage counts on what followed in its own episode, rather than on the
    value of the next state, where many episodes visited that; 1 where none did. Lower values have
    less variance, and need state keys that say all that decides the future."""

    @property
    def divides_by(self) -> Literal["none", "batch_returns", "batch_advantages"]:
        """The divisor of advantages."""
        return self.std


def advantages_by_turn(
    played: Sequence[Trajectory],
    weights: Mapping[str, float],
    payments: Payments,
    config: GaeConfig,
) -> dict[TurnId, float]:
    """Return each turn's advantage, before it is divided by a standard deviation.

    `A_t = r_t + gamma ((1 - w) V(s_(t+1)) + w (A_(t+1) + V(s_(t+1)))) - V(s_t)`, where `w` is 1 -
    (1 - lambda) n / (n + 1) and n the number of other episodes' visits of `s_(t+1)`. After the
    last turn there is no value, unless the trainer left the episode there (`Trajectory.next_key`).
    An episode whose role has no other one in the batch has 0.

    Raises:
        TrainingError: if a turn has no state key.
    """
    played = sorted(played, key=lambda each: each.turns[0].id)  # sums do not depend on the order
    rewards = [turn_rewards(each, weights, payments) for each in played]
    goes_on, values, visits = _values_where_left(played, rewards, config.gamma)
    found: dict[TurnId, float] = {}
    for trajectory, earned, value, after, (others, _, seen, _) in zip(
        played, rewards, values, goes_on, visits, strict=True
    ):
        trusted = 1 - (1 - config.gae_lambda) * seen / (seen + KNOWN)
        tail = after
        for place in range(len(earned) - 1, -1, -1):
            if place + 1 < len(earned):
                own = trusted[place + 1]
                after = (1 - own) * value[place + 1] + own * tail
            tail = float(earned[place] + config.gamma * after)
            advantage = tail - float(value[place])
            found[trajectory.turns[place].id] = advantage if others[place] else 0.0
    return found


def _values_where_left(
    played: Sequence[Trajectory], rewards: Sequence[Floats], gamma: float
) -> tuple[list[float], list[Floats], list[tuple[Floats, ...]]]:
    """Return what each episode's return goes on with after its last turn, and `state_values`."""
    goes_on = [0.0] * len(played)
    passes = PASSES if any(each.next_key is not None for each in played) else 0
    values, visits = state_values(played, [returns_to_go(each, gamma) for each in rewards])
    for _ in range(passes):
        goes_on = [
            0.0 if each.next_key is None else float(value[-1])
            for each, value in zip(played, values, strict=True)
        ]
        pairs = zip(rewards, goes_on, strict=True)
        values, visits = state_values(played, [returns_to_go(r, gamma, v) for r, v in pairs])
    return goes_on, values, visits


def state_values(
    played: Sequence[Trajectory], returns: Sequence[Floats]
) -> tuple[list[Floats], list[tuple[Floats, ...]]]:
    """Return the value of each turn's state, and how many turns of others are alike, [turns].

    Of an episode that was left before its end there is one more: of the state in which it would
    have gone on. There the returns of others depend a little on the turn's own action: what they go
    on with was computed from its return, too.

    The value is a mean of other episodes' returns-to-go, so that it does not depend on the turn's
    own action: over the visits of the state in the same visit of the task, together with `PRIOR`
    visits that are worth the mean over the state in the whole batch, which is made likewise with
    the mean over turns of the same number, and that with the mean over all turns of the role. The
    numbers of turns are those of the four means, the last one first.

    Raises:
        TrainingError: if a turn has no state key.
    """
    values: list[Floats] = [np.zeros(1) for _ in returns]
    alike: list[list[Floats]] = []
    episodes = [each.turns[0].id.episode for each in played]
    prior = 0.0
    for keys in zip(*map(_keys, played), strict=True):
        values, others = _means(keys, episodes, returns, values, prior)
        alike.append(others)
        prior = PRIOR
    return values, list(zip(*alike, strict=True))


def _keys(trajectory: Trajectory) -> tuple[list[Hashable], ...]:
    """Return what the turns of one mean have in common, from coarse to fine, each [turns]."""
    role, visit = trajectory.role, trajectory.turns[0].id.episode.visit_id
    states = [require_state_key(turn, "gae") for turn in trajectory.turns]
    states += [] if trajectory.next_key is None else [trajectory.next_key]
    return (
        [role] * len(states),
        [(role, number) for number in range(len(states))],
        [(role, state) for state in states],
        [(role, state, visit) for state in states],
    )


def _means(
    keys: Sequence[Sequence[Hashable]],
    episodes: Sequence[EpisodeId],
    returns: Sequence[Floats],
    coarser: Sequence[Floats],
    prior: float,
) -> tuple[list[Floats], list[Floats]]:
    """Return the mean of other episodes' returns at each key, and their number.

    An episode has a key for each of its returns, and may have one more, of a state that it has not
    acted in.
    """
    total: defaultdict[Hashable, float] = defaultdict(float)
    count: defaultdict[Hashable, int] = defaultdict(int)
    own: defaultdict[Hashable, float] = defaultdict(float)
    times: defaultdict[Hashable, int] = defaultdict(int)
    for names, episode, after in zip(keys, episodes, returns, strict=True):
        for key, value in zip(names, after.tolist(), strict=False):
            total[key] += value
            count[key] += 1
            own[episode, key] += value
            times[episode, key] += 1
    values, visits = [], []
    for names, episode, parents in zip(keys, episodes, coarser, strict=True):
        others = np.array([count[key] - times[episode, key] for key in names], dtype=float)
        sums = np.array([total[key] - own[episode, key] for key in names], dtype=float)
        weight = np.maximum(others + prior, 1e-300)
        values.append((sums + prior * parents) / weight)
        visits.append(others)
    return values, visits


GAE = Scheme(
    config=GaeConfig,
    compare=Comparison(key=visit_key, unit=episode_units, estimator=mean_centred),
    by_turn=advantages_by_turn,
)
