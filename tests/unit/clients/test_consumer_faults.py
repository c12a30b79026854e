"""The consumer with a scripted broker that sends faulty responses."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import AMPLE_MS, run_patiently, wait_until

from quorumlog.clients.consumer.consumer import AsyncConsumer
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import (
    ClientClosed,
    CorruptionError,
    InvalidRecord,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutcomeUnknown,
    QuorumlogError,
)
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import CallContext, Handler, Runtime
from quorumlog.runtime.error_detail import encode_error
from quorumlog.services import (
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_TOPICS,
    LOG_FETCH,
    LOG_LIST_OFFSETS,
)

Run: TypeAlias = Callable[[Callable[[Runtime], Coroutine[Any, Any, None]]], None]


@dataclass
class Broker:
    """The leader of partition 0 of topic t. It responds to a fetch by its offset."""

    end: int = 0
    answers: dict[int, deque[bytes | QuorumlogError]] = field(
        default_factory=lambda: defaultdict(deque)
    )  # by offset; the last response repeats, an unlisted offset has no records
    address: str = ""

    @asynccontextmanager
    async def client(self, runtime: Runtime) -> AsyncIterator[AsyncLog]:
        """Serve, and return a client."""
        table = [
            Handler(ADMIN_DESCRIBE_CLUSTER, self._describe_cluster),
            Handler(ADMIN_DESCRIBE_TOPICS, self._describe_topics),
            Handler(LOG_LIST_OFFSETS, self._list_offsets),
            Handler(LOG_FETCH, self._fetch),
        ]
        handlers = {handler.method.path: handler for handler in table}
        listener = await runtime.network.serve("127.0.0.1:0", handlers)
        self.address = listener.address
        async with make_log(runtime, self.address, retry_backoff_max_ms=60) as log:
            yield log
        await listener.close(0)

    async def _describe_cluster(
        self, request: admin_pb2.DescribeClusterRequest, context: CallContext
    ) -> admin_pb2.DescribeClusterResponse:
        return admin_pb2.DescribeClusterResponse(cluster_id="c")

    async def _describe_topics(
        self, request: admin_pb2.DescribeTopicsRequest, context: CallContext
    ) -> admin_pb2.DescribeTopicsResponse:
        brokers = [admin_pb2.BrokerDescription(id=1, grpc_address=self.address)]
        response = admin_pb2.DescribeTopicsResponse(brokers=brokers)
        topic = response.results.add(name="t").topic
        topic.name = "t"
        topic.partitions.add(partition=0, leader=1)
        return response

    async def _list_offsets(
        self, request: log_pb2.ListOffsetsRequest, context: CallContext
    ) -> log_pb2.ListOffsetsResponse:
        (part,) = request.partitions
        offset = self.end if part.timestamp_ms == -1 else 0
        result = log_pb2.ListOffsetsResult(topic="t", offset=offset)
        return log_pb2.ListOffsetsResponse(results=[result])

    async def _fetch(
        self, request: log_pb2.FetchRequest, context: CallContext
    ) -> log_pb2.FetchResponse:
        (part,) = request.partitions
        answers = self.answers[part.offset]
        result = log_pb2.FetchResult(topic="t", high_watermark=self.end)
        if not answers:
            await asyncio.sleep(request.max_wait_ms / 1000)
        else:
            answer = answers.popleft() if len(answers) > 1 else answers[0]
            if isinstance(answer, OutcomeUnknown):
                raise answer
            if isinstance(answer, QuorumlogError):
                result.error.CopyFrom(encode_error(answer))
            else:
                result.records = answer
        return log_pb2.FetchResponse(results=[result])


def batch(*offsets: int, is_control: bool = False) -> bytes:
    records = [Record(offset, 1, b"\0" * 4, b"%d" % offset, ()) for offset in offsets]
    return encode_batch(records, base_offset=offsets[0], is_control=is_control)


async def offsets_of(consumer: AsyncConsumer, *, polls: int = 1) -> list[int]:
    """Return the offsets of the records of some polls."""
    return [
        record.offset for _ in range(polls) for record in await consumer.poll(timeout_ms=AMPLE_MS)
    ]


@pytest.fixture(params=["real", "simulated"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a main on both runtimes in turn."""
    from quorumlog import simulation

    return run_patiently if request.param == "real" else simulation.run


