"""Transactional batches and markers at a partition's leader.

The tests answer its verifications in place of the coordinator.
"""

import asyncio
from collections.abc import Callable

import pytest

from quorumlog.broker import Acks, ActiveProducer
from quorumlog.broker.shell.produce import DelayedProduce
from quorumlog.broker.verification import TransactionalWrite, Verification
from quorumlog.errors import (
    CoordinatorLoading,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    MirrorTopic,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequence,
    Overloaded,
    QuorumlogError,
    TimedOut,
    TransactionAbortable,
    TransactionCoordinatorFenced,
    UnknownTopicId,
)
from quorumlog.ids import ProducerIdentity, TopicId
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.records import Record, encode_batch
from quorumlog.records.control import TransactionMarker
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode
from quorumlog.storage import DirectoryConfig

from .lone_broker import ME, OTHER, LoneBroker, T, broker, simulate, topic

WRITE = TransactionalWrite("bank", adds=True, knows_abortable=True)
FOREIGN = TransactionalWrite("other", adds=True, knows_abortable=True)
REFUSAL = InvalidProducerIdMapping("transactional id other: its producer id is 9")
LAST = 2**31 - 1  # the sequence before 0
LATER_MS = 10_000


class Coordinator:
    """A coordinator that keeps the verifications of a leader until the test answers them."""

    def __init__(self, b: LoneBroker) -> None:
        self.asked: list[tuple[Verification, Callable[[QuorumlogError | None], None]]] = []
        b.replicas.writer.transactional.verifier = self

    def verify(
        self, verification: Verification, callback: Callable[[QuorumlogError | None], None]
    ) -> None:
        self.asked.append((verification, callback))

    def answer(self, error: QuorumlogError | None = None, at: int = 0) -> Verification:
        verification, callback = self.asked.pop(at)
        callback(error)
        return verification


