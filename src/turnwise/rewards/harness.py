"""The source text around a program, which checks that the program ends and converts its value.

Provides `wrapped` and `unwrapped`. The sandbox runs one text, so all steps are written into it: the
program is compiled and run alone, then the row's `after` alone, then the call is made, and its
value is converted to plain types. The last line stores a random token beside the value. Without the
token the program did not reach its end.

All steps share the program's process. The token is part of the text, so a program that searches its
process can find it; docs/programs.md describes what that implies.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from turnwise.sandbox import Job, Result
from turnwise.utils.python_source import syntax_tree

CANNOT_COME_BACK = "cannot come back"
"""The sandbox's message for a value that is not plain."""
_BROKEN = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)

_TEXT = """
def _driven(program, after, call, given):
    import builtins, linecache, sys, types
    set_trace, set_profile, trace, kept = sys.settrace, sys.setprofile, sys.gettrace(), {}
    run, build, known = exec, compile, vars(builtins)
    kept.update(known)
    set_trace(None)
    module = types.ModuleType("program" if call else "__main__")
    names = module.__dict__
    names["__builtins__"] = builtins
    sys.modules["__main__"] = sys.modules[module.__name__] = module
    linecache.cache["<program>"] = (len(program), None, program.splitlines(True), "<program>")
    if not call:
        names.update(given if type(given) is dict else {"inputs": given})
    try:
        code = build(program, "<program>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return "syntax", None
    try:
        set_trace(trace)
        run(code, names)
    except SystemExit as left:
        if left.code not in (None, 0):
            raise
    finally:
        set_trace(None)
        set_profile(None)
    if after:
        known.clear()
        known.update(kept)
        run(build(after, "<after>", "exec"), names)
    if not call:
        return "value", _plain(names.get("result"), 0)
    if call not in names:
        raise NameError(f"the program defines no {call!r}")
    set_trace(trace)
    value = names[call](**given) if type(given) is dict else names[call](*given)
    set_trace(None)
    return "value", _plain(value, 0)


def _plain(value, depth):
    import collections, decimal, fractions, sys, types
    kind = type(value)
    if value is None or kind in (bool, int, float, complex, str, bytes) or depth > 64:
        return value
    if kind in (list, tuple, set, frozenset):
        return kind([_plain(part, depth + 1) for part in value])
    if isinstance(value, (collections.UserDict, collections.UserList, collections.UserString)):
        return _plain(value.data, depth)
    if isinstance(value, (types.MappingProxyType, collections.ChainMap)):
        value = dict(value)
    if isinstance(value, dict):
        return {_plain(k, depth + 1): _plain(v, depth + 1) for k, v in dict.items(value)}
    if isinstance(value, (list, collections.deque, range)) or kind.__module__ == "array":
        return [_plain(part, depth + 1) for part in value]
    for base in (tuple, frozenset, set):
        if isinstance(value, base):
            return base([_plain(part, depth + 1) for part in value])
    if isinstance(value, (type({}.keys()), type({}.items()))):
        return {_plain(part, depth + 1) for part in value}
    if isinstance(value, (decimal.Decimal, fractions.Fraction)):
        number = float(value)
        finite = number - number == 0
        return int(value) if finite and value == int(value) else number
    if isinstance(value, memoryview):
        return value.tobytes()
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        if isinstance(value, numpy.longdouble):
            return float(value)
        listed = value.tolist()
        return value if type(listed) is kind else _plain(listed, depth)
    for base, read in (
        (int, int.__int__), (float, float.__float__), (complex, complex.__complex__),
        (str, str.__str__), (bytes, bytes.__bytes__),
    ):
        if isinstance(value, base):
            return read(value)
    return value


"""


def wrapped(job: Job, after: str = "") -> tuple[Job, str]:
    """Return the job that runs `job`, then `after`, and the token that it stores at its end.

    Args:
        job: the program and its inputs.
        after: Python that runs once the program has ended, in the program's namespace.
    """
    token = secrets.token_hex(16)
    parts = f"{job.program!r}, {after!r}, {job.call!r}"
    text = f"{_TEXT}result = [{token!r}, *_driven({parts}, given)]\n"
    return replace(job, program=text, call="", inputs={"given": _given(job.inputs)}), token


def unwrapped(result: Result, token: str) -> tuple[str, Result]:
    """Return the failure of a wrapped program, "" if it has none, and its result.

    "unfinished": the program ended well and the end was not reached.
    """
    if not result.ok:
        return str(result.failure), result
    left = result.value
    if not isinstance(left, list) or len(left) != 3 or left[0] != token:
        return "unfinished", result
    if left[1] != "value":
        return "syntax", result
    return "", replace(result, value=left[2])


def needs_plain(result: Result) -> bool:
    """Return whether a program's value was refused for its type."""
    return result.failure == "exception" and CANNOT_COME_BACK in result.message


@lru_cache(1024)
def is_whole(text: str) -> bool:
    """Return whether `text` is valid Python by itself, and so can run separately.

    Example:
        >>> is_whole("assert double(2) == 4"), is_whole("    return total"), is_whole("")
        (True, False, False)
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(syntax_tree(text).body)
    except _BROKEN:
        return False


def _given(inputs: Sequence[Any] | Mapping[str, Any]) -> Any:
    return dict(inputs) if isinstance(inputs, Mapping) else list(inputs)