def test_consumer_retries_retriable_errors_and_raises_others(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker()
        broker.answers[0].extend(
            [OutcomeUnknown("cut"), NotLeaderOrFollower("moved"), InvalidRecord("no")]
        )
        async with broker.client(runtime) as log, log.consumer("t") as consumer:
            with pytest.raises(InvalidRecord):
                await consumer.poll(timeout_ms=AMPLE_MS)
        assert len(broker.answers[0]) == 1

    run(main)


def test_a_truncated_response_is_raised_and_retried(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(end=3)
        broker.answers[0].extend([batch(0, 1, 2)[:-5], batch(0, 1, 2)])
        async with broker.client(runtime) as log, log.consumer("t") as consumer:
            with pytest.raises(CorruptionError):
                await consumer.poll(timeout_ms=AMPLE_MS)
            assert await offsets_of(consumer) == [0, 1, 2]

    run(main)


def test_records_that_cannot_be_decoded_are_never_skipped(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        rotten = bytearray(batch(0, 1))
        rotten[-2] ^= 1
        broker = Broker(end=3)
        broker.answers[0].extend([bytes(rotten), bytes(rotten), batch(0, 1)])
        broker.answers[2].append(batch(2))
        broker.answers[3].clear()
        async with broker.client(runtime) as log, log.consumer("t") as consumer:
            for _ in range(2):
                with pytest.raises(CorruptionError):
                    await consumer.poll(timeout_ms=AMPLE_MS)
            assert await offsets_of(consumer, polls=2) == [0, 1, 2]

    run(main)


def test_reading_until_the_end_ends_behind_a_control_batch(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(end=4)
        broker.answers[0].append(batch(0, 1, 2) + batch(3, is_control=True))
        async with broker.client(runtime) as log, log.consumer("t", until_end=True) as consumer:
            assert [record.offset async for record in consumer] == [0, 1, 2]
            assert await consumer.position(("t", 0)) == 4

    run(main)


def test_records_fetched_before_a_reset_do_not_undo_it(run: Run) -> None:
    """The topic was recreated: offset 5 no longer exists, and 0 exists again."""

    async def main(runtime: Runtime) -> None:
        broker = Broker(end=5)
        broker.answers[2].append(batch(2, 3, 4))
        broker.answers[5].append(OffsetOutOfRange("anew"))
        async with broker.client(runtime) as log:
            consumer = log.consumer("t", start=2, on_out_of_range="earliest")
            assert [
                record.offset for record in await consumer.poll(max_records=1, timeout_ms=AMPLE_MS)
            ] == [2]
            await wait_until(lambda: consumer._fetcher.fetches >= 2)  # offset 5 was refused
            assert await offsets_of(consumer) == [3, 4]
            broker.answers[0].append(batch(0, 1))
            assert await offsets_of(consumer) == [0, 1]

    run(main)


@pytest.mark.parametrize("close_the_client", [False, True])
def test_closing_ends_a_poll_that_waits(run: Run, close_the_client: bool) -> None:
    async def main(runtime: Runtime) -> None:
        async with Broker().client(runtime) as log, runtime.tasks.scope("reader") as scope:
            consumer = log.consumer("t")
            await consumer.assignment()

            async def read() -> None:
                with pytest.raises(ClientClosed):
                    await consumer.poll(timeout_ms=None)

            reading = scope.spawn(read(), name="poll")
            await asyncio.sleep(0.01)
            await (log if close_the_client else consumer).close()
            await reading

    run(main)


def test_empty_polls_leave_no_memory(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with Broker().client(runtime) as log:
            consumer = log.consumer("t", fetch_max_wait_ms=60_000)
            for _ in range(20):
                assert await consumer.poll(timeout_ms=1) == []
            assert not consumer._fetcher._arrivals

    run(main)
