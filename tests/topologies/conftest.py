"""Games for teams whose outcomes can be told from the answers, and runners with siblings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from transformers import AutoTokenizer

from turnwise.agents import AgentConfig
from turnwise.engines import ScriptedEngine
from turnwise.envs.base import Env, Observation, Step
from turnwise.policies import NanoConfig, make_nano
from turnwise.render import Renderer
from turnwise.rollout import Runner
from turnwise.types import Task, TaskVisit
from turnwise.workflows import turns
from turnwise.workflows.topologies import SpineConfig, VineConfig

TINY = NanoConfig(hidden=16, layers=1, heads=2, kv_heads=1, head_dim=8, intermediate=16, context=96)
DIGITS = tuple("0123456789")
WEIGHTS = {"own": 1.0, "both": 1.0, "invalid": -2.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What the seats have said, in order, and the luck of the steps."""

    words: tuple[tuple[str, str], ...] = ()
    luck: tuple[float, ...] = ()


class Echo(Env[Said]):
    """Two seats say digits in turn, for `rounds` rounds; each earns what it says.

    The team earns ten times the speaker's digit at the hearer's step, `luck` is drawn, the digit
    `ends` ends the episode, and the digit `refused` is no action.
    """

    name: ClassVar[str] = "echo"
    roles: tuple[str, ...] = ("speaker", "hearer")
    components: ClassVar[Mapping[str, Any]] = {"own": "agent", "both": "team", "luck": "agent"}

    def __init__(self, rounds=2, ends=None, refused=None, together=False, raises=None):
        super().__init__()
        self.rounds, self.ends, self.refused = rounds, ends, refused
        self.together, self.raises = together, raises

    def reset(self, task):
        return Said()

    def acting(self, state):
        if self.together:
            return self.roles[len(state.words) % 2 :]
        return (self.roles[len(state.words) % 2],)

    def observe(self, state, role):
        shown = state.words[: len(state.words) // 2 * 2] if self.together else state.words
        text = " ".join(word for _, word in shown) or "none"
        return Observation(text=f"{role} {text}", legal_actions=DIGITS)

    def step(self, state, role, action, noise):
        if action == self.raises:
            raise KeyError(action)
        if action == self.refused:
            from turnwise.errors import IllegalActionError

            raise IllegalActionError("refused")
        luck = float(noise.random())
        after = replace(state, words=(*state.words, (role, action)), luck=(*state.luck, luck))
        rewards = {"own": float(action), "luck": luck}
        if role == "hearer":
            rewards["both"] = 10 * float(state.words[-1][1])
        return Step(
            state=after,
            rewards=rewards,
            terminated=action == self.ends or len(after.words) == 2 * self.rounds,
            truncated=False,
        )

    def score(self, state):
        return 0.0


@pytest.fixture(scope="session")
def renderer(tmp_path_factory) -> Renderer:
    """The renderer of a tokenizer that keeps digits whole."""
    folder = make_nano(tmp_path_factory.mktemp("nano") / "model", ["none"], DIGITS, TINY, seed=0)
    return Renderer(AutoTokenizer.from_pretrained(folder))


@pytest.fixture(scope="session")
def says(renderer) -> Callable[[str], tuple[int, ...]]:
    """From a word to the ids of a reply that answers it."""
    known: dict[str, tuple[int, ...]] = {}

    def ids(word):
        if word not in known:
            known[word] = renderer.completion_ids(f"<answer> {word} </answer>")
        return known[word]

    return ids


@pytest.fixture(scope="session")
def by_branch(says) -> Callable:
    """The script that answers with the number of the sibling."""
    return lambda request: says(str(request.id.branch))


@pytest.fixture(scope="session")
def at_random(says) -> Callable:
    """The script that answers with a random digit."""
    return lambda request: {says(digit): 0.1 for digit in DIGITS}


@pytest.fixture
def make_runner(renderer) -> Callable[..., SimpleNamespace]:
    """`make_runner(env, script, topology)`: the runner, its engine and `play`."""

    def make(
        env, script, topology, *, workflow=turns, weights=WEIGHTS, noise="common", seed=0, **agent
    ):
        engine = ScriptedEngine(script, seed=seed)
        runner = Runner(
            env=env,
            workflow=workflow,
            agents={role: AgentConfig(role=role, **agent) for role in env.roles},
            renderers={"main": renderer},
            engine=engine,
            seed=seed,
            noise=noise,
            weights=weights,
            topology=topology,
        )

        def play(members=1, *, visits=(0,), stream="train", greedy=False):
            task = Task(id="t", env=env.name, seed=0, data={})
            every = [TaskVisit(iteration=0, visit=visit, task=task) for visit in visits]
            return runner.collect(every, stream, group_size=members, greedy=greedy)

        return SimpleNamespace(runner=runner, engine=engine, play=play)

    return make


@pytest.fixture(scope="session")
def spine():
    """`spine(**options)`: the options of a spine."""
    return lambda **options: SpineConfig(**{"siblings": 3, **options})


@pytest.fixture(scope="session")
def vine():
    """`vine(**options)`: the options of a vine."""
    return lambda **options: VineConfig(**{"siblings": 3, **options})


@pytest.fixture(scope="session")
def echo():
    """The class of the game."""
    return Echo
