"""The producer with transactions and a broker with a transaction coordinator."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from quorumlog.clients.log import AsyncLog
from quorumlog.clients.producer.batches import Delivery
from quorumlog.clients.producer.transactional_producer import AsyncTransactionalProducer
from quorumlog.errors import (
    ClientClosed,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidConfig,
    InvalidRecord,
    InvalidTxnState,
    MessageTooLarge,
    OutcomeUnknown,
    PartitionerFailed,
    ProducerFenced,
    ProducerUnusable,
    QuorumlogError,
    RowsNotDelivered,
    StreamBroken,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from quorumlog.ids import ProducerIdentity
from quorumlog.proto import admin_pb2, groups_pb2
from quorumlog.proto import transactions_pb2 as pb
from quorumlog.records import parse_header
from quorumlog.records.batch import TRANSACTIONAL_BIT
from quorumlog.runtime import CallContext, Handler, Runtime
from quorumlog.services import GROUPS_FETCH_OFFSETS, GROUPS_HEARTBEAT
from quorumlog.simulation import run

from .storing_broker import EIGHT, REFUSALS_OF_A_BULK, cluster, fails_for_three
from .transaction_broker import Ended, TransactionBroker

Body: TypeAlias = Callable[
    [AsyncTransactionalProducer, TransactionBroker, AsyncLog], Awaitable[None]
]


def with_producer(body: Body, **settings: Any) -> None:
    async def main(runtime: Runtime) -> None:
        broker = TransactionBroker()
        async with cluster(runtime, broker) as log, producing(log, **settings) as producer:
            await body(producer, broker, log)

    run(main)


@asynccontextmanager
async def producing(log: AsyncLog, **settings: Any) -> AsyncIterator[AsyncTransactionalProducer]:
    async with log.producer(transactional_id="enrich-1", **settings) as producer:
        yield producer


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_transactions_commit_their_records_in_epochs_of_their_own(compression: str) -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        assert (broker.ids["enrich-1"].inits, broker.ids["enrich-1"].timeout_ms) == (1, 9_000)
        for number in range(3):
            async with producer.transaction():
                delivery = await producer.send("t", b"a%d" % number)
                await producer.send_many("t", [b"b%d" % number, b"c%d" % number])
            assert (await delivery).offset == 3 * number
        values = [b"%c%d" % (letter, number) for number in range(3) for letter in b"abc"]
        assert broker.committed == values
        headers = [parse_header(part.records) for part in broker.parts]
        assert [header.producer_epoch for header in headers] == [0, 1, 2]
        assert all(header.attributes & TRANSACTIONAL_BIT for header in headers)
        assert [header.base_sequence for header in headers] == [0, 0, 0]
        assert broker.transactional_ids == ["enrich-1"] * 3

    with_producer(body, compression=compression, transaction_timeout_ms=9_000, linger_ms=1_000)


def test_sequences_continue_within_a_transaction() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        async with producer.transaction():
            for number in range(20):
                await producer.send("t", b"%d" % number)
                await asyncio.sleep(0.01)
        assert len(broker.parts) > 3
        assert broker.committed == [b"%d" % number for number in range(20)]

    with_producer(body, linger_ms=0)


def test_arrow_rows_are_sent_in_the_transaction() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        async with producer.transaction():
            await producer.send_arrow("t", pa.table({"v": ["a", "b"]}), value="v")
        assert broker.committed == [b"a", b"b"]

    with_producer(body)


def test_error_in_the_block_aborts() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        unsent: list[Delivery] = []

        async def fail() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"a")
                unsent.append(await producer.send("t", b"b"))
                raise KeyError("of the application")

        with pytest.raises(KeyError):
            await fail()
        assert isinstance(unsent[0].exception(), TransactionAbortable)
        assert broker.ended == [Ended(ProducerIdentity(7, 0), commit=False)]
        async with producer.transaction():
            await producer.send("t", b"c")
        assert broker.committed == [b"c"]

    with_producer(body, linger_ms=100)


def test_nothing_is_sent_outside_of_a_transaction() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        table = pa.table({"v": ["a"]})
        for turn in range(2):
            for call in (
                lambda: producer.send("t", b"a"),
                lambda: producer.send_many("t", [b"a"]),
                lambda: producer.send_arrow("t", table, value="v"),
            ):
                with pytest.raises(InvalidTxnState, match="no transaction is open"):
                    await call()
            with pytest.raises(InvalidTxnState, match="no transaction is open"):
                producer.send_nowait("t", b"a")
            if not turn:  # also once the topic is known
                async with producer.transaction():
                    await producer.send("t", b"committed")
        with pytest.raises(InvalidTxnState, match="no transaction is open"):
            await producer.commit_transaction()
        with pytest.raises(InvalidTxnState, match="nothing to abort"):
            await producer.abort_transaction()
        assert broker.committed == [b"committed"]

    with_producer(body)


def test_empty_transaction_sends_no_request() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        async with producer.transaction():
            pass
        with pytest.raises(KeyError):
            async with producer.transaction():
                raise KeyError
        assert broker.ended == []

    with_producer(body)


def test_refused_record_makes_the_transaction_abortable() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        broker.refuse[b"bad"] = InvalidRecord("bad record")

        async def until_the_commit() -> None:
            async with producer.transaction():
                await producer.send("t", b"good")
                await producer.send("t", b"bad")

        async def until_the_next_record() -> None:
            async with producer.transaction():
                refused = await producer.send("t", b"bad")
                with pytest.raises(InvalidRecord):
                    await refused
                await producer.send("t", b"more")

        for send in (until_the_commit, until_the_next_record):
            with pytest.raises(TransactionAbortable, match="bad record") as raised:
                await send()
            assert isinstance(raised.value.__cause__, InvalidRecord)
        async with producer.transaction():
            await producer.send("t", b"next")
        assert [ended.commit for ended in broker.ended] == [False, False, True]
        assert broker.committed == [b"next"]
        await producer.flush()

    with_producer(body, linger_ms=1)


@pytest.mark.parametrize(("settings", "cause"), REFUSALS_OF_A_BULK)
def test_refused_part_of_a_bulk_makes_the_transaction_abortable(
    settings: dict[str, Any], cause: type[QuorumlogError]
) -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        async def send(*more: bytes) -> None:
            async with producer.transaction():
                broker.hold = asyncio.Event()
                await producer.send_many("t", EIGHT)
                broker.hold.set()
                for value in more:
                    await asyncio.sleep(0.1)  # simulated: the outcomes are known
                    await producer.send("t", value)

        for more in ((), (b"more",)):
            with pytest.raises(TransactionAbortable) as raised:
                await send(*more)
            assert isinstance(raised.value.__cause__, cause)
        async with producer.transaction():
            await producer.send("t", b"next")
        assert broker.committed == [b"next"]

    with_producer(body, **settings)


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"topic": "t", "value": b"x" * 2_000}, MessageTooLarge),
        ({"topic": "t", "value": b"3"}, PartitionerFailed),
        ({"topic": "t", "value": b"x", "partition": 5}, UnknownTopicOrPartition),
    ],
)
def test_swallowed_error_of_send_makes_the_transaction_abortable(
    record: dict[str, Any], error: type[QuorumlogError]
) -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        await producer.begin_transaction()
        await producer.send("t", b"a")
        with pytest.raises(error):
            await producer.send(**record)
        with pytest.raises(TransactionAbortable) as raised:
            await producer.commit_transaction()
        assert isinstance(raised.value.__cause__, error)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"next")
        assert broker.committed == [b"next"]

    with_producer(body, partitioner=fails_for_three, max_request_size=1_024)


def test_record_without_acknowledgement_is_aborted_and_stored_at_most_once() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        broker.hold = asyncio.Event()
        await producer.begin_transaction()
        await producer.send("t", b"lost")
        with pytest.raises(TransactionAbortable, match="not acknowledged within"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        broker.hold.set()
        async with producer.transaction():
            await producer.send("t", b"next")
        assert broker.committed == [b"next"]

    with_producer(body, delivery_timeout_ms=500)


def test_newer_producer_fences_and_the_older_one_raises_once() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"zombie")
        async with producing(log) as newer:
            with pytest.raises(ProducerFenced, match="enrich-1: fenced") as raised:
                await producer.commit_transaction()
            assert isinstance(raised.value, ProducerUnusable)
            for call in (
                producer.begin_transaction,
                producer.commit_transaction,
                producer.abort_transaction,
                lambda: producer.send("t", b"a"),
            ):
                with pytest.raises(ClientClosed, match="the producer is closed"):
                    await call()
            async with newer.transaction():
                await newer.send("t", b"newer")
        await producer.close()
        assert broker.committed == [b"newer"]

    with_producer(body)


def test_fenced_producer_raises_in_its_block() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        async with producing(log) as newer:
            with pytest.raises(ProducerFenced):
                async with producer.transaction():
                    await producer.send("t", b"zombie")
            async with newer.transaction():
                await newer.send("t", b"newer")
        assert broker.committed == [b"newer"]

    with_producer(body)


def test_fatal_error_during_an_abort_is_raised_by_the_next_transaction() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        async def fail() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"zombie")
                async with producing(log):
                    raise KeyError("of the application")

        with pytest.raises(KeyError) as raised:
            await fail()
        assert "fenced" in raised.value.__notes__[0]
        with pytest.raises(ProducerFenced):
            await producer.begin_transaction()
        with pytest.raises(ClientClosed):
            await producer.begin_transaction()

    with_producer(body)


def test_requests_with_lost_responses_of_the_coordinator_are_retried() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        broker.end_errors = [ConcurrentTransactions("later"), CoordinatorNotAvailable("moving")]
        broker.lose_end_answers = 3
        async with producer.transaction():
            await producer.send("t", b"a")
        async with producer.transaction():
            await producer.send("t", b"b")
        assert broker.committed == [b"a", b"b"]
        assert [ended.producer.producer_epoch for ended in broker.ended] == [0, 1]

    with_producer(body)


def test_commit_without_an_answer_is_repeated_by_the_application() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a")
        broker.lose_end_answers = 1_000
        with pytest.raises(OutcomeUnknown, match="commit again"):
            await producer.commit_transaction(timeout_ms=500)
        for call in (producer.begin_transaction, producer.abort_transaction):
            with pytest.raises(OutcomeUnknown):
                await call()
        with pytest.raises(InvalidTxnState):
            await producer.send("t", b"b")
        broker.lose_end_answers = 0
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("t", b"b")
        assert broker.committed == [b"a", b"b"]

    with_producer(body)


def test_abort_without_an_answer_is_repeated_by_the_next_transaction() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a")
        broker.lose_end_answers = 1_000
        with pytest.raises(StreamBroken):
            await producer.abort_transaction(timeout_ms=500)
        broker.lose_end_answers = 0
        async with producer.transaction():
            await producer.send("t", b"b")
        assert broker.committed == [b"b"]

    with_producer(body)


def test_block_that_is_cancelled_while_it_flushes_aborts() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        async def block() -> None:
            async with producer.transaction():
                await producer.send("t", b"a")

        broker.hold = asyncio.Event()
        task = asyncio.create_task(block())
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.sleep(0.1)
        broker.hold.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction():
            await producer.send("t", b"b")
        assert [each.commit for each in broker.ended] == [False, True]
        assert broker.committed == [b"b"]

    with_producer(body)


def test_flush_does_not_use_the_time_of_the_commit() -> None:
    async def main(runtime: Runtime) -> None:
        broker = TransactionBroker()
        async with (
            cluster(runtime, broker, call_timeout_ms=1_000) as log,
            producing(log) as producer,
        ):
            broker.hold = asyncio.Event()
            broker.end_errors = [CoordinatorNotAvailable("loading")]
            await producer.begin_transaction()
            await producer.send("t", b"a")
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(5)
            broker.hold.set()
            await commit
            assert broker.committed == [b"a"]

    run(main)


def test_closing_aborts_an_open_transaction() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a")
        await producer.close()
        assert broker.ended == [Ended(ProducerIdentity(7, 0), commit=False)]
        with pytest.raises(ClientClosed):
            await producer.begin_transaction()

    with_producer(body)


def test_close_that_is_cancelled_ends_the_producer() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a")
        broker.end_errors = [CoordinatorNotAvailable("down") for _ in range(1_000)]
        close = asyncio.create_task(producer.close())
        await asyncio.sleep(0.5)
        close.cancel()
        with pytest.raises(asyncio.CancelledError):
            await close
        assert producer.is_closed

    with_producer(body)


def test_arrow_rows_do_not_enter_the_next_transaction() -> None:
    async def body(
        producer: AsyncTransactionalProducer, broker: TransactionBroker, log: AsyncLog
    ) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"a", partition=0)
        broker.hold = asyncio.Event()
        table = pa.table({"v": ["y" * 2_000] * 30})
        rows = asyncio.create_task(producer.send_arrow("t", table, value="v", partition=0))
        await asyncio.sleep(1)
        accepted = producer.statistics().buffered_records

        async def next_transaction() -> None:
            await producer.commit_transaction()
            await producer.begin_transaction()

        following = asyncio.create_task(next_transaction())
        await asyncio.sleep(0.5)
        broker.hold.set()
        await following
        with pytest.raises(RowsNotDelivered) as caught:
            await rows
        assert isinstance(caught.value.first, InvalidTxnState)
        await producer.commit_transaction()
        assert len(broker.committed) == 1 + accepted == 1 + caught.value.stored_count

    with_producer(body, buffer_size=9_000, batch_size=2_500, linger_ms=0)


class SlowTopicBroker(TransactionBroker):
    """A broker whose topics are known late."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = asyncio.Event()

    async def _describe_topics(
        self, request: admin_pb2.DescribeTopicsRequest, context: CallContext
    ) -> admin_pb2.DescribeTopicsResponse:
        await self.topics.wait()
        return await super()._describe_topics(request, context)


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize(
    "send",
    [
        lambda producer: producer.send("t", b"late"),
        lambda producer: producer.send_many("t", [b"late"]),
        lambda producer: producer.send_arrow("t", pa.table({"v": ["late"]}), value="v"),
    ],
)
def test_waiting_records_do_not_enter_the_next_transaction(
    send: Callable[[AsyncTransactionalProducer], Awaitable[object]], exists: bool
) -> None:
    """Nothing was sent in the first transaction, so the next one has the same identity."""

    async def main(runtime: Runtime) -> None:
        broker = SlowTopicBroker()
        async with cluster(runtime, broker) as log, producing(log) as producer:
            await producer.begin_transaction()
            late = asyncio.ensure_future(send(producer))
            await asyncio.sleep(0.1)
            await producer.abort_transaction()
            await producer.begin_transaction()
            broker.exists = exists
            broker.topics.set()
            with pytest.raises(InvalidTxnState if exists else UnknownTopicOrPartition):
                await late
            broker.exists = True
            await producer.send("t", b"next")
            await producer.commit_transaction()
            assert broker.committed == [b"next"]

    run(main)