def batch(sequence: int, *, epoch: int = 0, producer: int = 7, transactional: bool = True) -> bytes:
    return encode_batch(
        [Record(0, 1, None, b"%d" % sequence)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def send(
    b: LoneBroker, records: bytes, write: TransactionalWrite | None = WRITE, acks: Acks = Acks.ALL
) -> DelayedProduce:
    return b.replicas.writer.submit_nowait("t", 0, records, acks, T, write)


async def stored(b: LoneBroker, append: DelayedProduce) -> int:
    clock = b.runtime.clock
    return (await append.wait_until(clock, clock.now_ms() + LATER_MS)).base_offset


async def mark(
    b: LoneBroker,
    epoch: int,
    *,
    version: int = 2,
    coordinator: int = 0,
    name: str = "t",
    topic_id: bytes = T,
    wait_ms: int = LATER_MS,
    last_sequence: int = -1,
) -> QuorumlogError | None:
    marker = TransactionMarker(ProducerIdentity(7, epoch), coordinator, True, version)
    deadline_ms = b.runtime.clock.now_ms() + wait_ms
    return await b.replicas.markers.write(
        name, 0, topic_id, marker, deadline_ms=deadline_ms, last_sequence=last_sequence
    )


async def opened(b: LoneBroker, **created: object) -> Coordinator:
    b.apply(*topic("t", T, **created))  # type: ignore[arg-type]
    await b.replicas.hosted.local_replica("t", 0).opened()
    return Coordinator(b)


def end(b: LoneBroker) -> int:
    return b.replicas.hosted.local_replica("t", 0).log.log_end_offset


# --- batches -----------------------------------------------------------------------------------


def test_transactional_batches_are_refused_without_a_verifier() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await opened(b)
            b.replicas.writer.transactional.verifier = None
            with pytest.raises(InvalidTxnState, match="transactions are not supported"):
                send(b, batch(0))

    simulate(main)


def test_the_first_batch_of_a_transaction_waits_for_its_verification() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await opened(b)
            first = send(b, batch(0))
            await asyncio.sleep(1)
            assert (first.outcome(), end(b)) == (None, 0)
            question = coordinator.answer()
            assert question == Verification(
                "bank", ProducerIdentity(7, 0), "t", 0, TopicId(T), True
            )
            assert await stored(b, first) == 0
            assert await stored(b, send(b, batch(1))) == 1  # the log has an open transaction now
            assert not coordinator.asked

    simulate(main)


def test_waiting_batches_keep_their_order_behind_one_question() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await opened(b)
            sent = [send(b, batch(sequence)) for sequence in range(5)]
            assert len(coordinator.asked) == 1
            other = send(b, batch(0, producer=8, transactional=False), None)
            assert await stored(b, other) == 0  # other batches do not wait
            coordinator.answer()
            assert [await stored(b, append) for append in sent] == [1, 2, 3, 4, 5]

    simulate(main)


def test_a_refused_verification_fails_every_waiting_batch_in_its_version() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await opened(b)
            old = TransactionalWrite("bank", adds=False, knows_abortable=False)
            sent = [send(b, batch(0), old), send(b, batch(1), old)]
            coordinator.answer(TransactionAbortable("the partition was not added"))
            for append in sent:
                with pytest.raises(InvalidTxnState, match="was not added"):
                    await stored(b, append)
            retried = send(b, batch(0))
            coordinator.answer(CoordinatorLoading("wait"))
            with pytest.raises(NotEnoughReplicas, match="could not be verified: wait"):
                await stored(b, retried)
            assert end(b) == 0

    simulate(main)


def test_a_later_batch_does_not_overtake_one_whose_verification_failed() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await opened(b)
            first = send(b, batch(0))
            coordinator.answer(CoordinatorLoading("wait"))
            assert isinstance(first.outcome(), NotEnoughReplicas)
            second = send(b, batch(1))
            coordinator.answer()
            with pytest.raises(OutOfOrderSequence):
                await stored(b, second)
            assert await stored(b, send(b, batch(0))) == 0
            assert await stored(b, send(b, batch(1))) == 1

    simulate(main)


def test_a_batch_delayed_past_the_end_of_its_transaction_begins_none() -> None:
    """The coordinator's response, then the marker, then the batch (R24)."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await opened(b)
            delayed = send(b, batch(0))
            assert await mark(b, 0, version=1) is None  # appended although nothing was written
            coordinator.answer()
            with pytest.raises(NotEnoughReplicas, match="verification is outdated"):
                await stored(b, delayed)
            log = b.replicas.hosted.local_replica("t", 0).log
            assert log.last_stable_offset == end(b) == 1

    simulate(main)


def test_a_marker_of_the_transaction_before_keeps_the_verification_of_the_next_one() -> None:
    """From version 2 on, the marker has the epoch of the next transaction, which the producer may
    begin before the marker arrives here."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await opened(b)
            following = send(b, batch(0, epoch=1))
            assert await mark(b, 1, version=2) is None
            coordinator.answer()
            assert await stored(b, following) == 1
            assert await mark(b, 2, version=2) is None
            late = send(b, batch(1, epoch=1))
            with pytest.raises(InvalidProducerEpoch):
                await stored(b, late)

    simulate(main)


def test_a_batch_queued_behind_the_marker_begins_no_transaction() -> None:
    """The batch arrives while the transaction is open in the log, with the marker ahead of it in
    the queue."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await opened(b)
            first = send(b, batch(0))
            coordinator.answer()
            await stored(b, first)
            log = b.replicas.hosted.local_replica("t", 0).log

            async def send_late() -> DelayedProduce:
                assert (log.producers.states.undecided.first_offset, end(b)) == (0, 1)
                return send(b, batch(1))

            # One after the other in one turn of the loop, behind work that holds the queue.
            work = b.directory.truncation.truncate(log, 100)
            _, error, late = await asyncio.gather(work, mark(b, 0, version=1), send_late())
            assert (error, len(coordinator.asked)) == (None, 1)  # the marker ended the verification
            coordinator.answer()
            with pytest.raises(NotEnoughReplicas):
                await stored(b, late)
            assert log.last_stable_offset == end(b) == 2

    simulate(main)


def test_another_transactional_id_writes_nothing_into_an_open_transaction() -> None:
    """Ids, epochs and sequences of producers are no secret."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await written(b)
            foreign = send(b, batch(1), FOREIGN)
            assert coordinator.answer(REFUSAL).transactional_id == "other"
            with pytest.raises(InvalidProducerIdMapping):
                await stored(b, foreign)
            assert end(b) == 1

    simulate(main)


def test_another_transactional_id_neither_begins_a_transaction_nor_delays_it() -> None:
    """Its verification has a sequence below that of the producer's first batch."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await opened(b)
            leader = b.replicas.hosted.local_replica("t", 0).check()
            foreign = [send(b, batch(LAST), FOREIGN)]
            first = send(b, batch(0))
            second = send(b, batch(1))
            coordinator.answer(at=1)
            foreign.append(send(b, batch(LAST), FOREIGN))
            assert [await stored(b, append) for append in (first, second)] == [0, 1]
            coordinator.answer(REFUSAL)
            for append in foreign:
                with pytest.raises(InvalidProducerIdMapping):
                    await stored(b, append)
            assert not coordinator.asked
            assert end(b) == 2
            assert leader.verified is not None
            assert len(leader.verified) == 1

    simulate(main)


def test_a_new_leader_asks_before_it_continues_an_open_transaction() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await written(b)
            leader = b.replicas.hosted.local_replica("t", 0).check()
            leader.verified = None  # as after a change of the leader
            following = send(b, batch(1))
            assert [asked.transactional_id for asked, _ in coordinator.asked] == ["bank"]
            coordinator.answer()
            assert await stored(b, following) == 1

    simulate(main)


def test_an_answer_of_an_earlier_leadership_appends_nothing() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await opened(b, replicas=(ME, OTHER), isr=(ME,))
            waiting = send(b, batch(0))
            for leader in (OTHER, ME):
                change = pb.PartitionChangeRecord(topic_id=T, partition=0, leader=leader)
                change.isr.ids.extend([ME, OTHER] if leader == OTHER else [ME])
                b.apply(pb.MetadataRecord(partition_change=change))
                await asyncio.sleep(0.1)
            coordinator.answer()
            with pytest.raises(NotLeaderOrFollower):
                await stored(b, waiting)
            assert end(b) == 0

    simulate(main)


def test_waiting_batches_are_bounded_and_time_out() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await opened(b)
            first = send(b, batch(0))
            for sequence in range(1, 64):
                send(b, batch(sequence))
            with pytest.raises(Overloaded, match="64 batches of producer 7"):
                send(b, batch(64))
            with pytest.raises(TimedOut):
                await stored(b, first)

    simulate(main)


def test_the_bytes_of_waiting_batches_count_as_queued() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        size = len(batch(0))
        config = DirectoryConfig(queue_bytes_max=2 * size)
        async with broker(runtime, config=config) as b:
            coordinator = await opened(b)
            waiting = [send(b, batch(0, producer=each)) for each in (7, 8)]
            with pytest.raises(Overloaded, match=f"{2 * size} bytes are queued"):
                send(b, batch(0, producer=9))
            coordinator.answer(TransactionAbortable("the partition was not added"))
            retried = send(b, batch(0, producer=9))
            coordinator.answer()
            coordinator.answer()
            assert [await stored(b, each) for each in (waiting[1], retried)] == [0, 1]

    simulate(main)


def test_a_transactional_batch_needs_a_transactional_id() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await opened(b)
            with pytest.raises(InvalidTxnState, match="without a transactional id"):
                send(b, batch(0), None)
            plain = send(b, batch(0, transactional=False))
            assert await stored(b, plain) == 0
            assert not coordinator.asked

    simulate(main)


# --- markers -----------------------------------------------------------------------------------


async def written(b: LoneBroker, epoch: int = 0, **created: object) -> Coordinator:
    """Return a partition with an open transaction of one batch."""
    coordinator = await opened(b, **created)
    first = send(b, batch(0, epoch=epoch))
    coordinator.answer()
    await stored(b, first)
    return coordinator


def counts(b: LoneBroker) -> dict[str, int]:
    return {outcome: count for outcome, count in b.replicas.markers.counts.items() if count}


def test_a_marker_ends_the_transaction_and_its_repeats_are_acknowledged() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await written(b)
            assert [await mark(b, 1) for _ in range(3)] == [None, None, None]
            assert end(b) == 2
            assert counts(b) == {"commit": 1, "repeated": 2}
            assert b.replicas.hosted.local_replica("t", 0).log.last_stable_offset == 2

    simulate(main)


def test_a_marker_of_an_earlier_transaction_is_refused_for_good() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await written(b, epoch=1)
            for epoch in (0, 1):
                assert isinstance(await mark(b, epoch), InvalidProducerEpoch)
            assert end(b) == 1
            assert counts(b) == {"outdated": 2}

    simulate(main)


def test_responses_without_an_append_wait_for_their_cause_to_commit() -> None:
    """The log of a deposed leader may end in a marker or a later transaction that no other replica
    has."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await opened(b, replicas=(ME, OTHER))
            send(b, batch(0))
            coordinator.answer()
            assert isinstance(await mark(b, 1, wait_ms=500), TimedOut)
            assert end(b) == 2  # stored, not committed
            assert isinstance(await mark(b, 1, wait_ms=500), TimedOut)
            assert isinstance(await mark(b, 0, wait_ms=500), TimedOut)
            assert end(b) == 2
            change = pb.PartitionChangeRecord(topic_id=T, partition=0)
            change.isr.ids.append(ME)
            b.apply(pb.MetadataRecord(partition_change=change))
            assert await mark(b, 1) is None
            assert isinstance(await mark(b, 0), InvalidProducerEpoch)

    simulate(main)


def test_markers_below_version_2_are_appended_again() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await written(b)
            assert [await mark(b, 0, version=1) for _ in range(2)] == [None, None]
            assert end(b) == 3

    simulate(main)


@pytest.mark.parametrize("version", [1, 2])
def test_a_delayed_marker_ends_the_next_transaction_below_version_2_only(version: int) -> None:
    """Its request timed out and was repeated; it arrives when the next transaction is open. Below
    version 2 nothing distinguishes it (docs/transactions.md)."""
    marker_epoch = version - 1

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            coordinator = await written(b)
            assert await mark(b, marker_epoch, version=version) is None  # the repeated request
            sequence = 1 if version == 1 else 0
            following = send(b, batch(sequence, epoch=marker_epoch))
            coordinator.answer()
            assert await stored(b, following) == 2
            late = await mark(b, marker_epoch, version=version)
            log = b.replicas.hosted.local_replica("t", 0).log
            if version == 1:
                assert late is None
                assert log.last_stable_offset == end(b) == 4
            else:
                assert isinstance(late, InvalidProducerEpoch)
                assert (log.last_stable_offset, end(b)) == (2, 3)

    simulate(main)


def test_a_marker_of_an_older_coordinator_is_refused() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await written(b)
            assert await mark(b, 1, coordinator=5) is None
            assert isinstance(await mark(b, 2, coordinator=4), TransactionCoordinatorFenced)
            assert counts(b) == {"commit": 1, "failed": 1}

    simulate(main)


def test_markers_are_refused_where_no_transaction_can_be() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await opened(b)
            assert isinstance(await mark(b, 1, topic_id=b"u" * 16), UnknownTopicId)
            b.apply(*topic("m", b"m" * 16, mirror_source="cluster-a/m"))
            error = await mark(b, 1, name="m", topic_id=b"m" * 16)
            assert isinstance(error, MirrorTopic)
            error = await mark(b, 1, name="__consumer_offsets", topic_id=b"")
            assert isinstance(error, InvalidRequest)

    simulate(main)


@pytest.mark.parametrize("written_here", [True, False])
def test_a_staged_commit_without_its_last_records_is_reported(
    written_here: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An unclean election lost them; the marker is appended nonetheless."""

    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await (written(b) if written_here else opened(b))
            assert await mark(b, 1, last_sequence=4) is None
            assert await mark(b, 1, last_sequence=4) is None  # a repeat
            assert b.replicas.markers.torn_commits == 1
            assert counts(b) == {"commit": 1, "repeated": 1}

    simulate(main)
    held = 0 if written_here else -1
    assert [line for line in caplog.messages if "torn" in line] == [
        f"transactions.torn_commit log=t-0 producer_id=7 last_sequence=4 held={held}"
    ]


def test_a_staged_commit_with_all_its_records_is_not_reported() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await written(b)
            assert await mark(b, 1, last_sequence=0) is None
            assert b.replicas.markers.torn_commits == 0

    simulate(main)


def test_producers_are_described_with_their_open_transaction() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            await written(b)
            assert await b.replicas.log_admin.producers("t", 0) == [
                ActiveProducer(
                    producer_id=7,
                    producer_epoch=0,
                    last_sequence=0,
                    last_timestamp_ms=1,
                    coordinator_epoch=-1,
                    transaction_start=0,
                )
            ]
            before_ms = runtime.clock.wall_ms()
            await mark(b, 1, coordinator=4)
            (ended,) = await b.replicas.log_admin.producers("t", 0)
            assert (ended.producer_epoch, ended.coordinator_epoch) == (1, 4)
            assert (ended.last_sequence, ended.transaction_start) == (-1, -1)
            # A marker has no batch of data: the time of its append.
            assert before_ms <= ended.last_timestamp_ms <= runtime.clock.wall_ms()

    simulate(main)


def test_open_transactions_and_the_lag_of_the_last_stable_offset_are_measured() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            figures = b.replicas.replication.figures
            await written(b, replicas=(ME, OTHER), isr=(ME,))
            for sequence in range(3):
                plain = batch(sequence, producer=8, transactional=False)
                await stored(b, send(b, plain, None))
            assert figures.open_transactions() == (1, 4)
            for leader in (OTHER, ME):
                change = pb.PartitionChangeRecord(topic_id=T, partition=0, leader=leader)
                change.isr.ids.extend([ME, OTHER] if leader == OTHER else [ME])
                b.apply(pb.MetadataRecord(partition_change=change))
                await asyncio.sleep(0.1)
                assert figures.open_transactions() == ((0, 0) if leader == OTHER else (1, 4))
            assert await mark(b, 1) is None
            assert figures.open_transactions() == (0, 0)
            assert not figures.transactional
            send(b, batch(0, epoch=1))
            assert figures.transactional
            b.replicas.hosted.local_replica("t", 0).give_up(NotLeaderOrFollower("deleted"))
            assert not figures.transactional

    simulate(main)


def test_a_marker_of_group_offsets_goes_to_the_group_coordinator() -> None:
    async def main(runtime: Runtime, node: SimNode) -> None:
        async with broker(runtime) as b:
            seen: list[tuple[int, int]] = []

            async def write(
                partition: int, marker: TransactionMarker, deadline_ms: int
            ) -> QuorumlogError | None:
                seen.append((partition, marker.producer.producer_epoch))
                return None

            b.replicas.markers.coordinators["__consumer_offsets"] = write
            assert await mark(b, 3, name="__consumer_offsets", topic_id=b"") is None
            assert seen == [(0, 3)]

    simulate(main)
