"""The consumer of a group: what it reads, the group says; where it has got to, the group knows.

At least once: with `auto_commit` a position is committed when the application has come back for
more, so that nothing that it has not seen to is passed over. A record may come twice where a member
dies, or is shut out, between its work and its commit.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ....errors import InvalidRequest, QuorumlogError
from ....runtime import Scope
from ...config import ConsumerConfig
from ...connection import Connection
from ...offsets import Place, Position, check_position
from ..assignment import Wanted, parse_assignment
from ..consumer import AsyncConsumer
from ..record import ConsumerRecord
from .callbacks import Callbacks
from .calls import CommittedOffset, steady_ms, to_commit
from .member import Subscription, check_group
from .membership import Membership, Start

if TYPE_CHECKING:
    from ..arrow_turn import ArrowTurn

T = TypeVar("T")

TURN_MS = 50
"""Records that are there are handed out one by one without a wait; who works on them and waits for
nothing either keeps the loop for so long, then heartbeats have their turn."""
TURNS = 4  # of the loop, each time: a call takes some

Offsets: TypeAlias = Mapping[Place, int | CommittedOffset]
"""Offsets to commit by (topic, partition): those of the next records to read."""

OnCommitted: TypeAlias = Callable[[QuorumlogError | None], None]
"""Is told when a commit is stored (None), or why it is not."""


def subscription_of(topics: Wanted, pattern: str) -> Subscription:
    """Return what is wanted; raises InvalidRequest for what is nothing."""
    wanted = parse_assignment(topics)
    for topic, partitions in wanted.items():
        if partitions is not None:
            raise InvalidRequest(
                "a consumer of a group gets its partitions from the group: give topics alone, or "
                "leave out the group",
                topic=topic,
            )
    if not isinstance(pattern, str):
        raise InvalidRequest(f"pattern is {pattern!r}: give a regular expression (RE2), as str")
    if not wanted and not pattern:
        raise InvalidRequest("a consumer of a group needs topics, or a pattern of their names")
    return Subscription(tuple(sorted(wanted)), pattern)


class AsyncGroupConsumer(AsyncConsumer):
    """Reads what its group gives it; made by `AsyncLog.consumer(group=...)`. For one loop's thread.

    ```python
    async with log.consumer("flights", group="g") as consumer:
        async for record in consumer:
            ...
    ```
    Entering joins the group and waits for the first partitions; without entering, the first poll
    joins. Heartbeats go on while records are worked on, as long as the loop turns; who does not
    read on for `max_poll_interval_ms` leaves. Leaving the block commits what was handed out, but
    for what was being worked on when it is left by an error, and leaves the group at once.
    """

    def __init__(
        self,
        connection: Connection,
        scope: Scope,
        config: ConsumerConfig,
        wanted: Wanted,
        *,
        group: str,
        pattern: str,
        instance_id: str,
        start: Start,
        callbacks: Callbacks,
        on_close: Callable[[AsyncConsumer], None] | None = None,
    ) -> None:
        check_group(group, instance_id)
        subscription = subscription_of(wanted, pattern)
        if start != "none":
            check_position(start)
        super().__init__(
            connection, scope, config, {}, start="earliest", until_end=False, on_close=on_close
        )
        self._parts.is_assigned = True  # by and by, by the group
        self.group = group
        self.is_in_error = False  # what the application has, it has not seen to
        self._turned_ms = steady_ms(self._clock)  # when the loop has last turned for others
        self.membership = Membership(
            connection,
            scope,
            config,
            group=group,
            instance_id=instance_id,
            subscription=subscription,
            start=start,
            parts=self._parts,
            fetcher=self._fetcher,
            callbacks=callbacks,
            on_recall=self._leave_current,
        )

    @property
    def member_id(self) -> str:
        """What the group knows this consumer by."""
        return self.membership.joining.member_id

    # --- reading -----------------------------------------------------------------------------

    async def poll(
        self, *, max_records: int | None = None, timeout_ms: int | None = 1_000
    ) -> list[ConsumerRecord]:
        """Return what is there; see `AsyncConsumer.poll`. Says besides that what came before is
        done with. Raises PollTooLate after too long a pause, and what keeps the consumer out of
        its group."""
        records = await super().poll(max_records=max_records, timeout_ms=timeout_ms)
        self.membership.handed.out(records)
        return records

    async def poll_turn(
        self,
        max_records: int | None,
        max_bytes: int | None,
        timeout_ms: int | None,
        columns: Sequence[str],
    ) -> "ArrowTurn":
        """Do what `poll_arrow` does; the result knows besides where each partition's rows begin."""
        turn = await super().poll_turn(max_records, max_bytes, timeout_ms, columns)
        self.membership.handed.out(dict(turn.starts))
        return turn

    async def next(self, *, timeout_ms: int | None = None) -> ConsumerRecord | None:
        """Return the next record; None after `timeout_ms`."""
        if self._is_late(steady_ms(self._clock)):
            await self._turn()
        record = await super().next(timeout_ms=timeout_ms)
        self.membership.handed.out(() if record is None else (record,))
        return record

    async def __anext__(self) -> ConsumerRecord:
        """Wait for the next record as long as it takes."""
        if self._is_late(steady_ms(self._clock)):
            await self._turn()
        reader = self._current
        if reader is not None and reader.records and not reader.is_paused:
            self._records += 1
            record = reader.take_one()
            self.membership.handed.out((record,))
            return record
        found = await self.next()
        if found is None:
            raise StopAsyncIteration
        return found

    def _is_late(self, now_ms: int) -> bool:
        """Whether something is to be looked at before one more record is handed out."""
        holds_until_ms = self.membership.member.holds_until_ms
        return now_ms - self._turned_ms >= TURN_MS or now_ms >= holds_until_ms

    async def _turn(self) -> None:
        """Let others have their turn, and let go of what others may have by now."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self._turned_ms = steady_ms(self._clock)
        self.membership.look()

    async def _wait(self, ready: Callable[[], T | None], timeout_ms: int | None) -> T | None:
        if self._is_reading:
            return await super()._wait(ready, timeout_ms)  # refused
        self._parts.check_open()
        self.membership.came_back()
        try:
            return await super()._wait(ready, timeout_ms)
        finally:
            self.membership.went()

    def _raise_error(self) -> None:
        self.membership.look()  # before each look at what there is to hand out
        self.membership.raise_error()
        super()._raise_error()

    def _check_assigned(self) -> None:
        """Nothing may be assigned for a while: others may have all."""

    def _leave_current(self) -> None:
        """Have the next reading call look at what has changed."""
        self._current = None

    # --- the group -----------------------------------------------------------------------------

    async def subscribe(self, topics: Wanted = (), *, pattern: str = "") -> None:
        """Want these topics, or those whose names match a pattern (RE2), instead of what was wanted
        before. Partitions of what stays are read on; the group gives what is new by and by."""
        self._parts.check_open()
        self.membership.subscribe(subscription_of(topics, pattern))

    async def assign(self, wanted: Wanted, *, start: Position | None = None) -> None:
        """Refused: the group assigns."""
        raise _of_the_group()

    async def assign_more(self, wanted: Wanted, *, start: Position | None = None) -> None:
        """Refused: the group assigns."""
        raise _of_the_group()

    async def unassign(self, wanted: Wanted) -> None:
        """Refused: the group assigns."""
        raise _of_the_group()

    async def commit(
        self, offsets: Offsets | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Store how far the group has read, and return when that is so: offsets of the next records
        to read, with notes where they are `CommittedOffset`s; by default behind everything that was
        handed out.

        ```python
        await consumer.commit({("flights", 0): CommittedOffset(42, note="run 7")})
        ```
        Raises UnknownMember when the consumer was shut out of its group, and the last error after
        `timeout_ms` (default: `call_timeout_ms`).
        """
        self._parts.check_open()
        deadline_ms = None if timeout_ms is None else self._clock.now_ms() + timeout_ms
        deadline_ms = self._connection.deadline_ms(deadline_ms)
        await self.membership.commits.store(self._to_commit(offsets), deadline_ms=deadline_ms)

    def commit_nowait(
        self, offsets: Offsets | None = None, *, on_done: OnCommitted | None = None
    ) -> None:
        """Do as `commit` does, in its turn, and do not wait; a failure is given to `on_done`, or
        logged."""
        self._parts.check_open()
        self.membership.commits.store_soon(self._to_commit(offsets), on_done)

    def _to_commit(self, offsets: Offsets | None) -> dict[Place, CommittedOffset]:
        membership = self.membership
        if offsets is None:
            due = membership.handed_positions()
        else:
            due = membership.commits.in_topics(to_commit(offsets))
        membership.done_by_hand(due)
        return due

    async def committed(
        self, partitions: Iterable[Place] | None = None, *, timeout_ms: int | None = None
    ) -> dict[Place, CommittedOffset | None]:
        """Ask what the group has stored, of some (topic, partition) pairs, or of those that are
        assigned; None: nothing."""
        self._parts.check_open()
        places = list(self._fetcher.readers if partitions is None else partitions)
        deadline_ms = None if timeout_ms is None else self._clock.now_ms() + timeout_ms
        return await self.membership.committed(
            places, deadline_ms=self._connection.deadline_ms(deadline_ms)
        )

    # --- life --------------------------------------------------------------------------------

    def go_on_from(self, before: AsyncConsumer) -> None:
        """A member that ended with its loop goes on where the group is: it joins anew."""

    async def close(self) -> None:
        """Commit what was handed out (with `auto_commit`), give the partitions back and leave the
        group; a poll that waits ends by Stopping. Repeating is fine. Raises what a callback raised
        and no poll has told."""
        is_over = True
        try:
            is_over = await self.membership.close(is_well=not self.is_in_error)
        finally:
            if is_over:  # else who waits for this callback sees to it
                await super().close()
        if is_over:
            self.membership.raise_untold()

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
        self.is_in_error |= error is not None
        await self.close()


def _of_the_group() -> InvalidRequest:
    return InvalidRequest(
        "a consumer of a group reads what the group gives it: see subscribe(), or make a consumer "
        "without a group"
    )
