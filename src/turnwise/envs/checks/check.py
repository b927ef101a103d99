"""The conformance check of envs, with the time that their calls take.

Provides `check_env`. Each failure is an `EnvError` with one sentence and its cure. Exceptions of an
env, and calls that do not return, are reported with their file and line. Roles act in the order
that `env.acting` returns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnwise.envs.base import Baseline, Env
from turnwise.envs.checks.calls import Calls
from turnwise.envs.checks.declarations import (
    check_declarations,
    check_is_env,
    check_returned,
    fail,
)
from turnwise.envs.checks.relabelling import check_relabel
from turnwise.envs.checks.side_by_side import check_side_by_side
from turnwise.envs.tools.calls import calls_in
from turnwise.seeding import generator
from turnwise.types import Task

Say = Callable[[str], None]
DRAWN = 200
"""Tasks drawn before `canonical` counts as constant."""
FEW = 10
"""The least episodes that say when rewards are given."""
SIDE = 12
"""Tasks played in interleaved order."""
BUDGET, WINDOWS = 0.004, 5
"""Seconds of one measurement of a call, and the number of measurements; the smallest counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvReport:
    """The results of `check_env` for an env that conforms.

    `steps` were made over `tasks`, and `longest` is the longest episode. `costs` are microseconds
    of one reset, observe, step and branch (a step from an earlier state). `notes` are sentences on
    properties that are allowed but rarely intended.

    Example:
        >>> EnvReport(name="e", tasks=1, steps=9, longest=3, costs={"step": 4.0}).costs["step"]
        4.0
    """

    name: str
    tasks: int
    steps: int
    longest: int
    costs: Mapping[str, float]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        costs = ", ".join(f"{call} {cost:.1f}" for call, cost in self.costs.items())
        said = (
            f"{self.name} keeps the contract: {self.steps} steps over {self.tasks} tasks, the "
            f"longest episode {self.longest} turns; microseconds a call: {costs}"
        )
        return ". ".join((said, *self.notes))


def check_env(
    env: Env[Any],
    tasks: int | Sequence[Task] = 5,
    seed: int = 0,
    most_steps: int | None = None,
    *,
    timeout: float = 30.0,
    say: Say = lambda text: None,
) -> EnvReport:
    """Check that `env` conforms to `envs.base`, and measure the time of its calls.

    Every baseline plays every task, with each step made twice. Then up to 12 tasks are played in
    interleaved order, and must give the same observations and rewards as alone.

    Args:
        env: the env.
        tasks: how many tasks to generate, or the tasks to check on.
        seed: the seed of the tasks and of play.
        most_steps: the limit within which every baseline's episode must end; None is
            `env.max_turns` if it is declared, at which episodes are truncated, or else 100.
        timeout: seconds that one call may take.
        say: called with the name of the current check.

    Raises:
        EnvError: at the first failure; the message has the given value, the expected value and the
            cure.

    Example:
        >>> from turnwise.envs import make_env
        >>> check_env(make_env("frozen-lake"), tasks=2).name
        'frozen-lake'
    """
    say("what the env declares")
    check_is_env(env)
    env = env.unwrapped  # the check has limits of its own
    check_declarations(env, timeout)
    calls = Calls(env, seed, timeout, cure="fix it")  # `turnwise check` is running
    check_returned(env, calls("vocabulary"), calls.get("single_task"), calls("baselines"))
    say("generate and canonical")
    generated = (
        generated_tasks(calls, max(tasks, SIDE), seed) if isinstance(tasks, int) else list(tasks)
    )
    chosen = generated[:tasks] if isinstance(tasks, int) else generated
    if not chosen:
        fail(env, f"got tasks = {tasks!r}", "give one task or more")
    check_canonical(calls, generated, seed)
    notes = same_data_note(calls, generated, seed) if isinstance(tasks, int) else ()
    played = _Played(calls, seed, most_steps)
    for number, task in enumerate(chosen, start=1):
        say(f"task {number} of {len(chosen)}: reset")
        check_reset(calls, task)
        for name in played.players:
            say(f"task {number} of {len(chosen)}: baseline {name!r}")
            played.episode(task, name)
    say(f"{min(len(generated), SIDE)} tasks side by side and alone")
    check_side_by_side(calls, generated[:SIDE], seed)
    say("relabel")
    check_relabel(calls, chosen, seed)
    say("what calls cost")
    return played.report(len(chosen), _costs(calls, chosen[0], seed), notes)


