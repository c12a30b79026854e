"""Most full garbage collections visit new objects only."""

import gc
import sys
import weakref

import pytest

from quorumlog.runtime import memory
from quorumlog.runtime.memory import short_collections


class Ring:
    """An object that refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


def is_looked_at(ring: Ring) -> bool:
    return any(each is ring for each in gc.get_objects())


@pytest.mark.long
def test_survivors_of_a_full_collection_are_not_visited_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Thousands of collected tests may have more objects than a node's collections visit.
    monkeypatch.setattr(memory, "FULL_OBJECTS_MAX", sys.maxsize)
    with short_collections():
        kept = Ring()
        gc.collect()
        assert not is_looked_at(kept), "it was frozen"
        gone = weakref.ref(kept)
        del kept
        gc.collect()
        assert gone() is not None
        for _ in range(memory.FULL_EVERY):
            gc.collect()
        assert gone() is None, "every object is visited at intervals"


@pytest.mark.long
def test_process_of_very_many_objects_is_never_collected_as_a_whole(
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


def test_short_lived_objects_are_freed_at_once() -> None:
    with short_collections():
        gone = weakref.ref(Ring())
        gc.collect()
        assert gone() is None


def test_the_collector_is_restored_at_the_end() -> None:
    before, callbacks = gc.get_threshold(), len(gc.callbacks)
    with short_collections():
        kept = Ring()
        gc.collect()
    assert (gc.get_threshold(), len(gc.callbacks)) == (before, callbacks)
    assert is_looked_at(kept)
