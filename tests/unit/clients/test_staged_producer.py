"""Staged writes: drivers and tasks with a broker that runs the state machine of staged commits."""

import asyncio
import logging
import pickle
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from quorumlog.broker.transactions.requests import ResetStage
from quorumlog.clients import staged_commits
from quorumlog.clients.log import AsyncLog
from quorumlog.clients.producer.batches import Delivered
from quorumlog.clients.producer.staged_producer import AsyncStagedProducer
from quorumlog.clients.staged_commits import StagedWrite, TaskResult
from quorumlog.errors import (
    ClientClosed,
    CommittedBatchDiffers,
    CoordinatorNotAvailable,
    FencedWrite,
    InvalidConfig,
    InvalidRecord,
    InvalidRequest,
    InvalidTimestamp,
    InvalidTxnState,
    MessageTooLarge,
    NotDelivered,
    NotEnoughReplicas,
    NumberTooOld,
    OutcomeUnknown,
    QuorumlogError,
    RowsNotDelivered,
    StageLost,
)
from quorumlog.runtime import Runtime
from quorumlog.simulation import run

from .staging_broker import StagingBroker
from .storing_broker import EIGHT, REFUSALS_OF_A_BULK, cluster

Body: TypeAlias = Callable[[AsyncLog, StagingBroker], Awaitable[None]]
NAME = "daily"


def play(body: Body, **settings: Any) -> None:
    async def main(runtime: Runtime) -> None:
        broker = StagingBroker(runtime)
        async with cluster(runtime, broker, **settings) as log:
            await body(log, broker)

    run(main)


async def staged(log: AsyncLog, write: StagedWrite, task: int, *values: bytes) -> TaskResult:
    """Run a task that sends values."""
    async with log.staged_producer(write, task) as producer:
        for value in values:
            await producer.send("t", value)
        result = await producer.seal()
    found = pickle.loads(pickle.dumps(result))
    assert found == result
    assert isinstance(found, TaskResult)
    return found


def test_commit_makes_the_records_of_all_tasks_visible() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = pickle.loads(pickle.dumps(await log.open_write(NAME, 7)))
        async with log.staged_producer(write, 0, compression="zstd") as producer:
            delivery = await producer.send("t", "a", partition=0)
            await producer.send_many("t", ["b", "c"], partition=0)
            await producer.send_arrow("t", pa.table({"v": ["d"]}), value="v", partition=1)
            first = await producer.seal()
        assert (await delivery).offset == 0
        assert broker.committed == []
        assert first.count == 4
        assert [tuple(each) for each in first.partitions] == [("t", 0, 3, 2), ("t", 1, 1, 0)]
        second = await staged(log, write, 1, b"e")
        committed = await log.commit_write(write, [first, second, await staged(log, write, 2)])
        assert committed is not None
        assert (committed.number, committed.count) == (7, 5)
        assert committed.is_mine
        assert committed.is_visible
        assert sorted(broker.committed) == [b"a", b"b", b"c", b"d", b"e"]
        assert set(broker.transactional_ids) == {NAME}

    play(body)


def test_counts_are_those_of_the_last_sequences() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write()
        assert (write.name, write.number) == (f"batch/{write.write_id}", 0)
        async with log.staged_producer(write, 0, linger_ms=0) as producer:
            for number in range(21):
                await producer.send("t", b"%d" % number, partition=number % 2)
                await asyncio.sleep(0.01)
            result = await producer.seal()
        assert len(broker.parts) > 4
        assert [tuple(each) for each in result.partitions] == [("t", 0, 11, 10), ("t", 1, 10, 9)]
        (seal,) = broker.seals
        assert [each.last_sequence for each in seal.partitions] == [10, 9]

    play(body)


def test_task_without_records_sends_no_request() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 0)
        result = await staged(log, write, 0)
        async with log.staged_producer(write, 1) as producer:
            await producer.send_arrow("t", pa.table({"v": pa.array([], pa.string())}), value="v")
            empty = await producer.seal()
        assert not result.is_staged
        assert await log.commit_write(write, [result, empty]) is None
        assert broker.calls == ["OpenWrite", "Abort"]  # of the commit

    play(body)


