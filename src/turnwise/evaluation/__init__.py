"""Measurements of a policy: scores on tasks, exact values, perception and swapped thoughts."""

from typing import TYPE_CHECKING

from turnwise.utils.lazy_imports import lazy_names

if TYPE_CHECKING:
    from turnwise.evaluation.action_probabilities import policy_probabilities
    from turnwise.evaluation.exact import exact_measures, exact_of
    from turnwise.evaluation.perception import perception_accuracy
    from turnwise.evaluation.scores import Evaluation, evaluate
    from turnwise.evaluation.thought_swap import ThoughtSwap, swap_thoughts

__all__ = [
    "Evaluation",
    "ThoughtSwap",
    "evaluate",
    "exact_measures",
    "exact_of",
    "perception_accuracy",
    "policy_probabilities",
    "swap_thoughts",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Evaluation": "turnwise.evaluation.scores",
        "ThoughtSwap": "turnwise.evaluation.thought_swap",
        "evaluate": "turnwise.evaluation.scores",
        "exact_measures": "turnwise.evaluation.exact",
        "exact_of": "turnwise.evaluation.exact",
        "perception_accuracy": "turnwise.evaluation.perception",
        "policy_probabilities": "turnwise.evaluation.action_probabilities",
        "swap_thoughts": "turnwise.evaluation.thought_swap",
    },
)
