"""One task becomes an episode: the runner between env, agent and engine."""

from turnwise.rollout.chances import policy_chances
from turnwise.rollout.evaluation import Evaluation, evaluate
from turnwise.rollout.guard import check_guarded, guarded, make_guarded
from turnwise.rollout.health import Health
from turnwise.rollout.metrics import rollout_metrics
from turnwise.rollout.room import check_room
from turnwise.rollout.runner import Play, Runner
from turnwise.rollout.samples import samples_from_episodes, without_cut
from turnwise.rollout.seeing import exactness_of_seeing
from turnwise.rollout.thoughts import ThoughtSwap, swap_thoughts

__all__ = [
    "Evaluation",
    "Health",
    "Play",
    "Runner",
    "ThoughtSwap",
    "check_guarded",
    "check_room",
    "evaluate",
    "exactness_of_seeing",
    "guarded",
    "make_guarded",
    "policy_chances",
    "rollout_metrics",
    "samples_from_episodes",
    "swap_thoughts",
    "without_cut",
]
