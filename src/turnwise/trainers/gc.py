"""Python's garbage collector while a run goes on: what is there at its start is not searched again.

Libraries and models are a million objects, and a full collection of them takes half a second.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen() -> Iterator[None]:
    """Leave all objects of now out of collections inside the block."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
