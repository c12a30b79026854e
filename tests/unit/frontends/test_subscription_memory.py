"""Memory that a broker keeps for Subscribe streams whose clients do not read."""

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest
from tests.kit.node import WAIT_MS, Run, serving
from tests.unit.broker.lone_broker import broker, simulate, topic

from quorumlog import simulation
from quorumlog.api.authorizer import Authorizer
from quorumlog.broker.config import RequestConfig
from quorumlog.errors import Overloaded
from quorumlog.frontends.grpc import log_service, subscription
from quorumlog.frontends.grpc.log_service import LogService
from quorumlog.metadata.shell.publisher import MetadataPublisher
from quorumlog.metadata.shell.state_machine import MetadataStateMachine
from quorumlog.proto import log_pb2
from quorumlog.records import Codec, Record, encode_batch
from quorumlog.runtime import (
    CallPeer,
    CallSecurity,
    CallSession,
    Channel,
    ClientIdentity,
    Runtime,
    Stream,
)
from quorumlog.services import LOG_SUBSCRIBE
from quorumlog.simulation import SimNode

from .log_calls import create, produce_one

LARGE_MS = 120_000


async def subscribed(channel: Channel, **wanted: Any) -> Stream[Any, Any]:
    stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=LARGE_MS)
    await stream.send(log_pb2.SubscribeRequest(topic="t", decoded=True, **wanted))
    return stream


async def store(channel: Channel, count: int, size: int) -> None:
    """Store one small batch that decompresses to `count` records of `size` bytes."""
    records = [Record(number, 1, None, bytes(size)) for number in range(count)]
    result = await produce_one(channel, encode_batch(records, codec=Codec.ZSTD))
    assert not result.error.code


def test_stream_without_a_reader_keeps_no_decompressed_batch(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            await store(channel, 1_000, 20_000)
            streams = []
            gc.collect()
            tracemalloc.start()
            try:
                for _ in range(3):
                    streams.append(await subscribed(channel, max_bytes=30_000))
                    for number in range(3):
                        response = await streams[-1].receive()
                        assert response is not None
                        assert response.next_offset == number + 1
                await asyncio.sleep(1)
                gc.collect()
                kept, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert kept < 3 * 6 << 20  # of 3 times 20 MB
            for stream in streams:
                stream.abort("measured")

    simulation.run(main)


def test_batch_that_is_decoded_in_parts_has_each_record_once(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            await store(channel, 700, 20_000)
            await store(channel, 3, 10)
            stream = await subscribed(channel, offset=5, end_offset=702, max_bytes=100_000)
            offset = 5
            while (response := await stream.receive()) is not None:
                assert response.ByteSize() <= 101_000
                for record in response.records:
                    assert record.offset == offset
                    offset += 1
                assert response.next_offset == offset
            assert offset == 702

    run(main)


def test_large_records_of_streams_wait_for_room(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 5 << 20
    monkeypatch.setattr(log_service, "UNREAD_BYTES", (8 << 20, 16 << 20))

    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            await store(channel, 2, size)
            unread = await subscribed(channel, end_offset=2)
            await asyncio.sleep(1)
            late = await subscribed(channel, end_offset=2)
            await asyncio.sleep(subscription.ROOM_WAIT_MS / 1000 + 1)
            with pytest.raises(Overloaded, match="are not read yet"):
                await late.receive()
            waiting = await subscribed(channel, end_offset=2)
            await asyncio.sleep(1)
            for stream in (unread, waiting):
                for offset in (1, 2):
                    response = await stream.receive()
                    assert response is not None
                    assert (len(response.records[0].value), response.next_offset) == (size, offset)
                assert await stream.receive() is None

    simulation.run(main)


def test_response_of_a_stream_has_at_most_four_mebibytes(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            await create(channel, "t")
            for _ in range(10):
                await store_plain(channel, 900_000)
            stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
            await stream.send(log_pb2.SubscribeRequest(topic="t", end_offset=10, max_bytes=1 << 30))
            while (response := await stream.receive()) is not None:
                assert len(response.batches) <= subscription.RESPONSE_BYTES_MAX

    simulation.run(main)


async def store_plain(channel: Channel, size: int) -> None:
    await produce_one(channel, encode_batch([Record(0, 1, None, bytes(size))]))


async def count_of(stream: Stream[Any, Any]) -> int:
    """Return the number of records in the next response."""
    response = await stream.receive()
    assert response is not None
    return len(response.records)


class Users:
    """A `CallAuthenticator` that assigns each call to the current user of the test."""

    def __init__(self) -> None:
        self.present = "User:mallory"

    async def authenticate(self, path: str, peer: CallPeer) -> CallSession:
        return CallSession(ClientIdentity(self.present, "127.0.0.1"))


def test_oldest_stream_of_the_user_with_the_most_ends_for_another_user() -> None:
    limits = RequestConfig(subscribe_streams_max=3)

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            b.apply(*topic("t", b"t" * 16))
            publisher, users = MetadataPublisher(MetadataStateMachine()), Users()
            authorizer = Authorizer(lambda: publisher.image)
            service = LogService(runtime, b.replicas, publisher, limits, authorizer)
            listener = await runtime.network.serve(
                "127.0.0.1:0", service.handlers(), security=CallSecurity(authenticator=users)
            )
            channel = runtime.network.channel(listener.address)
            await b.append(b"one")
            many = []
            for _ in range(3):
                many.append(await subscribed(channel))
                assert await count_of(many[-1]) == 1
            refused = await subscribed(channel)
            with pytest.raises(Overloaded, match=r"subscribe\.streams\.max=3"):
                await refused.receive()
            users.present = "User:alice"
            began_ms = runtime.clock.now_ms()
            other = await subscribed(channel)
            assert await count_of(other) == 1
            with pytest.raises(Overloaded):
                await many[0].receive()
            assert runtime.clock.now_ms() - began_ms < limits.subscribe_heartbeat_ms
            assert service.subscriptions == 3
            for stream in (*many[1:], other):
                assert await count_of(stream) == 0  # after the interval of the heartbeats
                stream.abort("seen")
            await channel.close()
            await listener.close(0)

    simulate(main)
