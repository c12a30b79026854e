"""Prefetching for a consumer: few fetch calls over many partitions, within a memory budget.

A coordinator task examines every partition that may be fetched and starts calls by leader. Two
kinds of calls keep a partition with records from waiting for one without:

- A *read* fetches partitions that have more records; the broker responds at once.
- A *watch* is the long poll over partitions that were read to their end. A partition that joins
  later gets a watch of its own; when all watches of the leader are in use, they are merged into
  one.

Memory: buffered bytes plus the bytes that calls in flight may return stay within
`prefetch_max_bytes`, except for one batch per call that is larger than its request's limit.
Each call gets a share of the budget, so that one slow leader cannot use it up. Data of paused
partitions is dropped if other partitions need the memory. Partitions are requested in the order of
their last response, oldest first.

A seek increments the partition's generation, which invalidates its calls in flight.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ...errors import (
    CorruptionError,
    OffsetOutOfRange,
    QuorumlogError,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...proto import log_pb2
from ...runtime import Scope
from ...runtime.error_detail import decode_error
from ...services import LOG_FETCH
from ..config import ConsumerConfig
from ..connection import Connection
from ..coordination import Changes, coordinate
from ..offsets import (
    BEYOND,
    ISOLATION_NUMBERS,
    LATEST,
    PartitionLike,
    ask_leader,
    position_code,
)
from ..topology import PartitionLeader, absent, leaderless
from .partition_reader import PartitionReader, checked_chunks, out_of_range_error

READS_PER_LEADER_MAX = 2
WATCHES_PER_LEADER_MAX = 2
WATCH_MS_MIN = 20  # minimum age of a watch before it is merged with others
EARLY_ANSWER_MS = 10  # minimum interval between watches that return no records
GONE_CHECK_MS = 5_000  # interval of the checks for a partition that does not exist
SLOW_MS = 2_000  # time after the broker's maximum wait at which the leader is looked up again
IDLE_WAIT_MS = 60_000

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Call:
    """A fetch call in flight."""

    address: str
    is_watch: bool
    room: int  # bytes reserved from the budget
    parts: list[tuple[PartitionReader, int]]  # with their generation
    began_ms: int
    wait_ms: int  # the broker's maximum wait
    task: "asyncio.Task[None] | None" = None
    is_merging: bool = False  # cancelled, to become part of a larger one
    looked_ms: int = 0  # time of the last leader lookup because the response was late


@dataclass(slots=True)
class _Plan:
    """The result of one pass over the partitions."""

    wake_ms: int  # time of the next pass
    unknown: dict[str, list[PartitionReader]] = field(default_factory=dict)  # by topic
    unlocated: dict[str, list[PartitionReader]] = field(default_factory=dict)  # by address
    reads: dict[str, list[tuple[PartitionReader, PartitionLeader]]] = field(default_factory=dict)
    watches: dict[str, list[tuple[PartitionReader, PartitionLeader]]] = field(default_factory=dict)


class ConsumerFetcher:
    """Prefetches the partitions of one consumer; see the module."""

    def __init__(
        self, connection: Connection, config: ConsumerConfig, scope: Scope, arrivals: Changes
    ) -> None:
        """`arrivals` is announced at new records, at an error, at a looked-up position, and at the
        end of the fetcher."""
        self._connection = connection
        self._clock = connection.runtime.clock
        self._config = config
        self._scope = scope
        self.readers: dict[PartitionLike, PartitionReader] = {}  # in the order of assignment
        self._served: dict[PartitionReader, None] = {}  # the same, by last response, oldest first
        self._calls: dict[_Call, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._work = asyncio.Event()
        self._arrivals = arrivals
        self.on_step: Callable[[], None] | None = None  # called before each pass; may `add`
        self.has_errors = False  # a reader may have an error to raise
        self.is_ended = False  # no further response will arrive
        self.fetches = 0
        self.fetched_bytes = 0
        self.failures = 0
        self._coordinator = scope.spawn(
            coordinate(self._step, self._work, self._clock), name="fetcher"
        )
        self._coordinator.add_done_callback(self._on_end)

    # --- partitions --------------------------------------------------------------------------

    def add(self, reader: PartitionReader) -> None:
        """Start fetching a partition."""
        self.readers[reader.topic, reader.partition] = reader
        self._served[reader] = None
        self._work.set()

    def remove(self, reader: PartitionReader) -> None:
        """Stop fetching a partition and drop its prefetched records."""
        del self.readers[reader.topic, reader.partition]
        del self._served[reader]
        reader.drop_prefetched()
        self._work.set()
        self._arrivals.announce()

    @property
    def buffered_bytes(self) -> int:
        """The size of the prefetched chunks that are not decoded."""
        return sum(reader.chunks.size for reader in self.readers.values())

    def wake(self) -> None:
        """Run a pass soon: a partition may have become fetchable."""
        self._work.set()

    async def close(self) -> None:
        """Cancel all calls."""
        tasks = [self._coordinator, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_end(self, coordinator: "asyncio.Task[None]") -> None:
        self.is_ended = True
        self._arrivals.announce()

    # --- coordination ------------------------------------------------------------------------

    def _step(self, now_ms: int) -> int:
        """Start every call that may be started; return the time of the next pass."""
        if self.on_step is not None:
            self.on_step()
        plan = self._plan(now_ms)
        for topic, readers in plan.unknown.items():
            self._spawn(self._look_up(topic, _mark_fetching(readers)), name=f"look-up {topic}")
        for address, readers in plan.unlocated.items():
            self._spawn(
                self._locate(address, _mark_fetching(readers)), name=f"positions from {address}"
            )
        busy = {call.address for call in self._calls}
        leaders = len(busy | set(plan.reads) | set(plan.watches))
        budget = self._config.prefetch_max_bytes
        for address, parts in plan.reads.items():
            if self._count(address, is_watch=False) < READS_PER_LEADER_MAX:
                share = budget // 2 // (leaders * READS_PER_LEADER_MAX)
                self._begin(address, parts, now_ms, share=share, is_watch=False)
        for address, parts in plan.watches.items():
            if self._count(address, is_watch=True) < WATCHES_PER_LEADER_MAX:
                share = budget // 4 // (leaders * WATCHES_PER_LEADER_MAX)
                self._begin(address, parts, now_ms, share=share, is_watch=True)
            else:
                plan.wake_ms = min(plan.wake_ms, self._merge_watches(address, now_ms))
        return min(plan.wake_ms, self._check_slow_calls(now_ms))

    def _check_slow_calls(self, now_ms: int) -> int:
        """Look up the leaders of late calls; return the time of the next check."""
        wake_ms = now_ms + IDLE_WAIT_MS
        for call in self._calls:
            slow_ms = max(call.began_ms + call.wait_ms, call.looked_ms) + SLOW_MS
            if slow_ms <= now_ms:
                call.looked_ms = now_ms
                slow_ms = now_ms + SLOW_MS
                self._spawn(self._recheck_leaders(call), name="look for another leader")
            wake_ms = min(wake_ms, slow_ms)
        return wake_ms

    async def _recheck_leaders(self, call: _Call) -> None:
        """Cancel a late call if another broker leads one of its partitions.

        The broker of the call may be cut off and unable to return an error.
        """
        for topic in dict.fromkeys(reader.topic for reader, _ in call.parts):
            with suppress(QuorumlogError):
                await self._connection.refresh(topic)
        for reader, _ in call.parts:
            leader = self._connection.leader_now(reader.topic, reader.partition)
            has_moved = leader is not None and leader.address != call.address
            if has_moved and call in self._calls and call.task is not None:
                for each, _ in call.parts:
                    each.preferred_replica.leave(self._clock.now_ms())
                # sometimes: a fetch waits at a deposed leader
                call.task.cancel()
                return

    def _plan(self, now_ms: int) -> _Plan:
        plan = _Plan(now_ms + IDLE_WAIT_MS)
        for reader in self._served:
            if not self._is_wanted(reader):
                continue
            if reader.retry.at_ms > now_ms:
                plan.wake_ms = min(plan.wake_ms, reader.retry.at_ms)
                continue
            leader = self._connection.leader_now(reader.topic, reader.partition)
            if leader is None:
                plan.unknown.setdefault(reader.topic, []).append(reader)
            elif not reader.bind(leader.topic_id):
                self._topic_recreated(reader.topic, leader.topic_id, now_ms)
                plan.wake_ms = now_ms  # decided: look again
            elif reader.is_unlocated:
                plan.unlocated.setdefault(leader.address, []).append(reader)
            else:
                source = reader.preferred_replica.source(leader, now_ms)
                is_read = reader.is_behind and self._config.fetch_min_bytes <= 1
                calls = plan.reads if is_read else plan.watches
                calls.setdefault(source.address, []).append((reader, source))
            reader.is_gone = reader.is_gone and leader is None
        return plan

    def _is_wanted(self, reader: PartitionReader) -> bool:
        if reader.is_fetching or reader.error is not None:
            return False
        if reader.is_unlocated:
            return True
        return not (
            reader.is_paused
            or reader.chunks.size >= self._config.max_partition_prefetch_bytes
            or reader.end.is_reached(reader.fetch_offset)
        )

    def _begin(
        self,
        address: str,
        parts: list[tuple[PartitionReader, PartitionLeader]],
        now_ms: int,
        *,
        share: int,
        is_watch: bool,
    ) -> None:
        """Start a call with its share of the budget, if enough memory is free."""
        config = self._config
        share = max(1, min(config.fetch_max_bytes, share))
        room = self._room(min(share, config.max_partition_fetch_bytes))
        if room <= 0:
            return  # `wake` is called when memory is freed
        room = min(room, share, len(parts) * config.max_partition_fetch_bytes)
        wait_ms = 0
        if is_watch:
            for reader, _ in parts:
                reader.waits_since_ms = reader.waits_since_ms or now_ms
            waited_ms = now_ms - min(reader.waits_since_ms for reader, _ in parts)
            wait_ms = max(0, config.fetch_max_wait_ms - waited_ms)
        marks = [(reader, reader.generation) for reader, _ in parts]
        call = _Call(address, is_watch, room, marks, now_ms, wait_ms)
        _mark_fetching(reader for reader, _ in parts)
        self._calls[call] = None
        request = self._request(call, [leader for _, leader in parts])
        call.task = self._spawn(self._fetch(call, request), name=f"fetch from {address}")
        call.task.add_done_callback(lambda _: self._call_ended(call))

    def _room(self, needed: int) -> int:
        """Return the free bytes of the budget, 0 if less than `needed`; drop data of paused
        partitions for it."""
        for may_evict in (True, False):
            used = self.buffered_bytes + sum(call.room for call in self._calls)
            room = self._config.prefetch_max_bytes - used
            if room >= needed:
                return room
            if may_evict:
                for reader in self.readers.values():
                    if reader.is_paused and reader.chunks:
                        reader.drop_chunks()
        return 0

    def _count(self, address: str, *, is_watch: bool) -> int:
        return sum(call.address == address and call.is_watch == is_watch for call in self._calls)

    def _merge_watches(self, address: str, now_ms: int) -> int:
        """Cancel the watches of a leader once they are old enough, so that the next watch covers
        all.

        Returns the time of the next pass.
        """
        watches = [call for call in self._calls if call.address == address and call.is_watch]
        ready_ms = max(call.began_ms for call in watches) + WATCH_MS_MIN
        if ready_ms > now_ms:
            return ready_ms
        for call in watches:
            if not call.is_merging:
                call.is_merging = True
                assert call.task is not None, "a call without a task"
                call.task.cancel()
        return now_ms + IDLE_WAIT_MS

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> "asyncio.Task[None]":
        task = self._scope.spawn(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    # --- lookups -----------------------------------------------------------------------------

    async def _look_up(self, topic: str, parts: list[tuple[PartitionReader, int]]) -> None:
        """Look up the leaders of a topic's partitions."""
        try:
            layout = await self._connection.layout(topic)
        except UnknownTopicOrPartition as error:  # after the wait for a new topic
            for reader in self.readers.values():
                if reader.topic == topic:  # also readers that wait for a retry
                    self._partition_gone(reader, reader.generation, error)
        except QuorumlogError as error:
            for reader, generation in parts:
                self._failed(reader, generation, error)
        else:
            for reader, generation in parts:
                self._looked_up(reader, generation, len(layout.partitions))
        finally:
            self._finished(parts)

    def _looked_up(self, reader: PartitionReader, generation: int, partitions: int) -> None:
        topic, partition = reader.topic, reader.partition
        if not 0 <= partition < partitions:
            self._partition_gone(reader, generation, absent(topic, partition, partitions))
        elif self._connection.leader_now(topic, partition) is None:
            self._connection.topology.mark_stale(topic)
            self._failed(reader, generation, leaderless(topic, partition))

    async def _locate(self, address: str, parts: list[tuple[PartitionReader, int]]) -> None:
        """Look up the start and end offsets of one leader's partitions."""
        starts: dict[PartitionLike, int] = {}
        ends: dict[PartitionLike, int] = {}
        topic_ids: dict[str, bytes] = {}
        for reader, _ in parts:
            place, target = (reader.topic, reader.partition), reader.target
            topic_ids[reader.topic] = reader.topic_id or b""
            if target is not None and not isinstance(target, int) and target != "latest":
                starts[place] = position_code(target)
            if reader.end.is_wanted or not (isinstance(target, int) or target == "earliest"):
                ends[place] = LATEST
        timeout_ms = self._connection.config.request_timeout_ms
        try:
            found = [
                await ask_leader(
                    self._connection,
                    address,
                    codes,
                    topic_ids,
                    timeout_ms,
                    isolation_level=self._config.isolation_level,
                )
                if codes
                else {}
                for codes in (starts, ends)
            ]
            for reader, generation in parts:
                if reader.generation == generation:
                    self._located(reader, found[0], found[1])
        finally:
            self._finished(parts)

    def _located(
        self,
        reader: PartitionReader,
        starts: dict[PartitionLike, int | QuorumlogError],
        ends: dict[PartitionLike, int | QuorumlogError],
    ) -> None:
        place, target = (reader.topic, reader.partition), reader.target
        end = ends.get(place)
        start: int | QuorumlogError | None
        if isinstance(target, int):
            start = target
        elif target is None:  # a seek set the position during the lookup
            # sometimes: a seek during an offset lookup
            start = reader.position
        else:
            start = end if target == "latest" else starts[place]
            start = end if start == BEYOND else start
        for answer in (start, end):
            if isinstance(answer, QuorumlogError):
                self._failed(reader, reader.generation, answer)
                return
        assert isinstance(start, int), f"no offset was requested for {target!r}"
        end_offset = end if reader.end.is_wanted and isinstance(end, int) else reader.end.offset
        if isinstance(end, int):
            reader.high_watermark = end
        reader.located(start, end_offset)
        self._arrivals.announce()

    # --- fetch calls -------------------------------------------------------------------------

    def _request(self, call: _Call, leaders: Iterable[PartitionLeader]) -> log_pb2.FetchRequest:
        return log_pb2.FetchRequest(
            max_wait_ms=call.wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=call.room,
            isolation=ISOLATION_NUMBERS[self._config.isolation_level],
            partitions=[
                log_pb2.FetchPartition(
                    topic=reader.topic,
                    partition=reader.partition,
                    offset=reader.fetch_offset,
                    max_bytes=min(self._config.max_partition_fetch_bytes, call.room),
                    leader_epoch=leader.epoch,
                    topic_id=leader.topic_id,
                    rack=reader.preferred_replica.rack_to_send(
                        self._config.rack or "", call.began_ms
                    ),
                )
                for (reader, _), leader in zip(call.parts, leaders, strict=True)
            ],
        )

    async def _fetch(self, call: _Call, request: log_pb2.FetchRequest) -> None:
        connection = self._connection
        timeout_ms = call.wait_ms + connection.config.request_timeout_ms
        try:
            channel = connection.channel(call.address)
            response = await channel.call(LOG_FETCH, request, timeout_ms=timeout_ms)
            self._check(call, response)
        except QuorumlogError as error:
            for reader, generation in call.parts:
                self._failed(reader, generation, error)
        else:
            connection.topology.record_offset(response.metadata_offset)
            self._take(call, response)

    def _call_ended(self, call: _Call) -> None:
        """Release the budget and the partitions of an ended call."""
        del self._calls[call]
        if not call.is_merging:
            for reader, generation in call.parts:
                if reader.generation == generation:
                    reader.waits_since_ms = 0
        self._finished(call.parts)

    def _check(self, call: _Call, response: log_pb2.FetchResponse) -> None:
        """Raise UnknownServerError unless the response has one result per requested partition."""
        asked = [(reader.topic, reader.partition) for reader, _ in call.parts]
        if [(result.topic, result.partition) for result in response.results] != asked:
            raise UnknownServerError(
                f"{call.address} answered a fetch of {len(asked)} partitions with "
                f"{len(response.results)} results: is it a broker of this version?"
            )

    def _take(self, call: _Call, response: log_pb2.FetchResponse) -> None:
        answers = [result.records for result in response.results]  # each access copies
        size = sum(map(len, answers))
        now_ms, address_of = self._clock.now_ms(), self._connection.topology.address_of
        is_early = call.is_watch and now_ms - call.began_ms < EARLY_ANSWER_MS
        is_empty = True  # for all partitions
        self.fetches += 1
        self.fetched_bytes += size
        parts = zip(call.parts, response.results, answers, strict=True)
        for (reader, generation), result, records in parts:
            if reader.generation != generation:
                # sometimes: a response arrives after its position changed
                continue
            if result.HasField("error"):
                self._refused(reader, decode_error(result.error), now_ms)
                continue
            reader.retry.succeeded()
            reader.resets = 0
            has_advanced = self._records_arrived(reader, result, records)
            is_empty = is_empty and not has_advanced
            if result.HasField("preferred_replica"):
                reader.preferred_replica.named(address_of(result.preferred_replica), now_ms)
            reader.is_behind = reader.fetch_offset < self._end_of(result)
        for reader, generation in call.parts if is_empty else ():
            # An empty response means that nothing is readable now, whatever the end is.
            if reader.generation == generation and reader.error is None:
                reader.is_behind = False
                if is_early:
                    reader.retry.at_ms = max(reader.retry.at_ms, now_ms + EARLY_ANSWER_MS)
        self._arrivals.announce()

    def _end_of(self, result: log_pb2.FetchResult) -> int:
        """Return the exclusive end of the records that the consumer may read."""
        if self._config.isolation_level == "read_committed":
            return result.last_stable_offset
        return result.high_watermark

    def _records_arrived(
        self, reader: PartitionReader, result: log_pb2.FetchResult, records: bytes
    ) -> bool:
        """Take a partition's records; return True if its fetch offset has advanced."""
        reader.high_watermark = result.high_watermark
        reader.log_start_offset = result.log_start_offset
        next_offset = reader.fetch_offset
        if self._config.isolation_level == "read_committed":  # aborted batches are left out
            next_offset = max(next_offset, result.next_offset)
        if not records and next_offset == reader.fetch_offset:
            return False
        try:
            chunks = checked_chunks(records, reader.fetch_offset, next_offset)
        except CorruptionError as error:
            corruption = CorruptionError(
                f"the records from offset {reader.fetch_offset} cannot be read: "
                f"{error.message}; they are fetched again",
                position=error.position,
                topic=reader.topic,
                partition=reader.partition,
            )
            self._set_error(reader, corruption)
            return True
        reader.chunks.append(chunks)
        reader.fetch_offset = chunks[-1].next_offset
        del self._served[reader]
        self._served[reader] = None
        return True

    # --- errors ------------------------------------------------------------------------------

    def _refused(self, reader: PartitionReader, error: QuorumlogError, now_ms: int) -> None:
        if isinstance(error, OffsetOutOfRange) and not reader.preferred_replica.is_away:
            self._out_of_range(reader, error, now_ms)
        else:
            self._failed(reader, reader.generation, error)

    def _out_of_range(self, reader: PartitionReader, error: QuorumlogError, now_ms: int) -> None:
        """Raise the error or reset the position, as configured; prefetched records are delivered
        first."""
        policy = self._config.on_out_of_range
        if policy == "raise":
            self._set_error(reader, out_of_range_error(error))
        elif reader.has_prefetched:
            reader.retry.at_ms = now_ms + max(EARLY_ANSWER_MS, self._config.fetch_max_wait_ms)
        else:
            _log.warning(
                "consumer.reset topic=%s partition=%d offset=%d to=%s reason=%s",
                reader.topic,
                reader.partition,
                reader.fetch_offset,
                policy,
                error.message,
            )
            self.begin_again(reader)
            reader.resets += 1
            if reader.resets > 1:
                reader.retry.at_ms = now_ms + self._connection.backoff.wait_ms(reader.resets - 1)

    def _topic_recreated(self, topic: str, topic_id: bytes, now_ms: int) -> None:
        """Treat all positions in a deleted topic as out of range in the topic created in its
        place.

        The application gets UnknownTopicId once, unless the deletion was raised before.
        """
        policy = self._config.on_out_of_range
        recreated = UnknownTopicId(
            f"the topic was deleted and created again; reading continues from the {policy} offset",
            topic=topic,
        )
        for reader in self.readers.values():
            if (
                reader.topic != topic
                or reader.error
                or reader.end.is_reached(reader.position)
                or reader.bind(topic_id)
            ):
                continue
            if reader.is_from_group:  # the group revokes the partition and assigns it again
                reader.retry.at_ms = now_ms + self._config.fetch_max_wait_ms
                continue
            was_raised, reader.is_gone = reader.is_gone, False
            if policy == "raise" or was_raised:
                error = OffsetOutOfRange(
                    f"the topic was deleted and created again: offset {reader.fetch_offset} was in "
                    "the deleted topic",
                    topic=topic,
                    partition=reader.partition,
                )
                self._out_of_range(reader, error, now_ms)
            else:
                # sometimes: a topic is created again while it is consumed
                self._set_error(reader, recreated)

    def begin_again(self, reader: PartitionReader) -> None:
        """Reset the position as `on_out_of_range` says."""
        reader.begin_again("earliest" if self._config.on_out_of_range == "earliest" else "latest")
        self._work.set()

    def _failed(self, reader: PartitionReader, generation: int, error: QuorumlogError) -> None:
        """Schedule a retry, or raise the error if it is not retriable."""
        if reader.generation != generation:
            return
        now_ms = self._clock.now_ms()
        self.failures += 1
        if reader.preferred_replica.leave(now_ms):
            return  # fetch from the leader at once; its error decides
        reader.retry.failed(error, now_ms=now_ms)
        if not error.retriable:
            self._set_error(reader, error)
            return
        if reader.retry.failures == 1:
            _log.info(
                "consumer.retrying topic=%s partition=%d error=%s",
                reader.topic,
                reader.partition,
                error.message,
            )
        is_news = self._connection.update_leader(reader.topic, reader.partition, error)
        wait_ms = 0 if is_news else self._connection.backoff.wait_ms(reader.retry.failures)
        reader.retry.at_ms = now_ms + wait_ms
        self._arrivals.announce()  # a poll with `until_end` gives up after `call_timeout_ms`

    def _partition_gone(
        self, reader: PartitionReader, generation: int, error: QuorumlogError
    ) -> None:
        """Raise once that the partition does not exist, then check for it periodically."""
        if reader.generation != generation:
            return
        if reader.is_gone:
            reader.retry.at_ms = self._clock.now_ms() + GONE_CHECK_MS
        else:
            reader.retry.failed(error, now_ms=self._clock.now_ms())
            self._set_error(reader, error)

    def _set_error(self, reader: PartitionReader, error: QuorumlogError) -> None:
        reader.error = error
        self.has_errors = True
        self._arrivals.announce()

    def _finished(self, parts: Iterable[tuple[PartitionReader, int]]) -> None:
        for reader, generation in parts:
            if reader.generation == generation:
                reader.is_fetching = False
        self._work.set()


def _mark_fetching(readers: Iterable[PartitionReader]) -> list[tuple[PartitionReader, int]]:
    """Mark the readers as fetching; return them with their generation."""
    held = []
    for reader in readers:
        reader.is_fetching = True
        held.append((reader, reader.generation))
    return held
