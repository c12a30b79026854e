"""The asyncio consumer of a group: the group assigns partitions and stores committed offsets.

Delivery is at least once: with `auto_commit` a record is committed after the next poll, so that no
unprocessed record is skipped. A record may be delivered twice if a member fails, or is fenced,
between processing and commit.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ...errors import InvalidRequest, QuorumlogError, StaleMemberEpoch
from ...ids import TopicPartition
from ...runtime import Scope
from ..config import ConsumerConfig
from ..connection import Connection
from ..consumer.assigned_partitions import Topics, parse_assignment
from ..consumer.consumer import AsyncConsumer
from ..consumer.record import ConsumerRecord
from ..offsets import PartitionLike, Position, by_partition, check_position, list_partitions
from .coordinator import CommittedOffset, TransactionalCommit, steady_ms, to_commit
from .member import GroupSubscription, check_group
from .membership import Callbacks, GroupStart, Membership

if TYPE_CHECKING:
    from ..consumer.arrow_reader import ArrowPoll

T = TypeVar("T")

TURN_MS = 50
"""Prefetched records are delivered without yielding to the loop. An application that does not yield
either blocks heartbeats; after this time the consumer yields."""
TURNS = 4  # iterations of the loop per yield: a call takes several

Offsets: TypeAlias = (
    Mapping[TopicPartition, int | CommittedOffset] | Mapping[PartitionLike, int | CommittedOffset]
)
"""Offsets to commit by partition: each is the offset of the next record to read."""

OnCommitted: TypeAlias = Callable[[QuorumlogError | None], None]
"""Called with None once a commit is stored, or with the error."""


def parse_subscription(topics: Topics, pattern: Any) -> GroupSubscription:
    """Return the validated subscription; raise InvalidRequest if it is empty or names
    partitions."""
    wanted = parse_assignment(topics)
    for topic, partitions in wanted.items():
        if partitions is not None:
            raise InvalidRequest(
                "a consumer of a group gets its partitions from the group: give topics without "
                "partitions, or use consumer()",
                topic=topic,
            )
    if pattern is not None and not (isinstance(pattern, str) and pattern):
        raise InvalidRequest(
            f"pattern is {pattern!r}: give a regular expression (RE2) as a str, or None"
        )
    if not wanted and pattern is None:
        raise InvalidRequest("a consumer of a group needs topics or a pattern")
    return GroupSubscription(tuple(sorted(wanted)), pattern or "")


class AsyncGroupConsumer(AsyncConsumer):
    """Reads the partitions that its group assigns; created by `AsyncLog.group_consumer()`.

    ```python
    async with log.group_consumer("billing", "flights") as consumer:
        async for record in consumer:
            ...
    ```
    Entering joins the group and waits for the first assignment; without entering, the first poll
    joins. Heartbeats are sent in the background as long as the loop runs. A consumer that does not
    poll for `max_poll_interval_ms` leaves the group. Leaving the block commits the delivered
    records and leaves the group; after an error the records being processed are not committed. Not
    thread-safe: one event loop.
    """

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        config: ConsumerConfig,
        wanted: Topics,
        *,
        group: str,
        pattern: str | None,
        instance_id: str | None,
        start: GroupStart,
        callbacks: Callbacks,
        on_close: Callable[[AsyncConsumer], None] | None = None,
    ) -> None:
        check_group(group, instance_id)
        subscription = parse_subscription(wanted, pattern)
        if start != "error":
            check_position(start)
        super().__init__(
            connection, scope, config, {}, start="earliest", until_end=False, on_close=on_close
        )
        self._parts.is_assigned = True  # empty until the group assigns partitions
        self.group = group
        self._turned_ms = steady_ms(self._clock)  # time of the last yield to the loop
        # number of revocations at the delivery of the first record that no transaction has stored;
        # None: all are stored
        self._delivered_at: int | None = None
        self.membership = Membership(
            connection,
            scope,
            config,
            group=group,
            instance_id=instance_id or "",
            subscription=subscription,
            start=start,
            parts=self._parts,
            fetcher=self._fetcher,
            arrivals=self._arrivals,
            callbacks=callbacks,
            on_recall=self._leave_current,
        )

    @property
    def member_id(self) -> str:
        """The member id in the group."""
        return self.membership.joining.member_id

    # --- reading -----------------------------------------------------------------------------

    async def poll(
        self, *, max_records: int | None = None, timeout_ms: int | None = 1_000
    ) -> list[ConsumerRecord]:
        """Return prefetched records; see `AsyncConsumer.poll`.

        The call also marks the records delivered before as processed. Raises PollTooLate after too
        long a pause, and the error that keeps the consumer out of its group.
        """
        records = await super().poll(max_records=max_records, timeout_ms=timeout_ms)
        self._record_delivery()
        self.membership.delivered.record(records)
        return records

    async def run_arrow_poll(
        self,
        max_records: int | None,
        max_bytes: int | None,
        timeout_ms: int | None,
        columns: Sequence[str],
    ) -> "ArrowPoll":
        """Run `poll_arrow`; the result also has the first offset of each partition's rows."""
        turn = await super().run_arrow_poll(max_records, max_bytes, timeout_ms, columns)
        self._record_delivery()
        self.membership.delivered.record(dict(turn.starts))
        return turn

    async def next(self, *, timeout_ms: int | None = None) -> ConsumerRecord | None:
        """Return the next record; None after `timeout_ms`."""
        if self._is_late(steady_ms(self._clock)):
            await self._turn()
        record = await super().next(timeout_ms=timeout_ms)
        self._record_delivery()
        self.membership.delivered.record(() if record is None else (record,))
        return record

    async def __anext__(self) -> ConsumerRecord:
        """Wait for the next record without a time limit."""
        if self._is_late(steady_ms(self._clock)):
            await self._turn()
        reader = self._current
        if reader is not None and reader.records and not reader.is_paused:
            self._records += 1
            record = reader.take_one()
            self._record_delivery()
            self.membership.delivered.record((record,))
            return record
        found = await self.next()
        if found is None:
            raise StopAsyncIteration
        return found

    def _record_delivery(self) -> None:
        if self._delivered_at is None:
            self._delivered_at = self.membership.revocations

    def _is_late(self, now_ms: int) -> bool:
        """Return True if the loop or the session must be served before the next record."""
        holds_until_ms = self.membership.member.holds_until_ms
        return now_ms - self._turned_ms >= TURN_MS or now_ms >= holds_until_ms

    async def _turn(self) -> None:
        """Yield to the loop, then check the session."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self._turned_ms = steady_ms(self._clock)
        self.membership.check_deadlines()

    async def _wait(self, ready: Callable[[], T | None], timeout_ms: int | None) -> T | None:
        if self._is_reading:
            return await super()._wait(ready, timeout_ms)  # raises InvalidRequest
        self._parts.check_open()
        self.membership.start_poll()
        try:
            return await super()._wait(ready, timeout_ms)
        finally:
            self.membership.end_poll()

    def _raise_error(self) -> None:
        self.membership.check_deadlines()  # before each delivery
        self.membership.raise_error()
        super()._raise_error()

    def _check_assigned(self) -> None:
        """Accept an empty assignment: other members may own all partitions."""

    def _leave_current(self) -> None:
        """Make the next reading call select a reader again."""
        self._current = None

    # --- the group -----------------------------------------------------------------------------

    async def subscribe(self, topics: Topics = (), *, pattern: str | None = None) -> None:
        """Replace the subscription by these topics, or by those that match a pattern (RE2).

        Partitions of topics that stay are consumed without a pause; the group assigns the new
        ones.
        """
        self._parts.check_open()
        self.membership.subscribe(parse_subscription(topics, pattern))

    async def assign(self, topics: Topics, *, start: Position | None = None) -> None:
        """Raise InvalidRequest: the group assigns."""
        raise _of_the_group()

    async def assign_more(self, topics: Topics, *, start: Position | None = None) -> None:
        """Raise InvalidRequest: the group assigns."""
        raise _of_the_group()

    async def unassign(self, topics: Topics) -> None:
        """Raise InvalidRequest: the group assigns."""
        raise _of_the_group()

    async def commit(
        self,
        offsets: Offsets | None = None,
        *,
        timeout_ms: int | None = None,
        transaction: TransactionalCommit | None = None,
    ) -> None:
        """Commit offsets and wait until they are stored.

        By default commits the positions: the offsets after all delivered records, those of the
        last `poll` included. An offset is that of the next record to read; a `CommittedOffset` adds
        a note.

        ```python
        await consumer.commit({TopicPartition("flights", 0): CommittedOffset(42, note="run 7")})
        ```
        Raises UnknownMember if the consumer was removed from its group, and the last error after
        `timeout_ms` (default: `call_timeout_ms`). `transaction` is for a producer's `send_offsets`;
        it raises StaleMemberEpoch too if a partition was revoked since the first record that no
        such commit has stored was delivered.
        """
        self._parts.check_open()
        revocations = self.membership.revocations
        if transaction is not None:
            self._check_kept()
        deadline_ms = None if timeout_ms is None else self._clock.now_ms() + timeout_ms
        deadline_ms = self._connection.deadline_ms(deadline_ms)
        due = self._to_commit(offsets)
        await self.membership.commits.store(due, deadline_ms=deadline_ms, transaction=transaction)
        if transaction is not None:
            is_complete = self._stored_all(due) and revocations == self.membership.revocations
            self._delivered_at = None if is_complete else revocations

    def _stored_all(self, stored: Mapping[PartitionLike, CommittedOffset]) -> bool:
        """Return True if transactions stored all positions. Other records were polled: they wait in
        the application, or in the buffer of a blocking consumer, for a later transaction."""
        readers = self._fetcher.readers
        for place, each in stored.items():
            if place in readers:
                readers[place].transacted = each.offset
        return all(
            reader.is_unlocated or reader.position in (reader.begin, reader.transacted)
            for reader in readers.values()
        )

    def _check_kept(self) -> None:
        """Raise StaleMemberEpoch if a partition with delivered records may have been revoked: its
        offset would not be committed with the results of its records."""
        delivered_at, now = self._delivered_at, self.membership.revocations
        if delivered_at not in (None, now):
            self._delivered_at = None
            raise StaleMemberEpoch(
                f"group {self.group}: partitions were revoked since their records were delivered,"
                " and another member may process them; abort the transaction"
            )

    def commit_nowait(
        self, offsets: Offsets | None = None, *, on_done: OnCommitted | None = None
    ) -> None:
        """Queue a commit and return; commits are stored in order.

        `on_done` gets the outcome; without it, a failure is logged.
        """
        self._parts.check_open()
        self.membership.commits.store_soon(self._to_commit(offsets), on_done)

    def _to_commit(self, offsets: Offsets | None) -> dict[PartitionLike, CommittedOffset]:
        membership = self.membership
        if offsets is None:
            due = membership.delivered_positions()
        else:
            due = membership.commits.with_topic_ids(to_commit(offsets))
        membership.committed_by_application(due)
        return due

    async def committed(
        self,
        partitions: PartitionLike | Iterable[PartitionLike] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Query the committed offsets of partitions, by default the assigned ones.

        None: no offset is stored.
        """
        self._parts.check_open()
        wanted = self._fetcher.readers if partitions is None else partitions
        deadline_ms = None if timeout_ms is None else self._clock.now_ms() + timeout_ms
        found = await self.membership.committed(
            list_partitions(wanted), deadline_ms=self._connection.deadline_ms(deadline_ms)
        )
        return by_partition(found)

    async def seek_to_committed(
        self, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Seek the assigned partitions to their committed offsets and return these, for example
        after an aborted transaction: its records come again.

        A partition without a committed offset continues where this consumer began to read it. A
        partition that is revoked during the call is left out: its next owner begins at the
        committed offset.
        """
        self._parts.check_open()
        readers = dict(self._fetcher.readers)
        deadline_ms = None if timeout_ms is None else self._clock.now_ms() + timeout_ms
        found = await self.membership.committed(
            list(readers), deadline_ms=self._connection.deadline_ms(deadline_ms)
        )
        positions: dict[PartitionLike, int] = {}
        for place, reader in readers.items():
            if reader.is_unlocated or self._fetcher.readers.get(place) is not reader:
                continue  # at the committed offset soon, or assigned again since
            stored = found[place]
            positions[place] = reader.begin
            if stored is not None and (
                stored.topic_id in (b"", reader.topic_id) or reader.topic_id is None
            ):
                positions[place] = stored.offset  # of the topic that is read
            reader.transacted = positions[place]
        self.rewind(positions)
        self._delivered_at = None
        return by_partition(positions)

    # --- opening and closing -----------------------------------------------------------------

    def resume_from(self, before: AsyncConsumer) -> None:
        """Do nothing: a new member starts at the committed offsets."""

    async def close(self, *, commit: bool = True) -> None:
        """Commit delivered records (with `auto_commit`), revoke the partitions and leave the group.

        With `commit=False` the records of the last reading call are not committed.

        A waiting poll raises ClientClosed. Idempotent. Raises an error of a callback that no poll
        has raised.
        """
        is_over = True
        try:
            is_over = await self.membership.close(is_well=commit)
        finally:
            if is_over:  # else the call that waits for this callback closes
                await super().close()
        if is_over:
            self.membership.raise_callback_error()

    async def __aenter__(self) -> "AsyncGroupConsumer":
        is_entered = False
        try:
            self._parts.check_open()
            await self.membership.joined()
            readers = self._fetcher.readers.values()
            await self._parts.located([each for each in readers if each.error is None])
            is_entered = True
        finally:
            if not is_entered:
                await self.close()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(commit=error is None)


def _of_the_group() -> InvalidRequest:
    return InvalidRequest(
        "the group assigns the partitions of its consumers: use subscribe(), or create a consumer "
        "without a group"
    )
