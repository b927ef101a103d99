"""The rewards that seats earn at the steps of other seats (`Step.others`).

Provides `SeatRewards`, which the agents of an episode share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from turnwise.types import Turn


class SeatRewards:
    """Keeps what each seat has earned at others' steps, until the episode is over.

    It belongs to the seat's latest turn before that step, or to its first turn if it had none. A
    seat that never has a turn earns nothing.

    Example:
        >>> kept = SeatRewards()
        >>> kept.played("first")
        >>> kept.give({"first": {"loss": -1.0}})
        >>> kept.owed("first", 0)
        {'loss': -1.0}
    """

    def __init__(self) -> None:
        self._turns: Counter[str] = Counter()
        self._owed: dict[tuple[str, int], dict[str, float]] = {}

    def played(self, seat: str) -> None:
        """Take note of a turn of a seat."""
        self._turns[seat] += 1

    def give(self, others: Mapping[str, Mapping[str, float]]) -> None:
        """Take note of the rewards of other seats in a step."""
        for seat, rewards in others.items():
            owed = self._owed.setdefault((seat, max(0, self._turns[seat] - 1)), {})
            for name, value in rewards.items():
                owed[name] = owed.get(name, 0.0) + value

    def owed(self, seat: str, turn: int) -> Mapping[str, float]:
        """Return what a turn of a seat earned at others' steps."""
        return self._owed.get((seat, turn), {})

    def added(self, seat: str, turns: Sequence[Turn]) -> tuple[Turn, ...]:
        """Return the turns of a seat with what they earned at others' steps."""
        if not self._owed:
            return tuple(turns)
        return tuple(self._with(turn, self.owed(seat, n)) for n, turn in enumerate(turns))

    def _with(self, turn: Turn, owed: Mapping[str, float]) -> Turn:
        names = dict.fromkeys((*turn.rewards, *owed))
        total = {name: turn.rewards.get(name, 0.0) + owed.get(name, 0.0) for name in names}
        return replace(turn, rewards=total) if owed else turn
