"""Soak test of a data directory in one process: no lost record, no growth.

`python -m tests.cluster.storage_soak --minutes 10` appends to logs of every kind (retained by size
and by time, compacted, fsynced, idempotent, with transactions), reads them repeatedly, truncates
one, deletes records of another, while retention and compaction run every half second and the limit
of open files makes the logs close and reopen files. Half way the directory is closed and opened. It
fails if memory or descriptors grow, as `growth` judges, if a reader gets a record that was not
appended at its offset, if a key or an aborted transaction is missing at the end, if the journal
reports a failure, if an expected event never occurred, or if `check` finds a problem in the
directory.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quorumlog.errors import OffsetOutOfRange
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records.codec import decode_all, encode_batch
from quorumlog.records.compression import Codec
from quorumlog.records.control import MarkerType, encode_marker
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime, real
from quorumlog.runtime.files import RealFiles
from quorumlog.storage import AppendOrigin, FlushPolicy, Log, LogConfig
from quorumlog.storage.config import DirectoryConfig
from quorumlog.storage.inspect.directory_check import check
from quorumlog.storage.shell import DataDirectory

from .growth import judge, sample_of

MIB = 1 << 20
TOPICS = {
    kind: TopicId(kind.encode().ljust(16, b"."))
    for kind in ("kept", "brief", "keyed", "synced", "cut", "purged", "decided")
}
KEYS = 1_000
LOGS_A_KIND = 2
SAMPLE_S = 0.5
PAUSE_S = 0.005  # so that other tasks get time on the loop

KINDS = {
    "kept": LogConfig(segment_bytes=MIB // 16, retention_bytes=MIB // 4),
    "brief": LogConfig(segment_bytes=MIB // 16, retention_ms=2_000, segment_ms=1_000),
    "keyed": LogConfig(
        segment_bytes=MIB // 8, compacted=True, delete_enabled=False, min_cleanable_dirty_ratio=0.2
    ),
    "synced": LogConfig(
        segment_bytes=MIB // 16, retention_bytes=MIB // 8, flush_policy=FlushPolicy.FSYNC
    ),
    "cut": LogConfig(segment_bytes=MIB // 16, retention_bytes=MIB // 4),
    "purged": LogConfig(segment_bytes=MIB // 16),
    "decided": LogConfig(segment_bytes=MIB // 16, retention_bytes=MIB // 4),
}
SHRINKING = ("kept", "brief", "synced", "cut", "purged", "decided")
"""The logs with segments that must have been deleted by the end."""

ILL: tuple[str, ...] = (
    "storage.set_aside",
    "storage.log_failed",
    "storage.unlink_failed",
    "storage.litter",
)
ILL += ("storage.checkpoint_failed", "storage.unclean_close", "storage.producers_rebuilt")
"""Journal lines that must not occur on a healthy disk."""

HAPPEN: tuple[str, ...] = (
    "truncations",
    "deletions",
    "duplicates",
    "rounds of reading",
    "storage.cleaned",
)
HAPPEN += ("storage.removed", "transactions: commit", "transactions: abort")
"""Journal lines that must occur."""

CONFIG = DirectoryConfig(
    open_files_max=16,
    index_cache_bytes=64 * 1024,
    retention_check_interval_ms=200,
    clean_buffer_bytes=MIB,
)


@dataclass
class Storage:
    """The logs, expectations and findings of a run."""

    directory: DataDirectory
    ends_s: float
    more_s: float = 0.0  # extra time until all expected events have occurred
    draw: random.Random = field(default_factory=lambda: random.Random(1))
    did: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    sequences: Counter[str] = field(default_factory=Counter)  # by log
    newest: dict[str, dict[bytes, int]] = field(default_factory=dict)  # log, key: offset
    aborted: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # log: first, last

    @property
    def goes_on(self) -> bool:
        """Return True if there is time left, or extra time and an expected event is missing."""
        over_s = time.monotonic() - self.ends_s
        return over_s < 0 or (over_s < self.more_s and not all(self.did[what] for what in HAPPEN))


class Journal(logging.Handler):
    """Counts the journal lines of the storage."""

    def __init__(self, did: Counter[str]) -> None:
        super().__init__()
        self.did = did

    def emit(self, record: logging.LogRecord) -> None:
        """Count a line by its first word."""
        self.did[record.getMessage().split(" ")[0]] += 1


def value_of(name: str, offset: int) -> bytes:
    """Return the value of the record at an offset of a log, which readers compute too."""
    return f"{name}:{offset}:".encode() * 8


def batch_at(
    storage: Storage, log: Log, offset: int, sequence: int, *, is_transactional: bool = False
) -> bytes:
    """Return the batch for `offset`."""
    count = storage.draw.randint(1, 400)
    records = [
        Record(
            offset=0,
            timestamp_ms=int(time.time() * 1000),
            key=str(storage.draw.randrange(KEYS)).encode() if log.config.compacted else None,
            value=value_of(log.name, offset + number),
            headers=(),
        )
        for number in range(count)
    ]
    newest = storage.newest.setdefault(log.name, {})
    for number, record in enumerate(records):
        if record.key is not None:
            newest[record.key] = offset + number
    return encode_batch(
        records,
        is_transactional=is_transactional,
        codec=storage.draw.choice([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]),
        producer_id=1,
        producer_epoch=0,
        base_sequence=sequence,
    )


async def write(storage: Storage, log: Log, kind: str) -> None:
    """Append to one log as its only writer, and run the operations of its kind."""
    directory, sequences = storage.directory, storage.sequences
    while storage.goes_on:
        offset = log.log_end_offset
        batch = batch_at(
            storage, log, offset, sequences[log.name], is_transactional=kind == "decided"
        )
        appended = await directory.append(
            log,
            batch,
            leader_epoch=0,
            origin=AppendOrigin.CLIENT,
            flush=log.config.flush_policy is FlushPolicy.FSYNC,
        )
        storage.did["appends"] += 1
        if appended.base_offset != offset:
            storage.problems.append(f"{log.name}: {appended.base_offset} instead of {offset}")
        sequences[log.name] += appended.next_offset - offset
        if kind == "decided":
            await decide(storage, log, offset)
        log.note_high_watermark(log.log_end_offset)
        chance = storage.draw.random()
        if chance < 0.02 and kind != "decided":
            again = await directory.append(
                log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
            )
            storage.did["duplicates"] += 1
            if again.base_offset != offset:
                storage.problems.append(f"{log.name}: a repeat of {offset} at {again.base_offset}")
        elif chance < 0.06 and kind == "cut":
            # No committed record is removed: the next ones are appended, and truncated before they
            # count.
            await directory.append(
                log,
                encode_batch([Record(0, 0, None, b"uncommitted", ())]),
                leader_epoch=0,
                origin=AppendOrigin.CLIENT,
                flush=False,
            )
            await directory.truncation.truncate(log, log.high_watermark)
            storage.did["truncations"] += 1
        elif chance < 0.1 and kind == "purged":
            start = max(log.log_start_offset, log.log_end_offset - 2_000)
            await directory.truncation.delete_records(log, start)
            storage.did["deletions"] += 1
        await asyncio.sleep(PAUSE_S)


async def decide(storage: Storage, log: Log, first: int) -> None:
    """End the transaction that began at `first`."""
    kind = storage.draw.choice([MarkerType.COMMIT, MarkerType.ABORT])
    offset = log.log_end_offset
    marker = encode_marker(
        producer_id=1,
        producer_epoch=0,
        kind=kind,
        coordinator_epoch=0,
        timestamp_ms=int(time.time() * 1000),
    )
    log.note_high_watermark(offset)
    if log.last_stable_offset != first:
        storage.problems.append(f"{log.name}: stable to {log.last_stable_offset}, not {first}")
    await storage.directory.append(
        log, marker, leader_epoch=0, origin=AppendOrigin.INTERNAL, flush=False
    )
    storage.did[f"transactions: {kind.name.lower()}"] += 1
    if kind is MarkerType.ABORT:
        storage.aborted.setdefault(log.name, []).append((first, offset))


async def read(storage: Storage, log: Log) -> None:
    """Read a log from start to end, repeatedly."""
    while storage.goes_on:
        offset = log.log_start_offset
        while offset < log.high_watermark:
            try:
                found = log.read(offset, max_bytes=256 * 1024, end_offset=log.high_watermark)
                if found is None:
                    break
                content = await storage.directory.reader.read(found)
            except OffsetOutOfRange:  # after retention or a deletion
                offset = log.log_start_offset
                continue
            for record in decode_all(content, start_offset=offset):
                if record.offset < offset or record.value != value_of(log.name, record.offset):
                    storage.problems.append(f"{log.name}: {record.value!r} at {record.offset}")
                    return
            storage.did["bytes read"] += len(content)
            offset = found.next_offset
        storage.did["rounds of reading"] += 1
        await asyncio.sleep(100 * PAUSE_S)


async def watch(storage: Storage) -> None:
    """Sample this process."""
    while storage.goes_on:
        storage.samples.append(sample_of(os.getpid()))
        await asyncio.sleep(SAMPLE_S)


async def soak(
    runtime: Runtime, path: str, seconds: float, *, more_s: float = 0.0
) -> dict[str, Any]:
    """Run for `seconds` and return the report; its `problems` is empty if there was no failure. Up
    to `more_s` seconds are added for expected events that have not occurred."""
    await DataDirectory.format(runtime, path, cluster_id=ClusterId("soak"), node_id=NodeId(1))
    did = Counter[str]()
    journal, logger = Journal(did), logging.getLogger("quorumlog.storage")
    level = logger.level
    logger.addHandler(journal)
    logger.setLevel(logging.INFO)
    storage: Storage | None = None
    try:
        for _ in range(2):
            async with runtime.tasks.scope("soak") as scope:
                directory = await DataDirectory.open(runtime, scope, path, config=CONFIG)
                if storage is None:
                    storage = Storage(directory, ends_s=0, more_s=more_s, did=did)
                storage.directory = directory
                storage.ends_s = time.monotonic() + seconds / 2
                await live(runtime, storage)
                await directory.close()
                scope.cancel()
    finally:
        logger.removeHandler(journal)
        logger.setLevel(level)
    assert storage is not None, "the directory was opened twice"
    return report(storage, path)


async def live(runtime: Runtime, storage: Storage) -> None:
    """Work on every log for the given time, then check the contents."""
    directory, logs = storage.directory, []
    async with runtime.tasks.scope("work") as work:
        work.spawn(watch(storage), name="watch")
        for kind, config in KINDS.items():
            for number in range(LOGS_A_KIND):
                log = await directory.open_log(f"{kind}-{number}", config, topic_id=TOPICS[kind])
                logs.append(log)
                work.spawn(write(storage, log, kind), name=f"write {log.name}")
                work.spawn(read(storage, log), name=f"read {log.name}")
    for log in logs:
        if log.config.compacted:
            await judge_keys(storage, log)
        judge_aborts(storage, log)


async def judge_keys(storage: Storage, log: Log) -> None:
    """Check that the newest record of every key is present."""
    newest = storage.newest.get(log.name, {})  # a short run may have written nothing
    missing, offset = set(newest.values()), log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, max_bytes=MIB)
        if found is None:
            break
        content = await storage.directory.reader.read(found)
        missing -= {record.offset for record in decode_all(content)}
        offset = found.next_offset
    if missing:
        storage.problems.append(f"{log.name}: {len(missing)} keys have lost their newest record")


def judge_aborts(storage: Storage, log: Log) -> None:
    """Check that exactly the aborted transactions are in the index."""
    start, end = log.log_start_offset, log.log_end_offset
    known = {(a.first_offset, a.last_offset) for a in log.aborted_transactions(start, end)}
    happened = {each for each in storage.aborted.get(log.name, []) if each[1] >= start}
    if known != happened:
        storage.problems.append(
            f"{log.name}: {len(happened - known)} aborted transactions are not known,"
            f" {len(known - happened)} never happened"
        )


def report(storage: Storage, path: str) -> dict[str, Any]:
    """Compare the findings of a run with the expectations."""
    growth = judge(storage.problems, "the process", storage.samples)
    for what in HAPPEN:
        if not storage.did[what]:
            storage.problems.append(f"no {what}")
    storage.problems += [f"{storage.did[ill]} times {ill}" for ill in ILL if storage.did[ill]]
    sizes = Counter[str]()
    for kind in KINDS:
        starts = []
        for number in range(LOGS_A_KIND):
            segments = sorted((Path(path) / f"{kind}-{number}").glob("*.log"))
            sizes[kind] += sum(segment.stat().st_size for segment in segments)
            starts += [int(segment.stem) for segment in segments[:1]]
        if kind in SHRINKING and not any(starts):
            storage.problems.append(f"{kind}: no segment went")
    checked = check(RealFiles(), path)
    if not checked.is_ok:
        storage.problems.append(f"the check: {json.dumps(checked.as_dict())[:2_000]}")
    return {
        "did": dict(storage.did),
        "mib": {kind: round(size / MIB, 1) for kind, size in sizes.items()},
        "growth": growth,
        "problems": storage.problems,
    }


def main() -> int:
    """Run, print the report, and return 1 if there are problems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        held = real.run(lambda rt: soak(rt, f"{folder}/data", options.minutes * 60))
    print(json.dumps(held, indent=2))
    print("all held" if not held["problems"] else f"{len(held['problems'])} PROBLEMS")
    return 1 if held["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
