"""The metrics of an iteration's episodes, as flat `rollout/...` floats."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from turnwise.formats import REPLY_COMPONENTS
from turnwise.types import Episode

SELF, POOL = "self", "pool"
"""The names of a policy as its own opponent, as it is and as it was before."""
_WORD = re.compile(r"[\w.+-]{1,24}")


def rollout_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return means over episodes and turns; shares of every way an episode or a reply can end.

    Tokens are those of turns that have ids: what servers write has none. The score is that of the
    episodes that begin in the first state of their task. It is absent where there are none, and
    where the trainer left some of them before their end. Turns of opponents are not counted;
    `opponents/` has the share and the score of the episodes with each of them.
    """
    turns = [turn for episode in episodes for turn in episode.own_turns]
    drawn = [turn for turn in turns if not turn.text_only]
    many, calls = max(len(episodes), 1), max(len(turns), 1)
    metrics = {
        "rollout/episodes": float(len(episodes)),
        "rollout/turns": float(len(turns)),
        "rollout/env_steps": float(sum(turn.action is not None for turn in turns)),
        "rollout/terminated_share": sum(e.terminated for e in episodes) / many,
        "rollout/truncated_share": sum(e.truncated for e in episodes) / many,
        "rollout/failed_share": sum(e.error is not None for e in episodes) / many,
        "rollout/broken_share": sum(e.broken for e in episodes) / many,
        "rollout/completion_tokens": _mean([len(turn.completion_ids) for turn in drawn]),
        "rollout/prompt_tokens": _mean([len(turn.prompt_ids) for turn in drawn]),
        "rollout/cut_share": sum(t.finish_reason == "length" for t in turns) / calls,
    }
    fresh = [episode for episode in episodes if not episode.opening]
    if not any(episode.left for episode in fresh) and (fresh or not episodes):
        metrics["rollout/score"] = _mean([episode.score for episode in fresh])
    if len(fresh) < len(episodes):
        metrics["rollout/restarted_share"] = 1 - len(fresh) / many
    for name in sorted({name for turn in turns for name in turn.rewards}):
        total = sum(turn.rewards.get(name, 0.0) for turn in turns)
        per = calls if name in REPLY_COMPONENTS else many
        metrics[f"reward/{name}"] = total / per
    metrics |= _opponents(episodes)
    for name in dict.fromkeys(name for episode in episodes for name in episode.measures):
        found = [episode.measures[name] for episode in episodes if name in episode.measures]
        metrics[f"rollout/{name}"] = _mean(found)
    free = [turn.action for turn in turns if not turn.forced] or [turn.action for turn in turns]
    actions = sorted({action for action in free if action is not None})
    for action in actions if all(map(_WORD.fullmatch, actions)) else ():  # not where text is free
        metrics[f"action/{action}"] = free.count(action) / len(free)
    return metrics


def sibling_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return what turns with siblings cost, and how they failed; nothing where there are none.

    `rollout/siblings` counts the replies with which no episode went on, and
    `rollout/siblings_failed_share` is the share of those that are no action or broke the env.
    """
    siblings = [t for episode in episodes for each in episode.trajectories for t in each.siblings]
    if not siblings:
        return {}
    return {
        "rollout/siblings": float(len(siblings)),
        "rollout/siblings_failed_share": sum(t.error is not None for t in siblings) / len(siblings),
        "rollout/trial_steps": float(sum(episode.trial_steps for episode in episodes)),
        "rollout/resets": float(sum(episode.resets for episode in episodes)),
    }


def _opponents(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return what was played with each opponent; `self` are episodes without one."""
    if not any(episode.opponent for episode in episodes):
        return {}
    found: dict[str, float] = {}
    for name in sorted({episode.opponent for episode in episodes}):
        scores = [episode.score for episode in episodes if episode.opponent == name]
        found[f"opponents/{name or SELF}_share"] = len(scores) / len(episodes)
        found[f"opponents/{name or SELF}_score"] = _mean(scores)
    seats = [t for episode in episodes for t in episode.trajectories if t.player]
    turns = [turn for seat in seats for turn in seat.turns]
    invalid = sum(turn.rewards.get("invalid", 0.0) for turn in turns)
    versions = [
        seat.turns[0].policy_version for seat in seats if seat.player == POOL and seat.turns
    ]
    found["opponents/invalid_share"] = invalid / max(len(turns), 1)
    if versions:
        found["opponents/pool_version"] = _mean(versions)
    return found


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
