"""The `tiers` curriculum: tasks become harder as the policy passes an exam on frozen tasks.

A tier is a value of one of the env's options. After every few iterations the policy plays frozen
validation tasks of its tier. It goes on to the next tier after two passes in a row, and goes back
to the one before where it scores far below the baseline. Iterations mix in earlier tiers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from turnwise.curriculum.base import GoesOn
from turnwise.envs import score_baselines
from turnwise.envs.base import Env
from turnwise.envs.guard import GuardedEnv, guarded
from turnwise.errors import ConfigError, DataError, unknown_name
from turnwise.seeding import generator
from turnwise.settings import Settings, parse
from turnwise.tasks import GeneratedTasks
from turnwise.tasks.openings import WorldDraws
from turnwise.types import Episode, Opening, Task, TaskVisit, TurnId

FILLINGS = 64
"""The most visits of an iteration, refills included, as a multiple of `per_iteration`."""
PREVIOUS, OLDER = 0.2, 0.1
"""The shares of visits of the tier before the policy's, which has both where there is no other, and
of all tiers before that."""
TRIED = 4
"""The tasks of each tier that are begun before training, so that a wrong option is found there."""


class TiersConfig(Settings):
    """Tasks of tiers, which the policy climbs."""

    kind: Literal["tiers"] = "tiers"
    """The curriculum."""
    option: str = "tier"
    """The env's option whose value is the tier."""
    first: int = Field(default=0, ge=0)
    """The tier of the first iteration."""
    last: int = Field(default=6, ge=0)
    """The highest tier."""
    every: int = Field(default=5, ge=1)
    """The iterations between two exams."""
    tasks: int = Field(default=32, ge=1)
    """The tasks of an exam: the first ones of the validation split in the tier."""
    baseline: str = "heuristic"
    """The baseline that the score of an exam is compared with, on the same tasks."""
    advance: float = Field(default=0.85, gt=0)
    """The share of the baseline's score that passes an exam. Two passes in a row lead to the next
    tier. Where the baseline's score is not above 0, a score as good as that counts as a share of 1,
    and any other as 0."""
    retreat: float = Field(default=0.4, ge=0)
    """The share of the baseline's score below which the policy goes back by a tier."""
    measure: str | None = None
    """A measure of the env whose mean must reach `least` as well. Episodes that end by invalid
    replies have no measures and count as 0. None is no such measure."""
    least: float = Field(default=0.98, allow_inf_nan=False)
    """The least mean of that measure."""

    @model_validator(mode="after")
    def _check(self) -> TiersConfig:
        if self.last < self.first:
            raise ValueError(
                f"first = {self.first} and last = {self.last}: give a last tier that is not below"
            )
        if self.retreat >= self.advance:
            raise ValueError(
                f"retreat = {self.retreat} and advance = {self.advance}: give a smaller retreat"
            )
        return self


