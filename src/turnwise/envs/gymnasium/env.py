"""Gymnasium envs with discrete or a few continuous actions, and a text for each observation.

Task: an episode of the env `id`, begun by gymnasium's reset from the task's seed. If the env
    publishes a correct table of its dynamics (Taxi, CliffWalking, FrozenLake), a task is its first
    state, and an env with only a few first states is `single_task`.
What each role sees: the only role, `player`, reads the observation as `renderer` writes it: by its
    space, by a built-in text (Taxi, CliffWalking, Blackjack), or by a function of the user's.
Actions: discrete actions are words; a continuous action is one or more numbers, separated by
    blanks. Numbers out of bounds, and texts that are not numbers, are refused
    (`IllegalActionError`) and not clipped, so that the action is the one in the text.
Rewards: `gain` and `cost` (agent), the env's own reward over `repeat` equal steps in two parts, its
    positive and its negative rewards, so that a recipe may weight them separately: gain + cost is
    the reward. The step that terminates adds `bonus`, which no score counts.
End: terminated as the env says; truncated at `steps` steps of the env. The score is the position of
    the return between `worst` and `best`.
Randomness: the env gets each step's generator as its `np_random`; an env whose plays still differ
    is refused. Branching is `copy`, or `replay` if the env cannot be copied.
Baselines: random; `always-<word>`, or always-low, -middle and -high; optimal, if the env has a
    table; basic-strategy (Blackjack), push-with-velocity (MountainCarContinuous).

Example:
    >>> env = GymnasiumEnv(GymnasiumConfig(id="CartPole-v1"))
    >>> task = Task(id="t", env=env.name, seed=0, data={"seed": 0})
    >>> state = env.reset(task)
    >>> env.observe(state, "player").text
    'position 0.01 velocity -0.02 angle -0.046 spin -0.05'
    >>> step = env.step(state, "player", "LEFT", np.random.default_rng(0))
    >>> dict(step.rewards), step.terminated
    ({'gain': 1.0, 'cost': 0.0}, False)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from turnwise.envs.base import Baseline, Env, Level, Observation, Step
from turnwise.envs.gymnasium.branching_trial import open_world
from turnwise.envs.gymnasium.config import GymnasiumConfig
from turnwise.envs.gymnasium.known import KNOWN, RENDERERS, KnownEnv, Renderer, Rule
from turnwise.envs.gymnasium.registry import maker
from turnwise.envs.gymnasium.spaces import (
    answers_for,
    check_readable,
    decimals_of,
    exact_text,
    number_words,
    observation_text,
)
from turnwise.envs.gymnasium.tables import MOST_CELLS, Table, table_of
from turnwise.envs.gymnasium.worlds import Origin, Outcome, World
from turnwise.envs.rendered import rendered
from turnwise.errors import ConfigError, DataError, EnvError, unknown_name
from turnwise.seeding import generator
from turnwise.types import Task
from turnwise.utils.user_code import is_function, is_import_name, load_object

PLAIN = "plain"
FEW_STARTS = 10
"""With at most this many first states, every split has all of them."""
LOOKS = 20
"""Random episodes that are sampled for words and for returns."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GymState:
    """The state of an episode: last observation, return so far, and the way back (`memory`)."""

    observation: Any
    memory: Any
    steps: int = 0
    total: float = 0.0
    ended: bool = False


