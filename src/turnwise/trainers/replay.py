"""Demonstrations of earlier iterations, kept to be shown again.

Provides `Replay` (experience replay, Lin 1992, doi:10.1007/BF00992699) and `Shown`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from turnwise.trainers.relabelling import Achieved
from turnwise.types import EpisodeId, Task

KEPT = 4096
"""The most demonstrations that are kept, the latest ones."""


@dataclass(kw_only=True)
class Replay:
    """The shortest demonstration of each problem, by problem, the latest last.

    `count` is how many an iteration draws; with 0 none is kept.

    Example:
        >>> Replay(count=2).drawn(np.random.default_rng(0))
        []
    """

    count: int
    kept: dict[str, Achieved] = field(default_factory=dict)

    def add(self, shown: Iterable[Achieved]) -> None:
        """Keep demonstrations, of a problem the shortest."""
        for each in shown if self.count else ():
            known = self.kept.pop(each.problem, each)
            self.kept[each.problem] = min(known, each, key=lambda one: one.length)
        while len(self.kept) > KEPT:
            del self.kept[next(iter(self.kept))]

    def drawn(self, rng: np.random.Generator) -> list[Achieved]:
        """Return `count` kept demonstrations, or all if there are fewer, in a random order."""
        known = list(self.kept.values())
        return [known[place] for place in rng.permutation(len(known))[: self.count]]

    def state(self) -> list[dict[str, Any]]:
        """Return what a checkpoint holds, as plain values."""
        return [asdict(each) for each in self.kept.values()]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Take back what `state` returned."""
        found = [
            Achieved(
                **each
                | {
                    "id": EpisodeId(**each["id"]),
                    "asked": Task(**each["asked"]),
                    "task": Task(**each["task"]),
                    "actions": tuple(each["actions"]),
                }
            )
            for each in state
        ]
        self.kept = {each.problem: each for each in found}


@dataclass(kw_only=True)
class Shown:
    """What earlier iterations demonstrated: the problems' hashes, and demonstrations to replay."""

    replay: Replay
    seen: set[str] = field(default_factory=set)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds, as plain values."""
        return {"seen": sorted(self.seen), "replay": self.replay.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` returned."""
        self.seen = set(state["seen"])
        self.replay.restore(state["replay"])
