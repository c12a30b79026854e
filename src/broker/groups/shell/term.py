"""One leadership of one partition of `__consumer_offsets`, as its groups' coordinator.

It loads what is stored, and then decides. Requests of one turn of the loop are decided one after
another, and what they store goes into the log as one batch when that turn is over; the next batch
waits for that to be written, so nothing stands in the log behind one that failed. Answers go when
all they rest on is committed. No task takes part in that: one that is woken for each batch costs as
much as the batch.

Where an append fails nobody knows what of the state is stored: it is thrown away, who waits is told
to ask again, and everything is read anew.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from ....errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    Overloaded,
    QuorumlogError,
)
from ....ids import Epoch
from ....metadata.image import MetadataImage, TopicImage
from ....records import Record, encode_plain_batch
from ....runtime import Clock, Entropy
from ....storage import Origin
from ....storage.shell.channel import Appended
from ....storage.shell.directory import Directory
from ...partition import Acks
from ...shell.replica import Replica
from ..config import OFFSETS_TOPIC, GroupConfig
from ..decision import Answered, Decision, Failed, Reply, Ticket
from ..formats import encode
from ..records import ClassicGroup, ConsumerGroup, OffsetCommitted, OffsetForgotten
from ..requests import DescribeGroup, FetchOffsets, GroupListing, GroupRequest
from ..shard import GroupShard
from .figures import GroupFigures
from .loading import StoredRecords
from .naming import check_texts
from .room import BATCH_BYTES, RECORD_BYTES, Room

R = TypeVar("R")
Tell: TypeAlias = Callable[[Any], None]
"""Is told the answer of a request, or the QuorumlogError that it is refused with; never waits."""

_LOG = logging.getLogger("quorumlog.groups")

AGAIN_S: Final = 0.2
"""After so long what failed is tried again: opening, loading."""
FORGOTTEN_MAX: Final = 100
"""So many answers that nobody waits for any longer are kept at most, or as many as are waited for:
they would stay until the replicas have what they rest on."""
READ_ONLY: Final = (FetchOffsets, DescribeGroup)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What the terms of one broker have in common; the callables never wait."""

    clock: Clock
    entropy: Entropy
    directory: Directory
    config: GroupConfig
    figures: GroupFigures
    replica_of: Callable[[str, int], Replica]  # raises NotLeaderOrFollower, ...
    image: Callable[[], MetadataImage]
    may_be_replaced: Callable[[Replica], bool]  # whether another broker may lead by now
    loading: asyncio.Semaphore  # partitions that are read at once


class _Turn:
    """What was decided and is not in the log."""

    __slots__ = ("records", "replies", "size")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[Reply] = []
        self.size = 0

    def split(self, first: int, size: int) -> "_Turn":
        """Give the records from `first` on away, and keep so much; no reply is of those."""
        other = _Turn()
        other.records, other.size = self.records[first:], self.size - size
        del self.records[first:]
        self.size = size
        return other


