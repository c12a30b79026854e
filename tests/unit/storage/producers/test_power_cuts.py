"""The producer state after a power cut at any file operation equals that of the log's batches."""

from typing import Any

import pytest
from tests.unit.storage.log_truncation import truncate

from quorumlog.records import MarkerType
from quorumlog.runtime.ports import Files
from quorumlog.simulation import CrashPoint, NodeKilled, SimWorld
from quorumlog.storage import AppendOrigin, FlushPolicy, Log, LogConfig
from quorumlog.storage.append import write_fully
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.flush import perform_flush
from quorumlog.storage.index import IndexCache
from quorumlog.storage.layout import segment_file
from quorumlog.storage.producer_state import ProducerLimits
from quorumlog.storage.producer_state_manager import ProducerReplay
from quorumlog.storage.recovery import Recovery, recover
from quorumlog.storage.segment import Segment

from .producer_batches import data, marker

FOLDER = "/t-0"
CONFIG = LogConfig(segment_bytes=300, flush_policy=FlushPolicy.REPLICATED)


def open_log(files: Files, *, recovery_point: int) -> Log:
    recovery = Recovery(
        folder=FOLDER,
        config=CONFIG,
        is_clean=False,
        recovery_point=recovery_point,
        log_start_offset=0,
        torn_bytes_max=None,
        wall_ms=0,
    )
    return Log(
        FilePool(files, open_files_max=9),
        IndexCache(1_000),
        name="t-0",
        folder=FOLDER,
        config=CONFIG,
        topic_id=None,
        state=recover(files, recovery),
    )


def append(log: Log, batch: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    write = log.appender.prepare(batch, leader_epoch=0, wall_ms=0, origin=origin)
    assert write is not None
    write_fully(write.file, write.position, write.buffers)
    log.appender.complete(write)


def fill(log: Log, *, first: int, count: int) -> None:
    """Append rounds of three batches in two transactions, one of them aborted."""
    for number in range(first, first + count):
        kind = MarkerType.ABORT if number % 2 else MarkerType.COMMIT
        append(log, data(number, producer=1, txn=True))
        append(log, data(number, producer=2, txn=number % 3 == 0))
        append(log, marker(kind, producer=1), AppendOrigin.INTERNAL)
        if number % 3 == 0:
            append(log, marker(MarkerType.ABORT, producer=2), AppendOrigin.INTERNAL)


def flush(files: Files, log: Log) -> None:
    begun = log.flusher.begin()
    perform_flush(files, begun)
    log.flusher.complete(begun)


def check(files: Files, log: Log) -> None:
    """Check that the producer state equals that of the batches in the log."""
    replay = ProducerReplay(files, FOLDER, snapshots=(), limits=ProducerLimits(), wall_ms=0)
    segments = [
        Segment(FOLDER, base, size=files.size(f"{FOLDER}/{segment_file(base, '.log')}"))
        for base in log.segment_bases
    ]
    replay.catch_up(segments, log.log_end_offset)
    said = dict(replay.states.entries())
    known = dict(log.producers.states.entries())
    assert {producer_id: entry[:4] for producer_id, entry in known.items()} == {
        producer_id: entry[:4] for producer_id, entry in said.items()
    }
    assert {producer_id: entry.batches for producer_id, entry in known.items()} == {
        producer_id: entry.batches for producer_id, entry in said.items()
    }
    undecided = log.producers.states.undecided.first_offset
    assert undecided == replay.states.undecided.first_offset
    aborted = [entry for base in sorted(replay.aborted) for entry in replay.aborted[base]]
    assert log.aborted_transactions(0, log.log_end_offset) == aborted


def crash_in(seed: int, point: CrashPoint, step: Any) -> bool:
    """Run `step(files, log)` up to a crash, then recover and check. Return True if it crashed."""
    with SimWorld(seed) as world:
        node = world.node("n")
        node.start_process()
        files = node.runtime().files
        files.make_folder(FOLDER)
        files.sync_folder("/")
        log = open_log(files, recovery_point=0)
        fill(log, first=0, count=6)
        flush(files, log)
        stored = log.recovery_point
        node.crash_at(point)
        came = False
        try:
            stored = step(files, log)
        except NodeKilled:
            came = True
            stored = min(stored, log.recovery_point, step.lowest)
        node.crash_at(None)
        if not came:
            node.power_cut()
        node.start_process()
        files = node.runtime().files
        log = open_log(files, recovery_point=stored)
        check(files, log)
        node.power_cut()
        node.start_process()
        files = node.runtime().files
        check(files, open_log(files, recovery_point=log.recovery_point))
        return came


class Cut:
    """Truncate, append again and flush."""

    lowest = 8

    def __call__(self, files: Files, log: Log) -> int:
        truncate(log, files, self.lowest)
        check(files, log)
        following = log.producers.states.entry(1)
        assert following is not None
        for number in range(4):
            append(log, data(following.next_sequence + number, producer=1, txn=True))
        flush(files, log)
        return log.recovery_point


class Extend:
    """Append to several segments and flush twice."""

    lowest = 10**9

    def __call__(self, files: Files, log: Log) -> int:
        for first in (6, 9):
            fill(log, first=first, count=3)
            flush(files, log)
        return log.recovery_point


@pytest.mark.long
@pytest.mark.parametrize("step", [Cut(), Extend()], ids=["truncation", "appends"])
@pytest.mark.parametrize("moment", ["before", "inside", "after"])
def test_producer_state_after_a_power_cut_equals_that_of_the_log(step: Any, moment: str) -> None:
    number = 1
    while crash_in(number, CrashPoint(operations=number, power=True, moment=moment), step):
        number += 1
    assert number > 20, f"only {number} operations"
