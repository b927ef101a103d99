"""Scores of a policy on validation tasks, and the way of playing that is chosen there.

Provides `validate_policy`. The score decides which checkpoint is the best one; the decoding that
earned it is kept with the checkpoint, and the test plays the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from turnwise.envs import standard_error
from turnwise.evaluation import Evaluation, evaluate
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

    `scores` holds the score of every decoding that was tried. `doubt` is the standard error of the
    lead of sampling over greedy play, paired by task.

    Example:
        >>> found = Validation(scores={"greedy": 0.07, "sampled": 0.25}, doubt=0.05)
        >>> found.decoding, found.score
        ('sampled', 0.25)
    """

    scores: dict[Decoding, float]
    doubt: float = 0.0

    @property
    def decoding(self) -> Decoding:
        """The decoding of the score: greedy, unless sampling leads by more than the doubt.

        Of many validations the best one is kept. Without this condition, it would be the one whose
        draws happened to be good.
        """
        if "greedy" not in self.scores:
            return "sampled"
        lead = self.scores.get("sampled", -math.inf) - self.scores["greedy"]
        return "sampled" if lead > self.doubt else "greedy"

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
    found: dict[Decoding, Evaluation] = {
        name: evaluate(session.eval_runner, tasks, greedy=name == "greedy", number=number)
        for name in (_EITHER if decoding == "validated" else (decoding,))
    }
    session.engine.end_iteration()
    session.count_engine()
    session.take_sampling()  # what was sampled to validate is in the totals only
    doubt = 0.0
    if len(found) > 1:
        lead = np.subtract(found["sampled"].scores, found["greedy"].scores).tolist()
        doubt = standard_error(lead, [session.eval_runner.env.canonical(t.data) for t in tasks])
    return Validation(scores={name: each.score for name, each in found.items()}, doubt=doubt)


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
