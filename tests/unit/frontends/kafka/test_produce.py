"""Produce through the Kafka listener: accepted batches, refusals and the order."""

import asyncio
import gc
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode
from tests.kit.batches import batch_of
from tests.kit.kafka_client import ConnectionEnded, connect
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import Run

from quorumlog import simulation
from quorumlog.records import Codec, Record, decode_all, encode_batch
from quorumlog.runtime import Runtime

from .produce_fetch import (
    PRODUCE,
    create,
    fetch,
    listed,
    produce,
    produce_fields,
    produced,
    run_with_topic,
)

FOLDER = "/data"


def by_producer(value: bytes, sequence: int, *, epoch: int = 0, **envelope: Any) -> bytes:
    return encode_batch(
        [Record(0, 1_000, None, value)],
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        **envelope,
    )


async def values(kafka: KafkaNode, index: int = 0) -> list[bytes | None]:
    return [record.value for record in decode_all(await fetch(kafka.client, 0, index))]


async def stored(kafka: KafkaNode, *expected: bytes, index: int = 0) -> None:
    """Wait until a partition has exactly these records, in any order."""
    async with asyncio.timeout(60):
        while len(found := await values(kafka, index)) < len(expected):  # noqa: ASYNC110 (there is no event)
            await asyncio.sleep(0.01)
    assert sorted(value or b"" for value in found) == sorted(expected)


OLD_MESSAGE = b"\x00" * 8 + b"\x00\x00\x00\x0e" + b"\x00" * 4 + b"\x01" + b"\x00" * 13

REFUSED: list[tuple[bytes | None, dict[str, Any], ErrorCode]] = [
    (batch_of(b"a"), {"acks": 2}, ErrorCode.invalid_required_acks),
    (None, {}, ErrorCode.invalid_record),
    (b"", {}, ErrorCode.invalid_record),
    (batch_of(b"a")[:-1], {}, ErrorCode.corrupt_message),
    (batch_of(b"a")[:-1] + b"\xff", {}, ErrorCode.corrupt_message),
    (b"\x00" * 30, {}, ErrorCode.unsupported_for_message_format),
    (OLD_MESSAGE, {}, ErrorCode.unsupported_for_message_format),
    (batch_of(bytes(2 << 20)), {}, ErrorCode.message_too_large),
    (batch_of(b"a"), {"topic": "nowhere"}, ErrorCode.unknown_topic_or_partition),
    (batch_of(b"a"), {"topic": ""}, ErrorCode.unknown_topic_or_partition),
    (batch_of(b"a"), {"version": 13, "topic_id": b"x" * 16}, ErrorCode.unknown_topic_id),
    (by_producer(b"a", 0, is_transactional=True), {}, ErrorCode.invalid_txn_state),
    (by_producer(b"a", 0) + by_producer(b"b", 1), {}, ErrorCode.invalid_record),
    (batch_of(b"a") + batch_of(b"b"), {}, ErrorCode.invalid_record),
]


def test_invalid_batch_is_refused_with_the_code_of_kafka() -> None:
    async def work(kafka: KafkaNode) -> None:
        for records, fields, code in REFUSED:
            (result,) = await produced(kafka.client, (0, records), **fields)
            assert result.error_code == code, f"{fields} of {records!r:.40}"
            assert (result.base_offset, result.log_append_time) == (-1, None)
            assert result.error_message, f"{fields} has no reason"
        (result,) = await produced(kafka.client, (7, batch_of(b"a")))
        assert result.error_code == ErrorCode.unknown_topic_or_partition
        assert await produce(kafka.client, batch_of(b"z")) == 0  # none of them was stored

    run_with_topic(work)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("version", [8, 9, 13])
def test_produce_names_the_invalid_records_of_a_batch(codec: Codec, version: int) -> None:
    """KIP-467: a compacted topic refuses records without a key."""

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, FOLDER) as kafka:
            topic_id = await create(kafka, "t", cleanup_policy="compact")
            keys = [None if index % 10 == 3 else b"k" for index in range(100)]
            batch = encode_batch([Record(0, 1_000, key, b"v") for key in keys], codec=codec)
            (result,) = await produced(kafka.client, (0, batch), version=version, topic_id=topic_id)
            assert result.error_code == ErrorCode.invalid_record
            named = {
                each.batch_index: each.batch_index_error_message for each in result.record_errors
            }
            assert list(named) == [index for index, key in enumerate(keys) if key is None]
            assert set(named.values()) == {"the record has no key; the topic is compacted"}
            whole = encode_batch([Record(0, 1_000, b"k", b"v")])
            assert await produce(kafka.client, whole) == 0

    simulation.run(main)


