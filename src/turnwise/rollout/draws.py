"""The random draws of the env's steps and of opponents (docs/math.md 1).

Provides `Draws`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnwise.seeding import generator, world_generator
from turnwise.types import EpisodeId, Stream, TurnId

FRESH = "fresh"
"""The draw of a step that is made again for the sibling with which the episode goes on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draws:
    """The random draws of the env's steps, and of opponents, of one stream."""

    seed: int
    stream: Stream
    common_noise: bool

    def of_step(self, episode: EpisodeId, number: int, draw: str = "") -> np.random.Generator:
        """Return the generator of env step `number`, which the group shares if noise is common.

        `draw` names another draw of the same step: that of a sibling, of a trial.
        """
        place = (self.stream, episode.iteration, episode.visit, number, self._member(episode))
        return world_generator(self.seed, *place, draw)

    def of_sibling(self, branch: int) -> str:
        """Return the name of the draw of a sibling's step: siblings are a group."""
        return "" if self.common_noise or not branch else f"sibling {branch}"

    def of_trial(self, turn: str, branch: int, number: int) -> str:
        """Return the name of the draws of trial `number` of a sibling of a turn."""
        return f"{turn}.{number}" if self.common_noise else f"{turn}.{branch}.{number}"

    def of_opponent(self, episode: EpisodeId, number: int, seat: str) -> np.random.Generator:
        """Return the generator of a baseline's choice in env step `number`, shared likewise."""
        member = self._member(episode)
        who = "group" if member is None else member
        place = (self.stream, episode.iteration, episode.visit, number, who)
        return generator(self.seed, "opponent", *place, seat)

    def of_fallback(self, turn: TurnId) -> np.random.Generator:
        """Return the generator of the action in place of an opponent's invalid reply."""
        return generator(self.seed, "fallback", self.stream, str(turn))

    def _member(self, episode: EpisodeId) -> int | None:
        return None if self.common_noise else episode.member