class Term:
    """See the module. A `Watcher` of the replica."""

    def __init__(self, around: Around, partition: int, leader_epoch: Epoch) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self._around = around
        self._replica: Replica | None = None
        self._shard: GroupShard | None = None  # None: not loaded
        self._ended: QuorumlogError | None = None
        self._wake = asyncio.Event()
        self._sleeps_until_ms: int | None = None  # by members' time; None: until something comes
        self._turns: deque[_Turn] = deque()  # what is decided, in order
        self._is_write_due = False  # at the end of this turn of the loop
        self._writing: _Turn | None = None  # that the log has, and has not answered
        self._wakes_when_written = False  # `_serve` waits for one of them
        self._failed: QuorumlogError | None = None  # why nothing could be stored; for `_serve`
        self._was_deaf = False  # requests were refused since nothing could be stored
        self._uncommitted: deque[tuple[int, list[Reply]]] = deque()  # end offset, answers
        self._waiting: dict[Ticket, Tell] = {}
        self._forgotten = 0  # answers that nobody waits for, and that may still be kept
        self._next_ticket = 0
        self._room = Room(BATCH_BYTES)  # as the log says, once it is read
        # The wall clock may jump, and members' sessions must not: one look at it a load.
        self._wall_ahead_ms = 0

    # --- requests ---------------------------------------------------------------------------------

    async def ask(self, request: GroupRequest[R], deadline_ms: int) -> R:
        """Decide a request; see `GroupCoordinator.ask`."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        ticket = self.begin(request, partial(_settle, future))
        try:
            if future.done():
                return future.result()
            left_ms = max(0, deadline_ms - self._around.clock.now_ms())
            async with asyncio.timeout(left_ms / 1000):
                return await future
        except TimeoutError:
            raise not_in_time(request) from None
        finally:
            if ticket is not None:
                self.forget(ticket)
            if future.done() and not future.cancelled():
                future.exception()  # looked at, also where nobody waits any longer

    def begin(self, request: GroupRequest[R], tell: Tell) -> Ticket | None:
        """Decide a request; `tell` is called once with its answer, within this call (then None is
        returned) or later, by whatever has it stored. Raises what speaks against deciding it."""
        if self._ended is None and self._replica is not None:
            self._check_alone(request)  # while it reads, too: members are believed then
        shard = self._serving()
        self._check_room(request)
        ticket = Ticket(self._next_ticket)
        self._next_ticket += 1
        self._waiting[ticket] = tell
        try:
            self._take(shard.handle(ticket, request, self._around.image(), self._now_ms()))
        except Exception as error:  # of ours: the state may have moved on, and is not stored
            self.forget(ticket)
            self._throw_away(CoordinatorNotAvailable(f"a decision broke: {error}"))
            raise
        return ticket if ticket in self._waiting else None

    def forget(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any longer."""
        if self._waiting.pop(ticket, None) is not None:
            self._forgotten += 1
            if self._forgotten > max(FORGOTTEN_MAX, len(self._waiting)):
                self._forgotten = 0
                writing = () if self._writing is None else (self._writing,)
                for replies in (
                    *(turn.replies for turn in (*writing, *self._turns)),
                    *(replies for _, replies in self._uncommitted),
                ):
                    replies[:] = [reply for reply in replies if reply.ticket in self._waiting]

    def _serving(self, *, lists: bool = False) -> GroupShard:
        """What decides; raises why nothing does. Only who leads for certain tells a member that it
        reads, which is believed then."""
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        if self._replica is None and not lists:
            raise CoordinatorNotAvailable(
                f"this broker is about to coordinate the groups of partition {self.partition}:"
                " repeat after a moment"
            )
        if self._shard is None:
            raise CoordinatorLoading(
                f"the coordinator of partition {self.partition} reads what is stored of its groups:"
                " repeat after a moment"
            )
        return self._shard

    def _check_alone(self, request: GroupRequest[Any]) -> None:
        """Refuse everything, heartbeats and looks too, once another broker may coordinate: it would
        share out what members here are told to be theirs, and take commits that are missed here."""
        if self._may_be_replaced():
            self._was_deaf = True
            raise CoordinatorNotAvailable(
                "this broker has heard neither from the controllers nor from all in-sync replicas"
                f" for too long, and another one may coordinate group {request.group} by now: look"
                " up who does, and ask that broker"
            )

    def _may_be_replaced(self) -> bool:
        return self._replica is None or self._around.may_be_replaced(self._replica)

    def _check_room(self, request: GroupRequest[Any]) -> None:
        """Refuse what could not be stored, before anything is decided."""
        check_texts(request)
        if len(self._waiting) >= self._around.config.waits_max:
            raise Overloaded(
                f"{len(self._waiting)} requests wait for groups of partition {self.partition}, the"
                f" bound is {self._around.config.waits_max}; wait and repeat"
            )
        if not isinstance(request, READ_ONLY):
            try:
                self._admit()
            except QuorumlogError as error:
                self._was_deaf = True
                raise CoordinatorNotAvailable(
                    f"nothing can be stored of groups now: {error.message}"
                ) from None

    def _admit(self) -> None:
        """Raise why an append would be refused now."""
        assert self._replica is not None, "it serves, so it has a replica"
        self._replica.check()
        self._replica.partition.admit(Acks.ALL, self.leader_epoch)

    def listings(self) -> list[GroupListing]:
        """The groups, by ascending name; raises CoordinatorLoading."""
        return self._serving(lists=True).listings()

    @property
    def shard(self) -> GroupShard | None:
        """What it holds, for who looks at figures; None: not loaded."""
        return self._shard

    def image_changed(self, image: MetadataImage, deleted: Iterable[TopicImage]) -> None:
        """The cluster has changed, and these topics are gone."""
        if self._shard is not None and self._ended is None:
            try:
                self._take(self._shard.image_changed(image, self._now_ms(), deleted=deleted))
            except Exception as error:  # what is gone is looked for again, and the node goes on
                self._not_written(error)

    # --- decisions --------------------------------------------------------------------------------

    def _take(self, decision: Decision) -> None:
        """Have a decision stored, and its answers go after that."""
        if not decision.records and not decision.replies:
            self._wake_earlier()
            return
        if not decision.records and not self._turns and self._writing is None:
            if self._uncommitted:
                self._uncommitted[-1][1].extend(decision.replies)
            else:
                self._answer(decision.replies)
            self._wake_earlier()
            return
        batch_bytes = self._room.batch_bytes
        if not self._turns or self._turns[-1].size >= batch_bytes:
            self._turns.append(_Turn())
        turn, now_ms = self._turns[-1], self._now_ms()
        commits, generations, first, before = 0, 0, len(turn.records), turn.size
        for record in decision.records:
            kind = type(record)
            if kind is OffsetCommitted:
                commits += 1
            elif kind is ClassicGroup or kind is ConsumerGroup:
                generations += 1
            if turn.size >= batch_bytes and (kind is OffsetCommitted or kind is OffsetForgotten):
                turn, first, before = _Turn(), 0, 0
                self._turns.append(turn)
            key, value = encode(record)
            turn.records.append(Record(0, now_ms, key, value))
            turn.size += RECORD_BYTES + len(key) + (0 if value is None else len(value))
        self._room.check(turn.size - before)
        if before and turn.size > self._room.decision_bytes_max:
            turn = turn.split(first, before)  # each fits, and both do not
            self._turns.append(turn)
        turn.replies += decision.replies
        self._around.figures.decided(commits=commits, generations=generations)
        self._write_soon()
        self._wake_earlier()

    def _wake_earlier(self) -> None:
        """Have what is due done in time, where a deadline has come nearer: signs of life move them
        away, and are what comes most often."""
        due_ms = None if self._shard is None else self._shard.deadline_ms()
        if due_ms is not None and (self._sleeps_until_ms is None or due_ms < self._sleeps_until_ms):
            self._wake.set()

    def _answer(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            tell = self._waiting.pop(reply.ticket, None)
            if tell is not None:  # else its caller is gone
                tell(reply.outcome if isinstance(reply, Answered) else reply.error)

    def _now_ms(self) -> int:
        return self._around.clock.now_ms() + self._wall_ahead_ms

    # --- lifecycle --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, and then decide and write, until the leadership goes."""
        try:
            while self._ended is None:
                try:
                    await self._open()
                    await self._load()
                    await self._serve()
                except QuorumlogError as error:
                    self._throw_away(error)
                    await self._rest()
                except Exception as error:  # a bug: whoever leads next has it, and would stop too
                    _LOG.error("groups.term_broke partition=%d", self.partition, exc_info=error)
                    self._throw_away(CoordinatorNotAvailable(f"groups broke: {error!r}"))
                    await self._rest()
        finally:
            self.end(_gone(self.partition))
            if self._replica is not None:
                self._replica.watchers.pop(self, None)

    async def _rest(self) -> None:
        """Wait before everything is read anew, unless that is over."""
        if self._ended is None:
            self._wake.clear()
            await self._woken(AGAIN_S)

    def end(self, error: QuorumlogError) -> None:
        """The leadership has gone: who waits is told, and nothing more is decided."""
        if self._ended is None:
            self._ended = error
            self._shard = None
            self._fail(error)

    def _throw_away(self, error: QuorumlogError) -> None:
        """Forget everything; it is read anew."""
        was_serving, self._shard = self._shard is not None, None
        if was_serving and self._ended is None:
            _LOG.warning("groups.read_anew partition=%d error=%s", self.partition, error)
            self._around.figures.thrown_away += 1
        self._fail(
            CoordinatorNotAvailable(
                "what was asked could not be stored, and may be or not: repeat"
                f" ({error.message.rstrip('.')})"
            )
        )

    def _fail(self, error: QuorumlogError) -> None:
        self._turns.clear()
        self._writing = None
        self._uncommitted.clear()
        waiting, self._waiting = self._waiting, {}
        for tell in waiting.values():
            tell(error.with_traceback(None))
        self._wake.set()

    async def _open(self) -> None:
        """Come to lead: raises NotLeaderOrFollower while the replica does not yet."""
        replica = self._around.replica_of(OFFSETS_TOPIC, self.partition)
        await replica.opened()
        replica.partition.check_leader(self.leader_epoch)
        self._replica = replica
        replica.watchers[self] = None

    async def _load(self) -> None:
        """Read all that is there, once it is committed."""
        assert self._replica is not None, "it is open"
        log, clock = self._replica.log, self._around.clock
        began_ms = clock.now_ms()
        settled = self._around.directory.settle(log)
        if settled is not None:  # what the term before has queued still comes into the log
            await settled
            self._check_leading()
        end_offset = log.log_end_offset
        while self._replica.partition.high_watermark < end_offset:
            await self._woken(AGAIN_S)
            self._check_leading()
        self._room = Room(log.config.segment_bytes)
        shard = GroupShard(self._room.bounded(self._around.config), self._draw)
        async with self._around.loading:
            stored = StoredRecords(
                self._around.directory, log, end_offset=end_offset, partition=self.partition
            )
            while (records := await stored.take()) is not None:
                self._check_leading()
                for record in records:
                    shard.replay(record)
        self._check_leading()
        self._wall_ahead_ms = clock.wall_ms() - clock.now_ms()
        decision = shard.loaded(self._now_ms())
        self._shard = shard
        took_ms = clock.now_ms() - began_ms
        self._around.figures.loaded(took_ms)
        if end_offset:
            _LOG.info(
                "groups.loaded partition=%d leader_epoch=%d records=%d offsets=%d took_ms=%d",
                self.partition,
                self.leader_epoch,
                end_offset - log.log_start_offset,
                shard.offset_count,
                took_ms,
            )
        self._take(decision)

    def _draw(self) -> str:
        return self._around.entropy.token(16).hex()

    def _check_leading(self) -> None:
        """Raise what ends this term, or the load."""
        assert self._replica is not None, "it is open"
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        self._replica.check()
        self._replica.partition.check_leader(self.leader_epoch)

    async def _serve(self) -> None:
        """Do what is due, until the state is thrown away; raises why, where it could not be stored.

        What that decides is written before more of it is done.
        """
        while self._ended is None:
            if self._shard is None:
                failed, self._failed = self._failed, None
                if failed is not None:
                    raise failed.with_traceback(None)
                return
            due_ms = self._sleeps_until_ms = self._shard.deadline_ms()
            now_ms = self._now_ms()
            if due_ms is None:
                await self._woken(None)
            elif due_ms > now_ms:
                await self._woken((due_ms - now_ms) / 1000)
            elif self._turns or self._writing is not None:
                self._wakes_when_written = True
                await self._woken(None)
            else:
                await self._expire(now_ms)

    async def _expire(self, now_ms: int) -> None:
        """Do what is due; not while nothing could be stored, nor right after it: members that were
        refused meanwhile would go for nothing."""
        assert self._shard is not None, "it is loaded"
        try:
            self._admit()
        except QuorumlogError:
            await self._woken(AGAIN_S)
            return
        if self._may_be_replaced():
            await self._woken(AGAIN_S)
            return
        if self._was_deaf:
            self._was_deaf = False
            self._shard.restart_sessions(now_ms)
            return
        self._take(self._shard.expire(now_ms, self._around.image()))
        due_ms = self._shard.deadline_ms()
        if due_ms is not None and due_ms <= now_ms and not self._turns:
            await asyncio.sleep(0.001)

    async def _woken(self, timeout_s: float | None) -> None:
        """Wait until something was decided or has changed, or the time is up."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return
        finally:
            self._wake.clear()

    # --- writes -----------------------------------------------------------------------------------

    def _write_soon(self) -> None:
        """Have what this turn of the loop decides written when it is over."""
        if not self._is_write_due and self._writing is None:
            self._is_write_due = True
            asyncio.get_running_loop().call_soon(self._write_out)

    def _write_out(self) -> None:
        """Write what is decided, until the log has to be waited for."""
        self._is_write_due = False
        while self._turns and self._writing is None:
            turn = self._turns.popleft()
            try:
                self._write(turn)
            except Exception as error:
                self._not_written(error)

    def _write(self, turn: _Turn) -> None:
        """Store one turn's records as one batch, and have its answers wait for the commit."""
        replica = self._replica
        assert replica is not None, "it is open"
        if not turn.records:
            self._written(turn, replica.log.log_end_offset)
            return
        self._admit()
        appending = self._around.directory.append_nowait(
            replica.log,
            encode_plain_batch(turn.records),
            leader_epoch=self.leader_epoch,
            origin=Origin.INTERNAL,
            flush=replica.flushes,
        )
        if appending.done():
            self._written(turn, appending.result().next_offset)
        else:
            self._writing = turn
            appending.add_done_callback(partial(self._appended, turn))

    def _appended(self, turn: _Turn, appending: "asyncio.Future[Appended]") -> None:
        """The log has answered; nobody cares for a turn that was thrown away meanwhile."""
        failed = appending.exception()
        if self._writing is not turn:
            return
        self._writing = None
        try:
            if failed is not None:
                raise failed
            self._check_leading()
            self._written(turn, appending.result().next_offset)
        except Exception as error:
            self._not_written(error)
        self._write_out()

    def _written(self, turn: _Turn, end_offset: int) -> None:
        self._uncommitted.append((end_offset, turn.replies))
        self.committed()
        if self._wakes_when_written:
            self._wakes_when_written = False
            self._wake.set()

    def _not_written(self, error: Exception) -> None:
        """The log has it or not. Also by a bug, which no task sees: else all went on without it."""
        if not isinstance(error, QuorumlogError):
            _LOG.error("groups.write_broke partition=%d", self.partition, exc_info=error)
            error = CoordinatorNotAvailable(f"what was decided could not be written: {error!r}")
        self._failed = error
        self._throw_away(error)

    # --- the replica ------------------------------------------------------------------------------

    def grew(self) -> None:
        """As `Watcher`: nothing to do."""

    def committed(self) -> None:
        """The high watermark moved: answers go that waited for it."""
        self._wake_loader()
        replica = self._replica
        if replica is None or self._ended is not None or not replica.partition.is_leader:
            return
        high_watermark = replica.partition.high_watermark
        waiting, told = self._uncommitted, list[Reply]()
        while waiting and waiting[0][0] <= high_watermark:
            told += waiting.popleft()[1]
        if told and self._may_be_replaced():  # a word of the followers' may be as old as a stall
            self._was_deaf = True
            error = CoordinatorNotAvailable(
                "what was asked took this broker so long that another one may coordinate the groups"
                f" of partition {self.partition} by now: look up who does, and repeat it there"
            )
            told = [Failed(reply.ticket, error) for reply in told]
        self._answer(told)

    def _wake_loader(self) -> None:
        if self._shard is None:
            self._wake.set()

    def role_changed(self) -> None:
        """The replica leads, or does no more."""
        replica = self._replica
        if replica is None:
            return
        partition = replica.partition
        if not partition.is_leader or partition.leader_epoch != self.leader_epoch:
            self.end(_gone(self.partition))


def not_in_time(request: GroupRequest[Any]) -> CoordinatorNotAvailable:
    """What is said where an answer takes too long."""
    return CoordinatorNotAvailable(
        f"group {request.group} did not answer in time; what was asked may be done or not: repeat"
    )


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return  # its caller is gone
    if isinstance(outcome, QuorumlogError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _gone(partition: int) -> NotCoordinator:
    return NotCoordinator(
        f"this broker does not lead partition {partition} of {OFFSETS_TOPIC} any more: look up who"
        " coordinates the group, and ask that broker"
    )