async def send_each(producer: AsyncStagedProducer) -> None:
    told: list[Delivered | None] = []
    await producer.send("t", b"x", on_delivery=lambda delivered, _: told.append(delivered))
    delivery = await producer.send("t", b"y")
    assert (await delivery).offset == -1
    assert producer.send_nowait("t", b"z").done()
    await asyncio.sleep(0.001)
    assert [each.offset for each in told if each is not None] == [-1]


async def send_bulk(producer: AsyncStagedProducer) -> None:
    assert [each.first for each in await (await producer.send_many("t", ["x", "y", "z"]))] == [-1]


async def send_table(producer: AsyncStagedProducer) -> None:
    assert await producer.send_arrow("t", pa.table({"v": ["x", "y", "z"]}), value="v") == []


async def send_reader(producer: AsyncStagedProducer) -> None:
    batches = [pa.record_batch({"v": part}) for part in (["x", "y"], ["z"])]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    assert await producer.send_arrow("t", reader, value="v") == []


@pytest.mark.parametrize("send", [send_each, send_bulk, send_table, send_reader])
def test_repeated_batch_drops_and_counts_its_records(
    send: Callable[[AsyncStagedProducer], Awaitable[None]],
) -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 3)
        await log.commit_write(write, [await staged(log, write, 0, b"a", b"b", b"c")])
        again = await log.open_write(NAME, 3)
        async with log.staged_producer(again, 0) as producer:
            await send(producer)
            result = await producer.seal()
        assert (result.count, result.is_staged) == (3, False)
        committed = await log.commit_write(again, [result, await staged(log, again, 1)])
        assert committed is not None
        assert (committed.write_id, committed.is_mine) == (write.write_id, False)
        assert broker.committed == [b"a", b"b", b"c"]
        assert broker.calls.count("Commit") == 1

    play(body)


def test_repeated_batch_with_another_count_differs(caplog: pytest.LogCaptureFixture) -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 3)
        await log.commit_write(write, [await staged(log, write, 0, b"a", b"b")])
        again = await log.open_write(NAME, 3)
        result = await staged(log, again, 0, b"a")
        with pytest.raises(CommittedBatchDiffers, match=r"with 2 records by write 1, .* has 1"):
            await log.commit_write(again, [result])
        with caplog.at_level(logging.WARNING):
            committed = await log.commit_write(again, [result], on_different="warn")
        assert committed is not None
        assert "batch 3 was committed with 2 records" in caplog.text
        with pytest.raises(InvalidConfig, match="on_different is 'ignore'"):
            await log.commit_write(again, [result], on_different="ignore")

    play(body)


def test_repeated_batch_without_a_record_is_compared() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        for number in (3, 4):
            write = await log.open_write(NAME, number)
            await log.commit_write(write, [await staged(log, write, 0, b"a", b"b")])
        again = await log.open_write(NAME, 4)
        empty = await staged(log, again, 0)
        with pytest.raises(CommittedBatchDiffers, match=r"with 2 records by write 2, .* has 0"):
            await log.commit_write(again, [empty])
        older = await log.open_write(NAME, 3)
        with pytest.raises(NumberTooOld):
            await log.commit_write(older, [await staged(log, older, 0)])

    play(body)


def test_count_of_a_reset_name_is_not_compared() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 3)
        await log.commit_write(write, [await staged(log, write, 0, b"a", b"b")])
        broker.ask(ResetStage(transactional_id=NAME, last_committed=5))
        again = await log.open_write(NAME, 5)
        committed = await log.commit_write(again, [await staged(log, again, 0, b"a")])
        assert committed is not None
        assert (committed.count, committed.is_mine) == (-1, False)

    play(body)


def test_other_write_that_commits_the_number_decides_it() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        older = await log.open_write(NAME, 0)
        lost = await staged(log, older, 0, b"a")
        newer = await log.open_write(NAME, 0)
        result = await staged(log, newer, 0, b"a")
        with pytest.raises(FencedWrite):
            await log.commit_write(older, [lost])
        await log.commit_write(newer, [result])
        committed = await log.commit_write(older, [lost])
        assert committed is not None
        assert (committed.write_id, committed.is_mine) == (newer.write_id, False)
        assert broker.committed == [b"a"]

    play(body)


