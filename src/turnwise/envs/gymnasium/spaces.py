"""Conversion between gymnasium's spaces and text: observations to text, text to actions.

Provides `observation_text` for observations, and `Answers` for actions. The text of a model is
hostile input: numbers are matched by a pattern and never evaluated.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from turnwise.errors import ConfigError, IllegalActionError

Decimals = int | tuple[int, ...] | None

MOST_NUMBERS = 64
"""The largest Box that can be written as text without the user's renderer."""
MOST_ACTIONS = 100
"""The largest number of discrete actions that are offered as words."""
MOST_AXES = 8
"""The largest number of numbers in one continuous action."""
MOST_VALUES = 500
"""The largest number of values of one observed number that become words of a nano tokenizer."""
STEPS_OF_RANGE = 100
LONGEST_ANSWER = 200
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})")


def number_text(value: float, decimals: int) -> str:
    """Return `value` rounded to `decimals`, never as minus zero.

    Example:
        >>> number_text(-0.04, 1), number_text(-0.52, 1)
        ('0.0', '-0.5')
    """
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def decimals_of(space: spaces.Box, given: Decimals) -> tuple[int, ...]:
    """Return the decimals of each number of a Box [size], read row by row.

    Without `given`, the decimals resolve a hundredth of a number's range; they are 2 for an
    unbounded range and 0 for whole numbers.

    Raises:
        ConfigError: if `given` is a tuple of another length.
    """
    size = math.prod(space.shape)
    if isinstance(given, tuple):
        if len(given) != size:
            raise ConfigError(
                f"decimals = {list(given)} are {len(given)} numbers, the Box has {size}: give one "
                "for each, or one for all"
            )
        return given
    if given is not None:
        return (given,) * size
    if np.issubdtype(space.dtype, np.integer):
        return (0,) * size
    width = np.asarray(space.high, float).ravel() - np.asarray(space.low, float).ravel()
    return tuple(_enough_decimals(value) for value in width)


def _enough_decimals(width: float) -> int:
    if not math.isfinite(width) or width <= 0 or width > 1e6:
        return 2
    return max(0, math.ceil(-math.log10(width / STEPS_OF_RANGE)))


def check_readable(space: spaces.Space[Any], name: str = "observations") -> None:
    """Refuse a space that has no text.

    Raises:
        ConfigError: for images and other large arrays, and for spaces that are not known here.
    """
    cure = "give `renderer`, a function from the observation to text"
    if isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        size = math.prod(space.shape)
        if size > MOST_NUMBERS:
            raise ConfigError(
                f"{name} are arrays of shape {tuple(space.shape)}, {size} numbers, and at most "
                f"{MOST_NUMBERS} are written as text: {cure}"
            )
    elif isinstance(space, spaces.Tuple | spaces.Dict):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            check_readable(part, f"{name}[{key!r}]")
    elif not isinstance(space, spaces.Discrete | spaces.Text):
        raise ConfigError(f"{name} are a {type(space).__name__}, which has no text here: {cure}")


def observation_text(
    space: spaces.Space[Any], value: Any, decimals: Decimals = None, names: Sequence[str] = ()
) -> str:
    """Return the text of `value`, an element of `space`.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, Text, Box, or a Tuple or Dict of these.
        value: the observation.
        decimals: of the numbers of a Box that is the whole observation.
        names: of the numbers of a Box that is the whole observation, one each.

    Example:
        >>> observation_text(spaces.Discrete(9), 4)
        'state 4'
        >>> box = spaces.Box(-1.0, 1.0, (2,))
        >>> observation_text(box, [0.123, -0.5], names=("x", "y"))
        'x 0.12 y -0.50'
        >>> pair = spaces.Dict({"at": box, "door": spaces.Discrete(2)})
        >>> print(observation_text(pair, {"at": [0, 1], "door": 1}))
        at 0.00 1.00
        door 1
    """
    if isinstance(space, spaces.Discrete):
        return f"state {int(value)}"
    if isinstance(space, spaces.Box) and names:
        numbers = _numbers(space, value, decimals)
        return " ".join(f"{n} {number}" for n, number in zip(names, numbers, strict=True))
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return "\n".join(_parts(space, value))
    return _plain(space, value, decimals)


