"""The scores of a run on test tasks, as stored in `eval.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from turnwise.envs import ErrorUnit, Measure, standard_error
from turnwise.errors import RunError
from turnwise.runs import metric_names
from turnwise.runs.against import lines_against
from turnwise.runs.error_texts import error_text, measured, score_error_text
from turnwise.runs.files import json_object, write_atomically
from turnwise.settings import Settings, parse
from turnwise.types import Decoding, Split
from turnwise.utils.text import aligned

MANY = 6
"""With more distinct problems, errors are over episodes only if few problems are most episodes."""
SURE = 2.0
"""A difference of more than this many standard errors counts as shown."""


class Difference(Settings):
    """A mean difference on the same tasks, and its standard error (`envs.standard_error`)."""

    difference: float
    """The mean difference."""
    stderr: float
    """Its standard error."""

    @classmethod
    def of(
        cls,
        ours: Sequence[float],
        theirs: Sequence[float],
        problems: Sequence[str],
        span: float | None = None,
    ) -> Difference:
        """Return `ours` minus `theirs`, paired by task (docs/math.md 5).

        Args:
            ours: scores.
            theirs: scores on the same tasks.
            problems: the canonical problem of each task.
            span: of scores, as for `envs.standard_error`; if it is None and all differences are
                equal, their size is used.
        """
        differences = [a - b for a, b in zip(ours, theirs, strict=True)]
        error = standard_error(differences, problems, span or abs(differences[0]) or None)
        return cls(difference=sum(differences) / len(differences), stderr=error)

    @property
    def is_sure(self) -> bool:
        """Whether the difference is shown to be above 0, by `SURE` standard errors."""
        return self.difference > SURE * self.stderr


class RunScores(Settings):
    """The contents of `eval.json`. Every score has its error, and the baselines beside it.

    Example:
        >>> scores = RunScores(env="frozen-lake", tasks=500, seed=0, score=0.74, stderr=0.01,
        ...                     score_sampled=0.71, score_sampled_stderr=0.01,
        ...                     baselines={"random": 0.02}, baselines_stderr={"random": 0.001})
        >>> round(scores.lead_over("random").difference, 2)
        0.72
        >>> print(scores)
        frozen-lake: 500 tasks of the test split, seed 0
        policy            score
        trained, greedy   0.740 ± 0.010
        trained, sampled  0.710 ± 0.010
        random            0.020 ± 0.001
        Errors are standard errors over distinct problems, at least those over episodes; ± 1.96 of \