def test_error_in_the_block_aborts_the_attempt_alone() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 0)

        async def fail() -> None:
            async with log.staged_producer(write, 0) as producer:
                await producer.send_and_wait("t", b"a")
                raise KeyError

        with pytest.raises(KeyError):
            await fail()
        assert broker.calls[-1] == "Abort"
        assert not broker.open
        result = await staged(log, write, 0, b"a")
        assert await log.commit_write(write, [result]) is not None
        assert broker.committed == [b"a"]

    play(body)


def test_failed_record_fails_the_attempt() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        broker.refuse[b"bad"] = InvalidRecord("not good")
        write = await log.open_write(NAME, 0)
        async with log.staged_producer(write, 4) as producer:
            await producer.send("t", b"bad", partition=0)
            with pytest.raises(StageLost, match="not good") as caught:
                await producer.seal()
            assert (caught.value.task, caught.value.topic) == (4, "t")
            assert isinstance(caught.value.__cause__, InvalidRecord)
            for call in (
                lambda: producer.send("t", b"a"),
                lambda: producer.send_many("t", ["a"]),
                lambda: producer.send_arrow("t", pa.table({"v": ["a"]}), value="v"),
                producer.seal,
            ):
                with pytest.raises(StageLost, match=r"4 failed \(.*\); run the task again"):
                    await call()
        assert broker.calls == ["OpenWrite", "Begin", "Abort"]

    play(body, call_timeout_ms=2_000)


@pytest.mark.parametrize(("settings", "cause"), REFUSALS_OF_A_BULK)
def test_refused_part_of_a_bulk_fails_the_attempt(
    settings: dict[str, Any], cause: type[QuorumlogError]
) -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 0)
        broker.hold = asyncio.Event()
        async with log.staged_producer(write, 4, **settings) as producer:
            sent = await producer.send_many("t", EIGHT)
            broker.hold.set()
            with pytest.raises(NotDelivered):
                await sent
            for call in (producer.seal, lambda: producer.send("t", b"a"), producer.seal):
                with pytest.raises(StageLost, match="run the task again") as caught:
                    await call()
                assert isinstance(caught.value.__cause__, cause)
        assert "Seal" not in broker.calls
        assert broker.calls[-1] == "Abort"

    play(body)


def test_arrow_rows_that_wait_for_space_are_refused_after_seal() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 0)
        async with log.staged_producer(
            write, 0, buffer_size=9_000, batch_size=2_500, linger_ms=0
        ) as producer:
            await producer.send_and_wait("t", b"a", partition=0)
            broker.hold = asyncio.Event()
            table = pa.table({"v": ["y" * 2_000] * 30})
            rows = asyncio.create_task(producer.send_arrow("t", table, value="v", partition=0))
            await asyncio.sleep(1)
            accepted = producer.statistics().buffered_records
            seal = asyncio.create_task(producer.seal())
            await asyncio.sleep(0.5)
            broker.hold.set()
            result = await seal
            assert producer.statistics().buffered_records == 0
            with pytest.raises(RowsNotDelivered, match="is sealed") as caught:
                await rows
            assert result.count == 1 + accepted == 1 + caught.value.stored_count
        await log.commit_write(write, [result])
        assert len(broker.committed) == result.count == len(broker.logs[0])

    play(body)


def test_close_that_is_cancelled_ends_the_producer() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        producer = log.staged_producer(await log.open_write(NAME, 0), 0)
        await producer.send_and_wait("t", b"a")
        broker.errors["Abort"] = [CoordinatorNotAvailable("down") for _ in range(1_000)]
        close = asyncio.create_task(producer.close())
        await asyncio.sleep(0.5)
        close.cancel()
        with pytest.raises(asyncio.CancelledError):
            await close
        assert producer.is_closed
        assert producer.statistics().buffered_records == 0

    play(body)