def _parts(space: spaces.Tuple | spaces.Dict, value: Any) -> Iterator[str]:
    """Yield one line per part: its path and its value."""
    known = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    for key, part in known:
        if isinstance(part, spaces.Tuple | spaces.Dict):
            yield from (f"{key} {line}" for line in _parts(part, value[key]))
        else:
            yield f"{key} {_plain(part, value[key], None)}"


def _plain(space: spaces.Space[Any], value: Any, decimals: Decimals) -> str:
    if isinstance(space, spaces.Text):
        return str(value)
    if isinstance(space, spaces.Discrete):
        return str(int(value))
    if not isinstance(space, spaces.Box):
        return " ".join(str(int(number)) for number in np.ravel(value))
    numbers = _numbers(space, value, decimals)
    if len(space.shape) < 2:
        return " ".join(numbers)
    width = space.shape[-1]
    rows = [numbers[i : i + width] for i in range(0, len(numbers), width)]
    return "\n" + "\n".join(" ".join(row) for row in rows)


def _numbers(space: spaces.Box, value: Any, decimals: Decimals) -> list[str]:
    digits = decimals_of(space, decimals)
    flat = np.asarray(value, dtype=float).ravel()
    return [number_text(number, few) for number, few in zip(flat, digits, strict=True)]


def number_words(space: spaces.Space[Any], decimals: Decimals) -> tuple[str, ...]:
    """Return every number in texts of a bounded Box, so that each becomes one nano token."""
    if not isinstance(space, spaces.Box):
        return ()
    words: dict[str, None] = {}
    low, high = np.asarray(space.low, float).ravel(), np.asarray(space.high, float).ravel()
    for least, most, few in zip(low, high, decimals_of(space, decimals), strict=True):
        count = (most - least) * 10**few
        if math.isfinite(count) and count <= MOST_VALUES:
            words |= dict.fromkeys(_grid(least, most, few))
    return tuple(words)


def _grid(low: float, high: float, decimals: int) -> list[str]:
    """Return all numbers with the given decimals from `low` to `high`, ascending."""
    scale = 10**decimals
    first, last = math.ceil(low * scale - 1e-6), math.floor(high * scale + 1e-6)
    return [number_text(step / scale, decimals) for step in range(first, last + 1)]


class Answers(ABC):
    """The text form of an env's actions."""

    legal_actions: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @abstractmethod
    def read(self, text: str) -> Any:
        """Return the action that `text` names, as the env's `step` takes it.

        Raises:
            IllegalActionError: if it names none.
        """

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> str:
        """Return a uniformly random action."""

    @abstractmethod
    def constants(self) -> Mapping[str, str]:
        """Return the actions of the constant baselines, by the name of the baseline."""


class Words(Answers):
    """Discrete actions: one word each.

    Example:
        >>> answers = Words(spaces.Discrete(2), ("STICK", "HIT"))
        >>> answers.read("HIT"), answers.legal_actions
        (1, ('STICK', 'HIT'))
    """

    def __init__(self, space: spaces.Discrete, names: Sequence[str]) -> None:
        if space.n > MOST_ACTIONS:
            raise ConfigError(
                f"{space.n} discrete actions are too many to be words: at most {MOST_ACTIONS}; "
                "wrap the env so that it has fewer"
            )
        numbers = [str(space.start + i) for i in range(int(space.n))]
        self.legal_actions = self.words = tuple(names) or tuple(numbers)
        folded = {word.strip().casefold() for word in self.legal_actions}
        if len(self.legal_actions) != space.n or len(folded) != space.n or "" in folded:
            raise ConfigError(
                f"actions = {list(self.legal_actions)} must be {space.n} different words, "
                f"for the actions {numbers[0]} to {numbers[-1]} in this order"
            )
        self._start = int(space.start)

    def read(self, text: str) -> int:
        """Return the number of the action called `text`."""
        if text not in self.legal_actions:
            raise IllegalActionError(f"{text[:40]!r} is none of {', '.join(self.legal_actions)}")
        return self._start + self.legal_actions.index(text)

    def draw(self, rng: np.random.Generator) -> str:
        """Return any of the words."""
        return self.legal_actions[rng.integers(len(self.legal_actions))]

    def constants(self) -> Mapping[str, str]:
        """Return every word."""
        return {f"always-{word.lower()}": word for word in self.legal_actions}