def generated_tasks(calls: Calls, count: int, seed: int) -> list[Task]:
    """Return tasks that the env generates, whose data have been checked."""
    made, env = [], calls.env
    for index in range(count):
        data = calls("generate", generator(seed, "check", index))
        if not isinstance(data, dict):
            fail(
                env,
                f"generate returns {type(data).__name__}",
                "return a dict of a task's data",
                "generate",
            )
        try:
            same = calls("generate", generator(seed, "check", index)) == data
            copy = json.loads(json.dumps(data, allow_nan=False))
        except (TypeError, ValueError) as error:
            cure = "use finite numbers, str and list"
            fail(env, f"generate's data are not JSON ({error})", cure, "generate")
        if not same:
            cure = "draw only from the generator that generate is handed, and keep no state"
            fail(env, "generate returns different data for equal generators", cure, "generate")
        if copy != data:
            cure = "use lists and string keys, not tuples and numbers"
            fail(
                env, "generate's data change when written as JSON and read again", cure, "generate"
            )
        problem = calls("canonical", data)
        calls.check_text("canonical", problem)
        if calls("canonical", data) != problem or data != copy:
            cure = "compute it from the data alone and leave them as they are"
            fail(env, "canonical is not stable", cure, "canonical")
        made.append(Task(id=f"check-{index}", env=env.name, seed=seed, data=data))
    return made


def check_canonical(calls: Calls, tasks: Sequence[Task], seed: int) -> None:
    """Raise if `canonical` gives all generated tasks one problem and `single_task` is False.

    If it does so for `tasks` with different data, more tasks are drawn.
    """
    names = {calls("canonical", task.data) for task in tasks}
    different = {json.dumps(task.data, sort_keys=True) for task in tasks}
    tasks_of_split = calls("tasks", "train") is not None
    if len(names) > 1 or len(different) < 2 or tasks_of_split or calls.get("single_task"):
        return
    for index in range(DRAWN):
        data = calls("generate", generator(seed, "check canonical", index))
        if calls("canonical", data) not in names:
            return
    cure = (
        "return what tells one problem from another, so that some can be held out for the test, or "
        "declare that there is one, by a property `single_task` that is True"
    )
    what = f"canonical returns {min(names)!r:.40} for all of {len(tasks) + DRAWN} generated tasks"
    fail(calls.env, what, cure, "canonical")


def same_data_note(calls: Calls, tasks: Sequence[Task], seed: int) -> tuple[str, ...]:
    """Return a note if `generate` gives all tasks the same data and `single_task` is False."""
    first, many = tasks[0].data, len(tasks) + DRAWN
    same = all(task.data == first for task in tasks)
    if not same or calls("tasks", "train") is not None or calls.get("single_task"):
        return ()
    for index in range(DRAWN):
        if calls("generate", generator(seed, "check canonical", index)) != first:
            return ()
    return (
        f"All of {many} tasks that generate returned have the data {first!r:.40}: they are one "
        "problem, and no test is unseen. Draw from rng what differs between tasks, or declare that "
        "there is one problem, by a property `single_task` that is True",
    )


def check_reset(calls: Calls, task: Task) -> None:
    """Raise unless a task always begins in the same state, which can be rendered."""
    first, second = calls.reset(task), calls.reset(task)
    if calls.view(first) != calls.view(second):
        cure = "let reset depend on the task alone, its seed included"
        fail(calls.env, "reset returns different states for one task", cure, "reset")
    calls.check_render(first)


