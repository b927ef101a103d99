"""The conformance check of envs: does a world keep its contract, and what do its calls cost?

Owns `check_env`. Each failure is one sentence, with the cure, as an `EnvError`; what an env raises
by itself goes through unchanged. Roles act in turn, in the order of `env.roles`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, NoReturn, get_args

import numpy as np

from turnwise.envs.base import Baseline, Branching, Env, Level, Observation, RewardTiming, Step
from turnwise.envs.tool_calls import calls_in
from turnwise.errors import EnvError, IllegalActionError
from turnwise.noise import generator
from turnwise.types import Task

ILLEGAL = "no such action, surely"
BUDGET, WINDOWS = 0.004, 5
"""Seconds of one measurement of a kind of call, and how many are made: the least counts, as what
else the machine does only adds to it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvReport:
    """What `check_env` found out about an env that keeps its contract.

    `steps` were made over `tasks`; `longest` is the longest episode seen; `costs` are microseconds
    of one reset, observe and step, and of a branch: a step from an earlier state.

    Example:
        >>> EnvReport(name="e", tasks=1, steps=9, longest=3, costs={"step": 4.0}).costs["step"]
        4.0
    """

    name: str
    tasks: int
    steps: int
    longest: int
    costs: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class _View:
    """All that a state shows of itself; two equal states must show the same."""

    texts: tuple[Observation, ...]
    keys: tuple[str, ...]
    score: float


def check_env(
    env: Env[Any], tasks: int | Sequence[Task] = 5, seed: int = 0, most_steps: int = 1000
) -> EnvReport:
    """Check that `env` keeps the contract of `envs.base`, and measure its calls.

    Args:
        env: the env.
        tasks: how many tasks to generate, or the tasks to check on.
        seed: decides the tasks and the play.
        most_steps: within which every baseline's episode must end.

    Raises:
        EnvError: at the first thing that is wrong; the message says what was given, what was
            expected and the cure.

    Example:
        >>> from turnwise.envs import make_env
        >>> check_env(make_env("frozen-lake"), tasks=2).name
        'frozen-lake'
    """
    _check_declarations(env)
    chosen = _generated(env, tasks, seed) if isinstance(tasks, int) else list(tasks)
    if not chosen:
        _fail(env, f"got tasks = {tasks!r}", "give one task or more")
    played = _Played(env, seed, most_steps)
    for task in chosen:
        _check_reset(env, task, played)
        for name in _players(env):
            played.episode(task, name)
    return EnvReport(
        name=env.name,
        tasks=len(chosen),
        steps=played.steps,
        longest=played.longest,
        costs=_costs(env, chosen[0], seed),
    )


def _players(env: Env[Any]) -> Mapping[str, Baseline]:
    """Return the env's baselines, or random play where it has none."""
    return env.baselines() or {
        "random": lambda state, rng: env.random_action(state, env.roles[0], rng)
    }


def _fail(env: Env[Any], what: str, cure: str) -> NoReturn:
    raise EnvError(f"{type(env).__name__}: {what}: {cure}")


def _check_declarations(env: Env[Any]) -> None:
    wanted = ("name", "roles", "components")
    missing = [name for name in wanted if not hasattr(env, name)]
    if missing:
        _fail(env, f"has no class attribute {missing[0]!r}", f"declare {', '.join(wanted)}")
    if not isinstance(env.name, str) or not env.name.strip():
        _fail(env, f"name = {env.name!r}", "give it a short name such as 'frozen-lake'")
    roles = env.roles
    if not isinstance(roles, tuple) or not roles or len(set(roles)) != len(roles):
        _fail(env, f"roles = {roles!r}", "give a tuple of different role names")
    for component, level in env.components.items():
        if level not in get_args(Level):
            levels = ", ".join(get_args(Level))
            _fail(env, f"component {component!r} has level {level!r}", f"use one of {levels}")
    kinds_of = {"reward_timing": RewardTiming, "branching": Branching}
    values = {"reward_timing": env.reward_timing, "branching": env.branching}
    for name, kinds in kinds_of.items():
        value = values[name]
        if value not in get_args(kinds):
            _fail(env, f"{name} = {value!r}", f"use one of {', '.join(get_args(kinds))}")
    words = env.words()
    if not isinstance(words, tuple) or not all(isinstance(word, str) for word in words):
        _fail(env, "words() returns something else", "return a tuple of strings")
    settles = type(env).settle is not Env.settle  # rewards of what a model said: none without one
    if "random" not in env.baselines() and not settles:
        known = ", ".join(env.baselines()) or "none"
        _fail(env, f"has no baseline 'random' (has: {known})", "add one that draws a legal action")


