"""The gRPC service `Log` of a whole node, by raw calls, on the real and the simulated runtime."""

import asyncio
from typing import Any

import pytest
from tests.kit.batches import batch_of, values_of
from tests.kit.node import WAIT_MS, Run, serving

from quorumlog import simulation
from quorumlog.errors import InvalidRequest, InvalidTopic, QuorumlogError, UnknownTopicOrPartition
from quorumlog.proto import log_pb2
from quorumlog.records import Codec, decode_all
from quorumlog.runtime import Channel, Runtime
from quorumlog.services import LOG_FETCH, LOG_LIST_OFFSETS, LOG_PRODUCE, LOG_PUBLISH, LOG_SUBSCRIBE

from .log_calls import create, fetch, produce, produce_one, produce_request

# --- produce -----------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [log_pb2.ACKS_ALL, log_pb2.ACKS_LEADER])
def test_produced_batch_is_fetched_unchanged(run: Run, folder: str, acks: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            first = await produce_one(channel, batch_of(b"a", b"b"), acks=acks)
            second = await produce_one(channel, batch_of(b"c", codec=Codec.ZSTD), acks=acks)
            assert (first.base_offset, second.base_offset) == (0, 2)
            assert (first.log_start_offset, first.log_append_time_ms) == (0, -1)
            (result,) = await fetch(channel, ("t", 0, 0))
            assert values_of(result.records) == [b"a", b"b", b"c"]
            assert (result.high_watermark, result.last_stable_offset) == (3, 3)
            assert (
                result.records[61:][: len(batch_of(b"a", b"b")) - 61] == batch_of(b"a", b"b")[61:]
            )

    run(main)


def test_responses_are_in_request_order_with_many_in_flight(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder, produce_inflight_requests_max=4) as channel:
            await create(channel, "t", partitions=3)
            requests = [
                produce_request(batch_of(b"v%d" % number), number=number, partition=number % 3)
                for number in range(60)
            ]
            responses = await produce(channel, requests)
            assert [response.correlation_id for response in responses] == list(range(60))
            assert [r.results[0].base_offset for r in responses] == [n // 3 for n in range(60)]
            assert all(response.metadata_offset > 0 for response in responses)

    run(main)


def test_acks_none_has_no_answer_and_is_stored_in_order(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            silent = produce_request(batch_of(b"a"), number=1, acks=log_pb2.ACKS_NONE)
            (response,) = await produce(
                channel, [silent, produce_request(batch_of(b"b"), number=2)]
            )
            assert (response.correlation_id, response.results[0].base_offset) == (2, 1)

    run(main)


def test_request_spans_partitions_and_an_invalid_one_stops_no_other(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t", partitions=2)
            request = produce_request(batch_of(b"a"))
            request.partitions.add(topic="t", partition=7, records=batch_of(b"x"))
            request.partitions.add(topic="no-such", partition=0, records=batch_of(b"x"))
            request.partitions.add(topic="bad name", partition=0, records=batch_of(b"x"))
            request.partitions.add(topic="t", partition=1, leader_epoch=9, records=batch_of(b"x"))
            (response,) = await produce(channel, [request])
            names = [result.error.name for result in response.results]
            assert names == [
                "",
                "UNKNOWN_TOPIC_OR_PARTITION",
                "UNKNOWN_TOPIC_OR_PARTITION",
                "INVALID_TOPIC_EXCEPTION",
                "UNKNOWN_LEADER_EPOCH",
            ]
            bad = response.results[1]
            assert (bad.error.topic, bad.error.partition, bad.error.retriable) == ("t", 7, True)
            assert (bad.base_offset, bad.log_start_offset) == (-1, -1)

    run(main)


def test_a_corrupted_batch_is_refused_and_nothing_is_stored(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            good = batch_of(b"some value")
            flipped = good[:-3] + bytes([good[-3] ^ 1]) + good[-2:]
            for wrong in (flipped, good[:-1], good + b"tail", b"\0" * 80, good[:40]):
                result = await produce_one(channel, wrong)
                assert result.error.name in {"CORRUPT_MESSAGE", "INVALID_RECORD"}, result
                assert result.base_offset == -1
            empty = await produce_one(channel, b"")
            assert empty.error.name in {"CORRUPT_MESSAGE", "INVALID_RECORD", "INVALID_REQUEST"}
            assert (await produce_one(channel, good)).base_offset == 0

    run(main)


def test_a_batch_too_large_is_refused_naming_the_config(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t", max_message_bytes="1000")
            result = await produce_one(channel, batch_of(bytes(2000)))
            assert result.error.name == "MESSAGE_TOO_LARGE"
            assert "max.message.bytes" in result.error.message
            assert (await produce_one(channel, batch_of(bytes(500)))).base_offset == 0

    run(main)


def test_invalid_request_ends_its_stream_after_the_responses(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
            await stream.send(produce_request(batch_of(b"a"), number=5))
            await stream.send(log_pb2.ProduceRequest(correlation_id=6))
            answer = await stream.receive()
            assert answer is not None
            assert answer.correlation_id == 5
            with pytest.raises(InvalidRequest, match="partitions: empty"):
                await stream.receive()

    run(main)


# --- publish -----------------------------------------------------------------------------------


def test_publish_builds_the_batch(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            request = log_pb2.PublishRequest(topic="t", compression=log_pb2.COMPRESSION_LZ4)
            record = request.records.add(key=b"k", value=b"v", timestamp_ms=77)
            record.headers.add(key="h", value=b"x")
            record.headers.add(key="null")
            request.records.add()
            response = await channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)
            assert (response.partition, response.base_offset) == (0, 0)
            (result,) = await fetch(channel, ("t", 0, 0))
            first, second = decode_all(result.records)
            assert (first.key, first.value, first.timestamp_ms) == (b"k", b"v", 77)
            assert first.headers == (("h", b"x"), ("null", None))
            assert (second.key, second.value) == (None, None)
            assert second.timestamp_ms > 77

    run(main)


def test_publish_chooses_the_partition_of_a_key_as_the_clients_do(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t", partitions=5)
            partitions = []
            for key in (b"a", b"b", b"21"):
                request = log_pb2.PublishRequest(topic="t")
                request.records.add(key=key, value=b"v")
                response = await channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)
                partitions.append(response.partition)
            from quorumlog.records import partition_for_key

            assert partitions == [partition_for_key(key, 5) for key in (b"a", b"b", b"21")]

    run(main)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (log_pb2.PublishRequest(topic="t"), "records: 0 entries"),
        (log_pb2.PublishRequest(topic="t", timeout_ms=-1, records=[{}]), "timeout_ms: -1"),
        (
            log_pb2.PublishRequest(topic="t", partition=-1, records=[{}]),
            "the partition is negative",
        ),
        (
            log_pb2.PublishRequest(topic="t", records=[{"timestamp_ms": -5}]),
            r"records\[0\].timestamp_ms: -5",
        ),
    ],
)
def test_publish_refuses_records_that_fit_no_batch(
    run: Run, folder: str, request_: log_pb2.PublishRequest, error: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            with pytest.raises(InvalidRequest, match=error):
                await channel.call(LOG_PUBLISH, request_, timeout_ms=WAIT_MS)

    run(main)


# --- fetch -------------------------------------------------------------------------------------


def test_a_long_poll_wakes_when_records_arrive(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t", partitions=2)
            async with runtime.tasks.scope("test") as scope:
                started = runtime.clock.now_ms()
                waiting = scope.spawn(
                    fetch(channel, ("t", 0, 0), ("t", 1, 0), max_wait_ms=WAIT_MS), name="poll"
                )
                await asyncio.sleep(0.1)
                assert not waiting.done()
                await produce_one(channel, batch_of(b"late"), partition=1)
                first, second = await waiting
                assert runtime.clock.now_ms() - started < 50_000
                assert (first.records, values_of(second.records)) == (b"", [b"late"])

    run(main)


def test_a_long_poll_waits_for_min_bytes(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            async with runtime.tasks.scope("test") as scope:
                size = len(batch_of(b"x" * 100))
                waiting = scope.spawn(
                    fetch(channel, ("t", 0, 0), max_wait_ms=WAIT_MS, min_bytes=size + 1),
                    name="poll",
                )
                await produce_one(channel, batch_of(b"x" * 100))
                await asyncio.sleep(0.1)
                assert not waiting.done()
                await produce_one(channel, batch_of(b"y" * 100))
                (result,) = await waiting
                assert len(values_of(result.records)) == 2

    run(main)


def test_a_long_poll_ends_empty_when_its_time_is_up(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            started = runtime.clock.now_ms()
            (result,) = await fetch(channel, ("t", 0, 0), max_wait_ms=120)
            assert (result.records, result.high_watermark) == (b"", 0)
            assert runtime.clock.now_ms() - started >= 120

    run(main)


def test_each_failed_partition_of_a_fetch_has_its_error_at_once(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            await produce_one(channel, batch_of(b"a"))
            results = await fetch(
                channel, ("t", 0, 0), ("t", 0 + 3, 0), ("no", 0, 0), max_wait_ms=15_000
            )
            assert [result.error.name for result in results] == [
                "",
                "UNKNOWN_TOPIC_OR_PARTITION",
                "UNKNOWN_TOPIC_OR_PARTITION",
            ]
            (result,) = await fetch(channel, ("t", 0, 2), max_wait_ms=15_000)
            assert result.error.name == "OFFSET_OUT_OF_RANGE"
            assert "[0, 1]" in result.error.message

    run(main)


def test_a_fetch_is_bounded_and_gives_one_batch_even_if_larger(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t", partitions=2)
            for partition in (0, 1):
                for _ in range(3):
                    await produce_one(channel, batch_of(bytes(1000)), partition=partition)
            first, second = await fetch(channel, ("t", 0, 1), ("t", 1, 0), max_bytes=10)
            assert [record.offset for record in decode_all(first.records)] == [1]
            assert second.records == b""
            first, second = await fetch(channel, ("t", 0, 0), ("t", 1, 0), max_bytes=2500)
            assert len(values_of(first.records)) == 2
            assert len(first.records) + len(second.records) <= 2500

    run(main)


def test_a_fetch_gives_as_many_whole_batches_as_fit(run: Run, folder: str) -> None:
    """Also behind the first batch, where the nearest index entry is below the offset."""

    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            size = len(batch_of(bytes(50_000)))
            for _ in range(5):
                await produce_one(channel, batch_of(bytes(50_000)))
            for offset in range(5):
                (result,) = await fetch(channel, ("t", 0, offset), max_bytes=size * 5 // 2)
                assert len(result.records) == size * min(2, 5 - offset), offset

    run(main)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_wait_ms": -1}, "max_wait_ms: -1"),
        ({"max_wait_ms": 60_001}, "give 0..60000"),
        ({"min_bytes": -1}, "min_bytes: -1"),
        ({"max_bytes": -1}, "max_bytes: -1"),
        ({"partitions": []}, "partitions: empty"),
        ({"partitions": [{"topic": "t", "offset": -3}]}, "offset: -3"),
        ({"partitions": [{"topic": "t"}, {"topic": "t"}]}, "twice"),
    ],
)
def test_invalid_fetch_names_the_field(folder: str, change: dict[str, Any], message: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            request = log_pb2.FetchRequest(**({"partitions": [{"topic": "t"}]} | change))
            with pytest.raises(InvalidRequest, match=message):
                await channel.call(LOG_FETCH, request, timeout_ms=WAIT_MS)

    simulation.run(main)


def test_fetch_waits_for_the_requested_metadata_offset(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            request = log_pb2.FetchRequest(min_metadata_offset=1_000_000)
            request.partitions.add(topic="t", partition=0)
            with pytest.raises(QuorumlogError) as caught:
                await channel.call(LOG_FETCH, request, timeout_ms=300)
            assert caught.value.name in {"STALE_METADATA", "REQUEST_TIMED_OUT"}

    simulation.run(main)


# --- offsets -----------------------------------------------------------------------------------


def test_positions_are_translated_into_offsets(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            await produce_one(channel, batch_of(b"a", b"b", timestamp_ms=1000))
            await produce_one(channel, batch_of(b"c", b"d", timestamp_ms=2000, codec=Codec.GZIP))
            found = []
            for time in (-1, -2, -3, 0, 1001, 1002, 2001, 2002):
                request = log_pb2.ListOffsetsRequest()
                request.partitions.add(topic="t", partition=0, timestamp_ms=time)
                response = await channel.call(LOG_LIST_OFFSETS, request, timeout_ms=WAIT_MS)
                result = response.results[0]
                assert not result.HasField("error"), result
                found.append((time, result.offset, result.timestamp_ms))
            assert found == [
                (-1, 4, -1),
                (-2, 0, -1),
                (-3, 3, 2001),
                (0, 0, 1000),
                (1001, 1, 1001),
                (1002, 2, 2000),
                (2001, 3, 2001),
                (2002, -1, -1),
            ]

    run(main)


def test_positions_of_unknown_partitions_are_errors_in_their_place(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            request = log_pb2.ListOffsetsRequest()
            request.partitions.add(topic="no", partition=0, timestamp_ms=-1)
            response = await channel.call(LOG_LIST_OFFSETS, request, timeout_ms=WAIT_MS)
            assert response.results[0].error.name == "UNKNOWN_TOPIC_OR_PARTITION"
            request.partitions[0].timestamp_ms = -9
            with pytest.raises(InvalidRequest, match="timestamp_ms: -9"):
                await channel.call(LOG_LIST_OFFSETS, request, timeout_ms=WAIT_MS)

    simulation.run(main)


# --- subscribe ---------------------------------------------------------------------------------


async def subscribed(
    channel: Channel, request: log_pb2.SubscribeRequest
) -> list[log_pb2.SubscribeResponse]:
    stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
    await stream.send(request)
    await stream.finish()
    responses = []
    while (response := await stream.receive()) is not None:
        responses.append(response)
    return responses


def test_subscription_returns_raw_batches_up_to_its_end(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            for number in range(6):
                await produce_one(channel, batch_of(b"%d" % number, b"x"))
            request = log_pb2.SubscribeRequest(topic="t", offset=4, end_offset=10, max_bytes=1)
            responses = await subscribed(channel, request)
            offsets = [r.offset for each in responses for r in decode_all(each.batches)]
            assert offsets == [4, 5, 6, 7, 8, 9]
            assert [each.next_offset for each in responses] == [6, 8, 10]
            assert responses[0].high_watermark == 12

    run(main)


def test_decoded_subscription_returns_exactly_the_records_of_its_range(
    run: Run, folder: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            await produce_one(channel, batch_of(*(b"%d" % n for n in range(8)), codec=Codec.ZSTD))
            request = log_pb2.SubscribeRequest(topic="t", offset=3, end_offset=6, decoded=True)
            responses = await subscribed(channel, request)
            records = [record for each in responses for record in each.records]
            assert [record.offset for record in records] == [3, 4, 5]
            assert [record.value for record in records] == [b"3", b"4", b"5"]
            assert [record.timestamp_ms for record in records] == [1003, 1004, 1005]
            assert not any(each.batches for each in responses)

    run(main)


def test_subscription_returns_later_records_and_heartbeats_when_idle(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder, subscribe_heartbeat_ms=100) as channel:
            await create(channel, "t")
            await produce_one(channel, batch_of(b"old"))
            stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
            await stream.send(log_pb2.SubscribeRequest(topic="t", offset=-1))
            idle = await stream.receive()
            assert idle is not None
            assert (idle.batches, idle.next_offset, idle.high_watermark) == (b"", 1, 1)
            await produce_one(channel, batch_of(b"new"))
            response = await stream.receive()
            while response is not None and not response.batches:
                response = await stream.receive()
            assert response is not None
            assert values_of(response.batches) == [b"new"]
            stream.abort("seen enough")

    run(main)


def test_a_subscription_that_cannot_be_served_ends_with_the_typed_error(
    run: Run, folder: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            with pytest.raises(UnknownTopicOrPartition):
                await subscribed(channel, log_pb2.SubscribeRequest(topic="t", partition=4))
            with pytest.raises(InvalidTopic, match="illegal characters"):
                await subscribed(channel, log_pb2.SubscribeRequest(topic="t/t"))
            with pytest.raises(QuorumlogError) as caught:
                await subscribed(channel, log_pb2.SubscribeRequest(topic="t", offset=5))
            assert caught.value.name == "OFFSET_OUT_OF_RANGE"

    run(main)