@pytest.mark.parametrize("limit", ["before", "after"])
def test_produce_names_the_records_with_a_time_out_of_range(limit: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, FOLDER) as kafka:
            configs: dict[str, Any] = {f"message_timestamp_{limit}_max_ms": "1000"}
            await create(kafka, "t", **configs)
            now_ms = runtime.clock.wall_ms()
            wrong_ms = now_ms + (60_000 if limit == "after" else -60_000)
            times = [wrong_ms if index in (2, 5) else now_ms for index in range(8)]
            batch = encode_batch([Record(0, time_ms, None, b"v") for time_ms in times])
            (result,) = await produced(kafka.client, (0, batch))
            assert result.error_code == ErrorCode.invalid_timestamp
            assert [each.batch_index for each in result.record_errors] == [2, 5]

    simulation.run(main)


def test_each_partition_of_a_produce_request_has_its_own_result() -> None:
    async def work(kafka: KafkaNode) -> None:
        results = await produced(
            kafka.client, (2, batch_of(b"c")), (0, batch_of(b"a")[:-1]), (1, batch_of(b"b", b"b"))
        )
        assert [(one.index, int(one.error_code), one.base_offset) for one in results] == [
            (2, 0, 0),
            (0, ErrorCode.corrupt_message, -1),
            (1, 0, 0),
        ]
        assert await values(kafka, 1) == [b"b", b"b"]

    run_with_topic(work)


def test_partition_that_is_named_twice_is_refused() -> None:
    async def work(kafka: KafkaNode) -> None:
        a, b, c = (batch_of(value) for value in (b"a", b"b", b"c"))
        results = await produced(kafka.client, (0, a), (1, b), (0, c))
        codes = [(one.index, int(one.error_code)) for one in results]
        refused = int(ErrorCode.invalid_request)
        assert codes == [(0, refused), (1, 0), (0, refused)]
        assert await produce(kafka.client, c) == 0
        assert await values(kafka, 1) == [b"b"]

    run_with_topic(work)


