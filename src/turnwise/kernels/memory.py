"""Reuse of freed memory by the allocator, instead of its return to the operating system.

Provides `keep_freed_memory`, which sets two options of glibc's allocator. By default every large
tensor is mapped anew, and its first use causes a page fault for each 4 KiB: a fifth of the time of
a training step.
"""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = -1
"""Disables trimming. The largest threshold that fits is 2 GiB, and a large model frees more than
that in every step."""


@cache
def keep_freed_memory() -> bool:
    """Keep freed memory in the whole process; return whether the allocator supports it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
