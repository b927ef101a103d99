"""Minimax players of bounded depth for the games of `rules`.

Provides `Minimax`, which knows no heuristics: a position that is not decided within its depth is
worth 0. The search is alpha-beta with a memory of the positions that it has solved.
"""

from __future__ import annotations

import numpy as np

from turnwise.envs.board_games.rules import Rules

MOST_KEPT = 200_000
"""Positions that are remembered; beyond it they are forgotten and searched anew."""


class Minimax:
    """Plays one of the best actions as they look after `depth` plies, each equally often.

    A win counts more the sooner it comes, and a loss less the later. Depth 1 takes a win at once
    where there is one, and plays at random otherwise; depth 2 also blocks the other player's win.

    Example:
        >>> rules = Rules(rows=3, columns=3, line=3, falls=False)
        >>> Minimax(rules, depth=1).best(own=0b11, other=0b11000)
        (2,)
        >>> Minimax(rules, depth=2).best(own=0b1, other=0b11000)
        (5,)
    """

    def __init__(self, rules: Rules, depth: int) -> None:
        self.rules, self.depth = rules, depth
        middle = (rules.columns - 1) / 2
        far = [abs(action % rules.columns - middle) for action in range(rules.actions)]
        self._order = sorted(range(rules.actions), key=far.__getitem__)
        self._known: dict[tuple[int, int, int], int] = {}
        self._best: dict[tuple[int, int], tuple[int, ...]] = {}

    def play(self, own: int, other: int, rng: np.random.Generator) -> int:
        """Return an action of the player whose stones are `own`."""
        best = self.best(own, other)
        return best[int(rng.integers(len(best)))]

    def best(self, own: int, other: int) -> tuple[int, ...]:
        """Return the actions with the highest value, in order."""
        key = own, other
        if key not in self._best:
            if len(self._best) >= MOST_KEPT:
                self._best.clear()
            self._best[key] = self._search_best(own, other)
        return self._best[key]

    def _search_best(self, own: int, other: int) -> tuple[int, ...]:
        values = {
            action: self._value_after(own, other, bit, self.depth, -self.depth - 1, self.depth + 1)
            for action, bit in self.rules.landings(own, other)
        }
        most = max(values.values())
        return tuple(action for action, value in values.items() if value == most)

    def _value_after(self, own: int, other: int, bit: int, depth: int, low: int, high: int) -> int:
        """Return the value of filling `bit` for the player whose stones are `own`."""
        if self.rules.wins(own | bit, bit):
            return depth
        if depth == 1 or (own | other | bit) == self.rules.full:
            return 0
        return -self._value(other, own | bit, depth - 1, -high, -low)

    def _value(self, own: int, other: int, depth: int, low: int, high: int) -> int:
        """Return the value of a position for the player to move; exact within (low, high)."""
        key = own, other, depth
        known = self._known.get(key)
        if known is not None:
            return known
        taken, most, begins = own | other, -depth - 1, low
        for action in self._order:
            bit = self.rules.landing(taken, action)
            if not bit:
                continue
            most = max(most, self._value_after(own, other, bit, depth, max(low, most), high))
            if most >= high:
                return most
        if most > begins:  # else it is only a bound
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[key] = most
        return most
