"""Appends of produce requests: admission, assigned offsets, acknowledgement.

Each partition has one writer: the data directory's owner task, in the order of `submit`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

from ...errors import (
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    Overloaded,
    ProducerFenced,
    QuorumlogError,
    TimedOut,
)
from ...ids import Epoch, Offset, ProducerIdentity
from ...metadata import check_not_internal
from ...native import RunTail
from ...records import check_size, parse_header
from ...runtime import Buffer, Clock
from ...storage import AppendOrigin
from ...storage.append import LogWrite as LogWrite  # front ends import it from here
from ...storage.shell.append_queue import NO_APPEND_TIME as NO_APPEND_TIME  # front ends, too
from ...storage.shell.append_queue import Appended as Appended  # like LogWrite
from ...storage.shell.append_queue import AppendOutcome as AppendOutcome  # like LogWrite
from ...storage.shell.append_queue import CompletedAppends, PendingAppend
from ...storage.shell.data_directory import DataDirectory
from ..isr import LeaderAndIsr
from ..partition_leader import PartitionLeader
from ..purgatory import Acks, PurgatoryEntry
from ..requests import is_transactional
from ..verification import (
    TransactionalWrite,
    Verification,
    VerifiedAppend,
    VerifiedProducer,
    VerifiedProducers,
    Verifier,
    is_open,
    must_verify,
    verification_error,
)
from .hosted_replicas import HostedReplicas
from .metrics import ProduceMetrics
from .replica import Replica


class DelayedProduce(PendingAppend):
    """An append that completes with the acknowledgement of its partition."""

    __slots__ = ("_acks", "_replica", "_wait", "is_acknowledged")

    def __init__(
        self,
        completed: CompletedAppends,
        replica: Replica,
        batches: Buffer,
        acks: Acks,
        leader_epoch: Epoch,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        """`leader_epoch`: in which the offsets are assigned."""
        flush = acks is not Acks.NONE and replica.flushes
        super().__init__(completed, batches, leader_epoch, origin, flush)
        self._replica = replica
        self._acks = acks
        self._wait: PurgatoryEntry | None = None  # for the acknowledgement
        self.is_acknowledged = False  # the partition has acknowledged it

    def acknowledge(self) -> None:
        """Record the acknowledgement of the partition."""
        self.is_acknowledged = True
        self._wait = None  # it refers to this append: a cycle, which only a collection would free
        self._changed()

    def fail(self, error: QuorumlogError) -> None:
        """Record that the append, or the wait for its acknowledgement, has failed."""
        self._wait = None  # as above
        super().fail(error)

    def outcome(self) -> AppendOutcome | None:
        """Return the outcome, or None if it is not known yet."""
        error, appended = self.error, self.appended
        if error is not None:
            return error
        if appended is None:
            return None
        if self._acks is Acks.NONE or self.is_acknowledged:
            return appended
        try:
            leader = self._check_leadership()
        except QuorumlogError as lost:
            return lost
        return appended if leader.is_acknowledged(self._acks, appended.next_offset) else None

    def watch(self) -> None:
        """Wait for the acknowledgement if the log has stored the batches."""
        appended = self.appended
        if self._wait is None and appended is not None:
            leader = self._check_leadership()
            self._wait = leader.wait_for(self._acks, appended.next_offset, self)

    def cancel(self) -> None:
        """Stop waiting, without a callback."""
        super().cancel()
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None

    def expire(self) -> AppendOutcome:
        """Stop waiting, without a callback; return the outcome for the caller."""
        self.cancel()
        return self.outcome() or self._timed_out()

    async def wait_until(self, clock: Clock, deadline_ms: int) -> Appended:
        """Wait for the acknowledgement.

        Raises TimedOut at `deadline_ms` (Clock.now_ms()) or NotLeaderOrFollower at the end of the
        leadership: the outcome is then unknown. Raises NotEnoughReplicasAfterAppend, or the reason
        why nothing was stored.
        """
        if self.outcome() is not None:  # often done, behind other appends of the stream
            return await self.wait()
        left_ms = max(0, deadline_ms - clock.now_ms())
        try:
            async with asyncio.timeout(left_ms / 1000):
                return await self.wait()
        except TimeoutError:
            raise self._timed_out() from None

    def readmit(self, *, lapsed: bool) -> None:
        """Raise an error unless the append may still start, after a wait for its verification; see
        `PartitionLeader.admit`."""
        self._check_leadership().admit(self._acks, lapsed=lapsed and self._acks is not Acks.ALL)

    def _check_leadership(self) -> PartitionLeader:
        """Return the leadership in which the offsets were assigned.

        Raises NotLeaderOrFollower if it has ended, or the error of a failed replica. Records of an
        ended leadership may have been truncated, and another leader may have committed other
        records at their offsets.
        """
        leader = self._replica.check()
        partition = self._replica.partition
        if partition.leader_epoch != self.leader_epoch:
            raise NotLeaderOrFollower(
                f"leader epoch {self.leader_epoch} ended before the acknowledgement; the outcome is"
                " unknown; retry",
                topic=partition.topic,
                partition=partition.index,
            )
        return leader

    def _timed_out(self) -> QuorumlogError:
        """Return the error of an append that was not acknowledged in time."""
        partition = self._replica.partition
        if partition.leader is not None and partition.leader.isr.is_under_min_isr:
            return NotEnoughReplicasAfterAppend(
                "stored by the leader only: the ISR is smaller than min.insync.replicas now; not"
                " acknowledged until replicas catch up; retry",
                topic=partition.topic,
                partition=partition.index,
            )
        return TimedOut(
            "not acknowledged in time; the outcome is unknown; retry only if duplicates are"
            " harmless",
            topic=partition.topic,
            partition=partition.index,
        )


WAITING_MAX: Final = 64
"""Batches of one producer and partition that may wait for a verification; clients send five."""

Question: TypeAlias = tuple[VerifiedProducer, bool]
"""A producer's state, and whether the partition is added."""


