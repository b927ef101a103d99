"""The parameters of a policy: how many there are, which values they take, and how they are written.

Provides `ParamSpace` and `Params`. Parameters are whole numbers of steps: 12 is 1.2 where a step is
0.1. Equal policies are therefore equal tuples, and a repeat is recognised exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from turnwise.errors import ConfigError

Params = tuple[int, ...]
"""The parameters of one policy, each a whole number of steps."""
MOST = 1e9
"""Numbers beyond it are no parameters of any space."""
WARMUP_SPREAD = 3.0
"""The standard deviation of the random weights of the warm-up (arXiv:2511.21928, released code)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParamSpace:
    """The values that the parameters of a policy may take.

    Attributes:
        count: the number of parameters.
        low: the smallest value, in steps.
        high: the largest value, in steps.
        decimals: the digits after the point; a step is 10 to the power of minus this.
        choices: whether values are names of actions, which have no order, and not amounts.

    Example:
        >>> space = ParamSpace(count=2, low=-60, high=60, decimals=1)
        >>> space.text((12, -3))
        'params[0]: 1.2, params[1]: -0.3'
    """

    count: int
    low: int
    high: int
    decimals: int = 0
    choices: bool = False

    @property
    def step(self) -> float:
        """The value of one step."""
        return float(10.0**-self.decimals)

    @property
    def size(self) -> int:
        """The number of values of one parameter."""
        return self.high - self.low + 1

    @property
    def policies(self) -> int:
        """The number of different policies."""
        return self.size**self.count

    def values(self, params: Params) -> NDArray[np.float64]:
        """Return parameters as numbers, float64 [count]."""
        return np.asarray(params, dtype=np.float64) / 10**self.decimals

    def written(self, value: int) -> str:
        """Return one value as it is written in prompts and files.

        Example:
            >>> ParamSpace(count=1, low=-60, high=60, decimals=1).written(-5)
            '-0.5'
        """
        return str(Decimal(value).scaleb(-self.decimals))

    def text(self, params: Params) -> str:
        """Return parameters as one line, in the form in which a model is asked for them."""
        return ", ".join(f"params[{i}]: {self.written(value)}" for i, value in enumerate(params))

    def plain(self, params: Params) -> list[float] | list[int]:
        """Return parameters as plain numbers, for a file."""
        return [float(self.written(v)) for v in params] if self.decimals else list(params)

    def read(self, values: object) -> Params:
        """Return the parameters that `plain` wrote.

        Raises:
            ConfigError: if they are not parameters of this space.
        """
        numbers = values if isinstance(values, list) else []
        fits = len(numbers) == self.count and all(
            type(n) in (int, float) and abs(n) <= MOST for n in numbers
        )
        if fits and self.plain(found := self.fitted(np.asarray(numbers, np.float64))) == numbers:
            return found
        raise ConfigError(
            f"params = {str(values)[:80]}: expected a list of {self.count} numbers, each "
            f"{self.described()}"
        )

    def fitted(self, values: NDArray[np.float64]) -> Params:
        """Return the parameters nearest to numbers [count], within the limits.

        Example:
            >>> ParamSpace(count=2, low=-60, high=60, decimals=1).fitted(np.array([0.26, 9.0]))
            (3, 60)
        """
        steps = np.rint(values * 10**self.decimals)
        return tuple(int(v) for v in np.clip(steps, self.low, self.high))

    def drawn(self, rng: np.random.Generator) -> Params:
        """Return random parameters: actions uniformly, weights from N(0, 3)."""
        if self.choices:
            return tuple(int(v) for v in rng.integers(self.low, self.high + 1, self.count))
        return self.fitted(rng.normal(0.0, WARMUP_SPREAD, self.count))

    def described(self) -> str:
        """Return one value's range in words."""
        if self.choices:
            return f"a whole number from {self.low} to {self.high}"
        digits = "one decimal" if self.decimals == 1 else f"{self.decimals} decimals"
        return f"from {self.written(self.low)} to {self.written(self.high)} with {digits}"
