"""Kept delivery failures are reported once, and retrieval has no side effects."""

import sys
import threading

import pytest

from quorumlog.clients.producer.batch_encoder import split
from quorumlog.clients.producer.batches import Batch
from quorumlog.clients.producer.outcomes import BATCHES_KEPT, Failures
from quorumlog.clients.producer.partition_queue import PartitionQueue
from quorumlog.errors import TimedOut


def batch_of(count: int) -> Batch:
    batch = Batch(PartitionQueue("t", 0))
    batch.values = [b"%d" % number for number in range(count)]
    batch.keys = [None] * count
    batch.timestamps.extend(range(count))
    batch.count = count
    return batch


def test_second_retrieval_of_a_record_hides_no_other_failure() -> None:
    failures = Failures()
    for _ in range(BATCHES_KEPT):
        kept = batch_of(1)
        failures.add([kept])
        kept.fail(TimedOut("late"))
    reported, silent = batch_of(1), batch_of(1)
    reported.callbacks[0] = lambda *_: None
    reported.observe(0)
    for batch in (reported, silent):
        failures.add([batch])
        batch.fail(TimedOut("late"))
    failure = failures.take()
    assert failure is not None
    assert failure.count == BATCHES_KEPT + 1


def test_bulk_outcomes_are_observed_like_single_ones() -> None:
    batch = batch_of(100)
    batch.observe_run(0, 3)
    batch.observe_run(10, 60)
    batch.observe(70)
    looked_at = {0, 1, 2, *range(10, 60), 70}
    expected = [index for index in range(100) if index not in looked_at]
    assert batch.unobserved() == expected
    parts = split(batch)
    batch.become(parts)
    found = [first + index for first, part in parts for index in part.unobserved()]
    assert found == expected


def test_outcomes_may_be_retrieved_while_failures_are_reported() -> None:
    batch = batch_of(50_000)
    (_, part), _ = parts = split(batch)
    batch.become(parts)
    is_over = threading.Event()

    def look() -> None:
        for index in range(batch.count):
            batch.observe(index)
        is_over.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    looker = threading.Thread(target=look)
    try:
        looker.start()
        while not is_over.is_set():
            part.unobserved()
    finally:
        sys.setswitchinterval(interval)
        looker.join()
    assert part.unobserved() == []


@pytest.mark.parametrize("fails", [0, 1])
def test_a_batch_has_failed_when_one_of_its_parts_has(fails: int) -> None:
    batch = batch_of(4)
    parts = split(batch)
    batch.become(parts)
    for index, (_, part) in enumerate(parts):
        if index == fails:
            part.fail(TimedOut("late"))
        else:
            part.complete(0)
    assert batch.is_done
    assert batch.has_failed()