them is a 95 % interval of the mean over episodes.
    """

    env: str
    """The name of the env."""
    tasks: int
    """The number of test tasks played."""
    seed: int
    """The seed of the tasks and of all random draws."""
    score: float
    """Mean score of the policy with the decoding in `decoding`."""
    stderr: float
    """Its standard error (`envs.standard_error`); 0 if all scores are equal and without bounds."""
    decoding: Decoding = "greedy"
    """The decoding of `score`: the most probable tokens, or draws at the training temperature
    (`evaluation.decoding`). It is chosen by validation, not on these tasks."""
    score_greedy: float | None = None
    """Mean score of the most probable tokens; None is `score`."""
    score_greedy_stderr: float | None = None
    """Its standard error, as `stderr`; None is `stderr`."""
    score_sampled: float
    """Mean score at the training temperature."""
    score_sampled_stderr: float
    """Its standard error (`envs.standard_error`); 0 if all scores are equal and without bounds."""
    samples: int = 1
    """The sampled episodes of each task (`evaluation.samples`)."""
    score_best: float | None = None
    """The mean over tasks of the best of several sampled episodes; None if there is one of each."""
    score_best_stderr: float | None = None
    """Its standard error."""
    baselines: dict[str, float]
    """Mean scores on the same tasks by name: policies without a model, and `warmup`, the initial
    weights of training, with the decoding in `decoding`."""
    baselines_stderr: dict[str, float]
    """Their standard errors."""
    measures: dict[str, Measure] = Field(default_factory=dict)
    """The env's measures beside the score (`Env.measures`), of the policy as it plays for
    `score`. Name -> mean and standard error."""
    baselines_measures: dict[str, dict[str, Measure]] = Field(default_factory=dict)
    """The same of each baseline."""
    split: str = "test"
    """The split the tasks were drawn from."""
    problems: int | None = None
    """The number of distinct problems among the tasks; None if they were not counted."""
    errors_over: ErrorUnit = "problems"
    """The unit of standard errors: distinct problems, or episodes if there are few problems or a
    few of them make up most episodes. Errors over episodes do not describe other problems."""
    splits: dict[Split, int] = Field(default_factory=dict)
    """The number of distinct problems of each split, or a lower bound where tasks are drawn; empty
    if there are too many to count."""
    splits_described: str = ""
    """`splits` in words, and why all splits have the same problems, if they have: with fewer than
    20 problems no test is unseen."""
    others: float | None = None
    """If `splits` was found by drawing, an upper bound of the share of draws with other problems,
    with 95 % confidence."""
    seen: bool = False
    """Whether training used some of the same problems."""
    seen_share: float | None = None
    """Share of the tasks whose problem training is known to use; None if it was not counted."""
    players: dict[str, str] = Field(default_factory=dict)
    """Role -> the model or the run's policy that played it; empty where all roles were played by
    the run's own."""
    checkpoint: str = ""
    """Phase and step of the weights that were scored."""
    paired: dict[str, Difference] = Field(default_factory=dict)
    """`score` minus each baseline's on the same tasks."""
    exact: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Computed and not sampled, where the env can: player -> measure -> value, the trained policy
    as `trained, greedy` and `trained, sampled` among players without a model."""
    thoughts: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Role -> what answers did when thoughts were swapped between states
    (`evaluation.ThoughtSwap`): `pairs`, and the shares `followed`, `kept` and, as a control,
    `again`; roles that think nothing are left out."""
    opponents: dict[str, dict[str, Measure]] = Field(default_factory=dict)
    """Where seats compete: opponent -> seat of the policy -> mean score and its error, of the
    policy as it plays for `score`. The first opponent is that of `score` and of the baselines."""
    bounded: bool = False
    """Whether every score is in [0, 1]; False where the score is a return."""
    broken: int = 0
    """Episodes (greedy, sampled and of baselines) that the env or the engine broke; they count with
    score 0."""
    broken_by: str = ""
    """What broke most of the policy's own of them."""
    circling: dict[str, int] = Field(default_factory=dict)
    """Role -> greedy episodes that were cut while it went round in a circle: it saw its last prompt
    three times or more. Empty where no other episode ended with a better score."""
    myopic: dict[str, float] = Field(default_factory=dict)
    """`score`, `stderr` and `tasks` of the player that tries actions in the env and takes the one
    whose own step pays most; empty where training does not compare siblings by their own steps."""
    seconds: float = 0.0
    """The duration of the test."""

    def __str__(self) -> str:
        """Return the table of scores, the policy's first, and what their errors are."""
        found = dict(self.of_policy)
        for name in sorted(self.baselines, key=lambda name: -self.baselines[name]):
            found[name] = (self.baselines[name], self.baselines_stderr[name])
        rows = [("policy", "score")]
        rows += [
            (n, f"{score:.3f} {self.score_error_text(score, error)}")
            for n, (score, error) in found.items()
        ]
        head = f"{self.env}: {self.described}, seed {self.seed}"
        versus = lines_against(self.opponents)
        return "\n".join([head, *aligned(rows), *versus, self.meaning_of_errors])

    __repr__ = __str__

    def lead_over(self, baseline: str) -> Difference:
        """Return the lead of `score` over a baseline, paired by task if the pairs are known."""
        if baseline in self.paired:
            return self.paired[baseline]
        other = self.baselines_stderr.get(baseline, 0.0)
        return Difference(
            difference=self.score - self.baselines[baseline], stderr=math.hypot(self.stderr, other)
        )

    @property
    def knows_constants(self) -> bool:
        """Whether a policy that always plays the same is among the baselines."""
        return any(is_trivial(name) and name != metric_names.RANDOM for name in self.baselines)

    @property
    def unbeaten(self) -> str:
        """The best trivial baseline that `score` is not clearly above; "" if there is none.

        Trivial baselines are random play and constant policies. One that is as good as the optimum
        is left out, as no policy can be above it. Clearly is by `SURE` standard errors.

        Example:
            >>> scores = RunScores(env="e", tasks=99, seed=0, score=0.3, stderr=0.01,
            ...     score_sampled=0.3, score_sampled_stderr=0.01,
            ...     baselines={"random": 0.1, "always-left": 0.29, "expert": 0.9},
            ...     baselines_stderr={"random": 0.01, "always-left": 0.01, "expert": 0.01})
            >>> scores.unbeaten
            'always-left'
        """
        best = self.baselines.get(metric_names.OPTIMUM, math.inf)
        leads = {name: self.lead_over(name) for name in self.baselines if is_trivial(name)}
        found = [
            name for name, lead in leads.items() if self.baselines[name] < best and not lead.is_sure
        ]
        return max(found, key=lambda name: self.baselines[name], default="")

    def title(self, decoding: Decoding) -> str:
        """Return what the policies are called that played as `decoding` says."""
        return f"{'models' if self.players else 'trained'}, {decoding}"

    @property
    def played_by(self) -> str:
        """The players of the roles, in words; "" where the run's own policies played."""
        told = ", ".join(f"{role} by {who}" for role, who in self.players.items())
        return f"Played: {told}." if told else ""

    @property
    def by_decoding(self) -> dict[Decoding, tuple[float, float]]:
        """Mean score and standard error by decoding, starting with that of `score`.

        Example:
            >>> scores = RunScores(env="e", tasks=9, seed=0, score=0.3, stderr=0.1,
            ...     decoding="sampled", score_greedy=0.1, score_greedy_stderr=0.1,
            ...     score_sampled=0.3, score_sampled_stderr=0.1, baselines={}, baselines_stderr={})
            >>> scores.by_decoding
            {'sampled': (0.3, 0.1), 'greedy': (0.1, 0.1)}
        """
        greedy = self.score if self.score_greedy is None else self.score_greedy
        error = self.stderr if self.score_greedy_stderr is None else self.score_greedy_stderr
        sampled: tuple[Decoding, tuple[float, float]]
        sampled = ("sampled", (self.score_sampled, self.score_sampled_stderr))
        if self.decoding == "greedy":
            return {"greedy": (greedy, error), sampled[0]: sampled[1]}
        return {sampled[0]: sampled[1], "greedy": (greedy, error)}

    @property
    def of_policy(self) -> dict[str, tuple[float, float]]:
        """Mean score and standard error of the policy by what it is called, `score` first.

        Example:
            >>> scores = RunScores(env="e", tasks=9, seed=0, score=0.3, stderr=0.1, samples=8,
            ...     score_sampled=0.2, score_sampled_stderr=0.1, score_best=0.7,
            ...     score_best_stderr=0.1, baselines={}, baselines_stderr={})
            >>> list(scores.of_policy)
            ['trained, greedy', 'trained, sampled', 'trained, best of 8 sampled']
        """
        found = {self.title(name): score for name, score in self.by_decoding.items()}
        if self.score_best is not None:
            who = "models" if self.players else "trained"
            error = self.score_best_stderr or 0.0
            found[f"{who}, best of {self.samples} sampled"] = (self.score_best, error)
        return found

    @property
    def described(self) -> str:
        """The tasks in words, and whether training used their problems."""
        said = f"{self.tasks} tasks of the {self.split} split"
        if self.problems is not None and self.problems < self.tasks:
            said += f", {_counted(self.problems, 'distinct problem')}"
        if not self.seen:
            return said
        if self.seen_share is None or self.seen_share == 1:
            return said + ", which training met too"
        share = math.floor(1000 * self.seen_share) / 1000
        return said + f"; {share:.1%} of the tasks are of problems that training met too"

    @property
    def divided(self) -> str:
        """The number of distinct problems of each split, in words; "" if it is not known."""
        said = self.splits_described
        return f"{said[0].upper()}{said[1:]}." if said else ""

    @property
    def meaning_of_errors(self) -> str:
        """The unit of the standard errors, in a sentence."""
        scaled = "± 1.96 of them is a 95 % interval of the mean over episodes"
        if self.errors_over == "problems":
            return (
                "Errors are standard errors over distinct problems, at least those over episodes; "
                f"{scaled}."
            )
        count = "few" if self.problems is None else _counted(self.problems, "distinct problem")
        most = " that are drawn very unequally" if (self.problems or 0) > MANY else ""
        return (
            f"Errors are standard errors over episodes, of {count}{most}: they do not cover "
            f"other problems; {scaled}."
        )

    def error_text(self, stderr: float) -> str:
        """Return a standard error of these tasks in words; an error of 0 gets its reason.

        Example:
            >>> scores = RunScores(env="e", tasks=200, seed=0, score=1.0, stderr=0.0,
            ...                    score_sampled=0.9, score_sampled_stderr=0.02, baselines={},
            ...                    baselines_stderr={})
            >>> scores.error_text(0.0), scores.error_text(0.02), scores.error_text(0.00012)
            ('(all 200 equal)', '± 0.020', '± 0.00012')
        """
        return error_text(stderr, self.tasks)

    def score_error_text(self, score: float, stderr: float) -> str:
        """Return the standard error of a mean score of these tasks in words."""
        return score_error_text(score, stderr, self.tasks, bounded=self.bounded)

    def measured(self) -> dict[str, dict[str, str]]:
        """Return the measures in words: player -> name -> mean and error, the policy first.

        Example:
            >>> steps = Measure(mean=5.5, stderr=0.25, episodes=9)
            >>> scores = RunScores(env="e", tasks=9, seed=0, score=1.0, stderr=0.0,
            ...                    score_sampled=0.9, score_sampled_stderr=0.02, baselines={},
            ...                    baselines_stderr={}, measures={"steps": steps})
            >>> scores.measured()
            {'trained, greedy': {'steps': '5.500 ± 0.250'}}
        """
        players = {self.title(self.decoding): self.measures, **self.baselines_measures}
        return measured(players)

    def as_metrics(self) -> dict[str, float]:
        """Return the scores, their errors and the measures as flat `test/...` metrics."""
        own = {
            "test/score": self.score,
            "test/stderr": self.stderr,
        }
        for name, (score, error) in self.by_decoding.items():
            own |= {f"test/score_{name}": score, f"test/score_{name}_stderr": error}
        if self.score_best is not None:
            own["test/score_best"] = self.score_best
        own |= {f"test/{name}": found.mean for name, found in self.measures.items()}
        for name, seats in self.opponents.items():
            own |= {f"test/against/{name}/{seat}": found.mean for seat, found in seats.items()}
        return own | {f"test/baseline/{name}": value for name, value in self.baselines.items()}


def is_trivial(baseline: str) -> bool:
    """Return whether a baseline plays without looking: at random, or always the same.

    Example:
        >>> [is_trivial(name) for name in ("random", "constant", "always-left", "optimal")]
        [True, True, True, False]
    """
    fixed = (metric_names.RANDOM, metric_names.CONSTANT)
    return baseline in fixed or baseline.startswith(metric_names.ALWAYS)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def write_scores(path: Path, scores: RunScores) -> None:
    """Write `eval.json` atomically."""
    write_atomically(path, json.dumps(scores.model_dump(), indent=2) + "\n")


def read_scores(path: Path) -> RunScores | None:
    """Return the scores in `eval.json`, or None if the run was not tested.

    Raises:
        RunError: if the file is not a JSON object.
        ConfigError: if a key is missing or unknown.
    """
    if not path.is_file():
        return None
    data = json_object(path.read_bytes())
    if data is None:
        raise RunError(
            f"{path} is not a JSON object: delete it, and test the run by `turnwise resume RUN`"
        )
    return parse(RunScores, data, str(path))
