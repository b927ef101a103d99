"""What findings are made from: a run's metrics, its recipe, its recorded episodes and its scores.

Provides `Finding` and `Facts`. Facts are read from the run folder, so that a finding says the same
while the run goes on, at its end, and in a report that is written later.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.policies.presets import is_nano
from turnwise.policies.schedule import LEAST_PEAK
from turnwise.report.policies import policy_names
from turnwise.report.series import Series, series
from turnwise.runs import metric_names
from turnwise.runs.changes import MAY_CHANGE, is_among
from turnwise.runs.episodes import episode_file, read_episodes, recorded_iterations
from turnwise.runs.folder import Run
from turnwise.runs.metrics import Record, read_metrics
from turnwise.runs.results import RunScores
from turnwise.types import Episode

LATEST = 10
"""The most iterations whose recorded episodes are read."""
MOST_TURNS = 8192
"""No more iterations are read once there are so many turns."""
TOP = 0.95
"""The score, of at most 1, from which a task counts as solved where no optimum is known."""
FEW_ITERATIONS = 30
"""A run with fewer iterations than this needs more of them before anything else."""
LEAST_RISE = 0.02
"""The least difference of scores in [0, 1] that counts as a rise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something in a run that keeps it from learning, or makes its score less than it seems.

    `name` identifies the kind of finding. `sentence` has the evidence: numbers, and the metric or
    file that they come from. `setting` is one changed setting that may help, as `--set` takes it;
    empty where no setting does.

    Example:
        >>> print(Finding(name="entropy", sentence="It is 0.", setting="optimizer.lr=1e-4"))
        It is 0. Try `--set optimizer.lr=1e-4`.
    """

    name: str
    sentence: str
    setting: str = ""

    def __str__(self) -> str:
        """Return the sentence and the setting, and whether a resumed run takes it."""
        if not self.setting:
            return self.sentence
        where = "" if is_among(self.setting.partition("=")[0], MAY_CHANGE) else " in a new run"
        return f"{self.sentence} Try `--set {self.setting}`{where}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The state of a run.

    Attributes:
        records: its metrics.
        scores: those of the test, None before it.
        recipe: the plain values of its recipe; one that is absent has its default.
        episodes: recorded training episodes of the latest iterations, the oldest first.
    """

    records: Sequence[Record]
    scores: RunScores | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    episodes: Sequence[Episode] = ()

    @classmethod
    def of_run(cls, run: Run, scores: RunScores | None = None) -> Facts:
        """Read the facts of a run from its folder.

        Raises:
            RunError: if a file of the run is damaged.
        """
        text = run.recipe.read_text(encoding="utf-8") if run.recipe.is_file() else ""
        return cls(
            records=read_metrics(run.metrics),
            scores=scores,
            recipe=tomllib.loads(text),
            episodes=_latest_episodes(run),
        )

    def train(self, name: str) -> Series:
        """Return a metric of the training iterations."""
        return series(self.records, metric_names.TRAIN, name)

    def at(self, path: str, default: Any = None) -> Any:
        """Return the recipe's value at a dotted path."""
        value: Any = self.recipe
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return default if value is None else value

    @property
    def roles(self) -> list[str]:
        """The roles of the recipe's agents."""
        return list(self.at("agents", {"player": {}}))

    def is_nano(self, role: str) -> bool:
        """Return whether a role's model was made on the spot."""
        return is_nano(self.at(f"policies.{self.at(f'agents.{role}.policy', 'main')}.model", ""))

    @property
    def score_name(self) -> str:
        """The metric of the score: of training, or of validation where most episodes are left."""
        whole, all_of_them = self.train(metric_names.SCORE), self.train(metric_names.EPISODES)
        found = len(whole) > 0 and 2 * len(whole) >= len(all_of_them)
        return metric_names.SCORE if found else metric_names.VALIDATION

    @property
    def bounded(self) -> bool:
        """Whether all scores are in [0, 1], where 1 is the best there is."""
        found = self.train(self.score_name).values
        return len(found) > 0 and found.min() >= 0 and found.max() <= 1

    @property
    def solved(self) -> bool:
        """Whether the score is at the top: the optimum if it is known, or nearly 1."""
        scores = self.scores
        if scores is not None and metric_names.OPTIMUM in scores.baselines:
            lead = scores.lead_over(metric_names.OPTIMUM)
            return lead.difference + 2 * lead.stderr >= 0
        found = self.train(self.score_name)
        return self.bounded and float(found.lately().mean()) >= TOP

    @property
    def risen(self) -> bool:
        """Whether the score has risen since the first iterations.

        Scores in [0, 1] have at least the error of as many draws of 0 or 1.
        """
        found = self.train(self.score_name)
        if not self.bounded:
            return has_risen(found)
        mean = float(found.values.mean())
        draws = math.sqrt(mean * (1 - mean) / self._scored) if self._scored else 0.0
        return has_risen(found, LEAST_RISE, draws)

    @property
    def _scored(self) -> float:
        """The number of episodes of one score; 0 if it is not known, or the score is computed."""
        episodes, later = self.train(metric_names.EPISODES), self.train(metric_names.RESTARTED)
        if self.score_name == metric_names.SCORE:
            fresh = 1 - later.end() if len(later) else 1.0
            return episodes.end() * fresh if len(episodes) else 0.0
        if self.at("evaluation.validation") == "exact":
            return 0.0
        return float(self.at("evaluation.validation_tasks", 64))

    @property
    def return_risen(self) -> bool:
        """Whether the return has risen since the first iterations."""
        found, spread = self.train(metric_names.RETURN), self.train(metric_names.RETURN_STD)
        episodes = self.train(metric_names.EPISODES)
        known = len(spread) > 0 and len(episodes) > 0
        noise = spread.end() / math.sqrt(max(episodes.end(), 1.0)) if known else 0.0
        return has_risen(found, noise=noise)

    @property
    def score(self) -> str:
        """The score of the first and of the latest training episodes, in words."""
        found = self.train(self.score_name)
        if not len(found):
            return ""
        return f"{found.start():.3g} at the start, {found.end():.3g} now ({self.score_name})"

    @property
    def explores_more(self) -> str:
        """A setting that keeps every action possible: the barrier of the SFT mix, or the bonus."""
        mixed = self.at("sft_mix.data") == "demonstrations" and self.at("sft_mix.spans")
        if mixed:
            now = self.at("sft_mix.spans.action", self.at("sft_mix.spans.answer", 0.0))
            return f"sft_mix.spans.action={max(0.5, 2 * now):g}"
        return f"loss.entropy_weight={max(0.01, 2 * self.at('loss.entropy_weight', 0.0)):g}"

    @property
    def prefixes(self) -> list[str]:
        """What stands before the metrics of each trained policy: nothing where there is one."""
        return [f"{name}/" for name in policy_names(self.records)] or [""]

    @property
    def movement(self) -> float:
        """The largest movement that `optimizer.lr = "auto"` has wanted of an update."""
        found = [self.train(f"{prefix}{metric_names.WANTED}").values for prefix in self.prefixes]
        return max((float(values.max()) for values in found if len(values)), default=LEAST_PEAK)

    @property
    def more_updates(self) -> str:
        """A setting that doubles the length of a run with few iterations; "" for other runs."""
        made = len(self.train(metric_names.EPISODES))
        minutes, planned = self.at("trainer.minutes"), self.at("trainer.iterations", 100)
        if self.scores is None or made >= FEW_ITERATIONS:
            return ""
        if minutes is not None:
            return f"trainer.minutes={2 * minutes:g}"
        return f"trainer.iterations={2 * planned}"

    @property
    def more_tasks(self) -> str:
        """A setting that doubles the tasks of an iteration."""
        return f"trainer.tasks_per_iteration={2 * self.at('trainer.tasks_per_iteration', 16)}"


def has_risen(found: Series, least: float = 0.0, noise: float = 0.0) -> bool:
    """Return whether a metric has risen by more than `least` and two standard errors.

    `noise` is the least standard deviation of one value.
    """
    if not len(found):
        return False
    difference, error = found.rise(noise)
    return difference > max(2 * error, least)


def since(found: Series, below: float) -> int:
    """Return the step from which on all values are below a limit."""
    others = (found.values >= below).nonzero()[0]
    first = int(others[-1]) + 1 if len(others) else 0
    return int(found.steps[min(first, len(found) - 1)])


def _latest_episodes(run: Run) -> tuple[Episode, ...]:
    found: list[tuple[Episode, ...]] = []
    turns = 0
    for iteration in reversed(recorded_iterations(run.episodes)[-LATEST:]):
        found.append(read_episodes(episode_file(run.episodes, iteration)).episodes)
        turns += sum(len(episode.turns) for episode in found[-1])
        if turns >= MOST_TURNS:
            break
    return tuple(episode for some in reversed(found) for episode in some)
