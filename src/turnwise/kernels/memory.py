"""Freed memory is kept for the next tensor of its size instead of going back to the system.

Owns the two settings of glibc's allocator that decide it. By default every large tensor is mapped
anew, and its first use costs a page fault for each 4 KiB: a fifth of a training step.
"""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = -1
"""No number is: the largest that fits is 2 GiB, of which a large model frees more at every step."""


@cache
def keep_freed_memory() -> bool:
    """Keep it from now on, for the whole process; return whether the allocator can be told so."""
    try:
        tell = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    return bool(tell(_MMAP_MAX, 0)) and bool(tell(_TRIM_THRESHOLD, _NEVER))
