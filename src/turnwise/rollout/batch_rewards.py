"""The rewards that are found for a whole batch of episodes (`Env.score_batch`).

Provides `has_ended` and `with_batch_rewards`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from turnwise.envs.base import BatchRewards
from turnwise.types import Episode, Failure


def has_ended(episode: Episode) -> bool:
    """Whether an episode came to its end without an error, and can be judged."""
    return episode.error is None and not episode.left


def with_batch_rewards(
    episode: Episode, found: BatchRewards, number: int, team: Collection[str]
) -> Episode:
    """Return an episode with the rewards and notes that entry `number` holds for it.

    Rewards are added to the last turn of every seat; the components in `team`, which all seats
    share, are recorded once, on the episode's last turn.
    """
    rewards = found.rewards[number]
    notes = found.notes[number] if found.notes else {}
    if rewards is None:
        nobody = Failure(kind="env", message="no reward function gave this completion a reward")
        return replace(episode, error=nobody, notes=notes)
    own = {name: value for name, value in rewards.items() if name not in team}
    end = max((turn.order for turn in episode.turns), default=0)
    trajectories = []
    for trajectory in episode.trajectories:
        turns = list(trajectory.turns)
        if turns:
            added = rewards if turns[-1].order == end else own
            turns[-1] = replace(turns[-1], rewards={**turns[-1].rewards, **added})
        trajectories.append(replace(trajectory, turns=tuple(turns)))
    return replace(episode, trajectories=tuple(trajectories), notes=notes)
