"""The scores of a run on test tasks: the shape of `eval.json`, and reading and writing it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from turnwise.envs import clustered_stderr
from turnwise.errors import RunError
from turnwise.runs.files import write_atomically
from turnwise.settings import Settings, parse


class Difference(Settings):
    """A mean difference on the same tasks, and its standard error over distinct problems."""

    difference: float
    """The mean difference."""
    stderr: float
    """Its standard error."""

    @classmethod
    def of(
        cls, ours: Sequence[float], theirs: Sequence[float], problems: Sequence[str]
    ) -> Difference:
        """Return `ours` minus `theirs`, paired by task (MATH 6); equal `problems` count as one."""
        differences = [a - b for a, b in zip(ours, theirs, strict=True)]
        error = clustered_stderr(differences, problems)
        return cls(difference=sum(differences) / len(differences), stderr=error)


class RunScores(Settings):
    """What `eval.json` holds. No score stands there without its error and the baselines beside it.

    Example:
        >>> scores = RunScores(env="frozen-lake", tasks=500, seed=0, score=0.74, stderr=0.01,
        ...                     score_sampled=0.71, score_sampled_stderr=0.01,
        ...                     baselines={"random": 0.02}, baselines_stderr={"random": 0.001})
        >>> round(scores.lead_over("random").difference, 2)
        0.72
    """

    env: str
    """The env's name."""
    tasks: int
    """How many test tasks were played."""
    seed: int
    """What the tasks and all chance were drawn with."""
    score: float
    """Mean score of the most probable tokens."""
    stderr: float
    """Its standard error over tasks."""
    score_sampled: float
    """Mean score at the training temperature."""
    score_sampled_stderr: float
    """Its standard error over tasks."""
    baselines: dict[str, float]
    """On the same tasks: policies without a model, and `warmup`, the greedy score of the weights
    that training began with. Name -> mean score."""
    baselines_stderr: dict[str, float]
    """Their standard errors."""
    split: str = "test"
    """The split the tasks were drawn from."""
    seen: bool = False
    """Whether training met the same problems: with one fixed problem no test is unseen."""
    checkpoint: str = ""
    """Phase and step of the weights that were scored."""
    paired: dict[str, Difference] = Field(default_factory=dict)
    """The greedy score minus each baseline's on the same tasks."""
    exact: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Computed and not sampled, where the env can: player -> measure -> value, the trained policy
    as `trained, greedy` and `trained, sampled` among players without a model."""
    thoughts: dict[str, float] | None = None
    """What answers did when thoughts were swapped between states (`rollout.ThoughtSwap`): `pairs`,
    and the shares `followed`, `kept` and, as a control, `again`; None where nothing is thought."""
    broken: int = 0
    """Episodes, greedy, sampled and of baselines, that the env or the engine ended; they count with
    score 0."""
    seconds: float = 0.0
    """How long the scoring took."""

    def lead_over(self, baseline: str) -> Difference:
        """Return the greedy score's lead over a baseline, paired by task where that is known."""
        if baseline in self.paired:
            return self.paired[baseline]
        other = self.baselines_stderr.get(baseline, 0.0)
        return Difference(
            difference=self.score - self.baselines[baseline], stderr=math.hypot(self.stderr, other)
        )

    def as_metrics(self) -> dict[str, float]:
        """Return the scores and their errors as flat `test/...` metrics."""
        own = {
            "test/score": self.score,
            "test/stderr": self.stderr,
            "test/score_sampled": self.score_sampled,
            "test/score_sampled_stderr": self.score_sampled_stderr,
        }
        return own | {f"test/baseline/{name}": value for name, value in self.baselines.items()}


def write_scores(path: Path, scores: RunScores) -> None:
    """Write `eval.json` whole."""
    write_atomically(path, json.dumps(scores.model_dump(), indent=2) + "\n")


def read_scores(path: Path) -> RunScores | None:
    """Return the scores in `eval.json`, or None if the run was not tested.

    Raises:
        RunError: if the file is not JSON.
        ConfigError: if a key is missing or unknown.
    """
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise RunError(f"{path} is not JSON: delete it and run `turnwise eval` again") from None
    return parse(RunScores, data, str(path))
