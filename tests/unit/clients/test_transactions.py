"""Transactions from the clients to the disk: commit, abort, fencing, offsets, operators."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import AMPLE_MS

from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.clients.log import AsyncLog
from quorumlog.errors import (
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
    ProducerUnusable,
    TransactionAbortable,
    TransactionalIdNotFound,
)
from quorumlog.ids import TopicPartition
from quorumlog.processing import AsyncProcessor

Body: TypeAlias = Callable[[AsyncLog], Coroutine[Any, Any, None]]
WithLog: TypeAlias = Callable[[Body], None]


async def values(log: AsyncLog, topic: str, level: str = "read_committed") -> list[bytes | None]:
    async with log.consumer(topic, until_end=True, isolation_level=level) as consumer:
        return [record.value async for record in consumer]


async def until_values(log: AsyncLog, topic: str, count: int) -> list[bytes | None]:
    """Wait for this number of committed values. The markers of a decided transaction follow
    soon."""
    async with log.consumer(topic) as consumer:
        reading = consumer.records(max_records=count, timeout_ms=AMPLE_MS)
        return [record.value async for record in reading]


def test_committed_records_are_read_and_aborted_ones_are_not(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("out", partitions=3)
        async with log.producer(transactional_id="enrich-1") as producer:
            for number in range(4):
                await producer.begin_transaction()
                for partition in range(3):
                    await producer.send("out", b"%d" % number, partition=partition)
                if number % 2:
                    await producer.flush()
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        found = await until_values(log, "out", 6)
        assert sorted(found, key=str) == [b"0"] * 3 + [b"2"] * 3
        everything = await values(log, "out", "read_uncommitted")
        assert sorted(everything, key=str) == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3 + [b"3"] * 3

    with_log(body)


def test_records_of_an_open_transaction_are_not_read(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("out")
        async with log.producer(transactional_id="a") as first, log.producer() as plain:
            await first.begin_transaction()
            await first.send_and_wait("out", b"open")
            await plain.send_and_wait("out", b"plain")
            assert await values(log, "out") == []
            assert await values(log, "out", "read_uncommitted") == [b"open", b"plain"]
            await first.commit_transaction()
            assert await until_values(log, "out", 2) == [b"open", b"plain"]

    with_log(body)


def test_new_producer_fences_the_one_before_and_ends_its_transaction(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("out")
        zombie = log.producer(transactional_id="a")
        await zombie.begin_transaction()
        await zombie.send_and_wait("out", b"zombie")
        async with log.producer(transactional_id="a") as newer:
            with pytest.raises(ProducerFenced):
                await zombie.commit_transaction()
            async with newer.transaction():
                await newer.send("out", b"newer")
        assert await until_values(log, "out", 1) == [b"newer"]
        await zombie.close()

    with_log(body)


def test_offsets_commit_with_the_transaction(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("in")
        await log.admin.create_topic("out")
        async with log.producer() as producer:
            await producer.send_many("in", [b"%d" % number for number in range(6)])
        async with (
            log.group_consumer("g", "in", auto_commit=False) as consumer,
            log.producer(transactional_id="a") as producer,
        ):
            for turn, commit in enumerate((True, False, True)):
                records: list[ConsumerRecord] = []
                while len(records) < 2:
                    records += await consumer.poll(max_records=2 - len(records))
                await producer.begin_transaction()
                for record in records:
                    await producer.send("out", record.value)
                await producer.send_offsets(consumer)
                if commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
                    await consumer.seek(("in", 0), 2)
                found = await consumer.committed()
                stored = found[TopicPartition("in", 0)]
                assert stored is not None
                assert stored.offset == (2, 2, 4)[turn]
        assert await until_values(log, "out", 4) == [b"0", b"1", b"2", b"3"]

    with_log(body)


def test_offsets_that_are_not_sent_begin_no_transaction(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("in")
        await log.admin.create_topic("out")
        stranger = log.group_consumer("h", "in", auto_commit=False)  # it has not joined
        async with (
            log.producer(transactional_id="a") as producer,
            log.group_consumer("g", "in", auto_commit=False) as consumer,
        ):
            async with producer.transaction():
                await producer.send_offsets(consumer, {})
            async with producer.transaction():
                with pytest.raises(InvalidRequest):
                    await producer.send_offsets(consumer, {("in", 0): -7})
            with pytest.raises(TransactionAbortable, match="has not joined"):
                async with producer.transaction():
                    await producer.send_offsets(stranger, {("in", 0): 0})
            async with producer.transaction():
                await producer.send("out", b"a")
        assert await until_values(log, "out", 1) == [b"a"]

    with_log(body)


def test_consumer_that_commits_by_itself_is_refused(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("in")
        async with (
            log.group_consumer("g", "in") as consumer,
            log.producer(transactional_id="a") as producer,
            producer.transaction(),
        ):
            with pytest.raises(InvalidRequest, match="auto_commit=False"):
                await producer.send_offsets(consumer)
            plain: Any = log.consumer("in")
            with pytest.raises(InvalidRequest, match="AsyncConsumer has no group"):
                await producer.send_offsets(plain)

    with_log(body)


def test_timeout_above_the_maximum_is_refused(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        with pytest.raises(InvalidTransactionTimeout):
            async with log.producer(transactional_id="a", transaction_timeout_ms=86_400_000):
                pass

    with_log(body)


def test_transaction_that_takes_too_long_is_aborted_and_its_producer_unusable(
    with_log: WithLog,
) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("out")
        producer = log.producer(transactional_id="slow", transaction_timeout_ms=200)
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"late")
        async with log.producer() as plain:
            await plain.send_and_wait("out", b"behind")
        assert await until_values(log, "out", 1) == [b"behind"]  # once it is aborted
        assert not (await log.admin.describe_transaction("slow")).is_open
        with pytest.raises(ProducerUnusable):
            await producer.commit_transaction()
        await producer.close()

    with_log(body)


def test_deleted_topic_makes_the_transaction_abortable(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("out")
        await log.admin.create_topic("gone")
        async with log.producer(transactional_id="a", delivery_timeout_ms=2_000) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("out", b"1")
            await producer.send_and_wait("gone", b"1")
            await log.admin.delete_topic("gone")
            await producer.send("gone", b"2")
            with pytest.raises(TransactionAbortable):
                await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("out", b"2")
        assert await until_values(log, "out", 1) == [b"2"]

    with_log(body)


# --- operators -----------------------------------------------------------------------------------


def test_list_by_age_has_no_transaction_that_is_complete(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("out")
        async with log.producer(transactional_id="ended") as ended, ended.transaction():
            await ended.send("out", b"1")
        for _ in range(10_000):
            if await log.admin.list_transactions(states=["CompleteCommit"]):
                break
            await asyncio.sleep(0.001)
        async with log.producer(transactional_id="open") as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("out", b"2")
            for _ in range(10_000):
                if found := await log.admin.list_transactions(open_for_ms_min=1):
                    break
                await asyncio.sleep(0.001)
            assert [each.name for each in found] == ["open"]
            assert [each.name for each in await log.admin.list_transactions()] == ["ended", "open"]

    with_log(body)


def test_operators_list_describe_and_abort_transactions(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("out", partitions=2)
        producer = log.producer(transactional_id="enrich-1")
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"1", partition=1)
        (listed,) = await log.admin.list_transactions()
        assert (listed.name, listed.state) == ("enrich-1", "Ongoing")
        assert await log.admin.list_transactions(states=["CompleteCommit"]) == []
        assert await log.admin.list_transactions(open_for_ms_min=3_600_000) == []
        found = await log.admin.describe_transaction("enrich-1")
        assert (found.partitions, found.timeout_ms) == ((("out", 1),), 60_000)
        (held,) = await log.admin.open_transactions([("out", 0), ("out", 1)])
        assert (held.partition, held.first_offset) == (1, 0)
        assert held.producer == (found.producer_id, found.producer_epoch)
        assert await log.admin.find_hanging_transactions([("out", 1)]) == []
        await log.admin.abort_transaction("enrich-1")
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        await producer.close()
        with pytest.raises(TransactionalIdNotFound):
            await log.admin.describe_transaction("other")
        with pytest.raises(TransactionalIdNotFound):
            await log.admin.abort_transaction("other")

    with_log(body)


# --- read-process-write --------------------------------------------------------------------------


async def fill(log: AsyncLog, count: int) -> None:
    await log.admin.create_topic("in", partitions=2)
    await log.admin.create_topic("out")
    await log.admin.create_topic("dead")
    async with log.producer() as producer:
        for number in range(count):
            await producer.send("in", b"%d" % number, partition=number % 2)


def processor(log: AsyncLog, **options: Any) -> AsyncProcessor:
    settings = {"max_poll_records": 5}
    return AsyncProcessor(
        log,
        "enrich-1",
        group="enrich",
        topics="in",
        idle_ms=1_000,
        consumer_settings=settings,
        **options,
    )


def test_processor_counts_each_record_once_over_restarts(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 40)

        async def run(fails_at: int | None) -> None:
            turn = 0
            async with processor(log) as loop:
                async for batch in loop:
                    for record in batch:
                        await batch.send("out", record.value)
                    turn += 1
                    if turn == fails_at:
                        raise KeyError("of the application")
                    assert await batch.commit()

        for fails_at in (1, 3, 2):
            with pytest.raises(KeyError):
                await run(fails_at)
        await run(None)
        found = await until_values(log, "out", 40)
        assert sorted(found, key=str) == sorted((b"%d" % number for number in range(40)), key=str)

    with_log(body)


def test_aborted_batch_is_read_again(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 10)
        seen: list[bytes | None] = []
        async with processor(log) as loop:
            aborts = 0
            async for batch in loop:
                for record in batch:
                    await batch.send("out", record.value)
                seen += [record.value for record in batch]
                if aborts < 3:
                    aborts += 1
                    await batch.abort()
                else:
                    assert await batch.commit()
                with pytest.raises(InvalidTxnState, match="before"):
                    await batch.commit()
        assert len(seen) > 10
        found = await until_values(log, "out", 10)
        assert sorted(found, key=str) == [b"%d" % number for number in range(10)]

    with_log(body)


def test_batch_must_be_ended_before_the_next_one(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 10)
        async with processor(log) as loop:
            await anext(loop)
            with pytest.raises(InvalidTxnState, match="neither committed nor aborted"):
                await anext(loop)

    with_log(body)


def test_rejected_records_go_to_the_dead_letter_topic_with_the_transaction(
    with_log: WithLog,
) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 10)
        async with processor(log, dead_letter="dead") as loop:
            async for batch in loop:
                for record in batch:
                    if record.value == b"7":
                        await batch.reject(record, ValueError("a seven"))
                    else:
                        await batch.send("out", record.value)
                assert await batch.commit()
        assert len(await until_values(log, "out", 9)) == 9
        async with log.consumer("dead", until_end=True) as consumer:
            (dead,) = [record async for record in consumer]
        assert dead.value == b"7"
        assert dict(dead.headers) == {
            "dead_letter.topic": b"in",
            "dead_letter.partition": b"1",
            "dead_letter.offset": b"3",
            "dead_letter.error": b"ValueError: a seven",
        }

    with_log(body)


def test_processor_without_a_dead_letter_topic_refuses_to_reject(with_log: WithLog) -> None:
    async def body(log: AsyncLog) -> None:
        await fill(log, 2)
        async with processor(log) as loop:
            batch = await anext(loop)
            with pytest.raises(InvalidRequest, match="dead_letter=TOPIC"):
                await batch.reject(batch.records[0], ValueError())

    with_log(body)
