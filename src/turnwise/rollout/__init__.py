"""One task becomes an episode: the runner between env, agent and engine."""

from turnwise.rollout.chances import policy_chances
from turnwise.rollout.evaluation import Evaluation, evaluate
from turnwise.rollout.guard import guarded, make_guarded
from turnwise.rollout.health import FailedReplies, Health, ReplyWatch, failed_replies
from turnwise.rollout.metrics import rollout_metrics
from turnwise.rollout.room import check_room
from turnwise.rollout.runner import Play, Runner
from turnwise.rollout.samples import samples_from_episodes, without_cut
from turnwise.rollout.seeing import exactness_of_seeing
from turnwise.rollout.thoughts import ThoughtSwap, swap_thoughts

__all__ = [
    "Evaluation",
    "FailedReplies",
    "Health",
    "Play",
    "ReplyWatch",
    "Runner",
    "ThoughtSwap",
    "check_room",
    "evaluate",
    "exactness_of_seeing",
    "failed_replies",
    "guarded",
    "make_guarded",
    "policy_chances",
    "rollout_metrics",
    "samples_from_episodes",
    "swap_thoughts",
    "without_cut",
]
