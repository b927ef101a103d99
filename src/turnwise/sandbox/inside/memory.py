"""Memory for programs in place of shared anonymous maps: `PrivateMap`.

No limit counts the pages of shared memory without a file: they remain when all but one of them are
unmapped. The filter therefore refuses such maps. For a single process private memory is equivalent.
"""

from __future__ import annotations

import mmap


class PrivateMap(mmap.mmap):
    r"""`mmap.mmap`, in which memory without a file is always private.

    Example:
        >>> with PrivateMap(-1, 4096) as memory:
        ...     memory[:2] = b"ab"
        ...     memory[:3]
        b'ab\x00'
    """

    def __new__(
        cls,
        fileno: int,
        length: int,
        flags: int = mmap.MAP_SHARED,
        prot: int = mmap.PROT_READ | mmap.PROT_WRITE,
        access: int = mmap.ACCESS_DEFAULT,
        offset: int = 0,
    ) -> PrivateMap:
        """Map a file, or memory where `fileno` is -1."""
        if fileno != -1 or access == mmap.ACCESS_COPY:
            return super().__new__(cls, fileno, length, flags, prot, access, offset)
        prot = mmap.PROT_READ if access == mmap.ACCESS_READ else prot
        flags = flags & ~mmap.MAP_SHARED | mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        return super().__new__(cls, fileno, length, flags, prot, offset=offset)


PrivateMap.__name__ = PrivateMap.__qualname__ = "mmap"