class Numbers(Answers):
    """Continuous actions: as many numbers as the Box has, separated by blanks or commas.

    A number out of bounds is refused and not clipped, so that the action is the one in the text.

    Example:
        >>> answers = Numbers(spaces.Box(-1.0, 1.0, (1,)), 1)
        >>> answers.read("-0.7").tolist(), answers.constants()["always-high"]
        ([-0.699999988079071], '1.0')
        >>> answers.read("nan")
        Traceback (most recent call last):
            ...
        turnwise.errors.IllegalActionError: 'nan' is no action: give a number from -1 to 1
    """

    def __init__(self, space: spaces.Box, decimals: int) -> None:
        size = math.prod(space.shape)
        low, high = np.asarray(space.low, float).ravel(), np.asarray(space.high, float).ravel()
        if size > MOST_AXES or not size:
            raise ConfigError(
                f"actions are {size} numbers, and 1 to {MOST_AXES} can be written as text: wrap "
                "the env so that it has fewer"
            )
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ConfigError(
                "actions have no bounds, so that none is random: wrap the env in gymnasium's "
                "RescaleAction or ClipAction"
            )
        self._space, self._low, self._high = space, low, high
        self._whole = np.issubdtype(space.dtype, np.integer)
        self._decimals = 0 if self._whole else decimals
        pairs = zip(low, high, strict=True)
        self._axes = [_grid(least, most, self._decimals) for least, most in pairs]
        if not all(self._axes):
            raise ConfigError(
                f"action_decimals = {decimals} leaves no number between {low.tolist()} and "
                f"{high.tolist()}: raise it"
            )
        self.words = tuple(dict.fromkeys(word for axis in self._axes for word in axis))

    def read(self, text: str) -> np.ndarray:
        """Return the numbers in `text` as the env's array."""
        parts = text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()
        fits = len(text) <= LONGEST_ANSWER and len(parts) == len(self._low)
        if fits and all(_NUMBER.fullmatch(part) for part in parts):
            values = np.array([float(part) for part in parts])
            inside = (self._low <= values) & (values <= self._high)
            whole = not self._whole or (values == np.round(values)).all()
            if inside.all() and whole:
                return values.astype(self._space.dtype).reshape(self._space.shape)
        raise IllegalActionError(f"{text[:40]!r} is no action: give {self._wanted()}")

    def _wanted(self) -> str:
        kind = "whole number" if self._whole else "number"
        ranges = [
            f"{least:g} to {most:g}" for least, most in zip(self._low, self._high, strict=True)
        ]
        if len(ranges) == 1:
            return f"a {kind} from {ranges[0]}"
        return f"{len(ranges)} {kind}s, from {', '.join(ranges)}"

    def draw(self, rng: np.random.Generator) -> str:
        """Return numbers of the grid of `decimals`, uniformly."""
        return " ".join(axis[rng.integers(len(axis))] for axis in self._axes)

    def constants(self) -> Mapping[str, str]:
        """Return the lowest, the middle and the highest value of every number, in one size."""
        places = {"low": 0, "middle": None, "high": -1}
        return {
            f"always-{name}": " ".join(
                axis[len(axis) // 2 if place is None else place] for axis in self._axes
            )
            for name, place in places.items()
        }


def answers_for(space: spaces.Space[Any], names: Sequence[str], decimals: int) -> Answers:
    """Return how actions of `space` are written.

    Raises:
        ConfigError: if they cannot be, or `names` do not fit them.
    """
    if isinstance(space, spaces.Discrete):
        return Words(space, names)
    if names:
        raise ConfigError(
            f"actions = {list(names)} name discrete actions, but they are a "
            f"{type(space).__name__}: leave them out"
        )
    if isinstance(space, spaces.Box):
        return Numbers(space, decimals)
    raise ConfigError(
        f"actions are a {type(space).__name__}, expected Discrete or a small Box: wrap the env so "
        "that it takes one of these"
    )


def exact_text(observation: Any) -> str:
    """Return an observation as text in which different ones differ."""
    if isinstance(observation, np.ndarray):
        return f"{observation.dtype}{observation.shape}{observation.tobytes().hex()}"
    if isinstance(observation, Mapping):
        return str({key: exact_text(value) for key, value in sorted(observation.items())})
    if isinstance(observation, tuple | list):
        return str([exact_text(value) for value in observation])
    return str(observation)
