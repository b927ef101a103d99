"""What the agents of one episode share.

Provides `EpisodeContext`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnwise.credit.config import StateKeyRule
from turnwise.envs.base import Env
from turnwise.rollout.counter import EpisodeCounter
from turnwise.rollout.draws import Draws
from turnwise.rollout.seat_rewards import SeatRewards
from turnwise.types import EpisodeId


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeContext:
    """The env, the identity and the counts of one episode, which its agents share.

    Attributes:
        env: the env.
        episode: the identity of the episode.
        draws: the random draws of the env's steps.
        counter: counts model calls, turns, env steps and rounds.
        rewards: what seats earn at others' steps.
        state_key: the key by which states are compared: the env's, or the observation.
    """

    env: Env[Any]
    episode: EpisodeId
    draws: Draws
    counter: EpisodeCounter
    rewards: SeatRewards
    state_key: StateKeyRule = "env"