@pytest.mark.parametrize("policy", ["fsync", "replicated"])
def test_requests_in_flight_keep_their_order(run: Run, folder: str, policy: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create(kafka, "t", flush_policy=policy)
            for number in range(40):
                kafka.client.send(PRODUCE, 9, **produce_fields(9, (0, batch_of(b"%d" % number))))
            for number in range(40):
                _, answer = await kafka.client.answer(PRODUCE, 9)
                (result,) = answer.responses[0].partition_responses
                assert (result.error_code, result.base_offset) == (0, number)
            assert await values(kafka) == [b"%d" % number for number in range(40)]

    run(main)


def test_opening_log_lets_no_later_batch_overtake() -> None:
    """The log of the second request's partition is open, but its batch still waits for the first
    one's."""

    async def work(kafka: KafkaNode) -> None:
        await produce(kafka.client, batch_of(b"first"), 1)  # this opens the log
        both = produce_fields(9, (0, batch_of(b"opens")), (1, batch_of(b"second")))
        kafka.client.send(PRODUCE, 9, **both)
        kafka.client.send(PRODUCE, 9, **produce_fields(9, (1, batch_of(b"third"))))
        for _ in range(2):
            await kafka.client.answer(PRODUCE, 9)
        assert await values(kafka, 1) == [b"first", b"second", b"third"]

    run_with_topic(work)


def test_connection_closed_during_an_open_leaves_only_its_records() -> None:
    async def work(kafka: KafkaNode) -> None:
        machine = cast(Any, kafka.runtime.tasks).process.machine
        machine.device_slow_ms = 300
        gone = await kafka.connect()
        parts = [(index, batch_of(b"a")) for index in range(3)]
        gone.send(PRODUCE, 9, **produce_fields(9, *parts))
        await asyncio.sleep(0.1)
        gone.connection.abort()
        await asyncio.sleep(0.1)
        gc.collect()  # an un-awaited coroutine would be reported now
        machine.device_slow_ms = 0
        for index in range(3):
            await produce(kafka.client, batch_of(b"b"), index)
            await stored(kafka, b"a", b"b", index=index)

    run_with_topic(work)


def test_without_acks_there_is_no_answer() -> None:
    async def work(kafka: KafkaNode) -> None:
        for value in (b"a", b"b"):
            kafka.client.send(PRODUCE, 9, **produce_fields(9, (0, batch_of(value)), acks=0))
        assert await produce(kafka.client, batch_of(b"c")) == 2
        assert await values(kafka) == [b"a", b"b", b"c"]

    run_with_topic(work)


@pytest.mark.parametrize("acks", [0, 1])
def test_timeout_applies_to_acks_of_replicas_and_not_to_a_slow_disk(acks: int) -> None:
    """As in Kafka: only acks=all waits in the purgatory."""

    async def work(kafka: KafkaNode) -> None:
        await create(kafka, "f", flush_policy="fsync")
        await produce(kafka.client, batch_of(b"opens"), topic="f")
        cast(Any, kafka.runtime.tasks).process.machine.device_slow_ms = 300
        fields = produce_fields(9, (0, batch_of(b"a")), topic="f", acks=acks, timeout=0)
        kafka.client.send(PRODUCE, 9, **fields)
        if acks:
            _, answer = await kafka.client.answer(PRODUCE, 9)
            (result,) = answer.responses[0].partition_responses
            assert (result.error_code, result.base_offset) == (0, 1)
        assert await produce(kafka.client, batch_of(b"b"), topic="f") == 2

    run_with_topic(work)


def test_error_without_acks_ends_the_connection_after_earlier_responses() -> None:
    async def work(kafka: KafkaNode) -> None:
        client = await kafka.connect()
        client.send(PRODUCE, 9, **produce_fields(9, (0, batch_of(b"a"))))
        client.send(PRODUCE, 9, **produce_fields(9, (9, batch_of(b"b")), acks=0))
        await client.answer(PRODUCE, 9)
        with pytest.raises(ConnectionEnded):
            await client.frame()
        assert await values(kafka) == [b"a"]

    run_with_topic(work)


def test_a_repeated_batch_is_answered_with_its_first_offset() -> None:
    async def work(kafka: KafkaNode) -> None:
        for sequence, value in enumerate([b"a", b"b", b"c"]):
            assert await produce(kafka.client, by_producer(value, sequence)) == sequence
        assert await produce(kafka.client, by_producer(b"b", 1)) == 1
        for records, code in (
            (by_producer(b"e", 4), ErrorCode.out_of_order_sequence_number),
            (by_producer(b"d", 0, epoch=-1), ErrorCode.invalid_record),
        ):
            (result,) = await produced(kafka.client, (0, records))
            assert result.error_code == code
        assert await produce(kafka.client, by_producer(b"d", 0, epoch=1)) == 3
        (result,) = await produced(kafka.client, (0, by_producer(b"c", 2)))
        assert result.error_code == ErrorCode.invalid_producer_epoch
        assert await values(kafka) == [b"a", b"b", b"c", b"d"]

    run_with_topic(work)


def test_log_applies_the_timestamp_type_and_the_codec_of_the_topic() -> None:
    async def work(kafka: KafkaNode) -> None:
        await create(
            kafka, "stamped", message_timestamp_type="LogAppendTime", compression_type="zstd"
        )
        (result,) = await produced(kafka.client, (0, batch_of(b"a" * 500)), topic="stamped")
        assert result.error_code == 0
        assert result.log_append_time is not None
        appended_ms = round(result.log_append_time.timestamp() * 1000)
        (record,) = decode_all(await fetch(kafka.client, 0, topic="stamped"))
        assert (record.timestamp_ms, record.value) == (appended_ms, b"a" * 500)

    run_with_topic(work)


def test_large_compressed_batches_keep_their_order_among_small_ones(run: Run, folder: str) -> None:
    """They are validated beside the loop; later batches wait for them."""

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            await create(kafka, "t", max_message_bytes="4194304")
            large = bytes(range(256)) * 8_000
            for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
                kafka.client.send(
                    PRODUCE, 9, **produce_fields(9, (0, batch_of(large, codec=codec)))
                )
                kafka.client.send(PRODUCE, 9, **produce_fields(9, (0, batch_of(b"small"))))
            offsets = []
            for _ in range(6):
                _, answer = await kafka.client.answer(PRODUCE, 9)
                (result,) = answer.responses[0].partition_responses
                offsets.append((int(result.error_code), result.base_offset))
            assert offsets == [(0, at) for at in range(6)]
            (end,) = await listed(kafka.client, (0, -1))
            assert end.offset == 6

    run(main)


def test_received_requests_are_stored_after_their_client_left() -> None:
    """A request with acks=0 does not wait for anything, also if the log is not open yet and other
    requests of the client are behind it."""

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, FOLDER) as kafka:
            await create(kafka, "t", partitions=1)
            leaving = await connect(runtime, kafka.address)
            for value in (b"a", b"b", b"c"):
                leaving.send(PRODUCE, 9, **produce_fields(9, (0, batch_of(value)), acks=0))
            leaving.connection.close()
            await stored(kafka, b"a", b"b", b"c")
            assert await values(kafka) == [b"a", b"b", b"c"], "in order"

    simulation.run(main)
