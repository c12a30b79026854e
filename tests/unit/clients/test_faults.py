"""What the clients make of brokers and links that misbehave.

A scripted broker of the protocol does what a healthy one will not; and a whole node behind breaking
links shows that nothing acknowledged is lost or out of order.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from quorumlog import simulation
from quorumlog.clients import AsyncLog, AsyncProducer, Delivered
from quorumlog.errors import (
    InvalidRecord,
    Lost,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    Overloaded,
    QuorumlogError,
    StreamBroken,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.records import decode_all, parse_header
from quorumlog.runtime import CallContext, Handler, Listener, Runtime, Stream, real
from quorumlog.runtime.error_detail import encode_error
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory
from quorumlog.services import (
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_TOPICS,
    LOG_FETCH,
    LOG_LIST_OFFSETS,
    LOG_PRODUCE,
)
from quorumlog.simulation import Faults, SimWorld

Run: TypeAlias = Callable[[Callable[[Runtime], Coroutine[Any, Any, None]]], None]
ProduceStream: TypeAlias = Stream[log_pb2.ProduceResponse, log_pb2.ProduceRequest]

STORE = "store"
STORE_AND_BREAK = "store and break"  # the answer is lost
BREAK = "break"
SILENCE = "silence"  # stored, never answered


@dataclass
class Script:
    """What a broker will do, and what it saw."""

    partitions: int = 1
    leaders: dict[int, int] = field(default_factory=dict)  # by partition; default: node 1
    produce: deque[str | QuorumlogError] = field(default_factory=deque)  # a step for each request
    fetch: deque[QuorumlogError] = field(default_factory=deque)
    exists: bool = True
    hold: asyncio.Event | None = None  # requests are answered when it is set
    logs: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    requests: list[log_pb2.ProduceRequest] = field(default_factory=list)
    streams: int = 0
    lookups: int = 0
    addresses: dict[int, str] = field(default_factory=dict)

    def values(self, partition: int = 0) -> list[int]:
        """What is stored, in order."""
        return [int(value) for value in self.logs[partition]]


class Broker:
    """One node of the script's cluster."""

    def __init__(self, script: Script, node: int) -> None:
        self._script = script
        self._node = node

    async def serve(self, runtime: Runtime) -> Listener:
        table = [
            Handler(ADMIN_DESCRIBE_CLUSTER, self._describe_cluster),
            Handler(ADMIN_DESCRIBE_TOPICS, self._describe_topics),
            Handler(LOG_PRODUCE, self._produce),
            Handler(LOG_LIST_OFFSETS, self._list_offsets),
            Handler(LOG_FETCH, self._fetch),
        ]
        handlers = {handler.method.path: handler for handler in table}
        listener = await runtime.network.serve("127.0.0.1:0", handlers)
        self._script.addresses[self._node] = listener.address
        return listener

    def _brokers(self) -> list[admin_pb2.BrokerDescription]:
        return [
            admin_pb2.BrokerDescription(id=node, grpc_address=address)
            for node, address in self._script.addresses.items()
        ]

    async def _describe_cluster(
        self, request: admin_pb2.DescribeClusterRequest, context: CallContext
    ) -> admin_pb2.DescribeClusterResponse:
        return admin_pb2.DescribeClusterResponse(cluster_id="c", brokers=self._brokers())

    async def _describe_topics(
        self, request: admin_pb2.DescribeTopicsRequest, context: CallContext
    ) -> admin_pb2.DescribeTopicsResponse:
        script = self._script
        script.lookups += 1
        response = admin_pb2.DescribeTopicsResponse(brokers=self._brokers())
        for name in request.names:
            result = response.results.add(name=name)
            if not script.exists:
                result.error.CopyFrom(encode_error(UnknownTopicOrPartition("gone", topic=name)))
                continue
            result.topic.name = name
            for partition in range(script.partitions):
                leader = script.leaders.get(partition, 1)
                result.topic.partitions.add(partition=partition, leader=leader)
        return response

    async def _produce(self, stream: ProduceStream, context: CallContext) -> None:
        script = self._script
        script.streams += 1
        while (request := await stream.receive()) is not None:
            script.requests.append(request)
            step = script.produce.popleft() if script.produce else STORE
            if script.hold is not None:
                await script.hold.wait()
            if step == BREAK:
                raise StreamBroken("scripted")
            response = log_pb2.ProduceResponse(correlation_id=request.correlation_id)
            for part in request.partitions:
                result = response.results.add(topic=part.topic, partition=part.partition)
                self._store(part, step, result)
            if step == STORE_AND_BREAK:
                raise StreamBroken("scripted")
            if step != SILENCE:
                await stream.send(response)

    def _store(
        self,
        part: log_pb2.PartitionRecords,
        step: str | QuorumlogError,
        result: log_pb2.ProduceResult,
    ) -> None:
        log = self._script.logs[part.partition]
        values = [record.value or b"" for record in decode_all(part.records)]
        leader = self._script.leaders.get(part.partition, 1)
        error = step if isinstance(step, QuorumlogError) else None
        if leader != self._node:
            error = NotLeaderOrFollower("ask another")
        elif b"-1" in values:
            error = InvalidRecord("a bad one")
        if error is not None:
            result.base_offset = -1
            result.error.CopyFrom(encode_error(error))
            return
        result.base_offset = len(log)
        log.extend(values)

    async def _list_offsets(
        self, request: log_pb2.ListOffsetsRequest, context: CallContext
    ) -> log_pb2.ListOffsetsResponse:
        return log_pb2.ListOffsetsResponse(
            results=[
                log_pb2.ListOffsetsResult(topic=part.topic, partition=part.partition, offset=0)
                for part in request.partitions
            ]
        )

    async def _fetch(
        self, request: log_pb2.FetchRequest, context: CallContext
    ) -> log_pb2.FetchResponse:
        raise self._script.fetch.popleft() if self._script.fetch else Lost("nothing scripted")