def test_initialization_waits_for_the_abort_of_the_transaction_before() -> None:
    async def main(runtime: Runtime) -> None:
        broker = TransactionBroker()
        broker.init_errors = [ConcurrentTransactions("aborting")] * 3
        async with cluster(runtime, broker) as log:
            producer = log.producer(transactional_id="enrich-1")
            await producer.begin_transaction()  # not entered: the first call initializes
            await producer.send("t", b"a")
            await producer.commit_transaction()
            await producer.close()
        assert broker.committed == [b"a"]

    run(main)


@pytest.mark.parametrize(
    "settings",
    [
        {"transactional_id": ""},
        {"transactional_id": "x", "acks": "leader"},
        {"transactional_id": "x", "enable_idempotence": False},
        {"transactional_id": "x", "transaction_timeout_ms": 0},
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    async def main(runtime: Runtime) -> None:
        async with cluster(runtime, TransactionBroker()) as log:
            with pytest.raises(InvalidConfig):
                log.producer(**settings)

    run(main)


class GroupBroker(TransactionBroker):
    """A broker with a group of one member, whose epoch is 1 after every join."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()  # set: heartbeats are answered
        self.answers.set()
        self.stores = asyncio.Event()  # set: offsets are stored
        self.has_offsets = asyncio.Event()

    def handlers(self) -> dict[str, Any]:
        table = [
            Handler(GROUPS_HEARTBEAT, self._heartbeat),
            Handler(GROUPS_FETCH_OFFSETS, self._fetch_offsets),
        ]
        return super().handlers() | {handler.method.path: handler for handler in table}

    async def _heartbeat(
        self, request: groups_pb2.GroupHeartbeatRequest, context: CallContext
    ) -> groups_pb2.GroupHeartbeatResponse:
        await self.answers.wait()
        response = groups_pb2.GroupHeartbeatResponse(
            member_epoch=max(1, request.member_epoch),
            heartbeat_interval_ms=200,
            session_timeout_ms=2_000,
        )
        response.assignment.partitions.add(topic="t", partition=0)
        return response

    async def _fetch_offsets(
        self, request: groups_pb2.FetchOffsetsRequest, context: CallContext
    ) -> groups_pb2.FetchOffsetsResponse:
        response = groups_pb2.FetchOffsetsResponse()
        for part in request.partitions:
            offset = response.results.add().offset
            offset.topic, offset.partition, offset.offset = part.topic, part.partition, 3
        return response

    async def _add_offsets(
        self, request: pb.AddOffsetsRequest, context: CallContext
    ) -> pb.AddOffsetsResponse:
        self.has_offsets.set()
        await self.stores.wait()
        return await super()._add_offsets(request, context)


def test_offsets_stored_after_the_member_joined_again_abort_the_transaction() -> None:
    """The new assignment starts at the offsets before."""

    async def main(runtime: Runtime) -> None:
        broker, lost, assigned = GroupBroker(), asyncio.Event(), asyncio.Event()
        async with (
            cluster(runtime, broker) as log,
            producing(log) as producer,
            log.group_consumer(
                "g",
                "t",
                auto_commit=False,
                on_assigned=lambda _: assigned.set(),
                on_lost=lambda _: lost.set(),
            ) as consumer,
        ):
            await producer.begin_transaction()
            sending = asyncio.create_task(producer.send_offsets(consumer, {("t", 0): 5}))
            await broker.has_offsets.wait()
            assigned.clear()
            broker.answers.clear()
            await lost.wait()
            broker.answers.set()
            await assigned.wait()
            broker.stores.set()
            with pytest.raises(TransactionAbortable, match="nothing is committed"):
                await sending
            await producer.abort_transaction()
            assert broker.committed_offsets == []

    run(main)


def test_send_offsets_that_is_cancelled_makes_the_transaction_abortable() -> None:
    """The offsets may arrive after the end of the transaction, and then do not belong to it."""

    async def main(runtime: Runtime) -> None:
        broker = GroupBroker()
        async with (
            cluster(runtime, broker) as log,
            producing(log) as producer,
            log.group_consumer("g", "t", auto_commit=False) as consumer,
        ):
            await producer.begin_transaction()
            await producer.send("t", b"result")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await producer.send_offsets(consumer, {("t", 0): 5})
            with pytest.raises(TransactionAbortable, match="offsets"):
                await producer.commit_transaction()
            broker.stores.set()
            await producer.abort_transaction()
            assert broker.committed == []

    run(main)
