"""Reward functions with TRL's interface: lists in, one number for each completion out.

Provides `load_functions`, `call_functions` and the check of their results. A function gets the
keyword arguments `prompts`, `completions`, `completion_ids`, every other column of the rows,
`trainer_state`, `log_extra` and `log_metric`. It returns a list of numbers, with None where it does
not apply. Source of the interface: TRL 1.16, `GRPOTrainer._calculate_rewards`.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from turnwise.envs.base import BatchRewards
from turnwise.envs.measures import LARGEST_REWARD, is_reward
from turnwise.envs.rows.reward_arguments import OFFERED, arguments_of
from turnwise.envs.unicode import escaped
from turnwise.envs.user_calls import UserErrors
from turnwise.errors import ConfigError, RewardError
from turnwise.formats import REPLY_COMPONENTS
from turnwise.utils.user_code import is_function, is_import_name, load_object

RewardFunction: TypeAlias = Callable[..., Any]
RESERVED = (*REPLY_COMPONENTS, "return")
"""Names of reward components that are not the user's to give."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerState:
    """The progress of training, for rewards that change over time.

    `global_step` counts finished iterations, which are optimizer steps unless a recipe divides its
    batches; `max_steps` is their planned number. In evaluation it is the number of the last one.

    Example:
        >>> TrainerState(global_step=3, max_steps=30).global_step
        3
    """

    global_step: int
    max_steps: int


@dataclass(kw_only=True, slots=True)
class Remarks:
    """Notes and metrics that reward functions logged beside their rewards.

    Example:
        >>> remarks = Remarks(count=2)
        >>> remarks.log_metric("exact", "hits", 1.0)
        >>> remarks.metrics()
        {'reward_metric/hits': 1.0}
    """

    count: int
    columns: dict[str, list[Any]] = field(default_factory=dict)
    numbers: dict[str, list[float]] = field(default_factory=dict)

    def log_extra(self, function: str, column: str, values: Iterable[Any]) -> None:
        """Store a value for each completion; it is recorded with the episode."""
        column, values = _name(function, "log_extra", column), list(values)
        if len(values) != self.count:
            raise RewardError(
                f"reward function {function!r}: log_extra({column!r}, ...) got {len(values)} "
                f"values for {self.count} completions: give one for each"
            )
        self.columns[column] = [_plain(value) for value in values]

    def log_metric(self, function: str, name: str, value: float) -> None:
        """Store a number of the batch; it is logged as the metric `reward_metric/<name>`."""
        name = _name(function, "log_metric", name)
        self.numbers.setdefault(name, []).append(float(value))

    def metrics(self) -> dict[str, float]:
        """Return the numbers, averaged over repeated names."""
        return {f"reward_metric/{k}": sum(v) / len(v) for k, v in self.numbers.items()}

    def notes(self) -> tuple[dict[str, Any], ...]:
        """Return one dict of notes for each completion."""
        return tuple({k: v[i] for k, v in self.columns.items()} for i in range(self.count))


def name_of(function: RewardFunction) -> str:
    """Return the name of a reward function's component.

    Example:
        >>> name_of(len), name_of(lambda completions: [0.0])
        ('len', 'lambda')
    """
    if isinstance(function, functools.partial):
        return name_of(function.func)
    if hasattr(function, "__name__"):
        return function.__name__.strip("<>")
    return type(function).__name__


def check_function(thing: Any) -> RewardFunction:
    """Return `thing` if it can be a reward function.

    Raises:
        ConfigError: for a reward model, or an object that cannot be called.
    """
    if hasattr(thing, "forward") and hasattr(thing, "parameters"):
        raise ConfigError(
            f"a reward model ({type(thing).__name__}) is not taken as a reward: give a function "
            "that calls it, completions in and a list of numbers out"
        )
    if isinstance(thing, type) or not callable(thing):
        raise ConfigError(f"{thing!r} is not a reward function: give a function, or a list of them")
    return thing


def load_functions(names: Sequence[str]) -> dict[str, RewardFunction]:
    """Return component -> function for functions named "file.py:function".

    Raises:
        ConfigError: if a name is not that of a function, is that of a reward model, or is reserved.

    Example:
        >>> list(load_functions(["turnwise.rewards:runs", "turnwise.rewards:runs"]))
        ['runs', 'runs-2']
    """
    found: dict[str, RewardFunction] = {}
    for name in names:
        if not is_import_name(name):
            raise ConfigError(
                f"reward {name!r} must look like 'file.py:function' or 'package.module:function'; "
                "a reward model is not taken: give a function that calls it"
            )
        function = check_function(load_object(name, is_function))
        title = name_of(function)
        if title in RESERVED:
            raise ConfigError(f"{title!r} is reserved: give the reward function another name")
        same = sum(known == title or known.startswith(f"{title}-") for known in found)
        found[f"{title}-{same + 1}" if same else title] = function
    return found


