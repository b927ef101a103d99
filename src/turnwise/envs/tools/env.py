"""Envs with tools: methods that a model may call before it answers.

Provides `tool`, `ToolState` and `ToolEnv`: the tools, the result of a call and its observation. A
call is a turn like any other, so states remain values and every call is trained on. `render` shows
the tools to models in their chat template.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from turnwise.envs.base import MAX_TURNS, Env, Observation, Step
from turnwise.envs.tools.calls import call_text, calls_in, read_call
from turnwise.envs.tools.schema import Tool, make_tool
from turnwise.envs.tools.values import random_value
from turnwise.errors import ConfigError, EnvError, IllegalActionError
from turnwise.types import Message

MARK = "turnwise_tool"
_WORD = re.compile(r"\w+")
F = TypeVar("F", bound=Callable[..., Any])


def tool(method: F) -> F:
    """Mark a method of a `ToolEnv` as a tool.

    Its parameters are the state and then the typed arguments of the call, each described under
    `Args:` of its docstring. A parameter `noise` gets the random generator of the step. It returns
    text or a JSON value, or a `ToolResult` to change the state, give rewards or end the episode. It
    may raise an `IllegalActionError`, whose message becomes the result of the call.

    Example:
        >>> class Shop(ToolEnv):
        ...     @tool
        ...     def price(self, state, item: str) -> int:
        ...         '''Look up a price.
        ...
        ...         Args:
        ...             item: What is to be bought.
        ...         '''
        ...         return state.prices[item]
        >>> list(tools_of(Shop)["price"].hints)
        ['item']
    """
    vars(method)[MARK] = True
    return method


@dataclass(frozen=True, kw_only=True)
class Told:
    """One call of an episode, as its text, and its result.

    Example:
        >>> Told(call='{"name": "look", "arguments": {}}', result="7").result
        '7'
    """

    call: str
    result: str


@dataclass(frozen=True, kw_only=True)
class ToolState:
    """The base class of the states of envs with tools.

    `told` are the calls so far; `fresh` is the number of those made in the last turn.

    Example:
        >>> ToolState().told
        ()
    """

    told: tuple[Told, ...] = ()
    fresh: int = 0


S = TypeVar("S", bound=ToolState)


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """The result of a tool that changes the state, gives rewards or ends the episode.

    The model reads `value`; `state` replaces the current state, unless it is None.

    Example:
        >>> ToolResult(value="sold", rewards={"profit": 2.0}).terminated
        False
    """

    value: Any
    state: Any = None
    rewards: Mapping[str, float] = field(default_factory=dict)
    terminated: bool = False


class ToolEnv(Env[S]):
    """An env whose roles may call tools in any number of turns, and then answer.

    Subclasses define `reset` and `score` as in every env; `ask`, the question of a role, instead of
    `observe`; `answer`, the result of a reply without calls, instead of `step`; and methods marked
    `@tool`. States derive from `ToolState`.

    Several calls of one reply are made in their order. The result of a wrong call (no JSON, no such
    tool, an argument that is missing, unknown or of another type) is a message that begins with
    "error:"; the call counts. A reply with a call after `most_calls` calls truncates the episode.

    Raises:
        ConfigError: if there is no tool, or one without types or docstring.
    """

    most_calls: int = 8

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.tools: Mapping[str, Tool] = tools_of(type(self))
        if not self.tools:
            raise ConfigError(
                f"{type(self).__name__} has no tools: mark a method with @tool, or derive from Env"
            )
        most: Any = self.most_calls
        if type(most) is not int or most < 0:
            raise ConfigError(
                f"{type(self).__name__}: most_calls = {most!r}: give a whole number from 0 on"
            )
        if self.max_turns is None:
            self.max_turns = max(MAX_TURNS, self.most_calls + 1)
        self._schemas = tuple(each.text for each in self.tools.values())

    @abstractmethod
    def ask(self, state: S, role: str) -> Observation:
        """Return the question of `role`: text, and the legal answers, none for any text.

        Its `description` may repeat the results of the calls so far.
        """

    @abstractmethod
    def answer(self, state: S, role: str, action: str, noise: np.random.Generator) -> Step[S]:
        """Return the result of an answer; it is one of the legal words, if there are any.

        Raises:
            IllegalActionError: for text that is no answer.
        """

    def observe(self, state: S, role: str) -> Observation:
        """Return the question and, after calls, their results as messages of role `tool`."""
        if not isinstance(state, ToolState):
            raise EnvError(
                f"{self.name}: reset returned {type(state).__name__}: derive the states of an env "
                "with tools from ToolState"
            )
        asked = self.ask(state, role)
        if asked.raw:
            raise EnvError(f"{self.name}: raw text has no place for tools: leave `raw` out of ask")
        shown = [f"{told.call} -> {told.result}" for told in state.told]
        fresh = state.told[len(state.told) - state.fresh :]
        results = tuple(Message(role="tool", content=told.result) for told in fresh)
        return replace(
            asked,
            text="\n".join([asked.text, *shown]),
            messages=results or asked.messages,
            tools=self._schemas,
        )

    def step(self, state: S, role: str, action: str, noise: np.random.Generator) -> Step[S]:
        """Make the calls in `action`, or take it as the answer."""
        calls = calls_in(action)
        if calls:
            return self._make_calls(state, calls, noise)
        legal = self.ask(state, role).legal_actions
        if legal and action not in legal:
            raise IllegalActionError(f"{action[:40]!r} is none of {', '.join(legal)}")
        step = self.answer(state, role, action, noise)
        return replace(step, state=replace(step.state, fresh=0)) if step.state.fresh else step

    def _make_calls(self, state: S, calls: tuple[str, ...], noise: np.random.Generator) -> Step[S]:
        if len(state.told) >= self.most_calls:
            return Step(state=state, rewards={}, terminated=False, truncated=True)
        told, rewards, ended = list(state.told), dict[str, float](), False
        before = len(told)
        for call in calls:
            if ended:
                break
            if len(told) >= self.most_calls:
                told.append(Told(call=call, result="error: no calls are left"))
                continue
            try:
                result = self._call(state, call, noise)
            except IllegalActionError as refusal:
                told.append(Told(call=call, result=f"error: {refusal}"))
                continue
            told.append(Told(call=call, result=self._text(call, result.value)))
            state = state if result.state is None else result.state
            for name, value in result.rewards.items():
                rewards[name] = rewards.get(name, 0.0) + value
            ended = result.terminated
        after = replace(state, told=tuple(told), fresh=len(told) - before)
        return Step(state=after, rewards=rewards, terminated=ended, truncated=False)

    def _call(self, state: S, text: str, noise: np.random.Generator) -> ToolResult:
        call = read_call(text)
        if call.name not in self.tools:
            known = ", ".join(self.tools)
            raise IllegalActionError(f"there is no tool {call.name[:40]!r}: {known}")
        chosen = self.tools[call.name]
        arguments = chosen.read(call.arguments) | ({"noise": noise} if chosen.noisy else {})
        result = chosen.method(self, state, **arguments)
        return result if isinstance(result, ToolResult) else ToolResult(value=result)

    def _text(self, call: str, value: Any) -> str:
        if isinstance(value, str):
            return value
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise EnvError(
                f"{self.name}: the tool {read_call(call).name} returned {value!r:.80} ({error}): "
                "return text, a JSON value or a ToolResult"
            ) from None

    def random_action(self, state: S, role: str, rng: np.random.Generator) -> str:
        """Return a random call or a random answer, each half of the time."""
        calls = rng.random() < 0.5
        return self.random_call(state, rng) if calls else self.random_answer(state, role, rng)

    def random_call(self, state: S, rng: np.random.Generator) -> str:
        """Return a call of a uniformly random tool with random values of its required arguments.

        Text is a word of the question, of the answers or of `words`. Override this method if a tool
        has better random values.
        """
        chosen = list(self.tools.values())[rng.integers(len(self.tools))]
        asked = self.ask(state, next(iter(self.seats)))
        words = tuple(
            dict.fromkeys([*_WORD.findall(asked.text), *asked.legal_actions, *self.vocabulary()])
        )
        given = {name: random_value(chosen.hints[name], words, rng) for name in chosen.required}
        return call_text(chosen.name, **given)

    def random_answer(self, state: S, role: str, rng: np.random.Generator) -> str:
        """Return a uniformly random answer.

        Raises:
            EnvError: if there are no legal words to choose from and this is not overridden.
        """
        legal = self.ask(state, role).legal_actions
        if not legal:
            raise EnvError(f"{self.name}: any text may be an answer: override random_answer")
        return legal[rng.integers(len(legal))]


def tools_of(env: type[Env[Any]]) -> dict[str, Tool]:
    """Return the tools of an env class by name, in the order of their definition.

    Raises:
        ConfigError: if one has no types or no docstring.
    """
    marked: dict[str, Any] = {}
    for kind in reversed(env.__mro__):
        for name, method in vars(kind).items():
            if callable(method) and hasattr(method, MARK):
                marked[name] = method
            elif name in marked:  # overridden by a method that is no tool
                del marked[name]
    return {name: make_tool(method, env.__name__) for name, method in marked.items()}
