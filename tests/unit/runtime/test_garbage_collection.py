"""Most full garbage collections look only at new objects."""

import gc
import sys
import weakref

import pytest

from quorumlog.runtime import memory
from quorumlog.runtime.memory import short_collections


class Ring:
    """Holds itself: only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


def is_looked_at(ring: Ring) -> bool:
    return any(each is ring for each in gc.get_objects())


def test_what_a_full_collection_finds_alive_is_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Thousands of collected tests alone may be more objects than are looked at in a node.
    monkeypatch.setattr(memory, "FULL_OBJECTS_MAX", sys.maxsize)
    with short_collections():
        kept = Ring()
        gc.collect()
        assert not is_looked_at(kept), "it was put aside"
        gone = weakref.ref(kept)
        del kept
        gc.collect()
        assert gone() is not None
        for _ in range(memory.FULL_EVERY):
            gc.collect()
        assert gone() is None, "everything is looked at now and then"


def test_a_process_of_very_many_objects_is_never_looked_at_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "FULL_OBJECTS_MAX", 10)
    with short_collections():
        kept = Ring()
        gc.collect()
        gone = weakref.ref(kept)
        del kept
        for _ in range(2 * memory.FULL_EVERY):
            gc.collect()
        assert gone() is not None
    gc.collect()
    assert gone() is None


def test_what_dies_young_is_freed_at_once() -> None:
    with short_collections():
        gone = weakref.ref(Ring())
        gc.collect()
        assert gone() is None


def test_everything_is_as_before_in_the_end() -> None:
    before, callbacks = gc.get_threshold(), len(gc.callbacks)
    with short_collections():
        kept = Ring()
        gc.collect()
    assert (gc.get_threshold(), len(gc.callbacks)) == (before, callbacks)
    assert is_looked_at(kept)
