"""The calls of `check_env`, each checked for time, return type and changes in place.

Provides `Calls`, which stores returned states to detect later changes of them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from turnwise.envs.base import Env, Observation, Step
from turnwise.envs.checks.declarations import fail
from turnwise.envs.checks.snapshots import Snapshot
from turnwise.envs.measures import LARGEST_REWARD, expected_measures, expected_score, is_reward
from turnwise.envs.unicode import UNICODE, is_unicode
from turnwise.envs.user_calls import CURE, call_env
from turnwise.errors import BrokenEnvError, EnvError, IllegalActionError, SlowEnvError
from turnwise.seeding import generator
from turnwise.types import Media, Message, Task

ILLEGAL = "no such action, surely"
AFTER_END = "raise EnvError, of turnwise.errors, when a state that has ended is stepped"
KEPT = 300
"""The largest number of states, rewards and infos that are compared at the end of an episode."""
Place = tuple[str, str, int]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """The observable content of a state; equal states must have equal content."""

    texts: tuple[Observation, ...]
    keys: tuple[str, ...]
    score: float | None
    measures: Mapping[str, float] | None


class Calls:
    """Calls an env's methods and checks what they return.

    `cure` is the advice on an exception of the env.
    """

    def __init__(self, env: Env[Any], seed: int, timeout: float, cure: str = CURE) -> None:
        self.env, self._seed, self._timeout, self._cure = env, seed, timeout, cure
        self._shown: dict[tuple[str, str], str] = {}
        self._kept: list[tuple[str, str, Any, Snapshot]] = []
        self._deep = env.branching in ("pure", "none")  # others keep a world with every state
        self._measured: tuple[str, ...] | None = None
        self.refusals = False  # whether step may refuse actions of random_action
        self.unscored = False  # whether score and measures may raise, as before an episode's end

    def __call__(self, method: str, *args: Any) -> Any:
        """Return the result of a method."""
        maker = getattr(self.env, method)
        found = self.made(method, maker, *args)
        if inspect.isawaitable(found) or inspect.isgenerator(found):
            cure = f"write def {method}, without async and yield"
            if inspect.isgenerator(found) and not inspect.isgeneratorfunction(maker):
                cure = "return a list, not a generator"
            fail(self.env, f"{method} returns {type(found).__name__}", cure, method)
        return found

    def get(self, name: str) -> Any:
        """Return the value of a property."""
        return self.made(name, getattr, self.env, name)

    def made(self, method: str, call: Callable[..., Any], *args: Any) -> Any:
        """Return `call(*args)`; it may raise only turnwise's errors, and must return in time."""
        return call_env(self.env, method, self._timeout, call, *args, cure=self._cure)

    def reset(self, task: Task) -> Any:
        """Return the first state, after checking that the task is unchanged."""
        before = json.dumps(task.data, sort_keys=True, default=repr)
        state = self("reset", task)
        if state is None:
            fail(self.env, "reset returns None", "return the first state", "reset")
        if json.dumps(task.data, sort_keys=True, default=repr) != before:
            fail(self.env, "reset changes the task's data", "copy what is to be changed", "reset")
        self._keep("reset", "state", state)
        return state

    def view(self, state: Any) -> View:
        """Return the observations of all seats in `state`, checked; `state` must not change."""
        roles = tuple(self.env.seats)
        before = self._snapshot(state)
        texts = tuple(self.observe(state, role) for role in roles)
        self._unchanged("observe", before, state)
        keys = tuple(self._key(state, role, text) for role, text in zip(roles, texts, strict=True))
        self._unchanged("state_key", before, state)
        score = self._unless_early(self._score, state)
        self._unchanged("score", before, state)
        measures = self._unless_early(self._measures, state)
        self._unchanged("measures", before, state)
        return View(texts=texts, keys=keys, score=score, measures=measures)

    def _unless_early(self, judge: Callable[[Any], T], state: Any) -> T | None:
        """Return what a method says of a state; None where it raises and may."""
        try:
            return judge(state)
        except SlowEnvError:
            raise
        except BrokenEnvError:
            if self.unscored:
                return None
            raise

    def acting(self, state: Any) -> str:
        """Return the seat that acts next in `state`, checked."""
        seats: Any = self("acting", state)
        known = self.env.seats
        if not isinstance(seats, tuple) or not seats or not all(seat in known for seat in seats):
            cure = f"return a tuple of the seats whose turn it is, out of {', '.join(known)}"
            fail(self.env, f"acting returns {seats!r:.80}", cure, "acting")
        return seats[0]

    def check_render(self, state: Any) -> None:
        """Raise unless the rendering of a state is text and does not change the state."""
        before, picture = self._snapshot(state), self("render", state)
        self.check_text("render", picture)
        self._unchanged("render", before, state)

    def observe(self, state: Any, role: str) -> Observation:
        """Return the observation of a role, checked."""
        env = self.env
        try:
            seen: Any = self("observe", state, role)
        except BrokenEnvError as error:
            if _gymnasium_reset(state) and not isinstance(error, SlowEnvError):
                cure = "return the state alone, without an info dict as Gymnasium's has"
                fail(env, "reset returns a tuple of 2 with a dict", cure, "reset")
            raise
        if not isinstance(seen, Observation):
            cure = "return an Observation, as in Observation(text='3', legal_actions=('A', 'B'))"
            fail(env, f"observe returns {type(seen).__name__}", cure, "observe")
        if not isinstance(seen.text, str) or not seen.text.strip():
            fail(
                env,
                f"the observation's text is {seen.text!r:.80}",
                "say what the role sees",
                "observe",
            )
        if not isinstance(seen.description, str):
            fail(
                env,
                f"the description is {seen.description!r:.80}",
                "give text, '' for none",
                "observe",
            )
        if type(seen.raw) is not bool:
            fail(env, f"raw = {seen.raw!r:.80}", "use True or False", "observe")
        _check_legal(env, seen.legal_actions)
        for name, values, kind in (
            ("messages", seen.messages, Message),
            ("tools", seen.tools, str),
            ("media", seen.media, Media),
        ):
            right = isinstance(values, tuple) and all(isinstance(each, kind) for each in values)
            if not right:
                fail(env, f"{name} = {values!r:.80}", f"give a tuple of {kind.__name__}", "observe")
        for text in seen.texts:
            self.check_text("observe", text)
        return seen

    def check_text(self, method: str, text: Any) -> None:
        """Raise unless what a method returns is text that can be encoded."""
        if not isinstance(text, str):
            fail(self.env, f"{method} returns {type(text).__name__}", "return a string", method)
        if not is_unicode(text):
            fail(self.env, f"{method} returns {text!r:.80}", f"return {UNICODE}", method)

    def _key(self, state: Any, role: str, seen: Observation) -> str:
        env, key = self.env, self("state_key", state, role)
        self.check_text("state_key", key)
        if self._shown.setdefault((role, key), seen.text) != seen.text:
            cure = "put everything Markov into the key, the task's data included"
            fail(
                env,
                f"states that look different to {role!r} share the key {key!r}",
                cure,
                "state_key",
            )
        return key

    def _score(self, state: Any) -> float:
        value = self("score", state)
        number = None if isinstance(value, bool) else value
        expected = expected_score(number, self.env.scored_by)
        if expected:
            fail(self.env, f"score is {value!r:.80}", f"return {expected}", "score")
        return float(value)

    def _measures(self, state: Any) -> Mapping[str, float]:
        found = self("measures", state)
        expected = expected_measures(found, self._measured)
        if expected:
            fail(self.env, f"measures returns {found!r:.80}", f"return {expected}", "measures")
        self._measured = tuple(found)
        return dict(found)

    def check_illegal(self, state: Any, role: str) -> None:
        """Raise unless an illegal action is refused without a change of the state."""
        cure = "raise IllegalActionError that names the legal actions"
        before = self._snapshot(state)
        try:
            self("step", state, role, ILLEGAL, np.random.default_rng(0))
        except IllegalActionError:
            self._unchanged("step, given an illegal action,", before, state)
            return
        except SlowEnvError:
            raise
        except BrokenEnvError as error:
            fail(
                self.env, f"an illegal action raises {type(error.__cause__).__name__}", cure, "step"
            )
        fail(self.env, "step takes an illegal action", cure, "step")

    def step_twice(self, state: Any, role: str, action: str, place: Place) -> Step[Any]:
        """Step twice with equal generators; return the first result."""
        env, before, deep = self.env, self.view(state), self._snapshot(state)
        step = self.step(state, role, action, place)
        after = self.view(step.state)
        if step.state is state and deep is not None and not deep.holds(state):
            cure = "build a new state, with copy.deepcopy or dataclasses.replace"
            fail(
                env,
                "step changes the state that it is given, in place, and returns it",
                cure,
                "step",
            )
        if self.view(state) != before:
            cure = "build a new state and leave the old one as it is"
            fail(env, "step changes the state that it is given", cure, "step")
        self._unchanged("step", deep, state)
        again = self.step(state, role, action, place)
        flags = (step.terminated, step.truncated)
        same = dict(again.rewards) == dict(step.rewards) and again.others == step.others
        same = same and self.view(again.state) == after
        if not same or flags != (again.terminated, again.truncated):
            cure = "keep nothing in the env and draw only from the generator that step is handed"
            fail(
                env,
                "stepping one state twice with equal noise gives different results",
                cure,
                "step",
            )
        return step

    def step(self, state: Any, role: str, action: str, place: Place) -> Step[Any]:
        """Return the result of a legal action, checked."""
        env = self.env
        try:
            step: Any = self("step", state, role, action, generator(self._seed, "check", *place))
        except IllegalActionError as refusal:
            if self.refusals:
                raise
            what = f"step refuses {action!r:.80}, which random_action or a baseline answers"
            fail(env, f"{what} ({refusal})", "take every action that observe calls legal", "step")
        if not isinstance(step, Step):
            fail(env, f"step returns {_told(step)}", _step_cure(step), "step")
        for name, value in (("terminated", step.terminated), ("truncated", step.truncated)):
            if type(value) is not bool:
                kind = type(value)
                known = f"{kind.__module__}.{kind.__name__}".removeprefix("builtins.")
                what = f"{name} is {value!r:.80} of type {known}"
                fail(env, what, "return a bool; write bool(...) around numpy's", "step")
        if step.state is None:
            fail(env, "step returns no state", "return Step(state=...) with the next state", "step")
        self._check_rewards(step.rewards)
        self._check_others(step.others, role)
        if not isinstance(step.info, Mapping):
            fail(env, f"info = {step.info!r:.80}", "give a dict, or leave it out", "step")
        for name, value in (("rewards", step.rewards), ("info", step.info), ("state", step.state)):
            self._keep("step", name, value)
        return step

    def _check_others(self, others: Any, role: str) -> None:
        """Raise unless `others` holds rewards of seats that did not act."""
        seats = [seat for seat in self.env.seats if seat != role]
        if not isinstance(others, Mapping) or not set(others) <= set(seats):
            known = ", ".join(seats) or "none, as there is one seat"
            cure = f"give a dict of another seat and its rewards; the seats are {known}"
            fail(self.env, f"others = {others!r:.80} in a step of {role!r}", cure, "step")
        for rewards in others.values():
            self._check_rewards(rewards)

    def _check_rewards(self, rewards: Any) -> None:
        env = self.env
        names = list(env.components)
        if not isinstance(rewards, Mapping):
            example = f"{{{names[0]!r}: 1.0}}" if names else "{}"
            fail(
                env,
                f"rewards = {rewards!r:.80}",
                f"give a dict of reward and number: {example}",
                "step",
            )
        for component, value in rewards.items():
            if component not in env.components:
                declared = ", ".join(names) or "none"
                what = f"reward {component!r} is not a declared component ({declared})"
                fail(env, what, "declare it in components, with its level", "step")
            if not is_reward(value):
                cure = f"return a finite float of at most {LARGEST_REWARD:g} in size"
                fail(env, f"reward {component!r} is {value!r:.80}", cure, "step")

    def check_end(self, state: Any, role: str, action: str) -> None:
        """Check that a state past its end refuses a step or ends again."""
        self.view(state)
        self.check_kept()
        try:
            step = self("step", state, role, action, np.random.default_rng(0))
        except SlowEnvError:
            raise
        except BrokenEnvError as error:
            what = f"a step after the end of an episode raises {error.__cause__!r:.80}"
            fail(self.env, what, AFTER_END, "step")
        except (IllegalActionError, EnvError):
            return
        if not (step.terminated or step.truncated):
            fail(self.env, "an episode goes on after its end", AFTER_END, "step")

    def check_kept(self) -> None:
        """Raise if a value that the env returned has changed since; then forget all of them."""
        kept, self._kept = self._kept, []
        for method, name, value, before in kept:
            if not before.holds(value):
                cure = "build a new one in every step; use copy.deepcopy for nested lists and dicts"
                fail(
                    self.env,
                    f"the {name} that {method} returned is changed by later steps",
                    cure,
                    method,
                )

    def _keep(self, method: str, name: str, value: Any) -> None:
        if self._deep and len(self._kept) < KEPT:
            self._kept.append((method, name, value, Snapshot(value)))

    def _snapshot(self, state: Any) -> Snapshot | None:
        return Snapshot(state) if self._deep else None

    def _unchanged(self, method: str, before: Snapshot | None, state: Any) -> None:
        if before is not None and not before.holds(state):
            cure = "build a new state and leave the old one as it is"
            called = method.partition(",")[0]
            fail(self.env, f"{method} changes the state that it is given", cure, called)


def _check_legal(env: Env[Any], legal: Any) -> None:
    if not isinstance(legal, tuple) or not all(isinstance(action, str) for action in legal):
        cure = "give a tuple of action words; an empty one where any text may be an answer"
        fail(env, f"legal_actions = {legal!r:.80}", cure, "observe")
    if any(action != action.strip() or not action for action in legal):
        fail(
            env,
            f"legal_actions = {legal!r} has blank ends",
            "answers are stripped: strip actions too",
            "observe",
        )
    if len({action.casefold() for action in legal}) < len(legal):
        cure = "answers ignore case: give every action its own word"
        fail(env, f"legal_actions = {legal!r} has equal words", cure, "observe")


def _gymnasium_reset(state: Any) -> bool:
    return isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict)


def _told(step: Any) -> str:
    if isinstance(step, tuple):
        return f"tuple of {len(step)} values"
    return type(step).__name__


def _step_cure(step: Any) -> str:
    cure = "return a Step, as in Step(state=..., rewards={...}, terminated=..., truncated=...)"
    if isinstance(step, tuple) and len(step) in (4, 5):
        return f"{cure}; for a gymnasium.Env use make_env('gymnasium', id=...)"
    return cure
