"""Which random draws an env's steps take (docs/math.md 1). Provides `Draws`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnwise.seeding import world_generator
from turnwise.types import EpisodeId, Stream

FRESH = "fresh"
"""The draw of a step that is made again for the sibling with which the episode goes on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draws:
    """The random draws of the env's steps of one stream."""

    seed: int
    stream: Stream
    common_noise: bool

    def of_step(self, episode: EpisodeId, number: int, draw: str = "") -> np.random.Generator:
        """Return the generator of env step `number`, which the group shares if noise is common.

        `draw` names another draw of the same step: that of a sibling, of a trial.
        """
        member = None if self.common_noise else episode.member
        return world_generator(
            self.seed, self.stream, episode.iteration, episode.visit, number, member, draw
        )

    def of_sibling(self, branch: int) -> str:
        """Return the name of the draw of a sibling's step: siblings are a group."""
        return "" if self.common_noise or not branch else f"sibling {branch}"

    def of_trial(self, turn: str, branch: int, number: int) -> str:
        """Return the name of the draws of trial `number` of a sibling of a turn."""
        return f"{turn}.{number}" if self.common_noise else f"{turn}.{branch}.{number}"
