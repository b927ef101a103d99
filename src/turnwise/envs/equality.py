"""Equality of nested values that hold arrays.

Provides `equal_values`, by which adapters compare observations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def equal_values(left: Any, right: Any) -> bool:
    """Whether nested observations are equal; arrays by content, NaN equal to itself.

    Example:
        >>> equal_values({"at": np.zeros(2)}, {"at": np.zeros(2)})
        True
    """
    if isinstance(left, Mapping):
        return (
            isinstance(right, Mapping)
            and left.keys() == right.keys()
            and all(equal_values(left[k], right[k]) for k in left)
        )
    if isinstance(left, list | tuple):
        same = isinstance(right, list | tuple) and len(left) == len(right)
        return same and all(map(equal_values, left, right))
    return bool(np.array_equal(left, right, equal_nan=np.asarray(left).dtype.kind == "f"))
