"""Scores of a policy on validation tasks, and the way of playing that is better there.

Provides `validate_policy`. The score decides which checkpoint is the best one; the decoding that
earned it is kept with the checkpoint, and the test plays the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from turnwise.evaluation import evaluate
from turnwise.evaluation.exact import exact_score
from turnwise.trainers.session import Session
from turnwise.types import Decoding, Task

DecodingRule = Literal["greedy", "sampled", "validated"]
DECODING = "decoding"
"""The key of a checkpoint's meta that holds how the policy played for its validation score."""
BEFORE = -1
"""The number of the evaluation before the first iteration; 0 is the test's."""
_EITHER: tuple[Decoding, ...] = ("greedy", "sampled")


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """The score of some weights on validation tasks, and how they played for it.

    `scores` holds the score of every decoding that was tried.

    Example:
        >>> found = Validation(scores={"greedy": 0.07, "sampled": 0.25})
        >>> found.decoding, found.score
        ('sampled', 0.25)
    """

    scores: dict[Decoding, float]

    @property
    def decoding(self) -> Decoding:
        """The decoding with the highest score; greedy among equals."""
        return max(self.scores, key=lambda name: (self.scores[name], name == "greedy"))

    @property
    def score(self) -> float:
        """The score of that decoding."""
        return self.scores[self.decoding]

    @property
    def metrics(self) -> dict[str, float]:
        """The scores by name of the metric; those of both decodings where both were tried."""
        apart = {f"validation/{name}": score for name, score in self.scores.items()}
        return {"validation/score": self.score} | (apart if len(apart) > 1 else {})


def validate_policy(
    session: Session,
    tasks: Sequence[Task],
    *,
    exact: bool,
    decoding: DecodingRule,
    iteration: int,
) -> Validation:
    """Return the score of a session's weights on `tasks`.

    Args:
        session: with the weights.
        tasks: of the validation split.
        exact: compute the score from the policy's probabilities instead of playing.
        decoding: how to play; `validated` tries both ways.
        iteration: after which the weights are validated; each has its own draws.
    """
    if exact:
        assert decoding != "validated", "refused when the recipe was read"
        env = session.eval_runner.env
        score = session.group.from_first(
            lambda: exact_score(env, tasks, session.agents, session.policies)
        )
        return Validation(scores={decoding: score})
    number = iteration or BEFORE
    scores: dict[Decoding, float] = {}
    for name in _EITHER if decoding == "validated" else (decoding,):
        found = evaluate(session.eval_runner, tasks, greedy=name == "greedy", number=number)
        scores[name] = found.score
    session.engine.end_iteration()
    session.count_engine()
    session.take_sampling()  # what was sampled to validate is in the totals only
    return Validation(scores=scores)


def save(
    session: Session,
    phase: str,
    step: int,
    found: Validation | None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint, with what its weights validated at and how they played for it.

    `extra` is what else its meta holds.
    """
    score = None if found is None else found.score
    decoding = {} if found is None else {DECODING: found.decoding}
    session.save(phase, step, score=score, extra=decoding | dict(extra or {}))