def _generated(env: Env[Any], count: int, seed: int) -> list[Task]:
    made = []
    for index in range(count):
        data = env.generate(generator(seed, "check", index))
        if env.generate(generator(seed, "check", index)) != data:
            cure = "draw only from the generator that generate is handed, and keep no state"
            _fail(env, "generate returns different data for equal generators", cure)
        try:
            copy = json.loads(json.dumps(data, allow_nan=False))
        except (TypeError, ValueError) as error:
            _fail(
                env, f"generate's data are not JSON ({error})", "use finite numbers, str and list"
            )
        if copy != data:
            cure = "use lists and string keys, not tuples and numbers"
            _fail(env, "generate's data change when written as JSON and read again", cure)
        problem = env.canonical(data)
        if not isinstance(problem, str):
            _fail(env, f"canonical returns {type(problem).__name__}", "return a string")
        if env.canonical(data) != problem or data != copy:
            cure = "compute it from the data alone and leave them as they are"
            _fail(env, "canonical is not stable", cure)
        made.append(Task(id=f"check-{index}", env=env.name, seed=seed, data=data))
    return made


def _check_reset(env: Env[Any], task: Task, played: _Played) -> None:
    first, second = env.reset(task), env.reset(task)
    if played.view(first) != played.view(second):
        cure = "let reset depend on the task alone, its seed included"
        _fail(env, "reset returns different states for one task", cure)


