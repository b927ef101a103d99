"""PettingZoo envs, in which agents step one after another (AEC) or at the same time (parallel).

Task: an episode of the env `id`, begun by its reset from the task's seed.
What each role sees: the observation of the agent as `renderer` writes it: by its space, by a
    built-in text (tictactoe, connect_four, rps), or by a function of the user's. The agents are the
    seats. Agents whose names differ by a number at the end share a role (`roles`).
Actions: discrete actions are words, of which an action mask in the observation or in the infos
    leaves the legal ones; a continuous action is one or more numbers. Actions of a parallel env are
    kept in the state until the last agent has acted.
Rewards: `gain` and `cost` (agent), the positive and the negative part of what each agent earned. An
    AEC env pays an agent when it is selected again, a parallel env pays all agents at once; both
    are rewards of the agent's latest turn, whichever agent's step led to them.
End: the episode ends when the last agent has ended: terminated if one of those that ended last was
    terminated, else truncated. Agents that ended before have no turn. The score of a seat is the
    position of its return between `worst` and `best`; that of an episode is the mean over seats.
Randomness: the env gets each round's generator as its `np_random`, if it has one; else it draws
    from what reset has seeded. Branching is `copy`, `replay` or `none`, by a trial.
Baselines: random; `always-<word>` or always-low, -middle and -high, if no action is masked.

Example: `make_env("pettingzoo", id="classic/rps_v2")` has the seats `player_0` and `player_1` of
    the role `player`, who move at the same time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from gymnasium import spaces

from turnwise.envs.base import Baseline, Env, Level, Observation, Step
from turnwise.envs.gymnasium.spaces import (
    Answers,
    answers_for,
    check_readable,
    exact_text,
    observation_text,
)
from turnwise.envs.pettingzoo.config import PettingZooConfig
from turnwise.envs.pettingzoo.known import KNOWN, RENDERERS, KnownEnv, Renderer
from turnwise.envs.pettingzoo.live import Round
from turnwise.envs.pettingzoo.registry import is_parallel, maker
from turnwise.envs.pettingzoo.worlds import World, open_world
from turnwise.envs.rendered import rendered
from turnwise.errors import (
    ConfigError,
    DataError,
    EnvError,
    IllegalActionError,
    unknown_name,
)
from turnwise.seeding import generator
from turnwise.types import Task
from turnwise.utils.user_code import is_function, is_import_name, load_object

PLAIN = "plain"
MASK = "action_mask"
LOOKS = 20
"""Random episodes that are sampled for words and for returns."""
_NUMBER = re.compile(r"[_-]?\d+$")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ZooState:
    """The state of an episode: what agents see and may do, their returns, the way back (`memory`).

    `pending` are the actions of the present round, of agents that have acted in it.
    """

    acting: tuple[str, ...]
    seen: Mapping[str, Any]
    infos: Mapping[str, Any]
    memory: Any
    pending: Mapping[str, str] = field(default_factory=dict)
    totals: Mapping[str, float] = field(default_factory=dict)
    ended: bool = False

    @property
    def waiting(self) -> tuple[str, ...]:
        """The agents that act next, the first one first."""
        return tuple(agent for agent in self.acting if agent not in self.pending)


class PettingZooEnv(Env[ZooState]):
    """A PettingZoo env with turnwise's interface."""

    name = "pettingzoo"
    config_class = PettingZooConfig
    components: ClassVar[Mapping[str, Level]] = {"gain": "agent", "cost": "agent"}

    def __init__(self, config: PettingZooConfig | None = None) -> None:
        self.config: PettingZooConfig = config or PettingZooConfig()
        kind = maker(self.config.id, self.config.kwargs, self.config.api)
        self._known = KnownEnv() if self.config.kwargs else KNOWN.get(kind.name, KnownEnv())
        live = kind.make()
        self.parallel = is_parallel(live)
        self._seats = {str(a): self._role_of(str(a)) for a in live.possible_agents}
        self.roles = tuple(dict.fromkeys(self._seats.values()))
        self._spaces = {agent: live.observation_space(agent) for agent in self._seats}
        self.answers = {a: self._answers_of(live.action_space(a), r) for a, r in self.seats.items()}
        self._renderers = self._find_renderers()
        self.max_turns = self.config.steps or self._known.steps
        self._world: World = open_world(kind, self._drawn, self.config.branching)
        self.branching = self._world.branching
        self.reward_timing = self.config.reward_timing or self._known.reward_timing
        given = self.config.opponents
        self.opponents = self._known.opponents if given is None else given
        for name in self.opponents:
            if name not in self.baselines():
                raise ConfigError(f"opponents: {unknown_name('baseline', name, self.baselines())}")
        self._worst, self._best = self._bounds()
        first = self._begin(0)
        for agent in first.seen:
            self._show(agent, first)

    def _role_of(self, agent: str) -> str:
        if self.config.roles == "prefix":
            return _NUMBER.sub("", agent) or agent
        return agent if self.config.roles == "agent" else "player"

    @property
    def seats(self) -> Mapping[str, str]:
        """The agents and their roles."""
        return self._seats

    def _answers_of(self, space: Any, role: str) -> Answers:
        names = self.config.actions
        if isinstance(names, Mapping):
            for other in names:
                if other not in self.roles:
                    raise ConfigError(f"actions: {unknown_name('role', other, self.roles)}")
            names = names.get(role, ())
        known = self._known.actions
        if not names and isinstance(space, spaces.Discrete) and space.n == len(known):
            names = known
        return answers_for(space, names, self.config.action_decimals)

    def _find_renderers(self) -> dict[str, Renderer]:
        name = self.config.renderer or self._known.renderer
        if name == PLAIN:
            return {agent: self._plain(agent, space) for agent, space in self._spaces.items()}
        if self.config.decimals is not None:
            raise ConfigError(
                f"decimals = {self.config.decimals} do not apply to renderer = {name!r}: leave "
                "them out"
            )
        if name in RENDERERS:
            return dict.fromkeys(self._spaces, RENDERERS[name])
        if not is_import_name(name):
            raise unknown_name("renderer", name, [PLAIN, *RENDERERS])
        found: Any = load_object(name, is_function)
        if not callable(found):
            raise ConfigError(f"renderer = {name!r} is no function: expected observation -> text")
        return dict.fromkeys(self._spaces, cast(Renderer, found))

    def _plain(self, agent: str, space: Any) -> Renderer:
        """Return the text of a space; an action mask is not part of it."""
        keys: list[Any] = []
        if isinstance(space, spaces.Dict) and MASK in space.spaces:
            keys = [key for key in space.spaces if key != MASK]
            shown = {key: space[key] for key in keys}
            space = shown[keys[0]] if len(keys) == 1 else spaces.Dict(shown)
        check_readable(space, f"observations of {agent!r} in {self.config.id!r}")
        decimals = self.config.decimals if isinstance(space, spaces.Box) else None

        def text(seen: Any) -> str:
            own = seen[keys[0]] if len(keys) == 1 else {k: seen[k] for k in keys} if keys else seen
            return observation_text(space, own, decimals).strip()

        return text

    def _bounds(self) -> tuple[float, float]:
        worst = self._known.worst if self.config.worst is None else self.config.worst
        best = self._known.best if self.config.best is None else self.config.best
        if worst is None or best is None:
            returns = [value for n in range(LOOKS) for value in self._random_returns(n)]
            raise ConfigError(
                f"{self.config.id!r} needs `worst` and `best`, the returns of an agent that score "
                f"0 and 1: in random play agents returned {min(returns):g} to {max(returns):g}"
            )
        if worst >= best:
            raise ConfigError(f"worst = {worst:g} must be below best = {best:g}: mend one of them")
        return worst, best

    def _random_returns(self, number: int) -> list[float]:
        states = self._random_states(number)
        return [states[-1].totals.get(agent, 0.0) for agent in self.seats]

    def _random_states(self, number: int) -> list[ZooState]:
        """Return the states of an episode of random play."""
        rng = generator(0, "random play", number)
        states = [self._begin(number)]
        while not states[-1].ended and len(states) <= self.turn_cap():
            agent = states[-1].waiting[0]
            action = self.random_action(states[-1], agent, rng)
            states.append(self.step(states[-1], agent, action, rng).state)
        return states

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a seed for the env's reset."""
        return {"seed": int(rng.integers(2**31))}

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the env and the seed of its reset."""
        kwargs = json.dumps(self.config.kwargs, sort_keys=True)
        return f"{self.config.id} {kwargs} seed {data['seed']}"

    def reset(self, task: Task) -> ZooState:
        """Return the first state of `task`.

        Raises:
            DataError: if the task has no seed.
        """
        seed = task.data.get("seed")
        if type(seed) is not int or seed < 0:
            raise DataError(f"task {task.id!r} has seed = {seed!r}: give a whole number from 0 on")
        return self._begin(seed)

    def _begin(self, seed: int) -> ZooState:
        begun = self._world.reset(seed)
        return ZooState(
            acting=begun.acting, seen=begun.seen, infos=begun.infos, memory=begun.memory
        )

    def acting(self, state: ZooState) -> tuple[str, ...]:
        """Return the agents that have not acted in the present round."""
        return state.waiting or (next(iter(self.seats)),)

    def _legal(self, agent: str, seen: Any, infos: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the actions that the mask allows; all of them where there is none."""
        words = self.answers[agent].legal_actions
        mask = seen.get(MASK) if isinstance(seen, Mapping) else None
        mask = infos.get(agent, {}).get(MASK) if mask is None else mask
        if mask is None or not words:
            return words
        allowed = np.ravel(mask)
        if len(allowed) != len(words):
            raise EnvError(
                f"{self.config.id!r}: the action mask of {agent!r} has {len(allowed)} entries for "
                f"{len(words)} actions: give one for each"
            )
        return tuple(w for w, may in zip(words, allowed, strict=True) if may) or words

    def _show(self, agent: str, state: ZooState) -> tuple[str, str]:
        if agent not in state.seen:
            return "not in the game", ""
        return rendered(self._renderers[agent], self.config.renderer, state.seen[agent])

    def observe(self, state: ZooState, role: str) -> Observation:
        """Return the renderer's text of what an agent sees, or saw last, and its legal actions."""
        text, description = self._show(role, state)
        legal = self._legal(role, state.seen.get(role), state.infos)
        return Observation(text=text, legal_actions=legal, description=description)

    def step(
        self, state: ZooState, role: str, action: str, noise: np.random.Generator
    ) -> Step[ZooState]:
        """Keep an agent's action, or take those of the round if it is the last one's.

        Raises:
            IllegalActionError: if `action` is none, or the mask forbids it.
            EnvError: if the episode is over, or it is not this agent's turn.
        """
        if state.ended:
            raise EnvError(f"{self.name}: the episode is over, so it takes no step: reset a task")
        if role not in state.waiting:
            raise EnvError(
                f"{self.name}: {role!r} acts and it is the turn of {', '.join(state.waiting)}: ask "
                "acting(state) for the seats"
            )
        self.answers[role].read(action)
        legal = self._legal(role, state.seen.get(role), state.infos)
        if legal and action not in legal:
            raise IllegalActionError(f"{action[:40]!r} is none of {', '.join(legal)}")
        pending = {**state.pending, role: action}
        if len(pending) < len(state.acting):
            after = replace(state, pending=pending)
            return Step(state=after, rewards={}, terminated=False, truncated=False)
        taken = {agent: self.answers[agent].read(pending[agent]) for agent in state.acting}
        return self._after(state, role, self._world.step(state.memory, taken, noise))

    def _after(self, state: ZooState, role: str, done: Round) -> Step[ZooState]:
        """Return the step that a round of the env makes."""
        over = not done.acting
        paid = {agent: value for agent, value in done.paid.items() if value}
        totals = {a: state.totals.get(a, 0.0) + paid.get(a, 0.0) for a in self.seats}
        after = ZooState(
            acting=done.acting,
            seen={**state.seen, **done.seen},
            infos={**state.infos, **done.infos},
            memory=done.memory,
            totals=totals,
            ended=over,
        )
        terminated = over and ("terminated" in done.ended.values() or not done.ended)
        return Step(
            state=after,
            rewards=_parts(paid.get(role, 0.0)),
            others={agent: _parts(value) for agent, value in paid.items() if agent != role},
            terminated=terminated,
            truncated=over and not terminated,
            info={"infos": after.infos, "ended": dict(done.ended)},
        )

    def score(self, state: ZooState) -> float:
        """Return the mean over the agents of `seat_score`."""
        return float(np.mean([self.seat_score(state, agent) for agent in self.seats]))

    def seat_score(self, state: ZooState, seat: str) -> float:
        """Return the position of an agent's return between `worst` and `best`, in [0, 1]."""
        share = (state.totals.get(seat, 0.0) - self._worst) / (self._best - self._worst)
        return float(np.clip(share, 0.0, 1.0))

    def state_key(self, state: ZooState, role: str) -> str:
        """Return the observation without rounding. Hidden state is not part of the key."""
        return exact_text(state.seen[role]) if role in state.seen else "not in the game"

    def random_action(self, state: ZooState, role: str, rng: np.random.Generator) -> str:
        """Return a uniformly random action that the mask allows."""
        legal = self._legal(role, state.seen.get(role), state.infos)
        return legal[int(rng.integers(len(legal)))] if legal else self.answers[role].draw(rng)

    def _drawn(self, agent: str, seen: Any, rng: np.random.Generator) -> Any:
        """Return a random action as the live env takes it, for the trial of branching."""
        legal = self._legal(agent, seen, {})
        answers = self.answers[agent]
        word = legal[int(rng.integers(len(legal)))] if legal else answers.draw(rng)
        return answers.read(word)

    def baselines(self) -> Mapping[str, Baseline]:
        """Return random play, and constants if all agents have the same and no action is masked."""
        found = dict(super().baselines())
        first, *rest = [answers.constants() for answers in self.answers.values()]
        masked = any(isinstance(s, spaces.Dict) and MASK in s.spaces for s in self._spaces.values())
        if not masked and all(each == first for each in rest):
            found |= {name: _always(word) for name, word in first.items()}
        return found

    @cached_property
    def _words(self) -> tuple[str, ...]:
        """Words of actions, and of the observations of random play."""
        found = dict.fromkeys(word for each in self.answers.values() for word in each.words)
        for number in range(LOOKS):
            for state in self._random_states(number):
                for agent in state.waiting:
                    found |= dict.fromkeys(w for t in self._show(agent, state) for w in t.split())
        return tuple(found)

    def vocabulary(self) -> tuple[str, ...]:
        """Return the words of actions and observations."""
        return self._words

    def render(self, state: ZooState) -> str:
        """Return what the agents that act next see, and the returns so far."""
        shown = [f"{agent}\n{self._show(agent, state)[0]}" for agent in self.acting(state)]
        returns = ", ".join(f"{agent} {state.totals.get(agent, 0.0):g}" for agent in self.seats)
        return "\n".join([*shown, f"returns: {returns}"])


def _parts(reward: float) -> dict[str, float]:
    return {"gain": max(0.0, reward), "cost": min(0.0, reward)}


def _always(word: str) -> Baseline:
    return lambda state, rng: word
