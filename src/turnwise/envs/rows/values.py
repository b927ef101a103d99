"""Values of rows' columns as JSON that keeps their types.

Provides `encode`, `encode_row` and `decode`. JSON has no tuples, sets, bytes, complex or decimal
numbers, no keys other than text and no numpy types. `encode` writes such a value as an object with
the key `__turnwise__`, the name of its type, and `value`; `decode` reads it back. Files, tasks and
episodes store plain JSON; only reward functions get decoded values.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from turnwise.errors import DataError
from turnwise.utils.data_files import check_depth, check_value

TAG = "__turnwise__"
VALUE = "value"
KINDS = "biufc"
"""Kinds of numpy's dtypes that are supported: booleans and numbers."""
KEPT = (
    "None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, Decimal, "
    "Fraction and numpy's numbers and arrays of them"
)


def encode(value: Any, where: str) -> Any:
    """Return `value` as plain JSON that `decode` converts back.

    Args:
        value: a value of a column.
        where: the row and column, for messages.

    Raises:
        DataError: for an unsupported type, and for values that `check_value` refuses.

    Example:
        >>> encode({"inputs": (1, {2})}, "row 0")["inputs"]
        {'__turnwise__': 'tuple', 'value': [1, {'__turnwise__': 'set', 'value': [2]}]}
    """
    encoded = _encoded(value, where, 0)
    check_value(encoded, where)
    return encoded


def decode(value: Any, where: str) -> Any:
    """Return the value that `encode` wrote.

    Raises:
        DataError: if an object with the key `__turnwise__` is malformed.

    Example:
        >>> decode({"__turnwise__": "dict", "value": [[1, "one"]]}, "row 0")
        {1: 'one'}
    """
    if isinstance(value, list):
        return [decode(part, where) for part in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: decode(part, where) for key, part in value.items()}
    name = value[TAG]
    if set(value) != {TAG, VALUE} or not isinstance(name, str) or name not in _DECODERS:
        _refuse_tag(where, value)
    try:
        return _DECODERS[name](decode(value[VALUE], where))
    except (TypeError, ValueError, ArithmeticError):
        _refuse_tag(where, value)


def encode_row(row: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """Return a row with every column encoded.

    Raises:
        DataError: if a column's name is not text, or a value is not supported.
    """
    for column in row:
        if not isinstance(column, str):
            raise DataError(f"{where}: column {column!r} is not text: name every column by text")
        check_value(column, f"{where}, the name of column {column!r}")
    return {str(k): encode(value, f"{where}, column {k!r}") for k, value in row.items()}


def _refuse_tag(where: str, value: Mapping[str, Any]) -> NoReturn:
    raise DataError(
        f"{where}: {str(value)[:80]} is not a typed value: write "
        f'{{"{TAG}": NAME, "{VALUE}": ...}} with one of {", ".join(_DECODERS)}, or name the key '
        f"{TAG!r} otherwise"
    )


def _encoded(value: Any, where: str, depth: int) -> Any:
    """Return `value` as plain JSON that is in `depth` lists and objects."""
    kind = type(value)
    check_depth(where, depth)
    if value is None or kind in (bool, int, float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        return _of_numpy(value, where, depth)
    if isinstance(value, Mapping):
        return _mapping(value, where, depth)
    if isinstance(value, list):
        return _parts(value, where, depth + 1)
    if isinstance(value, tuple | set | frozenset):
        name = next(t for t in (tuple, frozenset, set) if isinstance(value, t)).__name__
        return _tagged(name, _parts(_ordered(value), where, depth + 2))
    if isinstance(value, bytes | bytearray):
        return _tagged("bytes", base64.b64encode(value).decode())
    if kind is complex:
        return _tagged("complex", [value.real, value.imag])
    if isinstance(value, Decimal | Fraction):
        if isinstance(value, Fraction):  # whose text has the digits of both
            check_value([value.numerator, value.denominator], where)
        return _tagged(kind.__name__, str(value))
    raise DataError(f"{where}: a value of type {kind.__name__} cannot be kept: use {KEPT}")


def _mapping(value: Mapping[Any, Any], where: str, depth: int) -> Any:
    """Return an object if all keys are text, else a list of pairs."""
    if all(isinstance(key, str) for key in value) and TAG not in value:
        return {str(k): _encoded(v, where, depth + 1) for k, v in value.items()}
    return _tagged("dict", [_parts(pair, where, depth + 3) for pair in value.items()])


def _parts(values: Sequence[Any], where: str, depth: int) -> list[Any]:
    return [_encoded(part, where, depth) for part in values]


def _ordered(values: Any) -> list[Any]:
    """Return the parts; those of a set in an order that is equal in every process."""
    return list(values) if isinstance(values, tuple) else sorted(values, key=repr)


def _of_numpy(value: Any, where: str, depth: int) -> Any:
    if value.dtype.kind in "OSU":  # text and objects: use lists
        return _encoded(value.tolist(), where, depth + 1)  # an array may hold itself
    if value.dtype.kind not in KINDS or value.dtype.itemsize > 16:
        raise DataError(f"{where}: a numpy value of {value.dtype} cannot be kept: use {KEPT}")
    name = "array" if isinstance(value, np.ndarray) else "number"
    plain = np.asarray(value)
    flat = _parts(plain.ravel().tolist(), where, depth + 3)
    return _tagged(name, [value.dtype.name, list(plain.shape), flat])


def _tagged(name: str, value: Any) -> dict[str, Any]:
    return {TAG: name, VALUE: value}


def _array(inner: Any) -> np.ndarray[Any, Any]:
    name, shape, flat = inner
    dtype = np.dtype(name)
    if dtype.kind not in KINDS:
        raise ValueError(name)
    return np.array(flat, dtype).reshape(shape)


def _number(inner: Any) -> Any:
    return _array(inner)[()]


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "bytes": lambda inner: base64.b64decode(inner, validate=True),
    "complex": lambda inner: complex(*inner),
    "Decimal": Decimal,
    "Fraction": Fraction,
    "array": _array,
    "number": _number,
}
