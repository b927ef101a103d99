"""A learning rate that follows how far the updates move the policy.

Provides `RateSearch`, `judge` and `Verdict`, in plain Python. An update that moves a policy too far
is undone and repeated with a smaller rate. Otherwise the rate of the next update is changed a
little, so that its movement comes closer to the wanted one.

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
"""The largest factor by which the rate may exceed the first one that stood, or what that one has
become with a changed wanted movement. Where a policy is nearly certain, or nothing is left to
learn, no rate moves it as far as wanted, and larger rates follow noise."""
LARGEST_LOSS = 0.1
"""The largest fall of the share of readable replies after which an update stands."""
MOST_TRIES = 8
"""The largest number of updates of one iteration that are undone; then the run stops."""
FEW_TRIES = 4
"""After more attempts at an update the rate may fall further than by `LARGEST_FALL`, so that the
attempts of the next one are enough."""
LEAST_MOVEMENT = 1e-5
"""The smallest movement that is more than rounding, in nats per decision."""
LARGEST_RATE = 1.0
"""The search for a first rate does not go on above it."""


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


class RateSearch:
    """The attempts at one update, and the rates that follow from them (docs/math.md 6).

    Attributes:
        peak: the rate of the attempt; once one is judged, that of the next attempt, or of the next
            update if it stands.
        found: the first rate whose update stood on enough evidence; None while there is none.
        undone: the number of attempts that did not stand.
    """

    def __init__(self, peak: float, found: float | None) -> None:
        self.peak, self.found, self.undone = peak, found, 0
        self._lowest = 0.0 if found is None else LARGEST_FALL * peak
        self._highest_undone = 0.0
        self._before: tuple[float, float] | None = None

    @property
    def is_last(self) -> bool:
        """Whether no attempt may follow this one."""
        return self.undone == MOST_TRIES

    @property
    def most(self) -> float:
        """The highest rate that the next update may have."""
        return math.inf if self.found is None else LARGEST_RISE * self.found

    def stands(
        self, share: float, nats: float, *, lost: float = 0.0, few: bool = False, skipped: bool
    ) -> bool:
        """Judge an attempt, set the next rate, and return whether its update stands.

        Few replies do not raise the rate, nor does an update of which a step was skipped. The last
        attempt stands also if it moved the policy too little, unless replies became unreadable. It
        is then no evidence for its rate, and the next update goes on with the search.

        Args:
            share: the movement divided by the wanted one; it may be infinite or not a number.
            nats: the movement.
            lost: by how much the share of readable replies has surely fallen.
            few: whether few replies were measured.
            skipped: whether a step was skipped.
        """
        rate = self.peak
        # where a larger rate went too far before, what moves too little stands
        first = self.found is None and self._highest_undone <= rate < LARGEST_RATE
        verdict = judge(share, first=first, lost=lost)
        harmless = share < 1 and lost <= LARGEST_LOSS
        unknown = skipped and harmless
        if (few and verdict.factor > 1) or unknown or (self.is_last and harmless):
            verdict = Verdict(stands=True, factor=1.0)
        if not verdict.stands:
            self._highest_undone = max(self._highest_undone, rate)
            self.peak = self._smaller_rate(rate, nats) or rate * verdict.factor
            self._before, self.undone = (rate, nats), self.undone + 1
            return False
        if not (few or unknown or (first and share < TOO_NEAR)):
            self.found = self.found or rate
        lowest = self._lowest if self.undone < FEW_TRIES else 0.0
        self.peak = min(max(rate * verdict.factor, lowest), self.most)
        return True

    def _smaller_rate(self, rate: float, nats: float) -> float | None:
        """Return the rate before, if this larger one moved the policy hardly further.

        The movement is expected to grow with the square of the rate. Where it grows by less than
        the square root, the weights are far outside of the region where it does.
        """
        if self._before is None:
            return None
        rate_before, nats_before = self._before
        if rate <= rate_before or nats_before < LEAST_MOVEMENT:
            return None
        return rate_before if nats < nats_before * math.sqrt(rate / rate_before) else None


def _within(factor: float, largest: float) -> float:
    return min(max(factor, 1 / largest), largest)
