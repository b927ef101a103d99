"""A learning rate that follows how far the updates move the policy.

Provides `judge` and `Verdict`, in plain Python. An update that moves a policy too far is undone and
repeated with a smaller rate. Otherwise the rate of the next update is changed a little, so that its
movement comes closer to the wanted one.

The KL divergence of two near policies grows with the square of the distance of their weights (its
second derivative is the Fisher information), and the step of Adam is proportional to its rate
(arXiv:1412.6980, section 2.1). So a movement of m at rate r predicts the rate r sqrt(w / m) for a
movement of w. To follow a wanted divergence is the rule of PPO's penalty (arXiv:1707.06347, section
4); to change the rate for it, that of Rudin et al. 2021 (arXiv:2109.11978).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

TOO_FAR = 4.0
"""An update is undone if it moved the policy more than so many times as far as wanted: its rate was
at least twice the right one. By Pinsker's inequality a movement of m nats changes the probability
of any set of replies, such as the unreadable ones, by at most sqrt(m / 2)."""
TOO_NEAR = 0.25
"""The first update is undone if it moved the policy less than so many times as far as wanted."""
LARGEST_CHANGE = 10.0
"""The largest factor between the rates of two attempts at one update."""
DRIFT = 1.25
"""The largest factor by which an update that stands changes the rate."""
LARGEST_FALL = 0.5
"""Once a rate is known, the smallest factor between the rates with which two iterations begin. One
batch may need a much smaller rate than the next, for a few replies that move far. Rates that rise
by `DRIFT` would be too small for many iterations after it."""
LARGEST_RISE = 10.0
"""The largest factor by which the rate may exceed the first one that stood. Where a policy is
nearly certain, or nothing is left to learn, no rate moves it as far as wanted, and larger rates
follow noise."""
LARGEST_LOSS = 0.1
"""The largest fall of the share of readable replies after which an update stands."""
MOST_TRIES = 8
"""The largest number of updates of one iteration that are undone; then the run stops."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Whether an update stands, and the factor by which its rate is multiplied afterwards.

    An update that does not stand is undone, and repeated with the new rate.
    """

    stands: bool
    factor: float


def judge(share: float, *, first: bool, lost: float = 0.0) -> Verdict:
    """Judge an update by how far it moved the policy (docs/math.md 6).

    The factor is 1 / sqrt(share), at most `DRIFT` or its inverse if the update stands, and
    `LARGEST_CHANGE` or its inverse if not. After a loss of replies it is at most 1/2.

    Args:
        share: the movement divided by the wanted one; it may be infinite or not a number.
        first: whether no rate is known yet, so that too small a movement is undone as well.
        lost: by how much the share of readable replies has fallen.

    Returns:
        The verdict.

    Example:
        >>> judge(1.0, first=False)
        Verdict(stands=True, factor=1.0)
        >>> judge(9.0, first=False).factor
        0.333...
    """
    if not math.isfinite(share):
        return Verdict(stands=False, factor=1 / LARGEST_CHANGE)
    ratio = 1 / math.sqrt(max(share, 1e-12))
    if lost > LARGEST_LOSS:
        return Verdict(stands=False, factor=_within(min(ratio, 0.5), LARGEST_CHANGE))
    if share > TOO_FAR or (first and share < TOO_NEAR):
        return Verdict(stands=False, factor=_within(ratio, LARGEST_CHANGE))
    return Verdict(stands=True, factor=_within(ratio, DRIFT))


def _within(factor: float, largest: float) -> float:
    return min(max(factor, 1 / largest), largest)
