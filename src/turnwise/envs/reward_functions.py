"""Reward functions as TRL takes them: lists in, one number for each completion out.

Owns how a function is found by name, called for a whole batch, and checked: keyword arguments
`prompts`, `completions`, `completion_ids`, every other column of the rows, `trainer_state`,
`log_extra` and `log_metric`; a list of numbers back, None where the function does not apply. Facts
of the interface: TRL 1.16, `GRPOTrainer._calculate_rewards`. Which arguments a function takes is
`reward_arguments`'. Knows nothing of rows or files.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from turnwise.envs.base import Settlement
from turnwise.envs.reward_arguments import OFFERED, arguments_of
from turnwise.errors import ConfigError, RewardError
from turnwise.imports import is_import_name, load_object

RewardFunction: TypeAlias = Callable[..., Any]
RESERVED = ("invalid", "seeing", "return")
"""Names of reward components that are not the user's to give."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerState:
    """How far training is, for rewards that change with time.

    `global_step` counts finished iterations, which are optimizer steps unless a recipe divides its
    batches; `max_steps` is how many there are to be. In evaluation it is the number of the last.

    Example:
        >>> TrainerState(global_step=3, max_steps=30).global_step
        3
    """

    global_step: int
    max_steps: int


@dataclass(kw_only=True, slots=True)
class Remarks:
    """What reward functions said beside their rewards: columns of notes, and numbers.

    Example:
        >>> remarks = Remarks(count=2)
        >>> remarks.log_metric("hits", 1.0)
        >>> remarks.metrics()
        {'reward_metric/hits': 1.0}
    """

    count: int
    columns: dict[str, list[Any]] = field(default_factory=dict)
    numbers: dict[str, list[float]] = field(default_factory=dict)

    def log_extra(self, column: str, values: Iterable[Any]) -> None:
        """Keep a value for each completion; it is recorded with the episode."""
        values = list(values)
        if len(values) != self.count:
            raise RewardError(
                f"log_extra({column!r}, ...) got {len(values)} values for {self.count} "
                "completions: give one for each"
            )
        self.columns[column] = [_plain(value) for value in values]

    def log_metric(self, name: str, value: float) -> None:
        """Keep a number of the batch; it is logged as the metric `reward_metric/<name>`."""
        self.numbers.setdefault(name, []).append(float(value))

    def metrics(self) -> dict[str, float]:
        """Return the numbers, averaged where one name was logged more than once."""
        return {f"reward_metric/{k}": sum(v) / len(v) for k, v in self.numbers.items()}

    def notes(self) -> tuple[dict[str, Any], ...]:
        """Return one dict of notes for each completion."""
        return tuple({k: v[i] for k, v in self.columns.items()} for i in range(self.count))


def name_of(function: RewardFunction) -> str:
    """Return what a reward function's component is called.

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
        ConfigError: for a reward model, and for what cannot be called.
    """
    if hasattr(thing, "forward") and hasattr(thing, "parameters"):
        raise ConfigError(
            f"a reward model ({type(thing).__name__}) is not taken as a reward: give a function "
            "that calls it, completions in and a list of numbers out"
        )
    if isinstance(thing, type) or not callable(thing):
        raise ConfigError(f"{thing!r} is no reward function: give a function, or a list of them")
    return thing


def load_functions(names: Sequence[str]) -> dict[str, RewardFunction]:
    """Return component -> function for functions named "file.py:function".

    Raises:
        ConfigError: if a name leads to no function, is that of a reward model, or is reserved.

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
        function = check_function(load_object(name))
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
) -> Settlement:
    """Call every function once with the whole batch; those that are async wait side by side.

    A function is given the arguments that it takes: all of them where it has `**kwargs`.

    Raises:
        RewardError: if one returns something else than one number or None for each completion.
    """
    remarks = Remarks(count=len(completions))
    waiting: dict[str, Any] = {}
    returned: dict[str, Any] = {}
    for name, function in functions.items():
        offered: dict[str, Any] = {
            "prompts": list(prompts),
            "completions": list(completions),
            "completion_ids": [list(ids) for ids in completion_ids],
            "trainer_state": state,
            "log_extra": remarks.log_extra,
            "log_metric": remarks.log_metric,
        }
        offered |= {column: list(values) for column, values in columns.items()}
        assert offered.keys() == {*OFFERED, *columns}
        positional, named = arguments_of(function, offered)
        answer = function(*positional, **named)
        returned[name] = answer
        if inspect.isawaitable(answer):
            waiting[name] = answer
    returned |= dict(zip(waiting, await asyncio.gather(*waiting.values()), strict=True))
    rewards: list[dict[str, float]] = [{} for _ in completions]
    for name in functions:
        for place, value in enumerate(_checked(name, returned[name], len(completions))):
            if value is not None:
                rewards[place][name] = value
    return Settlement(
        rewards=tuple(found or None for found in rewards),
        notes=remarks.notes() if remarks.columns else (),
        metrics=remarks.metrics(),
    )


def _checked(name: str, returned: Any, count: int) -> list[float | None]:
    """Return a function's answer as numbers, or refuse it in one sentence."""
    wanted = f"return a list of {count} numbers, None where it does not apply"
    if isinstance(returned, str | bytes | Mapping) or not isinstance(returned, Iterable):
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
    if hasattr(value, "__float__"):  # numpy's and torch's scalars have it, text has not
        number = float(value)
    if not math.isfinite(number):
        raise RewardError(
            f"reward function {name!r} returned {value!r} for completion {place}: return a finite "
            "number, or None where it does not apply"
        )
    return number


def _plain(value: Any) -> Any:
    """Return a note that JSON can hold: plain values as they are, others as their text."""
    return value if isinstance(value, str | int | float | bool | None) else str(value)
