"""The objects that the garbage collector visits during a run."""

from __future__ import annotations

import gc
import weakref

import pytest

from turnwise.trainers.gc import frozen


class Loop:
    """An object that only the collector can free."""

    def __init__(self):
        self.me = self


def test_what_is_there_is_frozen_garbage_is_not_and_all_comes_back():
    gc.disable()
    try:
        garbage, kept = weakref.ref(Loop()), Loop()
        with frozen():
            assert garbage() is None
            assert gc.get_freeze_count() > 1000
            assert not any(found is kept for found in gc.get_objects())
        assert gc.get_freeze_count() == 0
        assert any(found is kept for found in gc.get_objects())
        with pytest.raises(KeyError), frozen():
            raise KeyError
        assert gc.get_freeze_count() == 0
    finally:
        gc.enable()
