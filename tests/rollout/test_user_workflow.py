"""Workflows of a user's that raise, hang or return nonsense: each is one line with its place."""

from __future__ import annotations

import asyncio
import contextlib
import time

import numpy as np
import pytest

from turnwise.agents import AgentConfig
from turnwise.engines import ScriptedEngine
from turnwise.engines.base import Completion
from turnwise.envs import guarded, make_env
from turnwise.errors import BrokenEnvError, ConfigError, EngineError, EnvError, StuckEnvError
from turnwise.render.text import TextRenderer
from turnwise.rollout import Runner
from turnwise.rollout.failures import MOST_ASKED
from turnwise.rollout.user_workflow import try_workflow
from turnwise.tasks import GeneratedTasks
from turnwise.types import Message, TaskVisit
from turnwise.workflows import WorkflowConfig, make_workflow

QUESTION = [Message(role="user", content="a plan?")]


async def raises(agents, state):
    raise ValueError("oh\nno")


async def exits(agents, state):
    raise SystemExit(3)


async def cancels(agents, state):
    raise asyncio.CancelledError


async def returns_nothing(agents, state):
    await agents["scout"].act(state)


async def returns_the_state(agents, state):
    return state


async def asks_text(agents, state):
    await agents["scout"].ask("hello")


async def wants_nobody(agents, state):
    await agents["nobody"].act(state)


async def goes_on(agents, state):
    while True:
        await agents["scout"].act(state)


async def stops_early(agents, state):
    return await agents["scout"].act(state)


BROKEN = {
    raises: r"the workflow raised ValueError: oh no \(.*test_user_workflow.py:\d+\): fix it$",
    exits: "the workflow raised SystemExit: 3",
    cancels: "the workflow raised CancelledError",
    returns_nothing: "the workflow returned None of type NoneType, expected the last Step",
    returns_the_state: "of type RelayState, expected the last Step",
    asks_text: "the workflow asks 'hello', expected messages",
    wants_nobody: "the seat 'nobody', expected one of scout, digger: take",
    goes_on: "lets an agent act after the cap on turns has cut the episode",
}


async def sleeps(agents, state):
    time.sleep(60)


async def only_lets_others_run(agents, state):
    while True:
        await asyncio.sleep(0)


async def catches_everything(agents, state):
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)


HANGING = {
    sleeps: r"awaited nothing for 0\.2 s \(.*test_user_workflow.py:\d+\)",
    only_lets_others_run: r"nothing but `asyncio.sleep\(0\)` for 0\.2 s",
    catches_everything: "awaited nothing for",
}


def relay(timeout=60.0):
    return guarded(make_env("relay", size=2), timeout)


def play(workflow, env):
    """Return the episode that `workflow` plays with agents that always say the same."""
    reply = Completion(
        token_ids=(), logprobs=(), finish_reason="stop", policy_version=0, text="red"
    )
    roles = {
        role: AgentConfig(role=role, reply="whole", invalid_reply="continue") for role in env.roles
    }
    runner = Runner(
        env=env,
        workflow=workflow,
        agents=roles,
        renderers={"main": TextRenderer("main")},
        engine=ScriptedEngine(lambda request: reply),
        seed=0,
    )
    visit = TaskVisit(iteration=0, visit=0, task=GeneratedTasks(env, "train", 0).task(0))
    (episode,) = runner.collect([visit], "train")
    return episode


def trial(workflow, env):
    try_workflow(workflow, env, GeneratedTasks(env, "train", 0).task(0), np.random.default_rng(0))


@pytest.mark.parametrize("workflow", BROKEN)
def test_a_broken_workflow_is_one_line_of_its_episode(workflow):
    episode = play(workflow, relay())
    assert episode.broken and episode.error.kind == "env"
    assert "\n" not in episode.error.message
    with pytest.raises(EnvError, match=BROKEN[workflow]):
        raise EnvError(episode.error.message)


@pytest.mark.parametrize("workflow", BROKEN)
def test_a_broken_workflow_is_found_before_a_model_is_loaded(workflow):
    with pytest.raises(EnvError, match=BROKEN[workflow]) as caught:
        trial(workflow, relay())
    assert "\n" not in str(caught.value)


def test_a_workflow_that_stops_early_or_lets_a_seat_act_out_of_turn_is_found():
    async def begins_with_the_digger(agents, state):
        return await agents["digger"].act(state)

    with pytest.raises(EnvError, match="a step that does not end the episode: go on until"):
        trial(stops_early, relay())
    with pytest.raises(EnvError, match="let 'digger' act where `acting` names scout: take"):
        trial(begins_with_the_digger, relay())


@pytest.mark.parametrize("workflow", HANGING)
def test_a_workflow_that_hangs_stops_the_run_in_time(workflow):
    for go in (play, trial):
        began = time.monotonic()
        with pytest.raises(StuckEnvError, match=HANGING[workflow]):
            go(workflow, relay(timeout=0.2))
        assert time.monotonic() - began < 10


def test_a_workflow_that_waits_for_nothing_is_found():
    async def waits(agents, state):
        await asyncio.Event().wait()

    with pytest.raises(EngineError, match="deadlock"):
        trial(waits, relay())


def test_questions_without_end_break_the_episode():
    async def asks(agents, state):
        while True:
            await agents["scout"].ask(QUESTION)

    episode = play(asks, relay())
    assert f"asked {MOST_ASKED} questions and let no agent act" in episode.error.message
    assert len(episode.turns) == MOST_ASKED


def test_what_an_empty_answer_leads_to_is_no_reason_to_refuse():
    async def parses(agents, state):
        answer = await agents["scout"].ask(QUESTION)
        raise ValueError(f"no plan in {answer!r}")

    trial(parses, relay())


def test_a_workflow_may_wait_longer_than_its_code_may_take():
    async def waits(agents, state):
        for _ in range(3):
            await asyncio.sleep(0.1)
        while True:
            step = await agents[agents.acting(state)[0]].act(state)
            if step.terminated or step.truncated:
                return step
            state = step.state

    trial(waits, relay(timeout=0.2))
    assert play(waits, relay(timeout=0.2)).error is None


FILE = """
from turnwise.settings import Settings


class Options(Settings):
    pass


class Raises:
    config_class = Options

    def __init__(self, config):
        raise RuntimeError("no init")

    async def __call__(self, agents, state):
        return None


class Base:
    config_class = Options

    def __init__(self, config):
        pass

    async def __call__(self, agents, state):
        return None


class Derived(Base):
    pass


async def alone(agents):
    return None
"""


@pytest.mark.parametrize(
    ("text", "name", "kind", "said"),
    [
        (FILE, "Raises", BrokenEnvError, "making the workflow '.*Raises' raised RuntimeError: no"),
        (FILE, "alone", ConfigError, r"alone\(agents\) cannot be called .*: write async def alone"),
        ("raise SystemExit(3)", "x", BrokenEnvError, "importing the workflow .* raised SystemExit"),
        ("raise type('Own', (Exception,), {})", "x", BrokenEnvError, "raised Own "),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path, text, name, kind, said):
    file = tmp_path / "own.py"
    file.write_text(text)
    with pytest.raises(kind, match=said) as caught:
        make_workflow(WorkflowConfig(kind=f"{file}:{name}"))
    assert "\n" not in str(caught.value)


def test_a_class_may_inherit_its_call_and_its_options(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(FILE)
    assert type(make_workflow(WorkflowConfig(kind=f"{file}:Derived"))).__name__ == "Derived"