async def call_functions(
    functions: Mapping[str, RewardFunction],
    *,
    prompts: Sequence[Any],
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]],
    columns: Mapping[str, Sequence[Any]],
    state: TrainerState,
) -> BatchRewards:
    """Call every function once with the whole batch; async functions are awaited concurrently.

    A function gets the arguments of its signature, or all of them if it has `**kwargs`. They are
    its own copies, so changes to them reach neither the rows nor other functions.

    Raises:
        RewardError: if a function raises, or does not return one number or None for each
            completion.
    """
    remarks = Remarks(count=len(completions))
    waiting: dict[str, Any] = {}
    returned: dict[str, Any] = {}
    for name, function in functions.items():
        offered: dict[str, Any] = {
            "prompts": _copied(prompts),
            "completions": _copied(completions),
            "completion_ids": [list(ids) for ids in completion_ids],
            "trainer_state": state,
            "log_extra": functools.partial(remarks.log_extra, name),
            "log_metric": functools.partial(remarks.log_metric, name),
        }
        offered |= {column: _copied(values) for column, values in columns.items()}
        assert offered.keys() == {*OFFERED, *columns}
        positional, named = arguments_of(function, offered)
        with _errors(name):
            answer = function(*positional, **named)
        returned[name] = answer
        if inspect.isawaitable(answer):
            waiting[name] = _awaited(name, answer)
    returned |= dict(zip(waiting, await asyncio.gather(*waiting.values()), strict=True))
    rewards: list[dict[str, float]] = [{} for _ in completions]
    for name in functions:
        with _errors(name):  # a generator, and numbers of a class of the user's
            values = _checked(name, returned[name], len(completions))
        for place, value in enumerate(values):
            if value is not None:
                rewards[place][name] = value
    return BatchRewards(
        rewards=tuple(found or None for found in rewards),
        notes=remarks.notes() if remarks.columns else (),
        metrics=remarks.metrics(),
    )


def _errors(name: str) -> UserErrors:
    """Return the context in which a reward function's errors become a `RewardError`."""
    cure = "fix it; the run can go on from its last checkpoint"
    return UserErrors(f"reward function {name!r}", RewardError, cure)


async def _awaited(name: str, answer: Awaitable[Any]) -> Any:
    """Return what an async function returns; `SystemExit` must not leave a task."""
    with _errors(name):
        return await answer


def _copied(values: Sequence[Any]) -> list[Any]:
    """Return a copy of every value: equal rows, which a group has, share none."""
    return [copy.deepcopy(value) for value in values]


def _checked(name: str, returned: Any, count: int) -> list[float | None]:
    """Return a function's result as numbers, or raise with the reason."""
    wanted = f"return a list of {count} numbers, None where it does not apply"
    no_list = isinstance(returned, str | bytes | Mapping | Set)
    if no_list or not isinstance(returned, Iterable):
        raise RewardError(f"reward function {name!r} returned {type(returned).__name__}: {wanted}")
    values = list(returned)
    if len(values) != count:
        raise RewardError(
            f"reward function {name!r} returned {len(values)} rewards for {count} completions: "
            f"{wanted}"
        )
    return [_number(name, place, value) for place, value in enumerate(values)]


def _number(name: str, place: int, value: Any) -> float | None:
    if value is None:
        return None
    number = math.nan
    if hasattr(value, "__float__"):  # scalars of numpy and torch have it, text has not
        try:
            number = float(value)
        except OverflowError:  # a whole number that no float holds
            number = math.inf
    if not is_reward(number):
        raise RewardError(
            f"reward function {name!r} returned {value!r} for completion {place}: return a finite "
            f"number, of at most {LARGEST_REWARD:g} in size, or None where it does not apply"
        )
    return number


def _name(function: str, method: str, given: Any) -> str:
    """Return the name of a note or metric as text that can be stored."""
    if not isinstance(given, str):
        raise RewardError(
            f"reward function {function!r}: {method}({given!r}, ...) got a name of type "
            f"{type(given).__name__}: give text"
        )
    return escaped(given)


def _plain(value: Any) -> Any:
    """Return a note as plain JSON; values of other types, nan and infinity become text."""
    text = str(value)  # raises for a whole number with more digits than JSON stores
    if isinstance(value, str):
        return escaped(text)
    plain = isinstance(value, int | None) or (isinstance(value, float) and math.isfinite(value))
    return value if plain else escaped(text)
