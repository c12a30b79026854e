"""In-memory brokers for consumer tests; a test controls their behaviour."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from quorumlog import simulation
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import NotLeaderOrFollower, OffsetOutOfRange, QuorumlogError, UnknownTopicId
from quorumlog.errors import UnknownTopicOrPartition as Unknown
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import CallContext, Handler, Runtime
from quorumlog.runtime.error_detail import encode_error
from quorumlog.services import (
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_TOPICS,
    LOG_FETCH,
    LOG_LIST_OFFSETS,
    LOG_SUBSCRIBE,
)

Place = tuple[str, int]


def batch(first: int, count: int = 1, *, size: int = 1, is_control: bool = False) -> bytes:
    """A batch of `count` records from offset `first` on; timestamps are 1000 + offset."""
    key = b"\0" * 4 if is_control else b"k"
    records = [
        Record(offset, 1_000 + offset, key, b"%06d" % offset * size, ())
        for offset in range(first, first + count)
    ]
    return encode_batch(records, base_offset=first, is_control=is_control)


class Stored(NamedTuple):
    first: int
    end: int
    bytes: bytes


class Asked(NamedTuple):
    """A fetch request that a broker received."""

    at_ms: int
    broker: int
    wait_ms: int
    max_bytes: int
    offsets: dict[Place, int]


@dataclass
class Topic:
    partitions: int
    topic_id: bytes
    leaders: dict[int, int] = field(default_factory=dict)  # by partition; broker 1 by default


@dataclass
class Brokers:
    """A cluster of brokers in memory; see the module."""

    runtime: Runtime
    count: int = 1
    topics: dict[str, Topic] = field(default_factory=dict)
    logs: dict[Place, list[Stored]] = field(default_factory=dict)
    errors: dict[Place, QuorumlogError] = field(default_factory=dict)  # number of fetches
    silences: dict[int, asyncio.Event] = field(default_factory=dict)  # time before a response
    fetch_s: float = 0.0  # time before a fetch is processed
    lookup_s: float = 0.0  # time before DescribeTopics and ListOffsets responses
    asked: list[Asked] = field(default_factory=list)
    look_ups: list[list[Place]] = field(default_factory=list)
    waiting: int = 0  # fetches in flight
    waiting_max: int = 0
    addresses: dict[int, str] = field(default_factory=dict)
    break_subscribe_after: int = 0  # responses of a Subscribe stream until it breaks; 0: never
    subscriptions: int = 0
    created: int = 0  # topics, including deleted ones
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def create(self, name: str, partitions: int = 1, **leaders: int) -> None:
        self.created += 1
        self.topics[name] = Topic(partitions, b"%016d" % self.created)
        for partition in range(partitions):
            self.logs[name, partition] = []

    def delete(self, name: str) -> None:
        del self.topics[name]

    def lead(self, place: Place, broker: int) -> None:
        self.topics[place[0]].leaders[place[1]] = broker

    def append(self, place: Place, count: int = 1, *, size: int = 1, batches: int = 1) -> None:
        for _ in range(batches):
            first = self.end(place)
            self.put(place, batch(first, count, size=size), count)

    def put(self, place: Place, data: bytes, count: int) -> None:
        """Store bytes as `count` offsets."""
        first = self.end(place)
        self.logs[place].append(Stored(first, first + count, data))
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self, place: Place) -> int:
        log = self.logs[place]
        return log[-1].end if log else 0

    @asynccontextmanager
    async def client(self, **settings: Any) -> AsyncIterator[AsyncLog]:
        """Serve, and return a client."""
        serve = self.runtime.network.serve
        numbers = range(1, self.count + 1)
        listeners = [await serve("127.0.0.1:0", self._handlers(broker)) for broker in numbers]
        for broker, listener in zip(numbers, listeners, strict=True):
            self.addresses[broker] = listener.address
        settings = {"retry_backoff_max_ms": 60} | settings
        async with make_log(self.runtime, self.addresses[1], **settings) as log:
            yield log
        for listener in listeners:
            await listener.close(0)

    def _handlers(self, broker: int) -> dict[str, Handler]:
        async def fetch(
            request: log_pb2.FetchRequest, context: CallContext
        ) -> log_pb2.FetchResponse:
            return await self._fetch(broker, request)

        table = [
            Handler(ADMIN_DESCRIBE_CLUSTER, self._describe_cluster),
            Handler(ADMIN_DESCRIBE_TOPICS, self._describe_topics),
            Handler(LOG_LIST_OFFSETS, self._list_offsets),
            Handler(LOG_FETCH, fetch),
            Handler(LOG_SUBSCRIBE, self._subscribe),
        ]
        return {handler.method.path: handler for handler in table}

    async def _describe_cluster(
        self, request: admin_pb2.DescribeClusterRequest, context: CallContext
    ) -> admin_pb2.DescribeClusterResponse:
        return admin_pb2.DescribeClusterResponse(cluster_id="c")

    async def _describe_topics(
        self, request: admin_pb2.DescribeTopicsRequest, context: CallContext
    ) -> admin_pb2.DescribeTopicsResponse:
        await asyncio.sleep(self.lookup_s)
        response = admin_pb2.DescribeTopicsResponse(
            brokers=[
                admin_pb2.BrokerDescription(id=broker, grpc_address=address)
                for broker, address in self.addresses.items()
            ]
        )
        for name in request.names:
            result = response.results.add(name=name)
            known = self.topics.get(name)
            if known is None:
                result.error.CopyFrom(encode_error(Unknown("no such topic", topic=name)))
                continue
            result.topic.name = name
            result.topic.topic_id = known.topic_id
            for partition in range(known.partitions):
                leader = known.leaders.get(partition, 1)
                result.topic.partitions.add(partition=partition, leader=leader)
        return response

    async def _list_offsets(
        self, request: log_pb2.ListOffsetsRequest, context: CallContext
    ) -> log_pb2.ListOffsetsResponse:
        await asyncio.sleep(self.lookup_s)
        self.look_ups.append([(part.topic, part.partition) for part in request.partitions])
        response = log_pb2.ListOffsetsResponse()
        for part in request.partitions:
            place = (part.topic, part.partition)
            end = self.end(place)
            if self._is_another(part):
                result = response.results.add(topic=part.topic, partition=part.partition)
                result.error.CopyFrom(encode_error(UnknownTopicId("another", topic=part.topic)))
                continue
            if part.timestamp_ms == -1:
                offset = end
            elif part.timestamp_ms == -2:
                offset = self.logs[place][0].first if self.logs[place] else 0
            else:
                offset = max(0, part.timestamp_ms - 1_000)
                offset = offset if offset < end else -1
            response.results.add(topic=part.topic, partition=part.partition, offset=offset)
        return response

    # --- fetching ----------------------------------------------------------------------------

    async def _fetch(self, broker: int, request: log_pb2.FetchRequest) -> log_pb2.FetchResponse:
        now_ms = self.runtime.clock.now_ms()
        offsets = {(part.topic, part.partition): part.offset for part in request.partitions}
        self.asked.append(Asked(now_ms, broker, request.max_wait_ms, request.max_bytes, offsets))
        self.waiting += 1
        self.waiting_max = max(self.waiting_max, self.waiting)
        try:
            await self.silences.get(broker, _heard()).wait()
            await asyncio.sleep(self.fetch_s)
            until_ms = now_ms + request.max_wait_ms
            while True:
                response, is_news = self._answer(broker, request)
                left_ms = until_ms - self.runtime.clock.now_ms()
                if is_news or left_ms <= 0:
                    return response
                await self._news(left_ms)
        finally:
            self.waiting -= 1

    async def _news(self, wait_ms: int) -> None:
        """Wait until records were stored, for a limited time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self.changed.wait()

    def _answer(
        self, broker: int, request: log_pb2.FetchRequest
    ) -> tuple[log_pb2.FetchResponse, bool]:
        response = log_pb2.FetchResponse()
        left, is_news = request.max_bytes, False
        for part in request.partitions:
            place = (part.topic, part.partition)
            result = response.results.add(topic=part.topic, partition=part.partition)
            error = self._error(broker, place, part.offset)
            if self._is_another(part):
                error = UnknownTopicId("another", topic=part.topic)
            if error is not None:
                result.error.CopyFrom(encode_error(error))
                is_news = True
                continue
            result.high_watermark = self.end(place)
            room, taken = min(part.max_bytes, max(left, 0)), b""
            for stored in self.logs[place]:
                if stored.end > part.offset:
                    must = not taken and left == request.max_bytes
                    if len(taken) + len(stored.bytes) > room and not must:
                        break
                    taken += stored.bytes
            result.records = taken
            left -= len(taken)
            is_news = is_news or bool(taken)
        return response, is_news

    def _is_another(self, part: Any) -> bool:
        """Return True if part of a request is for a deleted topic of this name."""
        topic = self.topics.get(part.topic)
        return topic is not None and part.topic_id not in (b"", topic.topic_id)

    def _error(self, broker: int, place: Place, offset: int) -> QuorumlogError | None:
        name, partition = place
        topic = self.topics.get(name)
        if topic is None:
            return Unknown("gone", topic=name)
        if topic.leaders.get(partition, 1) != broker:
            return NotLeaderOrFollower("not here", topic=name, partition=partition)
        if place in self.errors:
            return self.errors[place]
        log = self.logs[place]
        first = log[0].first if log else 0
        if not first <= offset <= self.end(place):
            return OffsetOutOfRange(f"[{first}, {self.end(place)}]", topic=name)
        return None

    async def _subscribe(self, stream: Any, context: CallContext) -> None:
        request = await stream.receive()
        self.subscriptions += 1
        if self._is_another(request):
            raise UnknownTopicId("another", topic=request.topic)
        place, offset, sent = (request.topic, request.partition), request.offset, 0
        for stored in list(self.logs[place]):
            if stored.end > offset:
                if self.break_subscribe_after and sent == self.break_subscribe_after:
                    stream.abort("broken by the test")
                    return
                end = min(stored.end, request.end_offset)
                await stream.send(log_pb2.SubscribeResponse(batches=stored.bytes, next_offset=end))
                sent += 1
                if end == request.end_offset:
                    return


def _heard() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def offsets(records: Sequence[Any]) -> list[int]:
    return [record.offset for record in records]


Main: TypeAlias = Callable[[Brokers], Coroutine[Any, Any, None]]


def run_with_brokers(main: Main, *, brokers: int = 1) -> None:
    """Run `main` with brokers in memory, on the simulated runtime."""

    async def run(runtime: Runtime) -> None:
        await main(Brokers(runtime, brokers))

    simulation.run(run)
