"""Calls of a workflow that somebody else wrote: with a time limit, and a check of what it returns.

Provides `call_workflow`, `is_shipped`, `failure_of`, `workflow_failure`, `try_workflow` and
`RandomAgents`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from turnwise.engines.loop import close_engine, run
from turnwise.engines.scripted import ScriptedEngine
from turnwise.envs import Env, GuardedEnv, Step
from turnwise.envs.timeout import Overrun, within
from turnwise.envs.user_calls import is_cancelled, place_of
from turnwise.errors import (
    EndpointError,
    EngineError,
    EnvError,
    IllegalActionError,
    SandboxError,
    SlowEnvError,
    StuckEnvError,
    TurnwiseError,
)
from turnwise.rollout.env_step import step_env
from turnwise.rollout.failures import (
    GOES_ON,
    UNFINISHED,
    check_question,
    env_failure,
    no_seat,
    not_acting,
)
from turnwise.types import Failure, Message, Task
from turnwise.workflows import WORKFLOWS, Agents, Workflow


async def call_workflow(workflow: Workflow, agents: Agents, state: Any, env: Env[Any]) -> Step[Any]:
    """Return the last step of the episode that `workflow` plays from `state`.

    The code of a workflow between two of its awaits may take as long as one call of an env under
    guard.

    Raises:
        EnvError: if it returns something else than a step that ends the episode.
        StuckEnvError: if its code does not await anything for too long.
    """
    if is_shipped(workflow):
        return await workflow(agents, state)
    call = workflow(agents, state)
    step: Any = await (_Timed(call, env.timeout) if isinstance(env, GuardedEnv) else call)
    if not isinstance(step, Step):
        raise EnvError(
            f"the workflow returned {step!r:.80} of type {type(step).__name__}, expected the last "
            "Step: return what `act` returned"
        )
    if not step.terminated and not step.truncated:
        raise EnvError(UNFINISHED)
    return step


class _Timed:
    """An awaitable that awaits `call` and limits the time between two of its awaits."""

    def __init__(self, call: Any, seconds: float) -> None:
        self._call, self._seconds = call, seconds

    def __await__(self) -> Generator[Any, Any, Any]:
        resume, given = self._call.send, None
        idle_since: float | None = None  # since when it has only let others run
        while True:
            try:
                waits_for = within(self._seconds, resume, given)
            except StopIteration as returned:
                return returned.value
            except Overrun as cause:
                place = place_of(cause.__traceback__, None)
                raise StuckEnvError(
                    f"the workflow awaited nothing for {self._seconds:g} s ({place}): fix it, or "
                    "raise env.timeout; await what takes long, as in `await asyncio.sleep(1)`"
                ) from None
            now = time.monotonic()
            idle_since = None if waits_for is not None else idle_since or now
            if idle_since is not None and now - idle_since > self._seconds:
                self._call.close()
                raise StuckEnvError(
                    f"the workflow has awaited nothing but `asyncio.sleep(0)` for "
                    f"{self._seconds:g} s, in which no model can answer: await what it waits for"
                )
            try:
                given = yield waits_for
                resume = self._call.send
            except BaseException as error:  # cancellation, too, goes to the workflow
                resume, given = self._call.throw, error


def try_workflow(workflow: Workflow, env: Env[Any], task: Task, rng: np.random.Generator) -> bool:
    """Play one episode of uniformly random actions, so that a broken workflow is found early.

    Questions are answered with the empty text. What goes wrong after one is no reason to refuse a
    workflow, as a model may answer better.

    Returns:
        Whether the workflow asked a question.

    Raises:
        EnvError: if the workflow raises, lets a seat act whose turn it is not, or returns something
            else than a step that ends the episode.
        StuckEnvError: if its code does not await anything for too long.
        EngineError: if it waits for something that never comes.
    """
    agents = RandomAgents(env, rng)

    async def play() -> None:
        try:
            await call_workflow(workflow, agents, env.reset(task), env)
        except IllegalActionError:
            return
        except asyncio.CancelledError as cause:
            if is_cancelled():
                raise
            agents.blame(cause)
        except (Exception, SystemExit) as cause:
            agents.blame(cause)

    if is_shipped(workflow):
        return False
    engine = ScriptedEngine(lambda request: ())  # runs the loop, and is asked nothing
    try:
        run(play(), engine)
    finally:
        close_engine(engine)
    return agents.asked


def is_shipped(workflow: Workflow) -> bool:
    """Whether a workflow is turnwise's own."""
    return any(workflow is own for own in WORKFLOWS.values())


