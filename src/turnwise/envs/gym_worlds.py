"""Live gymnasium envs as worlds of values: any state can be stepped again, and chance is handed in.

Owns the making of envs and the two ways back to a state: `CopyWorld` keeps a copy of what changes
in the env with every state, `ReplayWorld` plays an episode again from its seed. Which of them is
true is measured by `open_world`. Knows nothing of text.
"""

from __future__ import annotations

import copy
import importlib
import re
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from turnwise.errors import ConfigError, MissingDependencyError, unknown_name
from turnwise.imports import MISTAKES, is_import_name, load_object
from turnwise.noise import generator

Live = gymnasium.Env[Any, Any]
Way = Literal["copy", "replay"]

SHARED = frozenset(
    (
        *("env", "spec", "metadata", "_metadata", "render_mode", "_np_random", "_np_random_seed"),
        *("observation_space", "action_space", "_observation_space", "_action_space"),
        *("P", "desc", "initial_state_distrib"),
    )
)
"""Attributes that steps leave alone by convention, so that copies of a state share them."""
NOT_COPIED = (TypeError, ValueError, AttributeError, NotImplementedError, RuntimeError)
PROBES, PROBE_STEPS = 2, 8
_VERSION = re.compile(r"-v(\d+)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where an episode begins: gymnasium's seed, and a state of a table where one is asked for."""

    seed: int
    state: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What some equal actions in a row led to; `memory` leads back there.

    `gain` is the sum of positive rewards, `cost` that of negative ones.
    """

    observation: Any
    memory: Any
    gain: float = 0.0
    cost: float = 0.0
    terminated: bool = False
    truncated: bool = False
    steps: int = 0

    @property
    def reward(self) -> float:
        """The reward, all in all."""
        return self.gain + self.cost


def find_spec(name: str) -> EnvSpec:
    """Return gymnasium's own spec of "Taxi-v3", "package:Maze-v0" or "Taxi", the newest version.

    Raises:
        ConfigError: if the package cannot be imported.
        UnknownNameError: if nothing is registered under the name.
    """
    module, _, title = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except MISTAKES as cause:
            raise ConfigError(f"id = {name!r}: importing {module!r} raised {cause!r}") from cause
    if title in gymnasium.registry:
        return gymnasium.registry[title]
    if not _VERSION.search(title):
        versions = [n for n in gymnasium.registry if _VERSION.sub("", n) == title and n != title]
        if versions:
            return gymnasium.registry[max(versions, key=_version)]
    near = [n for n in gymnasium.registry if _bare(n) == _bare(title)]
    if near:
        raise ConfigError(f"unknown id {name!r}: did you mean {max(near, key=_version)!r}?")
    space = title.rpartition("/")[0]
    if space and space not in {spec.namespace for spec in gymnasium.registry.values()}:
        raise ConfigError(
            f"unknown id {name!r}: nothing that is imported registers {space!r} envs; name the "
            f"package that does, as in 'package:{title}'"
        )
    newest: dict[str, str] = {}
    for known in sorted((n for n in gymnasium.registry if "/" not in n), key=_version):
        newest[_bare(known)] = known
    raise unknown_name("gymnasium id", title, newest.values())


def _version(name: str) -> int:
    found = _VERSION.search(name)
    return int(found.group(1)) if found else -1


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", _VERSION.sub("", name).casefold())


def maker(name: str, kwargs: Mapping[str, Any]) -> tuple[Callable[[], Live], EnvSpec | None]:
    """Return what makes an env without a time limit, and its spec; None for a class of one's own.

    Raises:
        ConfigError: if there is no such env, or it does not take `kwargs`.
        MissingDependencyError: if a package that the env needs is not installed.
    """
    if is_import_name(name) and not _VERSION.search(name):
        kind = load_object(name)
        if not (isinstance(kind, type) and issubclass(kind, gymnasium.Env)):
            raise ConfigError(f"id = {name!r} is no class derived from gymnasium.Env: give one")
        return lambda: _made(name, lambda: kind(**kwargs)), None
    spec = find_spec(name)
    bare = copy.deepcopy(spec)
    bare.max_episode_steps, bare.order_enforce, bare.disable_env_checker = None, False, True
    return lambda: _made(name, lambda: gymnasium.make(bare, **kwargs)), spec


def _made(name: str, make: Callable[[], Live]) -> Live:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make()
    except (gymnasium.error.DependencyNotInstalled, ImportError) as cause:
        raise MissingDependencyError(
            f"id = {name!r} needs a package that is not installed: {cause}"
        ) from cause
    except (*MISTAKES, gymnasium.error.Error) as cause:
        raise ConfigError(f"id = {name!r} cannot be made: {cause}; mend `kwargs`") from cause


def _begin(env: Live, origin: Origin) -> Any:
    observation, _ = env.reset(seed=origin.seed)
    if origin.state is None:
        return observation
    vars(env.unwrapped)["s"] = origin.state
    return origin.state


def _go(env: Live, action: Any, count: int, noise: np.random.Generator) -> Outcome:
    """Take up to `count` equal steps; all chance comes from `noise`."""
    env.unwrapped.np_random = noise
    gain, cost, steps = 0.0, 0.0, 0
    observation, terminated, truncated = None, False, False
    while steps < count and not (terminated or truncated):
        observation, reward, terminated, truncated, _ = env.step(action)
        gain, cost = gain + max(0.0, float(reward)), cost + min(0.0, float(reward))
        steps += 1
    return Outcome(
        observation=copy.deepcopy(observation),
        memory=None,
        gain=gain,
        cost=cost,
        terminated=bool(terminated),
        truncated=bool(truncated),
        steps=steps,
    )


def _layers(env: Live) -> list[Live]:
    """Return the wrappers from the outermost to the env itself."""
    found = [env]
    while isinstance(found[-1], gymnasium.Wrapper):
        found.append(found[-1].env)
    return found


class CopyWorld:
    """One live env; every state carries a copy of the attributes that steps may change."""

    branching: Way = "copy"

    def __init__(self, make: Callable[[], Live]) -> None:
        self.env = make()
        self._layers = _layers(self.env)
        self._newest: object | None = None

    def reset(self, origin: Origin) -> Outcome:
        """Return the beginning of an episode."""
        observation = copy.deepcopy(_begin(self.env, origin))
        return Outcome(observation=observation, memory=self._save())

    def step(self, memory: Any, action: Any, count: int, noise: np.random.Generator) -> Outcome:
        """Return what up to `count` times `action` leads to; `memory` stays as it is."""
        if memory is not self._newest:
            self._restore(memory)
        self._newest = None
        done = _go(self.env, action, count, noise)
        return replace(done, memory=self._save())

    def _save(self) -> list[dict[str, Any]]:
        fields = [
            {name: value for name, value in vars(layer).items() if name not in SHARED}
            for layer in self._layers
        ]
        self._newest = found = copy.deepcopy(fields, self._kept())
        return found

    def _restore(self, memory: list[dict[str, Any]]) -> None:
        for layer, fields in zip(self._layers, copy.deepcopy(memory, self._kept()), strict=True):
            own = vars(layer)
            for name in [n for n in own if n not in SHARED and n not in fields]:
                del own[name]
            own.update(fields)

    def _kept(self) -> dict[int, Any]:
        """Return what copies refer to instead of copying it: the env itself, and what is shared."""
        kept: dict[int, Any] = {id(layer): layer for layer in self._layers}
        for layer in self._layers:
            kept |= {id(v): v for n, v in vars(layer).items() if n in SHARED and v is not None}
        return kept


@dataclass(eq=False)
class _Handle:
    """A live env in the middle of an episode, `at` so many decisions from its reset."""

    env: Live
    at: int


@dataclass(frozen=True, eq=False)
class _Past:
    """How to come back: the origin, or what was done after `before` with which chance."""

    origin: Origin
    handle: _Handle
    at: int
    before: _Past | None = None
    action: Any = None
    count: int = 0
    chance: tuple[type, Mapping[str, Any]] | None = None


class ReplayWorld:
    """A live env for every episode; another way on from an old state plays it again from its seed.

    Going on from an episode's newest state costs a step; from any other, all steps before it.
    """

    branching: Way = "replay"

    def __init__(self, make: Callable[[], Live]) -> None:
        self._make = make
        self.env = make()
        self._idle: list[Live] = []

    def reset(self, origin: Origin) -> Outcome:
        """Return the beginning of an episode."""
        handle = self._handle()
        observation = copy.deepcopy(_begin(handle.env, origin))
        return Outcome(observation=observation, memory=_Past(origin, handle, 0))

    def step(self, memory: _Past, action: Any, count: int, noise: np.random.Generator) -> Outcome:
        """Return what up to `count` times `action` leads to; `memory` stays as it is."""
        handle = memory.handle if memory.handle.at == memory.at else self._again(memory)
        chance = (type(noise.bit_generator), noise.bit_generator.state)
        handle.at += 1
        done = _go(handle.env, action, count, noise)
        past = _Past(memory.origin, handle, handle.at, memory, action, done.steps, chance)
        return replace(done, memory=past)

    def _again(self, memory: _Past) -> _Handle:
        handle = self._handle()
        _begin(handle.env, memory.origin)
        steps, past = [], memory
        while past.before is not None:
            steps.append(past)
            past = past.before
        for past in reversed(steps):
            assert past.chance is not None
            kind, state = past.chance
            bits = kind()
            bits.state = state
            _go(handle.env, past.action, past.count, np.random.Generator(bits))
        handle.at = memory.at
        return handle

    def _handle(self) -> _Handle:
        """Return an env that no state refers to any more, or a new one."""
        env = self._idle.pop() if self._idle else self._make()
        handle = _Handle(env, 0)
        weakref.finalize(handle, self._idle.append, env).atexit = False
        return handle


World = CopyWorld | ReplayWorld


def open_world(
    make: Callable[[], Live], draw: Callable[[np.random.Generator], Any], way: Way | None
) -> World:
    """Return the cheapest world in which coming back to a state is true, as measured here.

    Args:
        make: makes a live env.
        draw: draws an action.
        way: the only way to be tried; None tries copies, then replay.

    Raises:
        ConfigError: if no way is true: the env has chance that does not come from `np_random`, or
            its episodes do not depend on the seed alone.
    """
    found = _trajectories(ReplayWorld(make), draw, again=False)
    for kind in (CopyWorld, ReplayWorld):
        if way in (None, kind.branching):
            try:
                world = kind(make)
                if _equal(_trajectories(world, draw, again=True), found):
                    return world
            except NOT_COPIED:
                if kind is ReplayWorld:
                    raise
    if way == "copy":
        raise ConfigError(
            "branching = 'copy' does not come back to a state of this env: leave it out"
        )
    raise ConfigError(
        "two plays of this env with equal seed and noise differ: let it draw only from "
        "self.np_random, and set up all of an episode in reset"
    )


def _trajectories(world: World, draw: Callable[..., Any], *, again: bool) -> list[Any]:
    """Play episodes side by side, each step twice if `again`; return all they showed."""
    states = [world.reset(Origin(seed=seed)) for seed in range(PROBES)]
    shown: list[Any] = [state.observation for state in states]
    for number in range(PROBE_STEPS):
        for seed, state in enumerate(states):
            if state.terminated or state.truncated:
                continue
            action = draw(generator(seed, "probe action", number))
            after = world.step(state.memory, action, 1, generator(seed, "probe", number))
            if again:
                after = world.step(state.memory, action, 1, generator(seed, "probe", number))
            shown.append((after.observation, after.reward, after.terminated, after.truncated))
            states[seed] = after
    return shown


def _equal(left: Any, right: Any) -> bool:
    """Whether nested observations are equal; arrays by content, NaN equal to itself."""
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(_equal(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(np.array_equal(left, right, equal_nan=np.asarray(left).dtype.kind == "f"))
