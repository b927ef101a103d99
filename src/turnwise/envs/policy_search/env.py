"""The `policy-search` env: one turn, a history in, the next parameters out.

Task: a hidden function of some parameters, each a level from 0 to 9 at most, and a history of tries
    with noisy scores, as a random and then an evolutionary search of random length leaves it.
Sees: how many parameters and levels there are, and up to `shown` tries in rising order of their
    scores: the grade of each from 0 to 9, and its levels. With `described` also the description.
Description: the most promising untried level of each parameter of the best try, and how promising
    it is, by up to `counted` tries; the most promising parameter is the last one.
Actions: parameters with levels. What is not named is as in the best try that is shown; if
    there are no tries, all are named.
Rewards: `improved`, the share of what was missing to the best value that the parameters gain on the
    best try of the history, from 0 to 1, by values without noise; a repeat gains nothing. It is the
    score, too. `difference`, the same from -1, so that answers that gain nothing differ, and -1 for
    a repeat, also of a try that is not shown.
End: after the turn.
Measures: `repeated`, whether the parameters were tried.
Baselines: random (uniform parameters), evolution (the evolutionary search goes on for a step),
    guided (changes of the best try that follow the description; the answer names the most
    promising one first).
Example: `make_env("policy-search", families=["bandit", "chain"])`.

The functions are bandits and synthetic ones (`turnwise.envs.policy_search.functions`). A searcher
that is trained here proposes policies in `turnwise search TASK --run RUN`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from turnwise.envs.base import Baseline, Env, Level, Observation, RewardTiming, Step
from turnwise.envs.policy_search.estimates import marks, open_tries, promising
from turnwise.envs.policy_search.functions import FAMILIES, Function, Levels
from turnwise.envs.policy_search.optimisers import evolved, guided
from turnwise.envs.policy_search.text import (
    MOST_LEVELS,
    answer_text,
    description_text,
    history_text,
    read_answer,
    settings_of,
    shown_of,
)
from turnwise.envs.task_data import read_data
from turnwise.errors import DataError, EnvError, unknown_name
from turnwise.settings import Settings
from turnwise.types import Task

SEEDS = 1 << 31
NOISES = (0.0, 0.02, 0.05)
"""The standard deviations of a score that tasks have."""
AMOUNTS, CHOICES = (5, 9), (2, 6)
"""The fewest and the most levels of a task, where they are amounts and where they are choices."""
EMPTY = 0.1
"""The share of tasks without a history."""
MOST_PARAMS, MOST_SCORE = 256, 1e100
"""The most parameters of a task, and the largest size of a score."""
ROLE = "player"
Score = Annotated[float, Field(ge=-MOST_SCORE, le=MOST_SCORE, allow_inf_nan=False)]


class PolicySearchConfig(Settings):
    """Options of the `policy-search` env."""

    families: tuple[str, ...] = tuple(FAMILIES)
    """The families of functions that tasks are drawn from."""
    shown: int = Field(default=16, ge=2, le=64)
    """The most tries that are shown: three quarters of them the best, the others the latest."""
    counted: int = Field(default=48, ge=2, le=256)
    """The most tries on which the description rests, chosen in the same way."""
    least_params: int = Field(default=3, ge=2)
    """The fewest parameters of a task."""
    most_params: int = Field(default=16, ge=2, le=MOST_PARAMS)
    """The most parameters of a task."""
    warmup: int = Field(default=20, ge=1)
    """The most random tries of a history; half of them are the fewest."""
    steps: int = Field(default=60, ge=0)
    """The most steps of evolutionary search that a history has after its random tries."""
    described: bool = False
    """Whether the prompt says which untried levels are promising, so that the policy does not have
    to find it."""

    @model_validator(mode="after")
    def _check(self) -> PolicySearchConfig:
        for name in self.families:
            if name not in FAMILIES:
                raise ValueError(str(unknown_name("family", name, FAMILIES)))
        if not self.families:
            raise ValueError("families is empty: name one or more")
        if self.counted < self.shown:
            raise ValueError(
                f"counted = {self.counted} is less than shown = {self.shown}: set counted to "
                f"{self.shown} or more"
            )
        if self.least_params > self.most_params:
            raise ValueError(
                f"least_params = {self.least_params} is more than most_params = "
                f"{self.most_params}: exchange them"
            )
        return self


class FunctionData(Settings):
    """The hidden function of a task."""

    family: str
    seed: int = Field(ge=0, lt=SEEDS)


class SearchData(Settings):
    """The data of a task."""

    count: int = Field(ge=1, le=MOST_PARAMS)
    levels: int = Field(ge=2, le=MOST_LEVELS)
    ordered: bool
    tries: tuple[tuple[Levels, Score], ...]
    function: FunctionData | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySearchState:
    """The sizes of a task, the tries of its history, its function, and the answer.

    `shown` are the tries that the prompt lists, and `counted` those that the description rests on;
    the last one of both is the best of which a single change is new. `known` are the parameters of
    all tries. `function` is None in a search, where nobody knows the value of parameters before
    they are played. `best` is the highest value of the whole history without noise.
    """

    count: int
    levels: int
    ordered: bool
    shown: tuple[tuple[Levels, float], ...]
    counted: tuple[tuple[Levels, float], ...]
    known: frozenset[Levels]
    function: Function | None
    best: float
    said: Levels | None = None

    @property
    def repeated(self) -> bool:
        """Whether the answer was tried."""
        return self.said in self.known

    def read(self, answer: str) -> Levels:
        """Return the parameters that an answer names.

        Raises:
            IllegalActionError: if it names none.
        """
        return read_answer(answer, self.count, self.levels, self.shown)


class PolicySearch(Env[PolicySearchState]):
    """Name parameters that are better than those that were tried.

    Example:
        >>> env = PolicySearch()
        >>> data = {"count": 2, "levels": 3, "ordered": False, "tries": [[[0, 1], 0.5]]}
        >>> state = env.reset(Task(id="t", env="policy-search", seed=0, data=data))
        >>> print(env.observe(state, "player").text)
        2 choices 3
        0 p0=0 p1=1
        >>> env.step(state, "player", "p1=2", np.random.default_rng(0)).state.said
        (0, 2)
    """

    name: ClassVar[str] = "policy-search"
    config_class: ClassVar[type[Settings]] = PolicySearchConfig
    components: ClassVar[Mapping[str, Level]] = {"improved": "agent", "difference": "process"}
    reward_timing: RewardTiming = "terminal"
    max_turns = 1

    def __init__(self, config: PolicySearchConfig | None = None) -> None:
        super().__init__(config or PolicySearchConfig())

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a function and the history of a search on it."""
        config: PolicySearchConfig = self.config
        family = str(rng.choice(config.families))
        ordered = FAMILIES[family].ordered
        count = int(rng.integers(config.least_params, config.most_params + 1))
        least, most = AMOUNTS if ordered else CHOICES
        levels = int(rng.integers(least, most + 1))
        function = Function(
            family=family, count=count, levels=levels, seed=int(rng.integers(SEEDS))
        )
        tries = [] if rng.random() < EMPTY else self._searched(function, ordered, rng)
        return {
            "count": count, "levels": levels, "ordered": ordered,
            "function": {"family": family, "seed": function.seed},
            "tries": [[list(params), score] for params, score in tries],
        }  # fmt: skip

    def _searched(
        self, function: Function, ordered: bool, rng: np.random.Generator
    ) -> list[tuple[Levels, float]]:
        """Return the tries of a search of random length, with noisy scores."""
        value, noise = function.value, float(rng.choice(NOISES))
        count, levels = function.count, function.levels
        tries: list[tuple[Levels, float]] = []
        known: set[Levels] = set()
        warmup = int(rng.integers(max(1, self.config.warmup // 2), self.config.warmup + 1))
        for step in range(warmup + int(rng.integers(self.config.steps + 1))):
            shown = shown_of(tries, self.config.shown) if step >= warmup else ()
            params = evolved(shown, known, count, levels, ordered, rng)
            known.add(params)
            tries.append((params, round(value(params) + noise * float(rng.normal()), 4)))
        return tries

    def reset(self, task: Task) -> PolicySearchState:
        """Return the state of `task`.

        Raises:
            DataError: if its data are not those of a search.
        """
        data = read_data(SearchData, task)
        count, levels, known = data.count, data.levels, data.function
        if not all(len(p) == count and all(0 <= v < levels for v in p) for p, _ in data.tries):
            raise DataError(
                f"task {task.id!r}: expected of each try {count} parameters, each a level from 0 "
                f"to {levels - 1}"
            )
        if known is not None and known.family not in FAMILIES:
            raise DataError(f"task {task.id!r}: {unknown_name('family', known.family, FAMILIES)}")
        function = known and Function(
            family=known.family, count=count, levels=levels, seed=known.seed
        )
        tries = data.tries
        best = max((function.value(p) for p, _ in tries), default=0.0) if function else 0.0
        known = frozenset(params for params, _ in tries)
        some = open_tries(tries, levels, data.ordered, known)
        return PolicySearchState(
            count=count, levels=levels, ordered=data.ordered, function=function, best=best,
            known=known, shown=tuple(shown_of(some, self.config.shown)),
            counted=tuple(shown_of(some, self.config.counted)),
        )  # fmt: skip

    def observe(self, state: PolicySearchState, role: str) -> Observation:
        """Return the history as text."""
        text = history_text(state.count, state.levels, state.ordered, state.shown)
        description = description_text(state.levels, state.ordered, state.counted, state.known)
        if self.config.described and description:
            text, description = f"{text}\n{description}", ""
        return Observation(text=text, legal_actions=(), description=description)

    def step(
        self, state: PolicySearchState, role: str, action: str, noise: np.random.Generator
    ) -> Step[PolicySearchState]:
        """Compare the parameters with the best of the history."""
        if state.said is not None:
            raise EnvError("policy-search: the episode has ended with an answer: reset the env")
        after = replace(state, said=state.read(action))
        gain = _gain(after)
        difference = -1.0 if after.repeated else max(gain, -1.0)
        rewards = {"improved": max(gain, 0.0), "difference": difference}
        return Step(state=after, rewards=rewards, terminated=True, truncated=False)

    def score(self, state: PolicySearchState) -> float:
        """Return the share of what was missing to 1 that the answer gains, from 0 to 1."""
        return max(_gain(state), 0.0)

    def measures(self, state: PolicySearchState) -> dict[str, float]:
        """Return whether the answer was tried."""
        return {"repeated": float(state.repeated)}

    def random_action(self, state: PolicySearchState, role: str, rng: np.random.Generator) -> str:
        """Return uniform parameters."""
        params = evolved((), set(), state.count, state.levels, state.ordered, rng)
        return answer_text(params, state.shown)

    def baselines(self) -> Mapping[str, Baseline]:
        """Return the baselines of the module docstring."""

        def evolution(state: PolicySearchState, rng: np.random.Generator) -> str:
            told = state.count, state.levels, state.ordered
            return answer_text(evolved(state.shown, state.known, *told, rng), state.shown)

        def guided_search(state: PolicySearchState, rng: np.random.Generator) -> str:
            told = state.levels, state.ordered
            params = guided(state.counted, state.known, state.count, *told, rng)
            first = promising(marks(*told, state.counted, state.known))[::-1]
            others = (place for place in range(state.count) if place not in first)
            return answer_text(params, state.shown, (*first, *others))

        return {**super().baselines(), "evolution": evolution, "guided": guided_search}

    def vocabulary(self) -> tuple[str, ...]:
        """Return the words of observations and answers."""
        settings = settings_of(self.config.most_params, MOST_LEVELS)
        return ("amounts", "choices", "better", *settings, *map(str, range(MOST_LEVELS)))


def _gain(state: PolicySearchState) -> float:
    """Return the share of what was missing to 1 that the answer gains; a loss is below 0."""
    if state.said is None or state.function is None or state.best >= 1:
        return 0.0
    return min((state.function.value(state.said) - state.best) / (1 - state.best), 1.0)