def failure_of(cause: BaseException, env: Env[Any]) -> tuple[Failure, bool]:
    """Return the failure of an episode that raised `cause`, and whether it may go better again.

    Raises:
        StuckEnvError: that is the cause: every further episode would wait as long.
        CancelledError: if the run itself is cancelled.
    """
    if isinstance(cause, EngineError | SandboxError):  # an endpoint has been tried again already
        return Failure(kind="engine", message=str(cause)), not isinstance(cause, EndpointError)
    cancelled = isinstance(cause, asyncio.CancelledError)
    if isinstance(cause, StuckEnvError) or (cancelled and is_cancelled()):
        raise cause
    failure = workflow_failure(cause, env)
    return failure, env.blocking and not cancelled and not isinstance(cause, SlowEnvError)


def workflow_failure(cause: BaseException, env: Env[Any]) -> Failure:
    """Return the failure of an episode whose workflow raised `cause`, in one line with its place.

    An env under guard has said what it raises in a sentence; anything else is the workflow's.
    """
    failure = env_failure(cause)
    if isinstance(cause, TurnwiseError) or not isinstance(env, GuardedEnv):
        return failure
    place = place_of(cause.__traceback__, None)
    return Failure(kind="env", message=f"the workflow raised {failure.message} ({place}): fix it")


class RandomAgents(Mapping[str, "_RandomAgent"]):
    """Agents that act at random and say nothing.

    `asked` is whether one was asked a question, `most_acting` the most seats whose turn it was at
    the same time.
    """

    def __init__(self, env: Env[Any], rng: np.random.Generator) -> None:
        self.env, self.rng = env, rng
        self.turns, self.asked, self.most_acting = 0, False, 0
        self._agents = {seat: _RandomAgent(self, seat) for seat in env.seats}

    def __getitem__(self, seat: str) -> _RandomAgent:
        if seat not in self._agents:
            raise KeyError(no_seat(seat, self._agents))
        return self._agents[seat]

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    def acting(self, state: Any) -> Sequence[str]:
        """Return the seats whose turn it is in `state`."""
        return self.env.acting(state)

    def blame(self, cause: BaseException) -> None:
        """Raise what went wrong as the workflow's, unless an empty answer may have led to it."""
        if isinstance(cause, StuckEnvError):
            raise cause
        if self.asked:
            return
        if isinstance(cause, TurnwiseError):
            raise cause
        raise EnvError(workflow_failure(cause, self.env).message) from cause


class _RandomAgent:
    """One seat that acts at random."""

    def __init__(self, agents: RandomAgents, seat: str) -> None:
        self._agents, self._seat, self._asked = agents, seat, 0

    async def act(
        self, state: Any, *, temperature: float | None = None, max_tokens: int | None = None
    ) -> Step[Any]:
        """Take a random action; the env's cap on turns ends the episode.

        Raises:
            EnvError: if the episode has ended, or it is not this seat's turn.
        """
        env, rng = self._agents.env, self._agents.rng
        self._agents.turns += 1
        if self._agents.turns > env.turn_cap():
            raise EnvError(GOES_ON)
        acting = env.acting(state)
        if self._seat not in acting:
            raise EnvError(not_acting(self._seat, acting))
        self._agents.most_acting = max(self._agents.most_acting, len(acting))
        action = env.random_action(state, self._seat, rng)
        step = await step_env(env, state, self._seat, action, rng)
        ends = self._agents.turns == env.turn_cap()
        return Step(
            state=step.state,
            rewards=step.rewards,
            others=step.others,
            terminated=step.terminated,
            truncated=step.truncated or ends,
        )

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        score: Callable[[str], float] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> str:
        """Say nothing."""
        check_question(messages, self._asked)
        self._asked += 1
        self._agents.asked = True
        return ""
