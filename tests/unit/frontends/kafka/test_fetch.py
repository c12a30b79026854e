"""Fetch through the Kafka listener: bounds, waits, errors, offsets and memory."""

import asyncio
import os
import socket
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.kit.batches import batch_of
from tests.kit.kafka_client import RawClient, body_of, framed, read_answer, request_of
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import Run
from tests.kit.waits import wait_until

from quorumlog import simulation
from quorumlog.errors import DiskFailed
from quorumlog.records import MarkerType, Record, decode_all, encode_batch, encode_marker
from quorumlog.runtime import Runtime, real
from quorumlog.runtime.system import sendfile
from quorumlog.storage import AppendOrigin

from .produce_fetch import (
    DELETE_RECORDS,
    FETCH,
    create,
    epoch_ends,
    fetch,
    fetch_fields,
    fetched,
    listed,
    produce,
    run_with_topic,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
DELETE_TOPICS = 20


def values(records: bytes | None) -> list[bytes | None]:
    return [record.value for record in decode_all(records or b"")]


# --- errors --------------------------------------------------------------------------------------


def test_invalid_fetch_is_refused_with_the_code_of_kafka() -> None:
    async def work(kafka: KafkaNode) -> None:
        await produce(kafka.client, batch_of(b"a", b"b"))
        await produce(kafka.client, batch_of(b"c"))
        deletion = {"name": "t", "partitions": [{"partition_index": 0, "offset": 2}]}
        await kafka.client.ask(DELETE_RECORDS, 2, topics=[deletion], timeout=10_000)
        cases: list[tuple[tuple[int, int], dict[str, Any], ErrorCode]] = [
            ((0, 1), {}, ErrorCode.offset_out_of_range),
            ((0, 4), {}, ErrorCode.offset_out_of_range),
            ((0, -1), {}, ErrorCode.offset_out_of_range),
            ((9, 0), {}, ErrorCode.unknown_topic_or_partition),
            ((-1, 0), {}, ErrorCode.unknown_topic_or_partition),
            ((0, 2), {"topic": "nowhere"}, ErrorCode.unknown_topic_or_partition),
            ((0, 2), {"version": 13, "topic_id": b"x" * 16}, ErrorCode.unknown_topic_id),
            ((0, 2), {"version": 11, "replica_id": 2}, ErrorCode.invalid_request),
            ((0, 2), {"part": {"current_leader_epoch": 5}}, ErrorCode.unknown_leader_epoch),
            ((0, 2), {"part": {"last_fetched_epoch": 5}}, ErrorCode.offset_out_of_range),
        ]
        for place, fields, code in cases:
            (result,) = await fetched(kafka.client, place, max_wait=60_000, **fields)
            assert result.error_code == code, f"{place} {fields}"
            assert (result.high_watermark, result.records) == (-1, b"")
        assert values(await fetch(kafka.client, 2)) == [b"c"]

    run_with_topic(work)


def test_each_partition_of_a_fetch_has_its_own_result() -> None:
    async def work(kafka: KafkaNode) -> None:
        await produce(kafka.client, batch_of(b"a"), 1)
        results = await fetched(kafka.client, (9, 0), (1, 0), (0, 0), max_wait=60_000)
        assert [(one.partition_index, int(one.error_code)) for one in results] == [
            (9, ErrorCode.unknown_topic_or_partition),
            (1, 0),
            (0, 0),
        ]
        assert [values(one.records) for one in results] == [[], [b"a"], []]

    run_with_topic(work)


def test_fetch_sessions_are_refused_or_not_created() -> None:
    async def work(kafka: KafkaNode) -> None:
        await produce(kafka.client, batch_of(b"a"))
        for version in (7, 12):
            wanted = fetch_fields(version, (0, 0), session_epoch=0)
            answer = await kafka.client.ask(FETCH, version, **wanted)
            assert (answer.error_code, answer.session_id) == (0, 0)
            wanted = fetch_fields(version, (0, 0), session_id=5, session_epoch=3)
            answer = await kafka.client.ask(FETCH, version, **wanted)
            assert answer.error_code == ErrorCode.fetch_session_id_not_found
            assert answer.responses == ()

    run_with_topic(work)


# --- bounds --------------------------------------------------------------------------------------


def test_batch_above_all_bounds_is_returned_whole_and_alone() -> None:
    async def work(kafka: KafkaNode) -> None:
        for index in (0, 1):
            await produce(kafka.client, batch_of(b"x" * 5_000), index)
            await produce(kafka.client, batch_of(b"y"), index)
        for fields in ({"max_bytes": 1}, {"max_bytes": 1, "part": {"partition_max_bytes": 1}}):
            first, second = await fetched(kafka.client, (0, 0), (1, 0), **fields)
            assert values(first.records) == [b"x" * 5_000]
            assert (values(second.records), second.high_watermark) == ([], 2)

    run_with_topic(work)


def test_partition_returns_whole_batches_up_to_its_bound() -> None:
    async def work(kafka: KafkaNode) -> None:
        for number in range(10):
            await produce(kafka.client, batch_of(b"%d" % number * 1_000))
        size = len(batch_of(bytes(1_000)))
        for bytes_max, count in ((3 * size, 3), (3 * size + 5, 3), (size - 1, 1), (99 * size, 10)):
            part = {"partition_max_bytes": bytes_max}
            (result,) = await fetched(kafka.client, (0, 0), part=part)
            assert len(values(result.records)) == count, f"of {bytes_max} bytes"

    run_with_topic(work)


def test_response_is_bounded_by_the_broker_limit() -> None:
    async def work(kafka: KafkaNode) -> None:
        for _ in range(4):
            await produce(kafka.client, batch_of(bytes(40_000)))
        (result,) = await fetched(kafka.client, (0, 0), max_bytes=2**31 - 1)
        assert len(values(result.records)) == 2

    run_with_topic(work, fetch_bytes_max=100_000)


# --- waiting -------------------------------------------------------------------------------------


def test_a_fetch_at_the_end_waits_for_records_or_its_time(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create(kafka, "t")
            other = await kafka.connect()
            began_ms = runtime.clock.now_ms()
            assert await fetch(kafka.client, 0, max_wait=50) == b""
            assert runtime.clock.now_ms() - began_ms >= 50
            kafka.client.send(FETCH, 12, **fetch_fields(12, (0, 0), max_wait=60_000))
            await produce(other, batch_of(b"a"))
            _, answer = await kafka.client.answer(FETCH, 12)
            assert values(answer.responses[0].partitions[0].records) == [b"a"]
            assert runtime.clock.now_ms() - began_ms < 60_000

    run(main)


def test_fetch_waits_for_its_min_bytes() -> None:
    async def work(kafka: KafkaNode) -> None:
        other = await kafka.connect()
        wanted = fetch_fields(12, (0, 0), (1, 0), max_wait=60_000, min_bytes=1_000)
        kafka.client.send(FETCH, 12, **wanted)
        for number, size in enumerate((100, 600, 600)):
            await produce(other, batch_of(b"x" * size), number % 2)
        _, answer = await kafka.client.answer(FETCH, 12)
        sizes = [len(one.records) for one in answer.responses[0].partitions]
        assert sum(sizes) >= 1_000
        assert min(sizes) > 0

    run_with_topic(work)


def waits(kafka: KafkaNode) -> int:
    """Return the number of waiting fetches."""
    server = kafka.node.parts.kafka
    assert server is not None
    return server.broker.reader.waiting


def usual(kafka: KafkaNode) -> tuple[int, int]:
    """Return the number of answered fetches, and of those on the fast path."""
    server = kafka.node.parts.kafka
    assert server is not None
    found = server.figures.apis["Fetch"]
    return found.answered, found.usual


async def begin_waiting(kafka: KafkaNode) -> RawClient:
    """Return a client whose fetch waits for a minute at the end of partition 0, which has a
    record."""
    await produce(kafka.client, batch_of(b"first"))  # this opens the log
    other = await kafka.connect()
    other.send(FETCH, 12, **fetch_fields(12, (0, 1), max_wait=60_000))
    await wait_until(lambda: waits(kafka) > 0)
    return other


async def waited_for(client: RawClient) -> Any:
    """Return the result of the only partition of a waiting fetch."""
    _, answer = await client.answer(FETCH, 12)
    return answer.responses[0].partitions[0]


def test_waiting_fetch_uses_the_fast_path_and_frees_its_memory() -> None:
    async def work(kafka: KafkaNode) -> None:
        other = await begin_waiting(kafka)
        await produce(kafka.client, batch_of(b"a"))
        result = await waited_for(other)
        assert (values(result.records), result.high_watermark) == ([b"a"], 2)
        assert (waits(kafka), usual(kafka)) == (0, (1, 1))
        server = kafka.node.parts.kafka
        assert server is not None
        assert (server.figures.open, server.memory.taken) == (0, 0)

    run_with_topic(work)


def test_the_end_of_a_connection_cancels_its_waiting_fetch() -> None:
    async def work(kafka: KafkaNode) -> None:
        other = await begin_waiting(kafka)
        other.connection.abort()
        await wait_until(lambda: not waits(kafka))
        await produce(kafka.client, batch_of(b"a"))
        server = kafka.node.parts.kafka
        assert server is not None
        assert (server.figures.open, server.memory.taken) == (0, 0)

    run_with_topic(work)


def test_a_fetch_with_too_few_bytes_waits_no_longer_than_its_maximum() -> None:
    async def work(kafka: KafkaNode) -> None:
        other = await kafka.connect()
        await produce(kafka.client, batch_of(b"first"))
        began_ms = kafka.runtime.clock.now_ms()
        wanted = fetch_fields(12, (0, 1), max_wait=1_000, min_bytes=10_000)
        other.send(FETCH, 12, **wanted)
        await asyncio.sleep(0.6)
        await produce(kafka.client, batch_of(b"a"))
        assert values((await waited_for(other)).records) == [b"a"]
        assert 1_000 <= kafka.runtime.clock.now_ms() - began_ms < 1_100

    run_with_topic(work)


def test_a_waiting_fetch_of_a_deleted_topic_gets_an_error() -> None:
    async def work(kafka: KafkaNode) -> None:
        other = await begin_waiting(kafka)
        topics = [{"name": "t", "topic_id": None}]
        await kafka.client.ask(DELETE_TOPICS, 6, topics=topics, timeout=10_000)
        result = await waited_for(other)
        assert result.error_code == ErrorCode.unknown_topic_or_partition
        assert (waits(kafka), usual(kafka)) == (0, (1, 0))

    run_with_topic(work)


def test_a_fetch_beyond_the_limit_of_waiting_fetches_is_refused() -> None:
    async def work(kafka: KafkaNode) -> None:
        other = await begin_waiting(kafka)
        refused = await fetched(kafka.client, (0, 1), max_wait=60_000)
        assert refused[0].error_code == ErrorCode.kafka_storage_error
        await produce(kafka.client, batch_of(b"a"))
        assert values((await waited_for(other)).records) == [b"a"]

    run_with_topic(work, fetch_waits_max=1)


def test_empty_fetch_is_answered_at_once() -> None:
    async def work(kafka: KafkaNode) -> None:
        wanted = {**fetch_fields(12, (0, 0), max_wait=60_000), "topics": ()}
        began_ms = kafka.runtime.clock.now_ms()
        answer = await kafka.client.ask(FETCH, 12, **wanted)
        assert (answer.error_code, answer.responses) == (0, ())
        assert kafka.runtime.clock.now_ms() - began_ms < 1_000

    run_with_topic(work)


# --- transactions in a log folder ----------------------------------------------------------------


async def append(kafka: KafkaNode, records: bytes) -> None:
    """Append as a follower does, without the validation of a producer's batches."""
    replicas, directory = kafka.node.parts.replicas, kafka.node.parts.directory
    assert replicas is not None
    assert directory is not None
    log = await replicas.hosted.replica_of("t", 0).opened()
    await directory.append_nowait(
        log, records, leader_epoch=0, origin=AppendOrigin.INTERNAL, flush=False
    )


def transactional(value: bytes, producer_id: int, sequence: int = 0) -> bytes:
    return encode_batch(
        [Record(0, 1_000, None, value)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def marker(producer_id: int, kind: MarkerType) -> bytes:
    return encode_marker(
        producer_id=producer_id,
        producer_epoch=0,
        kind=kind,
        coordinator_epoch=0,
        timestamp_ms=1_000,
    )


def test_read_committed_fetch_gets_aborted_transactions_up_to_the_last_stable_offset() -> None:
    async def work(kafka: KafkaNode) -> None:
        await produce(kafka.client, batch_of(b"plain"))
        for records in (
            transactional(b"aborted", 5),
            transactional(b"committed", 6),
            marker(5, MarkerType.ABORT),
            marker(6, MarkerType.COMMIT),
            transactional(b"open", 7),
        ):
            await append(kafka, records)
        await produce(kafka.client, batch_of(b"behind"))  # acknowledged, with everything before it
        for version in (4, 11, 12, 18):
            topic_id = kafka.node.parts.replicas.hosted.topic_id("t")  # type: ignore[union-attr]
            where: dict[str, Any] = {"version": version, "topic_id": topic_id}
            (committed,) = await fetched(kafka.client, (0, 0), isolation_level=1, **where)
            aborted = [
                (one.producer_id, one.first_offset) for one in committed.aborted_transactions
            ]
            assert aborted == [(5, 1)]
            assert (committed.high_watermark, committed.last_stable_offset) == (7, 5)
            assert decode_all(committed.records)[-1].value == b"committed"
            (all_of_it,) = await fetched(kafka.client, (0, 0), **where)
            assert all_of_it.aborted_transactions is None
            assert decode_all(all_of_it.records)[-1].value == b"behind"
        (at_end,) = await fetched(kafka.client, (0, 5), isolation_level=1)
        assert (at_end.error_code, at_end.records) == (0, b"")
        (stable,) = await listed(kafka.client, (0, LATEST), isolation_level=1)
        (newest,) = await listed(kafka.client, (0, LATEST))
        assert (stable.offset, newest.offset) == (5, 7)

    run_with_topic(work)


# --- offsets and epochs --------------------------------------------------------------------------


def test_offsets_are_found_by_time_and_by_name() -> None:
    async def work(kafka: KafkaNode) -> None:
        await produce(kafka.client, batch_of(b"a", b"b", timestamp_ms=1_000))
        await produce(kafka.client, batch_of(b"c", timestamp_ms=9_000))
        await produce(kafka.client, batch_of(b"d", timestamp_ms=5_000))
        wanted = {
            EARLIEST: (0, -1),
            LATEST: (4, -1),
            MAX_TIMESTAMP: (2, 9_000),
            -4: (0, -1),
            -5: (-1, -1),
            -6: (-1, -1),
            0: (0, 1_000),
            1_001: (1, 1_001),
            1_002: (2, 9_000),
            9_001: (-1, -1),
        }
        for timestamp, expected in wanted.items():
            (found,) = await listed(kafka.client, (0, timestamp), version=11)
            assert (found.error_code, found.offset, found.timestamp) == (0, *expected), timestamp

    run_with_topic(work)


@pytest.mark.parametrize(
    ("timestamp", "first_version"), [(MAX_TIMESTAMP, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 12)]
)
def test_special_timestamps_unknown_to_a_version_are_refused(
    timestamp: int, first_version: int
) -> None:
    async def work(kafka: KafkaNode) -> None:
        for version in range(1, 12):
            (found,) = await listed(kafka.client, (0, timestamp), version=version)
            expected = 0 if version >= first_version else ErrorCode.unsupported_version
            assert found.error_code == expected, f"version {version}"

    run_with_topic(work)


def test_each_listed_position_has_its_own_result() -> None:
    async def work(kafka: KafkaNode) -> None:
        results = await listed(kafka.client, (0, LATEST), (9, LATEST), (1, LATEST), (0, EARLIEST))
        assert [int(one.error_code) for one in results] == [
            0,
            ErrorCode.unknown_topic_or_partition,
            0,
            ErrorCode.invalid_request,
        ]

    run_with_topic(work)


def test_reader_with_diverging_records_gets_the_diverging_epoch() -> None:
    """After an unclean election: the reader has records of epoch 0 up to 5, this log up to 2."""

    async def work(kafka: KafkaNode) -> None:
        await produce(kafka.client, batch_of(b"a", b"b"))
        (result,) = await fetched(kafka.client, (0, 2), part={"last_fetched_epoch": 0})
        assert (result.diverging_epoch.epoch, result.diverging_epoch.end_offset) == (-1, -1)
        replicas, directory = kafka.node.parts.replicas, kafka.node.parts.directory
        assert replicas is not None
        assert directory is not None
        log = await replicas.hosted.replica_of("t", 0).opened()
        await directory.append_nowait(
            log, batch_of(b"c"), leader_epoch=4, origin=AppendOrigin.INTERNAL, flush=False
        )
        for last_epoch, offset, parts_at in (
            (0, 3, (0, 2)),
            (3, 3, (0, 2)),
            (4, 3, (-1, -1)),
            (0, 2, (-1, -1)),
        ):
            part = {"last_fetched_epoch": last_epoch}
            (result,) = await fetched(kafka.client, (0, offset), max_wait=100, part=part)
            diverging = result.diverging_epoch
            assert (result.error_code, (diverging.epoch, diverging.end_offset)) == (0, parts_at)
        (end,) = await epoch_ends(kafka.client, (0, 3))
        assert (end.leader_epoch, end.end_offset) == (0, 2)

    run_with_topic(work)


# --- zero copy -----------------------------------------------------------------------------------


@pytest.mark.skipif(sendfile is None, reason="this system has no sendfile")
@pytest.mark.parametrize("is_hot", [True, False], ids=["cached", "cold"])
def test_records_leave_without_being_copied_into_python(folder: str, is_hot: bool) -> None:
    """Python's memory is measured while eight megabytes are sent. Uncached bytes are first read
    into a reused buffer."""
    size = 8 << 20

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create(kafka, "t", max_message_bytes=str(size))
            for _ in range(8):
                await produce(kafka.client, batch_of(bytes(1 << 20)))
            await fetch(kafka.client, 0)  # allocates the memory that every read needs
            if not is_hot:
                drop_from_cache(folder)
            peak, answer = await asyncio.to_thread(receive, kafka.address, size)
            (result,) = answer.responses[0].partitions
            assert [len(value or b"") for value in values(result.records)] == [1 << 20] * 8
            assert peak < 64 << 10, f"{peak} bytes were allocated at once"

    real.run(main)


def receive(address: str, size: int) -> tuple[int, Any]:
    """Fetch into preallocated memory. Return the peak of other allocations."""
    part = {"partition_max_bytes": 2 * size}
    body = body_of(FETCH, 12, fetch_fields(12, (0, 0), max_bytes=2 * size, part=part))
    request = framed(request_of(FETCH, 12, body, correlation_id=1))
    memory = bytearray(size + (1 << 20))
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            connection.sendall(request)
            have, end = 0, 4
            while have < end:
                have += connection.recv_into(memoryview(memory)[have:])
                if have >= 4:
                    end = 4 + int.from_bytes(memory[:4], "big")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    return peak - before, read_answer(FETCH, 12, bytes(memory[4:end]))[1]


def drop_from_cache(folder: str) -> None:
    """Drop the partition's file from the page cache."""
    (path,) = Path(folder).glob("t-0/*.log")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def test_a_failed_replica_is_answered_with_an_error() -> None:
    found: list[Any] = []

    async def main(kafka: KafkaNode) -> None:
        await produce(kafka.client, batch_of(b"one"))
        replicas = kafka.node.parts.replicas
        assert replicas is not None
        replica = replicas.hosted.find("t", 0)
        assert replica is not None
        replica.give_up(DiskFailed("t-0: the disk failed"))
        (part,) = await fetched(kafka.client, (0, 0))
        found.append(part.error_code)

    async def serve(runtime: Runtime) -> None:
        async with serving_kafka(runtime, "/data") as kafka:
            await create(kafka, "t")
            await main(kafka)

    simulation.run(serve)
    assert found == [ErrorCode.kafka_storage_error]
