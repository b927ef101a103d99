"""The mark of functions that run programs, which lets a run start the sandbox before training.

Provides `runs_programs` and its test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "turnwise_runs_programs"


def runs_programs(function: F) -> F:
    """Mark a reward function that runs programs in the sandbox.

    Training with it uses the settings in [sandbox] and does not begin if programs cannot be
    isolated.

    Example:
        >>> @runs_programs
        ... def compiles(completions, **columns):
        ...     ...
        >>> is_marked(compiles), is_marked(len)
        (True, False)
    """
    vars(function)[_MARK] = True
    return function


def is_marked(thing: Any) -> bool:
    """Return whether an object has the mark."""
    return hasattr(thing, _MARK)
