"""One task becomes an episode: the runner between env, agent and engine."""

from turnwise.rollout.context_check import (
    check_actions,
    check_context,
    expected_tokens,
    first_states,
    prompt_lengths,
)
from turnwise.rollout.health import (
    FailedReplies,
    Health,
    ReplyWatch,
    commonest_break,
    failed_replies,
)
from turnwise.rollout.metrics import rollout_metrics, sibling_metrics
from turnwise.rollout.runner import Runner
from turnwise.rollout.samples import samples_from_episodes, without_cut
from turnwise.rollout.state_dependence import state_dependence

__all__ = [
    "FailedReplies",
    "Health",
    "ReplyWatch",
    "Runner",
    "check_actions",
    "check_context",
    "commonest_break",
    "expected_tokens",
    "failed_replies",
    "first_states",
    "prompt_lengths",
    "rollout_metrics",
    "samples_from_episodes",
    "sibling_metrics",
    "state_dependence",
    "without_cut",
]