class GymnasiumEnv(Env[GymState]):
    """A gymnasium env with turnwise's interface."""

    name = "gymnasium"
    config_class = GymnasiumConfig
    components: ClassVar[Mapping[str, Level]] = {"gain": "agent", "cost": "agent"}
    branching = "copy"

    def __init__(self, config: GymnasiumConfig | None = None) -> None:
        self.config: GymnasiumConfig = config or GymnasiumConfig()
        kind = maker(self.config.id, self.config.kwargs)
        spec = kind.spec
        self._known = KNOWN.get(spec.name, KnownEnv()) if spec else KnownEnv()
        live = kind.make()
        names = self.config.actions
        if not names and isinstance(live.action_space, spaces.Discrete):
            names = self._known.actions
        self.answers = answers_for(live.action_space, names, self.config.action_decimals)
        self._space = live.observation_space
        self._renderer = self._find_renderer()
        own = spec.max_episode_steps if spec else None
        self.limit = self._needed("steps", self.config.steps or own or self._known.steps)
        self.max_turns = -(-self.limit // self.config.repeat)
        answers = self.answers
        self._world: World = open_world(
            kind, lambda rng: answers.read(answers.draw(rng)), self.config.branching, self.limit
        )
        self.branching = self._world.branching
        self.reward_timing = self.config.reward_timing or self._known.reward_timing
        self._table: Table | None = table_of(self._world)
        if self.config.start != "reset" and self._table is None:
            raise ConfigError(
                f"start = {self.config.start!r} needs an env with a table of its dynamics, which "
                f"{self.config.id!r} has not: use wander"
            )
        if self.config.wander and self._table is not None:
            raise ConfigError(
                f"wander = {self.config.wander}: {self.config.id!r} has a table of its dynamics; "
                "use start = 'anywhere'"
            )
        self._worst, self._best = self._bounds(spec is not None and spec.name in KNOWN)
        self._show(self._world.reset(Origin(seed=0)).observation)

    @property
    def single_task(self) -> bool:
        """Whether the env's own resets lead to a few states only, which are then in every split.

        So are all others where episodes begin anywhere: training that was kept from a third of the
        states, the one that scores are taken from among them, would be kept from the task.
        """
        if self._table is None:
            return False
        return bool(np.count_nonzero(self._table.first) <= FEW_STARTS)

    def _needed(self, option: str, value: int | None) -> int:
        if value is None:
            raise ConfigError(f"{self.config.id!r} has no step limit: give `{option}`")
        return value

    def _find_renderer(self) -> Renderer:
        name = self.config.renderer or self._known.renderer
        if name != PLAIN and self.config.decimals is not None:
            raise ConfigError(
                f"decimals = {self.config.decimals} do not apply to renderer = {name!r}: leave "
                "them out"
            )
        if name == PLAIN:
            return self._plain_renderer()
        if name in RENDERERS:
            return RENDERERS[name]
        if not is_import_name(name):
            raise unknown_name("renderer", name, [PLAIN, *RENDERERS])
        found: Any = load_object(name, is_function)
        if not callable(found):
            raise ConfigError(f"renderer = {name!r} is no function: expected observation -> text")
        return cast(Renderer, found)

    def _plain_renderer(self) -> Renderer:
        space, decimals = self._space, self.config.decimals
        check_readable(space, f"observations of {self.config.id!r}")
        if isinstance(space, spaces.Box):
            decimals_of(space, decimals)
        elif decimals is not None:
            raise ConfigError(
                f"decimals = {decimals} apply to a Box of numbers, and {self.config.id!r} shows a "
                f"{type(space).__name__}: leave them out, or give a renderer"
            )
        names = self._known.names if isinstance(space, spaces.Box) else ()
        return lambda seen: observation_text(space, seen, decimals, names)

    def _bounds(self, known: bool) -> tuple[float, float]:
        worst, best = self.config.worst, self.config.best
        if known:
            worst = self._known.worst if worst is None else worst
            if best is None:
                best = float(self.limit) if self._known.best is None else self._known.best
        if worst is None or best is None:
            returns = [self._random_return(number) for number in range(LOOKS)]
            raise ConfigError(
                f"{self.config.id!r} needs `worst` and `best`, the returns that score 0 and 1: "
                f"random play returned {min(returns):g} to {max(returns):g}"
            )
        if worst >= best:
            raise ConfigError(f"worst = {worst:g} must be below best = {best:g}: mend one of them")
        return worst, best

    def _random_return(self, number: int) -> float:
        rng = generator(0, "random return", number)
        state = self._begin(Origin(seed=number))
        while not state.ended:
            state, _ = self._go(state, self.answers.draw(rng), rng)
        return state.total

    def _show(self, observation: Any) -> tuple[str, str]:
        return rendered(self._renderer, self.config.renderer, observation)

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a task: `seed` for gymnasium's reset, and further keys by the options.

        `state` is the first state if episodes start anywhere, `wander` the number of random actions
        before the start, and `first` the first state if the env has a table.
        """
        data: dict[str, Any] = {"seed": int(rng.integers(2**31))}
        afar = self.config.start != "reset" and not (
            self.config.resets and rng.random() < self.config.resets
        )
        if afar:
            grade = self._grades[int(rng.integers(len(self._grades)))]
            data["state"] = int(rng.choice(grade))
        elif self.config.wander:
            data["wander"] = int(rng.integers(self.config.wander + 1))
        elif self._table is not None:
            data["first"] = int(self._world.reset(Origin(seed=data["seed"])).observation)
        return data

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the env with its first state where it has a table, else with the reset's seed."""
        first = data.get("state", data.get("first"))
        problem = f"seed {data['seed']}" if first is None else f"state {first}"
        return f"{self.config.id} {json.dumps(self.config.kwargs, sort_keys=True)} {problem}"

    def reset(self, task: Task) -> GymState:
        """Return the first state of `task`.

        Raises:
            DataError: if the task has no seed, or begins in a state that the env does not reach.
        """
        seed, place = task.data.get("seed"), task.data.get("state")
        if type(seed) is not int or seed < 0:
            raise DataError(f"task {task.id!r} has seed = {seed!r}: give a whole number from 0 on")
        if place is not None and (self._table is None or place not in self._table.reachable):
            raise DataError(f"task {task.id!r} begins in {place!r}, no state of {self.config.id!r}")
        state = self._begin(Origin(seed=seed, state=place))
        rng = generator(seed, "wander")
        for _ in range(task.data.get("wander", 0)):
            after, _ = self._go(state, self.answers.draw(rng), rng)
            if after.ended:
                break
            state = after
        return GymState(observation=state.observation, memory=state.memory)

    def _begin(self, origin: Origin) -> GymState:
        begun = self._world.reset(origin)
        return GymState(observation=begun.observation, memory=begun.memory)

    def _go(
        self, state: GymState, action: str, noise: np.random.Generator
    ) -> tuple[GymState, Outcome]:
        taken = self.answers.read(action)
        if state.ended:
            raise EnvError(f"{self.name}: the episode is over, so it takes no step: reset a task")
        count = min(self.config.repeat, self.limit - state.steps)
        done = self._world.step(state.memory, taken, count, noise)
        steps = state.steps + done.steps
        after = GymState(
            observation=done.observation,
            memory=done.memory,
            steps=steps,
            total=state.total + done.reward,
            ended=done.terminated or done.truncated or steps >= self.limit,
        )
        return after, done

    def observe(self, state: GymState, role: str) -> Observation:
        """Return the renderer's text."""
        text, description = self._show(state.observation)
        return Observation(
            text=text, legal_actions=self.answers.legal_actions, description=description
        )

    def step(
        self, state: GymState, role: str, action: str, noise: np.random.Generator
    ) -> Step[GymState]:
        """Return the result of `action`; the env draws from `noise`.

        Raises:
            IllegalActionError: if `action` is no action of the env.
            EnvError: if the episode is over.
        """
        after, done = self._go(state, action, noise)
        bonus = self.config.bonus if done.terminated else 0.0
        return Step(
            state=after,
            rewards={
                "gain": done.gain + max(0.0, bonus),
                "cost": done.cost + min(0.0, bonus),
            },
            terminated=done.terminated,
            truncated=after.ended and not done.terminated,
            info={"return": after.total, "steps": after.steps},
        )

    def score(self, state: GymState) -> float:
        """Return the position of the return between `worst` and `best`, in [0, 1]."""
        share = (state.total - self._worst) / (self._best - self._worst)
        return float(np.clip(share, 0.0, 1.0))

    def state_key(self, state: GymState, role: str) -> str:
        """Return the observation without rounding, and with `clock` the steps left.

        Hidden state is not part of the key: turns are compared by their observations.
        """
        seen = exact_text(state.observation)
        return f"{seen}/{self.limit - state.steps}" if self.config.clock else seen

    def random_action(self, state: GymState, role: str, rng: np.random.Generator) -> str:
        """Return a uniformly random action."""
        return self.answers.draw(rng)

    def baselines(self) -> Mapping[str, Baseline]:
        """Return random play, constants, known rules, and the optimum if there is a table."""
        found: dict[str, Baseline] = {"random": lambda state, rng: self.answers.draw(rng)}
        found |= {name: _always(word) for name, word in self.answers.constants().items()}
        if not self.config.actions:
            found |= {name: _ruled(rule) for name, rule in self._known.rules.items()}
        if self._values is not None:
            found["optimal"] = self._optimal
        return found

    @cached_property
    def _grades(self) -> tuple[tuple[int, ...], ...]:
        """The states in which episodes may start, in groups that are drawn equally often."""
        assert self._table is not None
        if self.config.start == "anywhere":
            return (self._table.reachable,)
        if self._values is None:
            raise ConfigError(
                f"start = 'graded' needs the worth of every state, and the table of "
                f"{self.config.id!r} is too large for {self.limit} steps: use fewer `steps`, or "
                "start = 'anywhere'"
            )
        return self._table.graded(self._values[-1].max(axis=1))

    @cached_property
    def _values(self) -> NDArray[np.float64] | None:
        table = self._table
        if table is None or self.limit * table.chance[:, :, 0].size > MOST_CELLS:
            return None
        return table.values(self.limit, self.config.repeat)

    def _optimal(self, state: GymState, rng: np.random.Generator) -> str:
        assert self._values is not None
        left = -(-(self.limit - state.steps) // self.config.repeat)
        return self.answers.legal_actions[int(self._values[left, int(state.observation)].argmax())]

    @cached_property
    def _words(self) -> tuple[str, ...]:
        """Words of actions, of observed numbers, and of the observations of random play."""
        plain = self.config.renderer in (None, PLAIN) and self._known.renderer == PLAIN
        found = dict.fromkeys(self.answers.words)
        found |= dict.fromkeys(number_words(self._space, self.config.decimals) if plain else ())
        rng = generator(0, "words")
        if self._table is not None:
            states = [GymState(observation=s, memory=None) for s in self._table.reachable]
        else:
            states = [s for seed in range(LOOKS) for s in self._wandered(seed, rng)]
        for state in states:
            for text in self._show(state.observation):
                found |= dict.fromkeys(text.split())
        return tuple(found)

    def _wandered(self, seed: int, rng: np.random.Generator) -> list[GymState]:
        states = [self._begin(Origin(seed=seed))]
        while not states[-1].ended:
            states.append(self._go(states[-1], self.answers.draw(rng), rng)[0])
        return states

    def vocabulary(self) -> tuple[str, ...]:
        """Return the words of actions and observations."""
        return self._words

    def render(self, state: GymState) -> str:
        """Return the observation's text, the return so far and the steps left."""
        text, _ = self._show(state.observation)
        return f"{text}\nreturn {state.total:g}, {self.limit - state.steps} steps left"


def _always(word: str) -> Baseline:
    return lambda state, rng: word


def _ruled(rule: Rule) -> Baseline:
    return lambda state, rng: rule(state.observation)