class _Played:
    """Plays episodes of an env and checks every step."""

    def __init__(self, calls: Calls, seed: int, most_steps: int | None) -> None:
        self.calls, self.env, self.seed = calls, calls.env, seed
        self.most_steps = most_steps or calls("turn_cap")
        self.cuts = most_steps is None and self.env.max_turns is not None
        self.players: Mapping[str, Baseline] = calls("baselines") or {
            "random": lambda state, rng: self.env.random_action(
                state, self.calls.acting(state), rng
            )
        }
        self.steps = self.longest = 0
        self.paid = _Paid()
        self.ended: dict[str, list[bool]] = {name: [] for name in self.players}

    def episode(self, task: Task, baseline: str) -> None:
        """Play one task to its end with one baseline."""
        env, choices = self.env, generator(self.seed, "check", task.id, baseline)
        state, paid = self.calls.reset(task), list[tuple[str, bool]]()
        for number in range(1, self.most_steps + 1):
            role = self.calls.acting(state)
            action = self.answer(baseline, state, role, choices)
            step = self.calls.step_twice(state, role, action, (task.id, baseline, number))
            legal = self.calls.observe(state, role).legal_actions
            if number == 1 and legal:
                self.calls.check_illegal(state, role)
            self.steps += 1
            self.longest = max(self.longest, number)
            state = step.state
            given = (step.rewards, *step.others.values())
            paid.append((role, any(any(own.values()) for own in given)))
            if step.terminated and step.truncated:
                cure = "let one be True: truncated is for an episode that would have continued"
                fail(env, "step returns terminated and truncated, both True", cure, "step")
            if step.terminated or step.truncated:
                self.calls.check_end(state, role, action)
                self.ended[baseline].append(True)
                self.paid.add(paid)
                return
        self.ended[baseline].append(False)
        self.calls.check_kept()
        if not self.cuts:
            cure = "end episodes at a limit, with truncated = True, or declare max_turns"
            fail(
                env,
                f"baseline {baseline!r} still plays after {self.most_steps} steps",
                cure,
                "step",
            )

    def report(
        self, tasks: int, costs: Mapping[str, float], notes: tuple[str, ...] = ()
    ) -> EnvReport:
        """Return the results over the given number of tasks, with `notes` before its own."""
        return EnvReport(
            name=self.env.name,
            tasks=tasks,
            steps=self.steps,
            longest=self.longest,
            costs=costs,
            notes=(*notes, *self.notes()),
        )

    def notes(self) -> tuple[str, ...]:
        """Return notes on baselines whose episodes never ended, and on when rewards were given."""
        return (*self._endless(), *self.paid.notes(self.env.reward_timing))

    def _endless(self) -> tuple[str, ...]:
        endless = [name for name, ends in self.ended.items() if ends and not any(ends)]
        if not endless:
            return ()
        names = ", ".join(repr(name) for name in endless)
        turns = "1 turn" if self.most_steps == 1 else f"{self.most_steps} turns"
        said = (
            f"No episode of baseline {names} came to an end: all were cut at max_turns, {turns}, "
            "and rewards at the end of an episode were never given. Such play may reach the end "
            "too seldom, and so does a model at first: give rewards on the way, begin nearer to "
            "the end, or raise max_turns"
        )
        if any(any(ends) for ends in self.ended.values()):
            return (said,)
        return (
            f"{said}. Or step never returns terminated = True: return it where an episode is over",
        )

    def answer(self, baseline: str, state: Any, role: str, choices: np.random.Generator) -> str:
        """Return a baseline's action, which must be legal."""
        env, player = self.env, self.players[baseline]
        action: Any = self.calls.made(f"baselines()[{baseline!r}]", player, state, choices)
        if not isinstance(action, str):
            what = f"baseline {baseline!r} answers {action!r:.80} of type {type(action).__name__}"
            fail(env, what, "return the action as text", "baselines")
        self.calls.check_text("baselines", action)
        seen = self.calls.observe(state, role)
        legal, called = seen.legal_actions, bool(seen.tools and calls_in(action))
        if legal and action not in legal and not called:
            what = f"baseline {baseline!r} answers {action!r} where {', '.join(legal)} are legal"
            fail(env, what, "choose from observe(state, role).legal_actions", "baselines")
        return action


@dataclass
class _Paid:
    """When episodes that came to an end gave rewards other than 0.

    `before` counts those that gave some before their last step, `last` those that gave all with it.
    An episode counts in which some seat acted twice: the rewards of a shorter one come at the end
    of the turn that they belong to.
    """

    before: int = 0
    last: int = 0

    def add(self, steps: Sequence[tuple[str, bool]]) -> None:
        """Count an episode, of which each step has a seat and gave a reward or none."""
        seats, paid = zip(*steps, strict=True)
        if len(seats) > len(set(seats)) and any(paid):
            self.before += any(paid[:-1])
            self.last += not any(paid[:-1])

    def notes(self, declared: str) -> tuple[str, ...]:
        """Return a note where the declared timing is not the one that was seen."""
        episodes = self.before + self.last
        if declared == "terminal" and self.before:
            return (
                f"reward_timing = 'terminal', but {self.before} of {episodes} episodes with "
                "rewards gave some before their last step: declare 'dense', so that a spine may "
                "compare replies by them",
            )
        if declared == "dense" and episodes >= FEW and not self.before:
            return (
                f"reward_timing = 'dense', but {episodes} of {episodes} episodes with rewards gave "
                "them with their last step alone. A spine compares replies by the reward of their "
                "own step: if all episodes are so, declare 'terminal'",
            )
        return ()


def _costs(calls: Calls, task: Task, seed: int) -> dict[str, float]:
    """Return microseconds of the env's calls, without the first call of each."""
    env = calls.env
    start = env.reset(task)
    role = calls.acting(start)
    noise = np.random.default_rng(seed)
    action = env.random_action(start, role, noise)
    later = env.step(start, role, action, noise).state
    kinds: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "reset": (lambda: task, env.reset),
        "observe": (lambda: later, lambda state: env.observe(state, role)),
        "step": (lambda: env.reset(task), lambda state: env.step(state, role, action, noise)),
        "branch": (lambda: start, lambda state: env.step(state, role, action, noise)),
    }
    return {name: calls.made(name, _microseconds, *both) for name, both in kinds.items()}


def _microseconds(prepare: Callable[[], Any], call: Callable[[Any], Any]) -> float:
    call(prepare())
    return min(_mean_microseconds(prepare, call) for _ in range(WINDOWS))


def _mean_microseconds(prepare: Callable[[], Any], call: Callable[[Any], Any]) -> float:
    """Return the mean time of `call` on the result of `prepare`, without the time of `prepare`."""
    began, spent, count = time.perf_counter(), 0.0, 0
    while time.perf_counter() - began < BUDGET:
        given = prepare()
        before = time.perf_counter()
        call(given)
        spent += time.perf_counter() - before
        count += 1
    return 1e6 * spent / count