class TiersCurriculum:
    """New tasks of the policy's tier, and some of earlier ones.

    Tasks are numbered by (iteration, visit), so a resumed run gets the same ones. Exams are played
    on validation tasks of the env by which runs are evaluated: training episodes may begin
    elsewhere or be shorter.
    """

    def __init__(
        self, tasks: GeneratedTasks, judged: Env[Any], per_iteration: int, config: TiersConfig
    ) -> None:
        self.per_iteration, self._config, self._seed = per_iteration, config, tasks.seed
        numbers = range(config.first, config.last + 1)
        envs = {tier: _env_of_tier(tasks.env, config.option, tier) for tier in numbers}
        exams = {tier: _env_of_tier(judged, config.option, tier) for tier in numbers}
        if config.baseline not in tasks.env.baselines():
            raise ConfigError(
                f"curriculum.baseline = {config.baseline!r} is no baseline of env "
                f"{tasks.env.name!r}: give one of {', '.join(tasks.env.baselines())}"
            )
        self._train = {tier: GeneratedTasks(env, "train", tasks.seed) for tier, env in envs.items()}
        self._exams = {
            tier: GeneratedTasks(env, "validation", 0) for tier, env in exams.items()
        }  # frozen: the same for every seed of a run
        for tier, source in self._train.items():
            _check_tasks(source, (tasks.env, judged), tier, config)
        self._wanted: dict[int, float] = {}
        self.tier, self._passes = config.first, 0
        self._of_visits = self.tier
        self._visited: Counter[int] = Counter()
        self._latest: dict[str, float] = {}

    def visits(
        self, iteration: int, *, first: int = 0, count: int | None = None
    ) -> list[TaskVisit]:
        """Return `count` visits (default: one iteration's worth), numbered from `first`.

        Raises:
            ValueError: if more visits are requested than an iteration may have.
        """
        count = self.per_iteration if count is None else count
        if first + count > FILLINGS * self.per_iteration:
            raise ValueError(
                f"an iteration has at most {FILLINGS * self.per_iteration} visits, got "
                f"{first + count}: lower trainer.max_refills"
            )
        if first == 0:
            self._visited.clear()
            self._of_visits = self.tier
        found: list[TaskVisit] = []
        for number in range(first, first + count):
            tier = self._tier_of(iteration, number)
            self._visited[tier] += 1
            task = self._train[tier].task(iteration * FILLINGS * self.per_iteration + number)
            found.append(TaskVisit(iteration=iteration, visit=number, task=task))
        return found

    def _tier_of(self, iteration: int, number: int) -> int:
        """Return the tier of a visit: the policy's, the one before, or an earlier one."""
        before = self.tier - self._config.first
        rng = generator(self._seed, "tier", iteration, number)
        drawn = rng.random()
        if drawn < OLDER and before > 1:
            return self._config.first + int(rng.integers(before - 1))
        return self.tier - 1 if drawn < OLDER + PREVIOUS and before else self.tier

    def beginning(self, rng: np.random.Generator) -> tuple[Task, Opening] | None:
        """Return nothing: games begin in the first states of tasks."""
        return None

    def explore(self, draws: WorldDraws, goes_on: GoesOn) -> Mapping[str, Any]:
        """Return nothing: there is nothing to find."""
        return {}

    def begin(self, found: Mapping[str, Any]) -> None:
        """Do nothing."""

    def learn(self, episodes: Sequence[Episode], advantages: Mapping[TurnId, float]) -> None:
        """Do nothing: exams decide."""

    def exam(self, iteration: int) -> Sequence[Task]:
        """Return the tasks of the exam after `iteration` iterations; none where none is due."""
        if not iteration or iteration % self._config.every:
            return ()
        return self._exams[self.tier].take(self._config.tasks)

    def judge(self, episodes: Sequence[Episode]) -> None:
        """Take note of an exam: go on to the next tier, stay, or go back.

        Episodes that the env broke are left out, and an exam of none changes nothing.
        """
        config, wanted = self._config, self._baseline_score()
        whole = [each for each in episodes if not each.broken]
        if not whole:
            return
        score = float(np.mean([each.score for each in whole]))
        share = score / wanted if wanted > 0 else float(score >= wanted)
        values = [each.measures.get(config.measure or "", 0.0) for each in whole]
        least = float(np.mean(values)) if config.measure else 1.0
        passed = share >= config.advance and (not config.measure or least >= config.least)
        self._passes = self._passes + 1 if passed else 0
        self._latest = {"curriculum/exam_share": share, "curriculum/exam_measure": least}
        if self._passes >= 2 and self.tier < config.last:
            self.tier, self._passes = self.tier + 1, 0
        elif share < config.retreat and self.tier > config.first:
            self.tier, self._passes = self.tier - 1, 0

    def _baseline_score(self) -> float:
        """Return the baseline's score on the tasks of the tier's exam."""
        if self.tier not in self._wanted:
            source, name = self._exams[self.tier], self._config.baseline
            tasks = source.take(self._config.tasks)
            self._wanted[self.tier] = score_baselines(source.env, tasks, 0, names=[name])[name].mean
        return self._wanted[self.tier]

    def metrics(self) -> Mapping[str, float]:
        """Return the tier of this iteration, its visits of each tier, and the latest exam."""
        visited = {f"curriculum/visits_{t}": float(n) for t, n in sorted(self._visited.items())}
        return {"curriculum/tier": float(self._of_visits), **visited, **self._latest}

    def state(self) -> Mapping[str, Any]:
        """Return the tier, the passes in a row and the latest exam."""
        return {"tier": self.tier, "passes": self._passes, "latest": self._latest}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to the tier that `state` returned."""
        self.tier, self._passes = int(state["tier"]), int(state["passes"])
        self._latest, self._of_visits = dict(state["latest"]), self.tier


def _env_of_tier(env: Env[Any], option: str, tier: int) -> Env[Any]:
    """Return an env with another value of an option.

    Raises:
        ConfigError: if the env has no such option, or not this value.
    """
    world = env.unwrapped
    if option not in type(world).config_class.model_fields:
        raise ConfigError(
            f"curriculum.option = {option!r} is no option of env {env.name!r}: give one of "
            f"{', '.join(type(world).config_class.model_fields) or 'none'}"
        )
    given = world.config.model_dump(exclude_unset=True) | {option: tier}
    config = parse(type(world).config_class, given, f"env {env.name!r} in tier {tier}")
    make: Callable[[Settings], Env[Any]] = type(world)
    made = make(config)
    made.max_turns = world.max_turns  # policy and baseline play as many turns
    return guarded(made, env.timeout) if isinstance(env, GuardedEnv) else made


def _check_tasks(
    tasks: GeneratedTasks, envs: Sequence[Env[Any]], tier: int, config: TiersConfig
) -> None:
    """Check that the envs of a run can play a tier's tasks, and have the measure of exams.

    Raises:
        ConfigError: if not, or if the tasks are of other tiers, too.
    """
    what = f"curriculum: tasks with env.options.{config.option} = {tier}"
    for number in range(TRIED):
        task = tasks.task(number)
        if task.data.get(config.option, tier) != tier:
            raise ConfigError(
                f"{what} are of {config.option} {task.data[config.option]}, too: leave out the "
                "option of the env that mixes them, such as up_to"
            )
        for env in envs:
            try:
                measures = env.measures(env.reset(task))
            except DataError as error:
                raise ConfigError(f"{what} do not fit the env of the run: {error}") from None
            if config.measure and measures and config.measure not in measures:
                raise unknown_name("curriculum.measure", config.measure, measures)