@pytest.mark.parametrize(
    ("send", "error"),
    [
        (lambda producer: producer.send("t", b"x" * 2_000), MessageTooLarge),
        (lambda producer: producer.send_many("t", [b"x" * 2_000]), MessageTooLarge),
        (lambda producer: producer.send("t", 7), TypeError),
        (lambda producer: producer.send("t", b"x", timestamp_ms=-5), InvalidTimestamp),
        (lambda producer: producer.send("t", b"x", partition="one"), TypeError),
        (lambda producer: producer.send_many("t", [b"x"], partition="one"), TypeError),
        (
            lambda producer: producer.send_arrow("t", pa.table({"v": ["x"]}), value="other"),
            InvalidRequest,
        ),
    ],
)
def test_record_of_a_committed_number_is_checked(
    send: Callable[[AsyncStagedProducer], Awaitable[object]], error: type[Exception]
) -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 0)
        await log.commit_write(write, [await staged(log, write, 0, b"a")])
        again = await log.open_write(NAME, 0)
        async with log.staged_producer(again, 0, max_request_size=1_024) as producer:
            await producer.send("t", b"a")
            with pytest.raises(error):
                await send(producer)
            result = await producer.seal()
        assert (result.count, result.is_staged) == (1, False)

    play(body)


def test_failure_drops_the_records_that_are_not_sent() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        broker.refuse[b"bad"] = InvalidRecord("not good")
        write = await log.open_write(NAME, 0)
        broker.hold = asyncio.Event()
        async with log.staged_producer(write, 0, linger_ms=0) as producer:
            await producer.send("t", b"bad", partition=0)
            await asyncio.sleep(0.1)  # the request is in flight
            waiting = await producer.send("t", b"waits", partition=0)
            broker.hold.set()
            with pytest.raises(StageLost, match="not good"):
                await waiting
        assert len(broker.parts) == 1

    play(body)


def test_failure_ends_the_retries_of_other_records() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        broker.refuse[b"bad"] = InvalidRecord("not good")
        broker.refuse[b"later"] = NotEnoughReplicas("two are down")
        write = await log.open_write(NAME, 0)
        async with log.staged_producer(write, 0) as producer:
            await producer.send("t", b"bad", partition=0)
            await producer.send("t", b"later", partition=1)
            begin_s = asyncio.get_running_loop().time()
            with pytest.raises(StageLost, match="not good"):
                await producer.seal()
        assert asyncio.get_running_loop().time() - begin_s < 5

    play(body)


def test_nothing_is_sent_after_seal_and_close() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 0)
        async with log.staged_producer(write, 0) as producer:
            await producer.send("t", b"a")
            result = await producer.seal()
            with pytest.raises(InvalidTxnState, match="is sealed"):
                await producer.send("t", b"b")
            assert await producer.seal() is result
        with pytest.raises(ClientClosed):
            await producer.send("t", b"c")
        assert "Abort" not in broker.calls
        async with log.staged_producer(write, 1) as other:
            pass
        with pytest.raises(ClientClosed):
            await other.seal()

    play(body)


def test_attempt_stays_alive_while_its_input_stalls() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 0, stage_timeout_ms=120_000)
        async with log.staged_producer(write, 0) as producer:
            await producer.send("t", b"a")
            await asyncio.sleep(600)
            await producer.send("t", b"b")
            result = await producer.seal()
            kept = broker.calls.count("KeepAlive")
            assert 35 <= kept <= 41
            await asyncio.sleep(60)
            assert broker.calls.count("KeepAlive") == kept
        await log.commit_write(write, [result])
        assert broker.committed == [b"a", b"b"]

    play(body)


def test_expired_attempt_raises_and_its_commit_too() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 0, stage_timeout_ms=120_000)
        result = await staged(log, write, 5, b"a")
        async with log.staged_producer(write, 6) as producer:
            await producer.send_and_wait("t", b"b")
            broker.errors["KeepAlive"] = [CoordinatorNotAvailable("down") for _ in range(100_000)]
            await asyncio.sleep(180)
            broker.errors.clear()
            await asyncio.sleep(60)
            with pytest.raises(StageLost, match="expired or was aborted"):
                await producer.send("t", b"c")
        with pytest.raises(StageLost) as caught:
            await log.commit_write(write, [result])
        assert caught.value.message.startswith("staged commits daily: task 5")
        assert broker.committed == []

    play(body)


def test_requests_without_a_response_are_retried() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        for name in ("OpenWrite", "Begin", "Seal", "Commit", "Abort"):
            broker.lost[name] = 2
        write = await log.open_write(NAME, 0)
        result = await staged(log, write, 0, b"a", b"b")
        committed = await log.commit_write(write, [result])
        assert committed is not None
        assert committed.is_mine
        assert await log.commit_write(write, [result]) == committed
        other = await log.open_write(NAME, 1)
        await staged(log, other, 0, b"c")
        assert await log.abort_write(other) is None
        assert broker.committed == [b"a", b"b"]
        assert not broker.open

    play(body)


