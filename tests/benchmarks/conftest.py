"""The modules in benchmarks/, and a puzzle whose replies come from a script."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from turnwise.agents import AgentConfig
from turnwise.engines import ScriptedEngine
from turnwise.envs import make_env
from turnwise.policies import NanoConfig, make_nano
from turnwise.render import Renderer
from turnwise.rollout import Runner
from turnwise.types import Task, TaskVisit
from turnwise.workflows import turns
from turnwise.workflows.topologies import IndependentConfig, SpineConfig

from ..conftest import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))  # the scripts import each other

TINY = NanoConfig(hidden=16, layers=1, heads=2, kv_heads=1, head_dim=8, intermediate=16, context=96)
MOVES = ("RIGHT", "DOWN", "LEFT", "UP")
WEIGHTS = {"progress": 1.0, "move_useful": 0.8, "call_useful": 0.8, "invalid": -1.0}
DATA = {"rows": ["...", ".#.", "..."], "start": [0, 0], "goal": [1, 2]}
TASK = Task(id="t", env="plan-path", seed=0, data=DATA)


@pytest.fixture(scope="session")
def env():
    """A board of 9 cells; tool and planner make one move each, in 4 rounds."""
    return make_env("plan-path", size=3, rounds=4, moves_per_turn=1, moves_per_call=1)


@pytest.fixture(scope="session")
def renderer(env, tmp_path_factory) -> Renderer:
    words = [*env.vocabulary(), *MOVES]
    folder = make_nano(tmp_path_factory.mktemp("nano") / "model", words, MOVES, TINY, seed=0)
    return Renderer(AutoTokenizer.from_pretrained(folder))


@pytest.fixture
def play(env, renderer) -> Callable:
    """`play(**options)`: episodes in which sibling number n plays the move number n.

    The tool calls `apply` with the move. `siblings = 0` plays `members` whole episodes, in which
    member n plays the move number n.
    """

    def make(siblings=4, *, members=1, visits=(0,), stream="train", continuation="greedy"):
        def script(request):
            place = request.id.branch if siblings else request.id.episode.member
            move = MOVES[place % len(MOVES)]
            said = f"apply {move}" if request.id.role == "tool" else move
            return renderer.completion_ids(f"<answer> {said} </answer>")

        spine = SpineConfig(siblings=siblings, continuation=continuation) if siblings else None
        engine = ScriptedEngine(script)
        runner = Runner(
            env=env,
            workflow=turns,
            agents={role: AgentConfig(role=role) for role in env.roles},
            renderers={"main": renderer},
            engine=engine,
            seed=0,
            weights=WEIGHTS,
            topology=spine or IndependentConfig(),
        )
        every = [TaskVisit(iteration=0, visit=visit, task=TASK) for visit in visits]
        episodes = runner.collect(every, stream, group_size=members)
        return SimpleNamespace(episodes=episodes, requests=engine.requests)

    return make


@pytest.fixture(scope="session")
def siblings_of() -> Callable:
    """`siblings_of(episode, seat, round)`: the siblings of a turn, by their numbers."""

    def found(episode, seat, number):
        (trajectory,) = (each for each in episode.trajectories if each.seat == seat)
        turns = [turn for turn in trajectory.sampled if turn.id.round == number]
        return sorted(turns, key=lambda turn: turn.id.branch)

    return found


@pytest.fixture(scope="session")
def weights():
    return WEIGHTS


@pytest.fixture(scope="session")
def task():
    return TASK
