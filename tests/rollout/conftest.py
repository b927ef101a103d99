"""A lake, a renderer of a tiny model, and runners over engines that say what they are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from turnwise.agents import AgentConfig
from turnwise.engines import ScriptedEngine
from turnwise.envs import FrozenLake, FrozenLakeConfig
from turnwise.policies import NanoConfig, make_nano
from turnwise.render import Renderer
from turnwise.rollout import Runner
from turnwise.types import Task, TaskVisit
from turnwise.workflows import turns

TINY = NanoConfig(hidden=16, layers=1, heads=2, kv_heads=1, head_dim=8, intermediate=16, context=64)
MAP = ("SFF", "FHF", "FFG")


@pytest.fixture(scope="session")
def renderer(tmp_path_factory) -> Renderer:
    """The renderer of a tokenizer that keeps the lake's words whole."""
    words = FrozenLake().vocabulary()
    folder = make_nano(tmp_path_factory.mktemp("nano") / "model", ["you r0c0"], words, TINY, seed=0)
    return Renderer(AutoTokenizer.from_pretrained(folder))


@pytest.fixture
def lake() -> FrozenLake:
    """Firm ice, one map: DOWN DOWN RIGHT RIGHT wins, RIGHT DOWN falls; eight steps."""
    return FrozenLake(FrozenLakeConfig(map=MAP))


@pytest.fixture
def slippery() -> FrozenLake:
    """An open slippery lake, where every step is decided by chance."""
    return FrozenLake(FrozenLakeConfig(map=("SFFF", "FFFF", "FFFF", "FFFG"), slippery=True))


@pytest.fixture
def says(renderer) -> Callable[[Sequence[str]], Callable]:
    """`says(["DOWN", "RIGHT"])`: the script that answers turn i with word i, whoever asks."""

    def make(words: Sequence[str]) -> Callable:
        ids = [renderer.completion_ids(f"<answer> {word} </answer>") for word in words]
        return lambda request: ids[request.id.turn]

    return make


@pytest.fixture
def table(renderer) -> Callable:
    """`table({"DOWN": 0.5, "UP": 0.5})`: the script that draws its answer at every turn."""

    def make(probabilities: dict[str, float]) -> Callable:
        drawn = {
            renderer.completion_ids(f"<answer> {word} </answer>"): chance
            for word, chance in probabilities.items()
        }
        return lambda request: drawn

    return make


@pytest.fixture
def make_runner(renderer) -> Callable[..., SimpleNamespace]:
    """`make_runner(env, script)`: the runner, its engine, and `play(samples)` over one task."""

    def make(
        env,
        script,
        *,
        seed=0,
        noise="common",
        renderer=renderer,
        weights=None,
        most_turns=None,
        state_key="env",
        **agent,
    ):
        engine = ScriptedEngine(script, seed=seed)
        runner = Runner(
            env=env,
            workflow=turns,
            agents={role: AgentConfig(role=role, **agent) for role in env.roles},
            renderers={"main": renderer},
            engine=engine,
            seed=seed,
            noise=noise,
            weights=weights,
            most_turns=most_turns,
            state_key=state_key,
        )

        def play(samples=1, *, visits=1, iteration=0, stream="train", greedy=False):
            every = [
                TaskVisit(iteration=iteration, visit=visit, task=task(env))
                for visit in range(visits)
            ]
            return runner.collect(every, stream, group_size=samples, greedy=greedy)

        return SimpleNamespace(runner=runner, engine=engine, play=play)

    return make


def task(env: FrozenLake, name: str = "t") -> Task:
    """Return the task of a lake with a given map."""
    rows = env.config.map
    data = {"map": list(rows), "slippery": env.config.slippery, "limit": 8}
    return Task(id=name, env=env.name, seed=0, data=data)


@pytest.fixture(scope="session")
def task_of():
    """The function above."""
    return task
