"""Which topologies a workflow supports, found by playing it at random.

Provides `check_workflow` and `workflow_refusals`. Siblings need a score for every question, and
trials that play on need a workflow that repeats its calls when it is called anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from turnwise.engines.loop import close_engine, run
from turnwise.engines.scripted import ScriptedEngine
from turnwise.envs import Env, Step
from turnwise.envs.user_calls import is_cancelled
from turnwise.errors import StuckEnvError
from turnwise.rollout.failures import OthersRewarded
from turnwise.rollout.siblings import PLAIN_ASK
from turnwise.rollout.turn_rule import Score
from turnwise.rollout.user_workflow import RandomAgents, call_workflow, try_workflow
from turnwise.seeding import generator
from turnwise.tasks import GeneratedTasks
from turnwise.types import Message, Task
from turnwise.workflows import Agent, Workflow, WorkflowConfig, make_workflow
from turnwise.workflows.topologies import SiblingsConfig, topologies_of

TURN_END = "spine with score = 'turn_end'"
OTHER_CALLS = (
    "the workflow, called anew with the same results, made other calls, so that no sibling can be "
    "played on: let it depend on nothing but what its agents return, or use 'independent'"
)
ONE_BY_ONE = (
    "orders = 'cross' compares the actions of seats that act at the same time, and `acting` named "
    "one seat at a time in an episode of random actions: set topology.orders = 'sequential'"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowReport:
    """What was found of a workflow with an env.

    Attributes:
        env: the env's name.
        topologies: topology -> why the workflow or the env does not allow it, "" if both do.
        calls: the calls of the episode that was played.
    """

    env: str
    topologies: Mapping[str, str]
    calls: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Call:
    """One call of a workflow: the seat, and what it was given; `scored` of a question."""

    seat: str
    asked: str
    scored: bool = True


@dataclass(kw_only=True)
class _Log:
    """The calls of a workflow in their order, and the results of each seat's."""

    calls: list[_Call] = field(default_factory=list)
    results: dict[str, list[Any]] = field(default_factory=dict)


def check_workflow(
    workflow: str | WorkflowConfig | Workflow,
    env: Env[Any],
    *,
    task: Task | None = None,
    seed: int = 0,
) -> WorkflowReport:
    """Play one random episode with a workflow, twice, and say which topologies it supports.

    Questions are answered with the empty text. What goes wrong after one is no failure of the
    check: it ends the episode that is looked at.

    Args:
        workflow: its name or "file.py:name", the section of a recipe, or the workflow itself.
        env: the env.
        task: what is played; None is a generated one.
        seed: seeds the task and the actions.

    Raises:
        ConfigError: if there is no such workflow.
        EnvError: if the workflow is broken.

    Example:
        >>> from turnwise.envs import make_env
        >>> check_workflow("turns", make_env("relay")).topologies["vine"]
        ''
    """
    if isinstance(workflow, str):
        workflow = WorkflowConfig(kind=workflow)
    played = make_workflow(workflow) if isinstance(workflow, WorkflowConfig) else workflow
    first = GeneratedTasks(env, "train", seed).task(0) if task is None else task
    try_workflow(played, env, first, generator(seed, "workflow"))
    agents = RandomAgents(env, generator(seed, "check workflow"))
    found, calls = _refusals(played, agents, first)
    own = topologies_of(env)
    spine, trials = found
    return WorkflowReport(
        env=env.name,
        topologies={
            "independent": own["independent"],
            "spine": own["spine"] or spine,
            TURN_END: own["spine"] or spine or trials,
            "vine": own["vine"] or spine or trials,
        },
        calls=calls,
    )


def workflow_refusals(
    workflow: Workflow, env: Env[Any], task: Task, rng: np.random.Generator, config: SiblingsConfig
) -> str:
    """Return why a workflow does not allow a topology with siblings, "" if it does."""
    agents = RandomAgents(env, rng)
    (spine, trials), _ = _refusals(workflow, agents, task)
    if config.has_cross_tables and agents.most_acting == 1:
        return ONE_BY_ONE
    return spine or ("" if config.horizon == "step" else trials)


def _refusals(workflow: Workflow, agents: RandomAgents, task: Task) -> tuple[tuple[str, str], int]:
    """Return why siblings, and trials that play on, are not possible; and the calls made."""
    first, again = _Log(), _Log()
    env = agents.env
    begins = env.reset(task)
    engine = ScriptedEngine(lambda request: ())  # runs the loop, and is asked nothing
    try:
        run(_play(workflow, _Recorded(agents, first), begins, env), engine)
        results = {seat: list(own) for seat, own in first.results.items()}
        run(_play(workflow, _Recorded(agents, again, results), begins, env), engine)
    finally:
        close_engine(engine)
    repeated = first.calls == again.calls[: len(first.calls)]
    spine = PLAIN_ASK if any(not call.scored for call in first.calls) else ""
    for seat, own in first.results.items():
        for step in own:
            if isinstance(step, Step) and step.others:
                spine = str(OthersRewarded(seat, step.others))
    return (spine, "" if repeated else OTHER_CALLS), len(first.calls)


async def _play(workflow: Workflow, agents: _Recorded, begins: Any, env: Env[Any]) -> None:
    """Play an episode; what it raises ends it, as questions have no answers here."""
    try:
        await call_workflow(workflow, agents, begins, env)
    except StuckEnvError:
        raise
    except asyncio.CancelledError:
        if is_cancelled():
            raise
    except (Exception, SystemExit):  # said by `try_workflow`, and by the run
        return


class _Recorded(Mapping[str, Agent]):
    """Agents whose calls are logged; they return `results` first, seat by seat, if any are given.

    With results, a call beyond them ends the episode.
    """

    def __init__(
        self, agents: RandomAgents, log: _Log, results: dict[str, list[Any]] | None = None
    ) -> None:
        self.agents, self.log, self.results = agents, log, results

    def __getitem__(self, seat: str) -> _RecordedAgent:
        return _RecordedAgent(self, seat, self.agents[seat])

    def __iter__(self) -> Iterator[str]:
        return iter(self.agents)

    def __len__(self) -> int:
        return len(self.agents)

    def acting(self, state: Any) -> Sequence[str]:
        """Return the seats whose turn it is in `state`."""
        return self.agents.acting(state)

    async def call(self, call: _Call, made: Coroutine[Any, Any, Any]) -> Any:
        """Log a call and return its result."""
        self.log.calls.append(call)
        if self.results is None:
            found = await made
            self.log.results.setdefault(call.seat, []).append(found)
            return found
        made.close()
        left = self.results.get(call.seat, [])
        if not left:
            raise asyncio.CancelledError
        return left.pop(0)


class _RecordedAgent:
    """One seat whose calls are logged."""

    def __init__(self, agents: _Recorded, seat: str, inner: Agent) -> None:
        self._agents, self._seat, self._inner = agents, seat, inner

    async def act(
        self, state: Any, *, temperature: float | None = None, max_tokens: int | None = None
    ) -> Step[Any]:
        """Log what the seat sees, and act."""
        seen = self._agents.agents.env.observe(state, self._seat).text
        call = _Call(seat=self._seat, asked=f"act {temperature} {max_tokens} {seen}")
        return await self._agents.call(call, self._inner.act(state))

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        score: Score | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> str:
        """Log the question, and answer it."""
        asked = f"ask {temperature} {max_tokens} {messages!r}"
        call = _Call(seat=self._seat, asked=asked, scored=score is not None)
        return await self._agents.call(call, self._inner.ask(messages))