class _Played:
    """Plays episodes of an env and checks everything at every step."""

    def __init__(self, env: Env[Any], seed: int, most_steps: int) -> None:
        self.env, self.seed, self.most_steps = env, seed, most_steps
        self.steps = self.longest = 0
        self._shown: dict[tuple[str, str], str] = {}

    def episode(self, task: Task, baseline: str) -> None:
        env, choices = self.env, generator(self.seed, "check", task.id, baseline)
        player, state = _players(env)[baseline], env.reset(task)
        for number, role in zip(range(1, self.most_steps + 1), cycle(env.roles), strict=False):
            action = player(state, choices)
            seen = self.observe(state, role)
            legal, calls = seen.legal, bool(seen.tools and calls_in(action))
            if legal and action not in legal and not calls:
                what = (
                    f"baseline {baseline!r} answers {action!r} where {', '.join(legal)} are legal"
                )
                _fail(env, what, "choose from observe(state, role).legal")
            if number == 1 and legal:
                self.check_illegal(state, role)
            step = self.check_step(state, role, action, (task.id, baseline, number))
            self.steps += 1
            self.longest = max(self.longest, number)
            state = step.state
            if step.terminated or step.truncated:
                self.check_end(state, role, action)
                return
        cure = "end episodes at a limit, with truncated = True, or raise most_steps"
        _fail(env, f"baseline {baseline!r} still plays after {self.most_steps} steps", cure)

    def view(self, state: Any) -> _View:
        """Return what `state` shows to all roles, checked."""
        roles = self.env.roles
        texts = tuple(self.observe(state, role) for role in roles)
        keys = tuple(self.key(state, role, text) for role, text in zip(roles, texts, strict=True))
        return _View(texts=texts, keys=keys, score=self.score(state))

    def observe(self, state: Any, role: str) -> Observation:
        env, seen = self.env, self.env.observe(state, role)
        if not isinstance(seen, Observation):
            _fail(env, f"observe returns {type(seen).__name__}", "return an Observation")
        if not isinstance(seen.text, str) or not seen.text.strip():
            _fail(env, f"the observation's text is {seen.text!r}", "say what the role sees")
        if not isinstance(seen.description, str):
            _fail(env, f"the description is {seen.description!r}", "give text, '' for none")
        legal = seen.legal
        words = isinstance(legal, tuple) and all(isinstance(action, str) for action in legal)
        if not words:
            cure = "give a tuple of action words; an empty one where any text may be an answer"
            _fail(env, f"legal = {legal!r}", cure)
        if any(action != action.strip() or not action for action in legal):
            _fail(
                env, f"legal = {legal!r} has blank ends", "answers are stripped: strip actions too"
            )
        if len({action.casefold() for action in legal}) < len(legal):
            cure = "answers ignore case: give every action its own word"
            _fail(env, f"legal = {legal!r} has equal words", cure)
        return seen

    def key(self, state: Any, role: str, seen: Observation) -> str:
        env, key = self.env, self.env.state_key(state, role)
        if not isinstance(key, str):
            _fail(env, f"state_key returns {type(key).__name__}", "return a string")
        if self._shown.setdefault((role, key), seen.text) != seen.text:
            cure = "put everything Markov into the key, the task's data included"
            _fail(env, f"states that look different to {role!r} share the key {key!r}", cure)
        return key

    def score(self, state: Any) -> float:
        value = self.env.score(state)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1:
            _fail(self.env, f"score is {value!r}", "return a float from 0 to 1")
        return float(value)

    def check_illegal(self, state: Any, role: str) -> None:
        cure = "raise IllegalActionError that names the legal actions"
        try:
            self.env.step(state, role, ILLEGAL, np.random.default_rng(0))
        except IllegalActionError:
            return
        except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
            _fail(self.env, f"an illegal action raises {type(error).__name__}", cure)
        _fail(self.env, "step takes an illegal action", cure)

    def check_step(
        self, state: Any, role: str, action: str, place: tuple[str, str, int]
    ) -> Step[Any]:
        """Step twice with equal noise; return the first outcome."""
        env, before = self.env, self.view(state)
        step = self._step(state, role, action, place)
        self._check_rewards(step)
        after = self.view(step.state)
        if self.view(state) != before:
            cure = "build a new state and leave the old one as it is"
            _fail(env, "step changes the state that it is given", cure)
        again = self._step(state, role, action, place)
        flags = (step.terminated, step.truncated)
        same = dict(again.rewards) == dict(step.rewards) and self.view(again.state) == after
        if not same or flags != (again.terminated, again.truncated):
            cure = "keep nothing in the env and draw only from the generator that step is handed"
            _fail(env, "stepping one state twice with equal noise gives different results", cure)
        return step

    def _step(self, state: Any, role: str, action: str, place: tuple[str, str, int]) -> Step[Any]:
        env = self.env
        step = env.step(state, role, action, generator(self.seed, "check", *place))
        if not isinstance(step, Step):
            _fail(env, f"step returns {type(step).__name__}", "return a Step")
        for name, value in (("terminated", step.terminated), ("truncated", step.truncated)):
            if type(value) is not bool:
                what = f"{name} is {value!r} of type {type(value).__name__}"
                _fail(env, what, "return a bool; write bool(...) around numpy's")
        return step

    def _check_rewards(self, step: Step[Any]) -> None:
        env, declared = self.env, ", ".join(self.env.components) or "none"
        for component, value in step.rewards.items():
            if component not in env.components:
                what = f"reward {component!r} is not a declared component ({declared})"
                _fail(env, what, "declare it in components, with its level")
            if not isinstance(value, int | float) or not math.isfinite(value):
                _fail(env, f"reward {component!r} is {value!r}", "return a finite float")

    def check_end(self, state: Any, role: str, action: str) -> None:
        """A state past its end may refuse a step; it may not go on as if nothing had ended."""
        self.view(state)
        try:
            step = self.env.step(state, role, action, np.random.default_rng(0))
        except (ValueError, EnvError):
            return
        if not (step.terminated or step.truncated):
            cure = "raise EnvError when a state that has ended is stepped"
            _fail(self.env, "an episode goes on after its end", cure)


def _costs(env: Env[Any], task: Task, seed: int) -> dict[str, float]:
    """Return microseconds of the env's calls; the first call of each is not counted."""
    role, start = env.roles[0], env.reset(task)
    noise = np.random.default_rng(seed)
    action = env.random_action(start, role, noise)
    later = env.step(start, role, action, noise).state
    calls: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "reset": (lambda: task, env.reset),
        "observe": (lambda: later, lambda state: env.observe(state, role)),
        "step": (lambda: env.reset(task), lambda state: env.step(state, role, action, noise)),
        "branch": (lambda: start, lambda state: env.step(state, role, action, noise)),
    }
    return {name: _microseconds(*both) for name, both in calls.items()}


def _microseconds(prepare: Callable[[], Any], call: Callable[[Any], Any]) -> float:
    call(prepare())
    return min(_mean_microseconds(prepare, call) for _ in range(WINDOWS))


def _mean_microseconds(prepare: Callable[[], Any], call: Callable[[Any], Any]) -> float:
    """Return the mean time of `call` on what `prepare` returned, which is not counted."""
    began, spent, count = time.perf_counter(), 0.0, 0
    while time.perf_counter() - began < BUDGET:
        given = prepare()
        before = time.perf_counter()
        call(given)
        spent += time.perf_counter() - before
        count += 1
    return 1e6 * spent / count