class TransactionalAppends:
    """The transactional batches of one node between their arrival and the queue of their log."""

    def __init__(self, directory: DataDirectory, has_lapsed: Callable[[], bool]) -> None:
        self.verifier: Verifier | None = None  # None: transactional batches are refused
        self._directory = directory
        self._has_lapsed = has_lapsed
        # in the order of arrival
        self._waiting: dict[Question, list[tuple[DelayedProduce, TransactionalWrite]]] = {}
        self._waiting_bytes = 0

    def submit(
        self, replica: Replica, append: DelayedProduce, transaction: TransactionalWrite | None
    ) -> None:
        """Queue a transactional batch in its log, or have it wait for its verification.

        Raises an error if it can do neither.
        """
        if self.verifier is None:
            raise InvalidTxnState(
                "transactions are not supported; send batches that are not transactional"
            )
        if transaction is None:
            raise InvalidTxnState(
                "a transactional batch came without a transactional id; send the id with it"
            )
        log = replica.log
        header = parse_header(append.batches)
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        sequence = header.base_sequence
        if min(producer.producer_id, producer.producer_epoch, sequence) < 0:
            self._directory.submit(log, append)  # the log has the reason to refuse it
            return
        leader = replica.check()
        if leader.verified is None:
            leader.verified = VerifiedProducers()
        state: VerifiedProducer | None = None
        entry = log.producers.states.entry(producer.producer_id, with_outstanding=True)
        is_asked = must_verify(entry, producer.producer_epoch)
        if is_open(entry, producer.producer_epoch):
            is_asked = not leader.verified.is_verified(producer, transaction.transactional_id)
        if is_asked:
            state = leader.verified.begin(producer, transaction.transactional_id, sequence)
        append.precondition = VerifiedAppend(
            producer,
            sequence,
            leader.verified,
            state,
        )
        replica.figures.transactional[replica] = None
        if state is None or state.is_verified:
            self._directory.submit(log, append)
        else:
            self._wait(replica, append, transaction, leader.verified, state)

    def _wait(
        self,
        replica: Replica,
        append: DelayedProduce,
        transaction: TransactionalWrite,
        verified: VerifiedProducers,
        state: VerifiedProducer,
    ) -> None:
        """Have a batch wait for the answer to its question; ask unless that was done. The bytes of
        all waiting batches count as those of queued ones. Raises Overloaded, DiskFull."""
        partition, size = replica.partition, len(append.batches)
        self._directory.check_capacity(size, self._waiting_bytes)
        question: Question = (state, transaction.adds)
        waiting = self._waiting.get(question)
        if waiting is not None:
            if len(waiting) >= WAITING_MAX:
                raise Overloaded(
                    f"{len(waiting)} batches of producer {state.producer.producer_id} wait for the"
                    " verification of their transaction; retry later",
                    topic=partition.topic,
                    partition=partition.index,
                )
            waiting.append((append, transaction))
            self._waiting_bytes += size
            return
        assert self.verifier is not None, "a batch waits without a verifier"
        self._waiting[question] = [(append, transaction)]
        self._waiting_bytes += size
        self.verifier.verify(
            Verification(
                transaction.transactional_id,
                state.producer,
                partition.topic,
                partition.index,
                replica.topic_id,
                transaction.adds,
            ),
            partial(self._answered, replica, verified, question),
        )

    def _answered(
        self,
        replica: Replica,
        verified: VerifiedProducers,
        question: Question,
        error: QuorumlogError | None,
    ) -> None:
        """Queue the waiting batches in their order, or fail them."""
        waiting = self._waiting.pop(question)
        state, _ = question
        if error is None:
            state.is_verified = True
        elif isinstance(error, InvalidProducerIdMapping | ProducerFenced) and not state.is_verified:
            verified.delete(state)
        self._waiting_bytes -= sum(len(append.batches) for append, _ in waiting)
        for append, transaction in waiting:
            try:
                if error is not None:
                    raise verification_error(error, transaction)
                if transaction.authorize is not None:
                    transaction.authorize(replica.partition.topic)  # again, after the wait
                append.readmit(lapsed=self._has_lapsed())
                self._directory.submit(replica.log, append)
            except QuorumlogError as refusal:
                # sometimes if error is None: a leadership ends between verification and append
                append.fail(refusal)


