"""Publish and Subscribe with plain records, for clients without a batch codec.

The tests use a whole node on the real and on the simulated runtime.
"""

import asyncio
import itertools
import threading
from contextlib import suppress
from typing import Any

import pytest
from tests.kit.node import WAIT_MS, Run, serving

from quorumlog import simulation
from quorumlog.errors import (
    InvalidConfig,
    InvalidRequest,
    MessageTooLarge,
    Overloaded,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.metadata import TOPIC_CONFIGS
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.records import Codec, Record, encode_batch, partition_for_key
from quorumlog.runtime import Channel, Runtime, real
from quorumlog.services import (
    ADMIN_CREATE_TOPIC,
    ADMIN_DELETE_TOPIC,
    LOG_FETCH,
    LOG_LIST_OFFSETS,
    LOG_PRODUCE,
    LOG_PUBLISH,
    LOG_SUBSCRIBE,
)


async def create(channel: Channel, name: str, partitions: int = 1, **configs: str) -> None:
    request = admin_pb2.CreateTopicRequest(name=name, partitions=partitions)
    for key, value in configs.items():
        request.configs.add(name=key.replace("_", "."), value=value)
    assert (await channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)).usable


async def publish(
    channel: Channel, *keys: bytes | None, topic: str = "t", **fields: Any
) -> log_pb2.PublishResponse:
    """Publish one record for each key. Its value is its index in the request."""
    request = log_pb2.PublishRequest(topic=topic, **fields)
    for index, key in enumerate(keys):
        request.records.add(key=key, value=b"%d" % index)
    return await channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)


async def responses_of(channel: Channel, **wanted: Any) -> list[log_pb2.SubscribeResponse]:
    """Return all responses of a decoded subscription that ends."""
    stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
    await stream.send(log_pb2.SubscribeRequest(topic="t", decoded=True, **wanted))
    await stream.finish()
    responses = []
    while (response := await stream.receive()) is not None:
        responses.append(response)
    return responses


async def records_of(channel: Channel, **wanted: Any) -> list[log_pb2.Record]:
    return [record for each in await responses_of(channel, **wanted) for record in each.records]


# --- partitions of records -----------------------------------------------------------------------


