"""Live PettingZoo envs, AEC or parallel, behind one pair of functions.

Provides `begin` and `go`, and `copied`, a copy of a live env. In an AEC env a round has the action
of one agent, in a parallel one those of all agents that live. Dead agents of an AEC env, which must
be stepped with None, are stepped here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from turnwise.envs.pettingzoo.registry import base_classes, is_parallel
from turnwise.errors import EnvError

End = Literal["terminated", "truncated"]
MOST_DEAD = 1000
"""The most steps of dead agents after one action."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """What a reset or the actions of a round led to; `memory` is the way back to its state.

    Attributes:
        acting: the agents whose actions make the next round; empty at the end.
        seen: the observation of each agent that has one.
        paid: the reward of each agent since it last acted, where it was given now.
        ended: the agents that ended in this round, and how.
        infos: the env's own remarks, by agent.
    """

    acting: tuple[str, ...]
    seen: Mapping[str, Any]
    paid: Mapping[str, float] = field(default_factory=dict)
    ended: Mapping[str, End] = field(default_factory=dict)
    infos: Mapping[str, Any] = field(default_factory=dict)
    memory: Any = None


def begin(env: Any, seed: int) -> Round:
    """Reset a live env."""
    begun = env.reset(seed=seed)
    if is_parallel(env):
        if not (isinstance(begun, tuple) and len(begun) == 2 and isinstance(begun[0], Mapping)):
            raise _no_pettingzoo(env, "reset", begun, "(observations, infos)")
        seen, infos = copy.deepcopy(begun)
        return Round(acting=tuple(env.agents), seen=dict(seen), infos=dict(infos))
    infos = copy.deepcopy(dict(env.infos))
    return Round(acting=(env.agent_selection,), seen=_observed(env), infos=infos)


def go(env: Any, actions: Mapping[str, Any], noise: np.random.Generator) -> Round:
    """Take the actions of a round in a live env; its random numbers come from `noise`.

    An env that keeps its generator under another name than `np_random` draws from its own, which
    reset has seeded.
    """
    core = env.unwrapped
    if isinstance(vars(core).get("np_random"), np.random.Generator):
        core.np_random = noise
    own = copy.deepcopy(dict(actions))
    return _parallel_round(env, own) if is_parallel(env) else _aec_round(env, own)


def _parallel_round(env: Any, actions: dict[str, Any]) -> Round:
    done = env.step(actions)
    expected = "(observations, rewards, terminations, truncations, infos)"
    if not (isinstance(done, tuple) and len(done) == 5):
        raise _no_pettingzoo(env, "step", done, expected)
    seen, rewards, terminations, truncations, infos = done
    flags = {agent: (terminations.get(agent), truncations.get(agent)) for agent in actions}
    ended: dict[str, End] = {
        agent: _end(bool(over[0])) for agent, over in flags.items() if any(over)
    }
    return Round(
        acting=tuple(agent for agent in env.agents if agent not in ended),
        seen=copy.deepcopy(dict(seen)),
        paid={agent: _paid(env, reward) for agent, reward in rewards.items()},
        ended=ended,
        infos=copy.deepcopy(dict(infos)),
    )


def _aec_round(env: Any, actions: dict[str, Any]) -> Round:
    (action,) = actions.values()
    env.step(action)
    seen = _observed(env)
    paid: dict[str, float] = {}
    ended: dict[str, End] = {}
    infos: dict[str, Any] = {}
    acting: tuple[str, ...] = ()
    for _ in range(MOST_DEAD):
        if not env.agents:
            break
        agent = env.agent_selection
        _, reward, terminated, truncated, info = env.last(observe=False)
        paid[agent] = paid.get(agent, 0.0) + _paid(env, reward)
        infos[agent] = copy.deepcopy(info)
        if not (terminated or truncated):
            acting = (agent,)
            seen[agent] = copy.deepcopy(env.observe(agent))
            break
        ended[agent] = _end(bool(terminated))
        env.step(None)
    else:
        raise EnvError(
            f"{_title(env)} still selects ended agents after {MOST_DEAD} steps with None: let "
            "step(None) remove them, as _was_dead_step does"
        )
    return Round(acting=acting, seen=seen, paid=paid, ended=ended, infos=infos)


def _observed(env: Any) -> dict[str, Any]:
    return {agent: copy.deepcopy(env.observe(agent)) for agent in env.agents}


def _end(terminated: bool) -> End:
    return "terminated" if terminated else "truncated"


def _paid(env: Any, reward: Any) -> float:
    paid = float(reward)
    if not math.isfinite(paid):
        raise EnvError(f"{_title(env)} gave the reward {paid}: give a finite number")
    return paid


def _title(env: Any) -> str:
    kind = type(env.unwrapped)
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def _no_pettingzoo(env: Any, method: str, given: Any, expected: str) -> EnvError:
    kind = f"{len(given)} values" if isinstance(given, tuple) else type(given).__name__
    return EnvError(
        f"{_title(env)}.{method} returned {kind}: return {expected}, as PettingZoo 1.24 asks"
    )


def copied(env: Any) -> Any:
    """Return a copy of a live env with all of its wrappers; spaces are shared.

    The attributes of each layer are copied, as PettingZoo's own envs make a new env when they are
    pickled or deep-copied, and forget their state.
    """
    layers = _layers(env)
    twins = {id(layer): layer.__class__.__new__(layer.__class__) for layer in layers}
    memo: dict[int, Any] = dict(twins)
    for layer in layers:
        for value in vars(layer).values():
            if _is_spaces(value):
                memo[id(value)] = value
    for layer in layers:
        held = {name: copy.deepcopy(value, memo) for name, value in vars(layer).items()}
        vars(twins[id(layer)]).update(held)
    return twins[id(env)]


def _layers(env: Any) -> list[Any]:
    """Return a live env and all envs below it."""
    kinds, found, waiting = base_classes(), list[Any](), [env]
    while waiting:
        layer = waiting.pop()
        if not any(layer is known for known in found):
            found.append(layer)
            waiting += [value for value in vars(layer).values() if isinstance(value, kinds)]
    return found


def _is_spaces(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(each, spaces.Space) for each in value.values())
    return isinstance(value, spaces.Space)