class ReplicaWriter:
    """Appends of clients to the replicas of one node."""

    def __init__(
        self,
        directory: DataDirectory,
        hosted: HostedReplicas,
        *,
        has_lapsed: Callable[[], bool],
    ) -> None:
        """`has_lapsed` returns True if only appends that need all in-sync replicas are accepted."""
        self.figures = ProduceMetrics()
        self.transactional = TransactionalAppends(directory, has_lapsed)
        self._directory = directory
        self._hosted = hosted
        self._has_lapsed = has_lapsed

    async def check_append(
        self, topic: str, partition: int, *, size: int, acks: Acks, topic_id: bytes = b""
    ) -> None:
        """Raise the error with which an append of one batch would be refused now, as far as that is
        known without its bytes. Waits only while the log opens."""
        check_not_internal(topic)
        replica = self._hosted.replica_of(topic, partition, topic_id)
        log = await replica.opened()
        self._admit(replica, acks, None)
        check_size(size, log.config.message_bytes_max)

    async def submit(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        *,
        acks: Acks,
        leader_epoch: int | None,
        topic_id: bytes = b"",
        transaction: TransactionalWrite | None = None,
    ) -> DelayedProduce:
        """Assign offsets to whole batches in a partition's log, in the order of calls.

        A transactional batch is first verified at the coordinator of `transaction`, if it would
        begin a transaction in the log. Batches of other producers do not wait for it.

        Waits only while the log opens. After an error, nothing is stored; later errors come from
        `DelayedProduce.wait_until`.
        """
        check_not_internal(topic)
        replica = self._hosted.replica_of(topic, partition, topic_id)
        await replica.opened()
        return self._append(replica, records, acks, leader_epoch, transaction)

    def submit_nowait(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        acks: Acks,
        topic_id: bytes = b"",
        transaction: TransactionalWrite | None = None,
    ) -> DelayedProduce:
        """Append as `submit` does to an open log; see `opening`. Raises the errors of `submit`, and
        the error with which the log failed to open."""
        replica = self._hosted.replica_of(topic, partition, topic_id)
        if replica.is_internal:
            check_not_internal(topic)
        if not replica.is_open:
            replica.check_open()
        return self._append(replica, records, acks, None, transaction)

    def begin_run(self, replica: Replica, acks: Acks, wall_ms: int) -> RunTail | None:
        """Return the tail of a replica's log for a run of batches, None if its appends must be
        submitted, also those that are refused. `end_run` must follow before the loop runs anything
        else."""
        if not replica.is_open or replica.is_internal:
            return None
        try:
            state = self._admit(replica, acks, None)
        except QuorumlogError:
            return None
        return self._directory.inline.begin_run(replica, replica.log, state.leader_epoch, wall_ms)

    def end_run(self, tail: RunTail, acks: Acks) -> DelayedProduce | QuorumlogError | None:
        """Write the batches of a run to the log of one replica. Return None if they are
        acknowledged, else their wait for that, or the error."""
        replica = tail.owner
        assert isinstance(replica, Replica), f"{replica} owns a tail"
        leader, inline = replica.partition.leader, self._directory.inline
        assert leader is not None, f"{replica.partition.name}: a run without a leader"
        self.figures.bytes += tail.size
        inline.end_run(replica.log, tail)
        if tail.error is not None:
            return tail.error
        waits_for_flush = replica.flushes and acks is not Acks.NONE
        next_offset = Offset(tail.next_offset)
        is_leader = replica.partition.leader is leader
        if not waits_for_flush and is_leader and leader.is_acknowledged(acks, next_offset):
            self.figures.records += tail.next_offset - tail.base_offset
            return None
        appended = Appended(
            Offset(tail.base_offset), next_offset, NO_APPEND_TIME, Offset(tail.log_start_offset)
        )
        delayed = DelayedProduce(
            self._directory.completed, replica, b"", acks, leader.state.leader_epoch
        )
        if waits_for_flush:
            inline.resolve_when_flushed(replica.log, delayed, appended)
        else:
            delayed.resolve(appended, None)
        return delayed

    def opening(self, topic: str, partition: int) -> Coroutine[Any, Any, None] | None:
        """Return an awaitable for the open of the log before `submit_nowait`, or None. It raises
        nothing."""
        replica = self._hosted.find(topic, partition)
        if replica is None or replica.is_open:
            return None
        replica.begin_open()
        return _wait_open(replica)

    def _append(
        self,
        replica: Replica,
        records: Buffer,
        acks: Acks,
        leader_epoch: int | None,
        transaction: TransactionalWrite | None,
    ) -> DelayedProduce:
        """Queue batches for an open log."""
        state = self._admit(replica, acks, leader_epoch)
        append = DelayedProduce(
            self._directory.completed, replica, records, acks, state.leader_epoch
        )
        if is_transactional(records):
            self.transactional.submit(replica, append, transaction)
        else:
            self._directory.submit(replica.log, append)
        return append

    def _admit(self, replica: Replica, acks: Acks, leader_epoch: int | None) -> LeaderAndIsr:
        leader = replica.partition.leader
        if leader is None or leader_epoch is not None:
            leader = replica.partition.check_leader(leader_epoch)
        return leader.admit(acks, lapsed=acks is not Acks.ALL and self._has_lapsed())


async def _wait_open(replica: Replica) -> None:
    with suppress(QuorumlogError):  # the next request gets the error
        await replica.opened()