def test_keyless_requests_rotate_over_the_partitions_of_each_topic(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t", partitions=3)
            await create(channel, "u", partitions=2)
            taken: dict[str, list[int]] = {"t": [], "u": []}
            for _ in range(6):
                for topic, partitions in taken.items():
                    answer = await publish(channel, None, None, topic=topic)
                    (result,) = answer.results
                    assert list(result.records) == [0, 1], "a request goes to one partition"
                    partitions.append(answer.partition)
            assert taken == {"t": [0, 1, 2, 0, 1, 2], "u": [0, 1, 0, 1, 0, 1]}

    run(main)


def test_each_keyed_record_goes_to_its_own_keys_partition(run: Run, folder: str) -> None:
    """A request may have many keys: each record is stored where clients look for its key."""

    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t", partitions=4)
            keys = [b"k%d" % number for number in range(20)]
            answer = await publish(channel, *keys)
            assert len(answer.results) > 1
            placed: dict[bytes, int] = {}
            for result in answer.results:
                assert result.base_offset == 0
                found = await records_of(
                    channel, partition=result.partition, end_offset=len(result.records)
                )
                assert [record.value for record in found] == [b"%d" % n for n in result.records]
                placed |= dict.fromkeys([record.key for record in found], result.partition)
            assert placed == {key: partition_for_key(key, 4) for key in keys}
            first = answer.results[0]
            assert (answer.partition, answer.base_offset) == (first.partition, first.base_offset)
            assert first.records[0] == 0

    run(main)


def test_requested_partition_gets_all_records_regardless_of_keys(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t", partitions=4)
            answer = await publish(channel, b"a", b"b", None, b"c", partition=2)
            (result,) = answer.results
            assert (result.partition, list(result.records)) == (2, [0, 1, 2, 3])

    run(main)


def test_a_partition_that_refuses_stops_no_other_where_errors_are_read_in_results(
    run: Run, folder: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t", partitions=2, max_message_bytes="500")
            keys = {partition_for_key(b"%d" % n, 2): b"%d" % n for n in range(20)}
            request = log_pb2.PublishRequest(topic="t")
            request.records.add(key=keys[0], value=b"small")
            request.records.add(key=keys[1], value=bytes(1000))
            with pytest.raises(MessageTooLarge):  # before any record is stored
                await channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)
            request.errors_in_results = True
            answer = await channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)
            stored, refused = answer.results
            assert (stored.partition, stored.base_offset, stored.HasField("error")) == (0, 0, False)
            assert (refused.partition, list(refused.records)) == (1, [1])
            assert (refused.base_offset, refused.error.name) == (-1, "MESSAGE_TOO_LARGE")
            assert (refused.error.topic, refused.error.partition) == ("t", 1)

    run(main)


def test_records_of_an_unknown_topic_are_refused_with_or_without_keys(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            for key in (None, b"k"):
                with pytest.raises(UnknownTopicOrPartition):
                    await publish(channel, key, topic="no-such")

    simulation.run(main)


# --- subscriptions -------------------------------------------------------------------------------


def test_subscription_starts_at_a_timestamp(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            request = log_pb2.PublishRequest(topic="t")
            for time in (100, 200, 300):
                request.records.add(timestamp_ms=time)
            await channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)
            for start, offsets in [(0, [0, 1, 2]), (101, [1, 2]), (300, [2])]:
                found = await records_of(channel, start_time_ms=start, end_offset=3)
                assert [record.offset for record in found] == offsets
            (nothing,) = [await records_of(channel, start_time_ms=301, end_offset=3)]
            assert nothing == []

    run(main)


def test_timestamp_after_all_records_means_the_next_record(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder, subscribe_heartbeat_ms=100) as channel:
            await create(channel, "t")
            await publish(channel, None)
            stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
            later = (1 << 63) - 1
            await stream.send(
                log_pb2.SubscribeRequest(topic="t", start_time_ms=later, decoded=True)
            )
            idle = await stream.receive()
            assert idle is not None
            assert (idle.next_offset, len(idle.records)) == (1, 0)
            await publish(channel, b"new")
            while (response := await stream.receive()) is not None and not response.records:
                pass
            assert response is not None
            assert [record.offset for record in response.records] == [1]
            stream.abort("seen enough")

    run(main)


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"start_time_ms": 5, "offset": 3}, r"both are given \(3 and 5\)"),
        ({"start_time_ms": -5}, "start_time_ms: -5"),
    ],
)
def test_invalid_start_names_the_field(folder: str, wanted: dict[str, int], sentence: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            with pytest.raises(InvalidRequest, match=sentence):
                await records_of(channel, **wanted)

    simulation.run(main)


def test_decoded_responses_with_headers_stay_within_the_bound(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            headers = tuple((f"header {n}", bytes(50)) for n in range(20))
            records = [Record(n, 1, b"k" * 10, b"v" * 200, headers) for n in range(200)]
            request = log_pb2.ProduceRequest()
            batch = encode_batch(records, codec=Codec.ZSTD)
            request.partitions.add(topic="t", records=batch)
            stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
            await stream.send(request)
            await stream.receive()
            stream.abort("done")
            responses = await responses_of(channel, end_offset=200, max_bytes=10_000)
            assert len(responses) > 20
            assert max(each.ByteSize() for each in responses) <= 10_000 + 50  # the three numbers
            offsets = [record.offset for each in responses for record in each.records]
            assert offsets == list(range(200))
            for before, after in itertools.pairwise(responses):
                assert before.next_offset == after.records[0].offset
            tiny = await responses_of(channel, end_offset=3, max_bytes=1)
            assert [len(each.records) for each in tiny] == [1, 1, 1]

    run(main)


def test_batches_are_decompressed_beside_the_loop(folder: str) -> None:
    """A megabyte may take seconds to decompress, which would block the node."""
    free = threading.Event()

    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t", partitions=2)
            await publish(channel, b"k", partition=0, compression=log_pb2.COMPRESSION_ZSTD)
            await publish(channel, b"k", partition=1)
            lane = asyncio.ensure_future(runtime.tasks.offload("cpu", free.wait))
            packed = asyncio.ensure_future(records_of(channel, partition=0, end_offset=1))
            try:
                for _ in range(3):
                    assert len(await records_of(channel, partition=1, end_offset=1)) == 1
                assert not packed.done()
            finally:
                free.set()
            assert len(await packed) == 1
            await lane

    real.run(main)


def test_a_deleted_topic_ends_its_subscriptions_with_its_error(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            await publish(channel, None)
            stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
            await stream.send(log_pb2.SubscribeRequest(topic="t", decoded=True))
            first = await stream.receive()
            assert first is not None
            assert len(first.records) == 1
            request = admin_pb2.DeleteTopicRequest(name="t")
            await channel.call(ADMIN_DELETE_TOPIC, request, timeout_ms=WAIT_MS)
            with pytest.raises(UnknownTopicOrPartition) as caught:
                await stream.receive()
            assert (caught.value.topic, caught.value.partition) == ("t", 0)

    run(main)


@pytest.mark.long
def test_largest_batch_of_a_topic_is_returned_by_every_call(folder: str) -> None:
    """A stored batch that fits no response would block its readers forever."""
    largest = TOPIC_CONFIGS["max.message.bytes"].high

    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            with pytest.raises(InvalidConfig):
                await create(channel, "t", max_message_bytes=str(largest + 1))
            await create(channel, "t", max_message_bytes=str(largest))
            await publish(channel, b"before")
            request = log_pb2.PublishRequest(topic="t")
            request.records.add(value=bytes(largest - 74))  # the other bytes of a batch
            await channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)
            poll = log_pb2.FetchRequest()
            poll.partitions.add(topic="t", offset=1)
            answer = await channel.call(LOG_FETCH, poll, timeout_ms=WAIT_MS)
            assert len(answer.results[0].records) == largest
            stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
            wanted = log_pb2.SubscribeRequest(topic="t", offset=1, end_offset=2, decoded=True)
            await stream.send(wanted)
            response = await stream.receive()
            assert response is not None
            assert response.next_offset == 2
            stream.abort("seen")

    real.run(main)


# --- deadlines, cancellation, slow readers -------------------------------------------------------


def waiting_fetch(max_wait_ms: int = 60_000) -> log_pb2.FetchRequest:
    request = log_pb2.FetchRequest(max_wait_ms=max_wait_ms)
    request.partitions.add(topic="t")
    return request


def test_long_poll_responds_before_the_deadline_of_the_call(run: Run, folder: str) -> None:
    """With the available records: a response with positions is better than an error."""

    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            # If a machine stalls for longer than the remaining time, the response is late.
            for timeout_ms in (300, 1_000, 3_000, 10_000, 30_000):
                before = runtime.clock.now_ms()
                with suppress(TimedOut):
                    answer = await channel.call(LOG_FETCH, waiting_fetch(), timeout_ms=timeout_ms)
                    assert answer.results[0].high_watermark == 0
                    assert runtime.clock.now_ms() - before >= 200
                    break
                assert run is not simulation.run, "code takes no time there"
            else:
                pytest.fail("no response arrived before the deadline of the call")

    run(main)


def test_cancelled_long_poll_releases_its_place_at_once(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder, fetch_waits_max=1) as channel:
            await create(channel, "t")
            async with runtime.tasks.scope("polls") as scope:
                first = scope.spawn(hold_the_place(channel), name="first")
                await until_overloaded(channel)
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
                begin = runtime.clock.now_ms()
                while True:
                    try:
                        await channel.call(LOG_FETCH, waiting_fetch(50), timeout_ms=WAIT_MS)
                        break
                    except Overloaded:
                        assert runtime.clock.now_ms() - begin < WAIT_MS / 2

    run(main)


async def hold_the_place(channel: Channel) -> None:
    """Wait as a long poll once other fetches leave a place."""
    while True:
        try:
            await channel.call(LOG_FETCH, waiting_fetch(), timeout_ms=WAIT_MS)
        except Overloaded:
            continue


async def take_the_place(channel: Channel) -> None:
    """Wait in the only place once no other fetch has it."""
    while True:
        try:
            await channel.call(LOG_FETCH, waiting_fetch(), timeout_ms=WAIT_MS)
        except Overloaded:
            continue


async def until_overloaded(channel: Channel) -> None:
    """Return once another fetch has the only place."""
    while True:
        try:
            await channel.call(LOG_FETCH, waiting_fetch(1), timeout_ms=WAIT_MS)
        except Overloaded:
            return


def test_cancelled_wait_for_metadata_delays_no_other(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            request = log_pb2.ListOffsetsRequest(min_metadata_offset=10_000)
            request.partitions.add(topic="t", timestamp_ms=-1)
            async with runtime.tasks.scope("waits") as scope:
                waits = [
                    scope.spawn(
                        channel.call(LOG_LIST_OFFSETS, request, timeout_ms=WAIT_MS), name="wait"
                    )
                    for _ in range(20)
                ]
                await asyncio.sleep(0)
                for wait in waits:
                    wait.cancel()
                ends = await asyncio.gather(*waits, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            assert (await publish(channel, None)).base_offset == 0

    run(main)


@pytest.mark.slow
def test_client_that_stops_reading_stops_the_reads_of_the_broker(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured on the real network: the bytes read for the client that it cannot have received."""
    from quorumlog.broker.shell.reads import ReplicaReader

    read = 0
    original = ReplicaReader.fetch

    async def counted(self: ReplicaReader, *arguments: Any, **keywords: Any) -> Any:
        nonlocal read
        outcomes = await original(self, *arguments, **keywords)
        read += sum(len(outcome.records) for outcome in outcomes)
        return outcomes

    monkeypatch.setattr(ReplicaReader, "fetch", counted)

    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            request = log_pb2.PublishRequest(topic="t")
            request.records.add(value=bytes(1_000_000))
            for _ in range(64):
                await channel.call(LOG_PUBLISH, request, timeout_ms=WAIT_MS)
            stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
            await stream.send(log_pb2.SubscribeRequest(topic="t", end_offset=64, decoded=True))
            assert await stream.receive() is not None
            before = -1
            while read != before:  # at rest: no read for a while
                before = read
                await asyncio.sleep(0.3)
            # Two responses, one of them in flight, and the windows of HTTP/2, which gRPC extends
            # with the measured rate: 8 to 15 MB here.
            assert read <= 32 << 20
            seen = 1
            while (response := await stream.receive()) is not None:
                seen += len(response.records)
            assert seen == 64

    real.run(main)


def test_subscriptions_above_the_limit_are_refused_until_one_ends(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder, subscribe_streams_max=2) as channel:
            await create(channel, "t")
            await publish(channel, None)
            request = log_pb2.SubscribeRequest(topic="t", decoded=True)
            streams = []
            for _ in range(2):
                stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
                await stream.send(request)
                await stream.receive()
                streams.append(stream)
            with pytest.raises(Overloaded, match=r"subscribe\.streams\.max"):
                await responses_of(channel, end_offset=1)
            streams[0].abort("makes room")
            while True:
                try:
                    assert len(await records_of(channel, end_offset=1)) == 1
                    break
                except Overloaded:
                    continue
            streams[1].abort("done")

    run(main)
