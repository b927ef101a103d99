"""The `state-machine` workflow: seats act by turns, as named states and transitions say.

A state of the machine lets one seat act, and its transitions say which state comes next. A guard is
a function of the env's state, from a user's file. A seat may be skipped, stop after some turns, and
sample with settings of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from pydantic import Field, field_validator, model_validator

from turnwise.envs.base import Step
from turnwise.errors import ConfigError, EnvError, unknown_name
from turnwise.settings import Settings
from turnwise.utils.user_code import is_import_name, load_object
from turnwise.workflows.base import Agents

END = "end"
"""The state that ends the episode, as truncated where the env has not ended it."""
ALWAYS, ACTING = "always", "acting"
Guard = Callable[[Any], bool]
"""From the env's state to whether a transition may be taken, or a seat is skipped."""


class TransitionConfig(Settings):
    """A transition to another state of the machine."""

    to: str
    """The next state, or "end", which ends the episode."""
    when: str = ALWAYS
    """When it may be taken: `always`; `acting`, where the env lets the next state's seat act; or
    "file.py:function", a function of the env's state that returns whether."""
    at_most: int | None = Field(default=None, ge=1)
    """How often it may be taken in an episode; None is no limit."""


class MachineStateConfig(Settings):
    """A state of the machine: the seat that acts in it, and what comes next."""

    seat: str
    """The seat that acts."""
    next: tuple[TransitionConfig, ...]
    """The transitions; the first one that may be taken is. A string is a transition to the state of
    this name that may always be taken."""

    @field_validator("next", mode="before")
    @classmethod
    def _name_targets(cls, given: Any) -> Any:
        """Read strings as the names of the next states."""
        listed = [given] if isinstance(given, str) else given
        if not isinstance(listed, list | tuple):
            return given
        return tuple({"to": each} if isinstance(each, str) else each for each in listed)


class SeatConfig(Settings):
    """How a seat takes part."""

    temperature: float | None = Field(default=None, gt=0)
    """Temperature of training sampling; None is the agent's."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Limit of one completion, in tokens; None is the agent's."""
    stop_after: int | None = Field(default=None, ge=1)
    """The turns of an episode after which the seat acts no more; None is no limit."""
    skip_when: str | None = None
    """ "file.py:function", a function of the env's state that returns whether the seat's turn is
    skipped; None never skips it."""


class StateMachineConfig(Settings):
    """The states of the machine, and how seats take part.

    Example:
        >>> states = {"tell": {"seat": "scout", "next": ["dig"]},
        ...           "dig": {"seat": "digger", "next": ["tell"]}}
        >>> StateMachineConfig(start="tell", states=states).states["tell"].next[0].to
        'dig'
    """

    start: str
    """The first state."""
    states: dict[str, MachineStateConfig]
    """Name -> state."""
    seats: dict[str, SeatConfig] = Field(default_factory=dict)
    """Seat -> how it takes part; seats that are not named take part as their agents say."""

    @model_validator(mode="after")
    def _check_names(self) -> StateMachineConfig:
        if END in self.states:
            raise ConfigError(f"states.{END} is reserved: it ends the episode; rename the state")
        targets = [each.to for state in self.states.values() for each in state.next]
        for name in (self.start, *targets):
            if name not in self.states and name != END:
                raise unknown_name("state", name, [*self.states, END])
        return self


class StateMachine:
    """Let seats act as the states and transitions say."""

    config_class = StateMachineConfig

    def __init__(self, config: StateMachineConfig) -> None:
        self.config = config
        self._guards: dict[str, Guard] = {}
        for state in config.states.values():
            for name in (each.when for each in state.next if each.when not in (ALWAYS, ACTING)):
                self._guards[name] = _guard(name)
        for name in (each.skip_when for each in config.seats.values()):
            if name is not None:
                self._guards[name] = _guard(name)

    async def __call__(self, agents: Agents, state: Any) -> Step[Any]:
        """Play `state` to its end.

        Raises:
            ConfigError: if a seat is not one of the env, or `seats` names one that never acts.
            EnvError: if no seat acts, or no transition may be taken.
        """
        self._check_seats(agents)
        config, name = self.config, self.config.start
        turns, taken = Counter[str](), Counter[tuple[str, int]]()
        step: Step[Any] | None = None
        idle = 0
        while name != END:
            here = config.states[name]
            seat = config.seats.get(here.seat, SeatConfig())
            if self._acts(here.seat, seat, turns[here.seat], agents, state):
                step = await agents[here.seat].act(
                    state, temperature=seat.temperature, max_tokens=seat.max_tokens
                )
                if step.terminated or step.truncated:
                    return step
                state, idle = step.state, 0
                turns[here.seat] += 1
            elif (idle := idle + 1) > len(config.states):
                raise EnvError(
                    f"the state machine went through {idle} states in which no seat acts, the last "
                    f"one {name!r}: give it a transition to a seat that may act, or to {END!r}"
                )
            name = self._next(name, here, agents, state, taken)
        if step is None:
            raise EnvError("the state machine ended before any seat acted: let one act first")
        return replace(step, truncated=True)

    def _check_seats(self, agents: Agents) -> None:
        """Refuse seats that the env does not have, and options of a seat that no state names."""
        acting = {state.seat for state in self.config.states.values()}
        for name in (*acting, *self.config.seats):
            if name not in agents:
                raise unknown_name("seat", name, list(agents))
        for name in self.config.seats:
            if name not in acting:
                raise ConfigError(
                    f"seats.{name} names a seat that acts in no state: give it a state, or leave "
                    "it out"
                )

    def _acts(self, name: str, seat: SeatConfig, turns: int, agents: Agents, state: Any) -> bool:
        """Whether a seat acts in `state`: the env lets it, and nothing skips or stops it."""
        if seat.stop_after is not None and turns >= seat.stop_after:
            return False
        if name not in agents.acting(state):
            return False
        return seat.skip_when is None or not self._guards[seat.skip_when](state)

    def _next(
        self,
        name: str,
        here: MachineStateConfig,
        agents: Agents,
        state: Any,
        taken: Counter[tuple[str, int]],
    ) -> str:
        """Return the next state, and count the transition to it."""
        for number, transition in enumerate(here.next):
            if transition.at_most is not None and taken[name, number] >= transition.at_most:
                continue
            if self._may_be_taken(transition, agents, state):
                taken[name, number] += 1
                return transition.to
        guards = ", ".join(f"{each.to} when {each.when}" for each in here.next) or "none"
        raise EnvError(
            f"the state machine cannot leave the state {name!r}, whose transitions are {guards}: "
            "add one that may always be taken"
        )

    def _may_be_taken(self, transition: TransitionConfig, agents: Agents, state: Any) -> bool:
        if transition.when == ALWAYS:
            return True
        if transition.when == ACTING:
            target = self.config.states.get(transition.to)
            return target is not None and target.seat in agents.acting(state)
        return self._guards[transition.when](state)


def _guard(name: str) -> Guard:
    """Return the function of a user's file that a guard names."""
    if not is_import_name(name):
        raise ConfigError(
            f"guard {name!r} is no function: write {ALWAYS!r}, {ACTING!r}, or 'file.py:function'"
        )
    found = load_object(name)
    if not callable(found):
        raise ConfigError(f"guard {name!r} is a {type(found).__name__}, expected a function")
    return cast(Guard, found)