@pytest.fixture(params=["real", "simulated"])
def run(request: pytest.FixtureRequest) -> Run:
    """What runs a main on one runtime after the other."""
    return real.run if request.param == "real" else simulation.run


@asynccontextmanager
async def scripted(
    runtime: Runtime, script: Script, *, nodes: int = 1, **settings: Any
) -> AsyncIterator[AsyncLog]:
    """A client of a scripted cluster."""
    listeners = [await Broker(script, node).serve(runtime) for node in range(1, nodes + 1)]
    settings.setdefault("retry_backoff_ms_max", 60)
    async with AsyncLog.open(runtime, listeners[0].address, **settings) as log:
        yield log
    for listener in listeners:
        await listener.close(0)


async def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; fails after some ten seconds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("what the test waited for did not happen")


async def send_numbers(
    producer: AsyncProducer, count: int, *, partition: int = 0
) -> list[Delivered]:
    """Send 0..count-1 and wait for all."""
    deliveries = []
    for number in range(count):
        deliveries.append(await producer.send("t", b"%d" % number, partition=partition))
        await asyncio.sleep(0)
    return [await delivery for delivery in deliveries]


# --- batching as the broker sees it --------------------------------------------------------------


def test_several_partitions_share_a_request(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(partitions=5)
        async with scripted(runtime, script) as log, log.producer(linger_ms=10) as producer:
            for partition in range(5):
                await producer.send("t", b"1", partition=partition)
        assert [len(request.partitions) for request in script.requests] == [5]
        assert script.streams == 1

    run(main)


def test_a_partition_never_has_two_requests_under_way(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        async with scripted(runtime, script) as log:
            producer = log.producer(linger_ms=0, batch_size=1)
            deliveries = [await producer.send("t", b"%d" % number) for number in range(10)]
            await until(lambda: bool(script.requests))
            await asyncio.sleep(0.05)  # long enough for a second request to arrive, if there is one
            assert len(script.requests) == 1
            script.hold.set()
            await producer.close()
            assert [(await delivery).offset for delivery in deliveries] == list(range(10))
        assert script.values() == list(range(10))

    run(main)


def test_one_stream_serves_all_requests(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        async with scripted(runtime, script) as log, log.producer(linger_ms=0) as producer:
            for number in range(20):
                assert (await producer.send_and_wait("t", b"%d" % number)).offset == number
        assert len(script.requests) == 20
        assert script.streams == 1

    run(main)


def test_a_request_is_bounded_in_bytes(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        async with (
            scripted(runtime, script) as log,
            log.producer(batch_size=400, request_size_max=2_048) as producer,
        ):
            for _ in range(200):
                await producer.send("t", b"1" * 100)
        assert max(request.ByteSize() for request in script.requests) < 2 * 2_048

    run(main)


# --- repeats -------------------------------------------------------------------------------------


def test_order_is_kept_when_requests_fail_and_are_repeated(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.extend(
            [STORE, BREAK, NotEnoughReplicas("wait"), BREAK, STORE, Overloaded("full"), STORE]
        )
        async with (
            scripted(runtime, script) as log,
            log.producer(linger_ms=0, batch_size=1) as producer,
        ):
            delivered = await send_numbers(producer, 30)
        assert script.values() == list(range(30))
        assert [place.offset for place in delivered] == list(range(30))

    run(main)


def test_a_lost_answer_repeats_the_batch_and_may_store_it_twice(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.extend([STORE_AND_BREAK, STORE])
        async with scripted(runtime, script) as log, log.producer() as producer:
            assert await producer.send_and_wait("t", b"7") == Delivered("t", 0, 1)
        assert script.values() == [7, 7]

    run(main)


def test_a_broker_that_never_answers_is_given_up() -> None:
    """Simulated only: the grace for an answer is five seconds."""

    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.append(SILENCE)
        settings = {"request_timeout_ms": 50}
        async with scripted(runtime, script, **settings) as log, log.producer() as producer:
            assert (await producer.send_and_wait("t", b"7")).offset == 1
        assert script.streams == 2

    simulation.run(main)


def test_a_moved_leader_is_followed(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(partitions=2)
        async with scripted(runtime, script, nodes=2) as log, log.producer() as producer:
            assert (await producer.send_and_wait("t", b"1", partition=0)).offset == 0
            script.leaders[0] = 2
            assert (await producer.send_and_wait("t", b"2", partition=0)).offset == 1
            assert (await producer.send_and_wait("t", b"3", partition=1)).offset == 0
        assert script.values(0) == [1, 2]

    run(main)


def test_a_partition_without_a_leader_waits_for_one(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(leaders={0: -1})
        async with scripted(runtime, script) as log, log.producer() as producer:
            delivery = await producer.send("t", b"1")
            await until(lambda: script.lookups >= 3)
            script.leaders[0] = 1
            assert (await delivery).offset == 0

    run(main)


def test_what_cannot_be_delivered_in_time_fails_with_the_last_reason(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.extend([NotEnoughReplicas("one of two is down")] * 100)
        async with scripted(runtime, script) as log:
            producer = log.producer(delivery_timeout_ms=300)
            with pytest.raises(TimedOut, match="one of two is down") as caught:
                await producer.send_and_wait("t", b"1")
            assert isinstance(caught.value.__cause__, NotEnoughReplicas)
            assert (caught.value.topic, caught.value.partition) == ("t", 0)
            await producer.close()

    run(main)


def test_one_bad_record_fails_alone(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        async with scripted(runtime, script) as log:
            producer = log.producer(linger_ms=0, batch_size=1)
            first = await producer.send("t", b"0")
            await until(lambda: bool(script.requests))
            numbers = [1, 2, -1, 3]  # they will share the next request
            deliveries = [await producer.send("t", b"%d" % number) for number in numbers]
            script.hold.set()
            assert (await first).offset == 0
            with pytest.raises(InvalidRecord):
                await deliveries[2]
            assert [(await deliveries[i]).offset for i in (0, 1, 3)] == [1, 2, 3]
            await producer.close()
        assert script.values() == [0, 1, 2, 3]

    run(main)


def test_a_failing_partition_does_not_stop_the_others(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(partitions=2, leaders={0: -1})
        async with scripted(runtime, script) as log:
            producer = log.producer(delivery_timeout_ms=200)
            stuck = await producer.send("t", b"1", partition=0)
            for number in range(5):
                assert (await producer.send_and_wait("t", b"1", partition=1)).offset == number
            with pytest.raises(TimedOut):
                await stuck
            await producer.close()

    run(main)


def test_a_full_buffer_is_told_after_the_time_to_block(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        async with scripted(runtime, script) as log:
            producer = log.producer(buffer_size=150, block_ms_max=50)
            await producer.send("t", b"1" * 100)
            with pytest.raises(Overloaded, match="buffer_size is 150"):
                await producer.send("t", b"1" * 100)
            script.hold.set()
            await producer.close()
        assert len(script.logs[0]) == 1

    run(main)


def test_flush_says_how_much_has_no_outcome_in_time(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script(hold=asyncio.Event())
        assert script.hold is not None
        async with scripted(runtime, script) as log:
            producer = log.producer()
            for _ in range(3):
                await producer.send("t", b"1")
            with pytest.raises(TimedOut, match="3 records"):
                await producer.flush(timeout_ms=50)
            script.hold.set()
            await producer.close()

    run(main)


def test_a_topic_that_vanishes_fails_what_waits_for_it(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.append(UnknownTopicOrPartition("not here"))
        async with scripted(runtime, script) as log:
            producer = log.producer()
            delivery = await producer.send("t", b"1")
            script.exists = False
            with pytest.raises(UnknownTopicOrPartition):
                await delivery
            await producer.close()

    run(main)


def test_a_consumer_repeats_what_may_be_repeated_and_tells_the_rest(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        script.fetch.extend([Lost("cut"), NotLeaderOrFollower("moved"), InvalidRecord("no")])
        async with scripted(runtime, script) as log, log.consumer("t") as consumer:
            with pytest.raises(InvalidRecord):
                await consumer.poll(timeout_ms=30_000)
        assert not script.fetch

    run(main)


def test_a_batch_is_encoded_once(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        script = Script()
        script.produce.extend([BREAK, BREAK])
        async with scripted(runtime, script) as log, log.producer() as producer:
            await producer.send_and_wait("t", b"1", timestamp_ms=5)
        first, *others = [request.partitions[0].records for request in script.requests]
        assert [bytes(other) for other in others] == [bytes(first)] * 2
        assert parse_header(first).base_timestamp == 5

    run(main)


# --- a whole node behind breaking links ----------------------------------------------------------

BREAKING = Faults(
    link_break=0.95,
    link_break_frames=(3, 25),
    end_never_learns=0.2,
    late_suffix=0.5,
    network_stall=0.02,
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_acknowledged_records_are_where_they_were_acknowledged_in_order(
    seed: int, tmp_path: Path
) -> None:
    """Repeats may duplicate; nothing acknowledged is lost, and first occurrences keep the order."""
    config = NodeConfig(
        data_dir="/data", grpc_listener="server:9094", controller_listener="server:9093"
    )
    ready = asyncio.Event()
    acknowledged: dict[Delivered, bytes] = {}
    read: dict[int, list[bytes]] = defaultdict(list)

    async def server(runtime: Runtime) -> None:
        await format_directory(runtime, config)
        async with Node(runtime, config):
            ready.set()
            await asyncio.Event().wait()

    async def client(runtime: Runtime) -> None:
        await ready.wait()
        settings: dict[str, Any] = {"connect_timeout_ms": 60_000, "request_timeout_ms": 2_000}
        async with AsyncLog.open(runtime, "server:9094", **settings) as log:
            await log.admin.create_topic("t", partitions=3)
            async with log.producer(linger_ms=1, batch_size=100) as producer:
                deliveries = []
                for number in range(400):
                    value = b"%d" % number
                    delivery = await producer.send("t", value, partition=number % 3)
                    deliveries.append((value, delivery))
                    if number % 10 == 0:
                        await asyncio.sleep(0.02)
                for value, delivery in deliveries:
                    acknowledged[await delivery] = value
            world.weather.calm()
            async with log.consumer("t", until_end=True) as consumer:
                async for record in consumer:
                    place = Delivered("t", record.partition, record.offset)
                    assert record.value is not None
                    assert acknowledged.get(place, record.value) == record.value
                    assert record.offset == len(read[record.partition])
                    read[record.partition].append(record.value)

    with SimWorld(seed, faults=BREAKING) as world:
        world.node("server").spawn(server)
        world.node("client").spawn(client)
        task = world.node("client").root
        assert task is not None
        world.run_until(task, virtual_ms=600_000, why="the client's end")
        task.result()
    assert len(acknowledged) == 400
    for partition, values in read.items():
        firsts = list(dict.fromkeys(values))
        assert firsts == [b"%d" % number for number in range(400) if number % 3 == partition]
