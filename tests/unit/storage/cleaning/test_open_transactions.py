"""Retention and compaction of a log with transactions stop at the last stable offset.

Compaction removes aborted records first and their markers later.
"""

import asyncio
from dataclasses import replace

import pytest

from quorumlog.errors import OffsetOutOfRange
from quorumlog.ids import ProducerIdentity
from quorumlog.records import MarkerType, Record, encode_batch, encode_marker
from quorumlog.records.batch import iterate_batches
from quorumlog.records.codec import decode_batch
from quorumlog.runtime import Runtime
from quorumlog.storage import AppendOrigin, DirectoryConfig, Log, LogConfig
from quorumlog.storage.shell import DataDirectory

from .maintained_directory import (
    COMPACT,
    CONFIG,
    INTERVAL_MS,
    SMALL,
    TOPIC,
    fill,
    opened,
    run,
    until,
    values,
)

PRODUCER = ProducerIdentity(7, 0)
LONG_S = 20 * INTERVAL_MS / 1000


async def write(
    runtime: Runtime, directory: DataDirectory, log: Log, sequence: int, key: bytes = b"k0"
) -> None:
    """Append a record in a transaction of the producer."""
    batch = encode_batch(
        [Record(0, runtime.clock.wall_ms(), key, b"t%d" % sequence)],
        producer_id=PRODUCER.producer_id,
        producer_epoch=PRODUCER.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    await directory.append(log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True)
    log.note_high_watermark(log.log_end_offset)


async def end(runtime: Runtime, directory: DataDirectory, log: Log, kind: MarkerType) -> None:
    marker = encode_marker(
        producer_id=PRODUCER.producer_id,
        producer_epoch=PRODUCER.producer_epoch,
        kind=kind,
        coordinator_epoch=0,
        timestamp_ms=runtime.clock.wall_ms(),
    )
    await directory.append(log, marker, leader_epoch=0, origin=AppendOrigin.INTERNAL, flush=True)
    log.note_high_watermark(log.log_end_offset)


async def fill_others(runtime: Runtime, directory: DataDirectory, log: Log, count: int) -> None:
    """Append records of other keys than those of `write`."""
    for number in range(count):
        batch = encode_batch([Record(0, runtime.clock.wall_ms(), b"o%d" % (number % 2), b"v")])
        await directory.append(log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True)
    log.note_high_watermark(log.log_end_offset)


async def markers(directory: DataDirectory, log: Log) -> list[int]:
    """Return the offsets of the markers that have a record."""
    found, offset = [], log.log_start_offset
    while (taken := log.read(offset, max_bytes=1 << 20)) is not None:
        content = await directory.reader.read(taken)
        for position, header in iterate_batches(content):
            if header.is_control and decode_batch(content[position : position + header.size]):
                found.append(header.base_offset)
        offset = taken.end_of(content)
    return found


@pytest.mark.parametrize(
    "config",
    [replace(SMALL, retention_ms=60_000), replace(SMALL, retention_bytes=300)],
    ids=["time", "size"],
)
def test_retention_stops_at_the_last_stable_offset(config: LogConfig) -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            await fill(runtime, directory, log, 6)
            await write(runtime, directory, log, 0)
            await fill(runtime, directory, log, 12)
            assert log.last_stable_offset == 6
            await asyncio.sleep(120)
            assert 0 < log.log_start_offset <= 6
            assert log.segment_bases[0] <= 6
            await end(runtime, directory, log, MarkerType.COMMIT)
            await until(lambda: log.log_start_offset >= 12, within_ms=120_000)

    run(main)


def test_deleted_records_are_below_the_last_stable_offset() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            log = await directory.open_log("t-0", SMALL, topic_id=TOPIC)
            await fill(runtime, directory, log, 3)
            await write(runtime, directory, log, 0)
            await fill(runtime, directory, log, 3)
            delete = directory.truncation.delete_records
            for offset in (4, 7, 8, -2):
                with pytest.raises(OffsetOutOfRange, match="watermark is 7, the last stable off"):
                    await delete(log, offset)
            assert await delete(log, -1) == 3
            # A follower may lack the marker that made its leader's deletion stable.
            assert await delete(log, 5, is_replicated=True) == 5
            with pytest.raises(OffsetOutOfRange):
                await delete(log, 8, is_replicated=True)
            await end(runtime, directory, log, MarkerType.ABORT)
            assert await delete(log, -1) == log.log_end_offset == 8

    run(main)


def test_compaction_stops_at_the_last_stable_offset() -> None:
    async def main(runtime: Runtime) -> None:
        async with opened(runtime) as directory:
            log = await directory.open_log("t-0", COMPACT, topic_id=TOPIC)
            await fill(runtime, directory, log, 8, keys=1)
            await write(runtime, directory, log, 0)
            await fill(runtime, directory, log, 12, keys=1)
            await asyncio.sleep(LONG_S)
            found = await values(directory, log)
            assert 0 not in found
            assert set(range(8, 21)) <= set(found)
            await end(runtime, directory, log, MarkerType.COMMIT)
            await fill(runtime, directory, log, 6, keys=1)
            await until(lambda: log.size_bytes < 1_500)
            assert 8 not in await values(directory, log)

    run(main)


def test_compaction_drops_aborted_records_and_later_their_marker() -> None:
    """An aborted record supersedes nothing. Its marker stays until its delete horizon, and longer
    if it is the last batch of an active producer."""
    expiry_s, horizon_s = 60, 400

    async def main(runtime: Runtime) -> None:
        limits = replace(CONFIG, producer_expiration_ms=expiry_s * 1_000)
        async with opened(runtime, limits) as directory:
            config = replace(COMPACT, delete_retention_ms=horizon_s * 1_000)
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            await fill(runtime, directory, log, 1, keys=1)
            await write(runtime, directory, log, 0)
            await end(runtime, directory, log, MarkerType.ABORT)
            await fill_others(runtime, directory, log, 8)
            await asyncio.sleep(2 * expiry_s)
            found = await values(directory, log)
            assert found[0] == b"v0"
            assert 1 not in found
            for _ in range(3):  # the header of the aborted batch goes, the marker gets its horizon
                await fill_others(runtime, directory, log, 8)
                await asyncio.sleep(LONG_S)
                assert await markers(directory, log) == [2]
            await asyncio.sleep(horizon_s)
            await fill_others(runtime, directory, log, 8)
            await asyncio.sleep(LONG_S)
            assert await markers(directory, log) == []
            assert (await values(directory, log))[0] == b"v0"

    run(main)


def test_a_producer_with_an_open_transaction_never_expires() -> None:
    async def main(runtime: Runtime) -> None:
        limits = DirectoryConfig(
            retention_check_interval_ms=INTERVAL_MS, producer_expiration_ms=60_000
        )
        async with opened(runtime, limits) as directory:
            log = await directory.open_log("t-0", SMALL, topic_id=TOPIC)
            await write(runtime, directory, log, 0)
            await asyncio.sleep(300)
            states = log.producers.states
            assert states.entry(PRODUCER.producer_id) is not None
            assert log.last_stable_offset == 0
            await end(runtime, directory, log, MarkerType.COMMIT)
            await asyncio.sleep(300)
            assert states.entry(PRODUCER.producer_id) is None
            assert log.last_stable_offset == 2

    run(main)


def test_reset_log_keeps_its_producer_limit() -> None:
    """A follower resets its log to the log start offset of its leader."""

    async def main(runtime: Runtime) -> None:
        limits = DirectoryConfig(producers_max=2)
        async with opened(runtime, limits) as directory:
            log = await directory.open_log("t-0", SMALL, topic_id=TOPIC)
            await fill(runtime, directory, log, 2)
            await directory.truncation.reset(log, 100)
            for producer_id in range(5):
                batch = encode_batch(
                    [Record(0, runtime.clock.wall_ms(), b"k", b"v")],
                    base_offset=100 + producer_id,
                    leader_epoch=0,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=0,
                )
                await directory.append(
                    log, batch, leader_epoch=0, origin=AppendOrigin.REPLICATED, flush=True
                )
            assert [producer_id for producer_id, _ in log.producers.states.entries()] == [3, 4]

    run(main)