def test_commit_without_an_answer_may_be_repeated() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 0)
        result = await staged(log, write, 0, b"a")
        broker.lost["Commit"] = 1_000_000
        before_ms = asyncio.get_running_loop().time()
        with pytest.raises(OutcomeUnknown, match="commit the same results again"):
            await log.commit_write(write, [result])
        assert 290 < asyncio.get_running_loop().time() - before_ms < 301
        broker.lost.clear()
        committed = await log.commit_write(write, [result])
        assert committed is not None
        assert committed.is_mine
        assert broker.committed == [b"a"]

    play(body)


def test_abort_after_the_decision_changes_nothing() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        assert await log.abort_write(await log.open_write(NAME, 0)) is None
        writes = []
        for number in range(2):
            write = await log.open_write(NAME, number)
            writes.append(write)
            result = await staged(log, write, 0, b"%d" % number)
            committed = await log.commit_write(write, [result])
            assert committed is not None
            assert await log.abort_write(write) == committed
        assert await log.abort_write(writes[0]) is None  # an older number
        assert broker.committed == [b"0", b"1"]

    play(body)


def test_earlier_number_is_too_old_and_an_older_write_is_fenced() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        older = await log.open_write(NAME, 6)
        write = await log.open_write(NAME, 5)
        await log.commit_write(write, [await staged(log, write, 0, b"a")])
        old = await log.open_write(NAME, 4)
        for refused, error in ((old, NumberTooOld), (older, FencedWrite)):
            async with log.staged_producer(refused, 0) as producer:
                kind: type[QuorumlogError] = error
                with pytest.raises(kind):
                    await producer.send("t", b"b")

    play(body)


def test_results_of_other_writes_and_tasks_are_refused() -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        write = await log.open_write(NAME, 0)
        result = await staged(log, write, 0, b"a")
        other = await log.open_write(NAME, 0)
        wrong: Any = None
        for results, message in (
            ([result, replace(result)], "two results are of task 0"),
            ([replace(result, write=other)], "commit the results of one write"),
            ([result, wrong], "results has a NoneType"),
        ):
            with pytest.raises(InvalidRequest, match=message):
                await log.commit_write(write, results)
        assert "Commit" not in broker.calls
        with pytest.raises(InvalidRequest, match="is the form of a write without a name"):
            write.for_batch("batch/12", 12)
        named = write.for_batch("spark/q/", 12)
        assert (named.name, named.number, named.write_id) == ("spark/q/", 12, write.write_id)

    play(body)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": ""}, InvalidRequest, "name is ''"),
        ({"name": "batch/17"}, InvalidRequest, "is the form of a write without a name"),
        ({"number": -1}, InvalidRequest, "number is -1"),
        ({"stage_timeout_ms": 1_000}, InvalidConfig, "120000 to 86400000"),
    ],
)
def test_write_with_a_wrong_argument_is_refused(
    arguments: dict[str, Any], error: type[QuorumlogError], message: str
) -> None:
    async def body(log: AsyncLog, broker: StagingBroker) -> None:
        with pytest.raises(error, match=message):
            await log.open_write(**{"name": NAME, **arguments})
        write = await log.open_write(NAME)
        for task, attempt in ((-1, None), (0, -1), (0, 2**63)):
            with pytest.raises(InvalidRequest, match="give a whole number, 0 or more"):
                log.staged_producer(write, task, attempt=attempt)
        with pytest.raises(InvalidRequest, match="give what `open_write` returned"):
            log.staged_producer(NAME, 0)  # type: ignore[arg-type]
        with pytest.raises(InvalidConfig, match=r"remove acks and enable_idempotence$"):
            log.staged_producer(write, 0, acks=1)

    play(body)


def test_pickle_of_a_later_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    write = StagedWrite(name=NAME, number=0, write_id=1)
    monkeypatch.setattr(staged_commits, "_PICKLE_VERSION", 2)
    later = pickle.dumps(write)
    monkeypatch.setattr(staged_commits, "_PICKLE_VERSION", 1)
    with pytest.raises(InvalidRequest, match="has version 2, this process reads 1"):
        pickle.loads(later)
