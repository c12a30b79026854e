"""The reading state of one partition: fetched chunks, decoded records, positions, fetch source.

Pure. The fetcher fills it, the consumer empties it. The positions satisfy `position <= records_end
<= fetch_offset`: the next record to deliver, the end of the decoded records, the offset of the
next fetch. A seek increments the generation, which invalidates every response in flight.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ...errors import CorruptionError, OffsetOutOfRange, QuorumlogError
from ...records.batch import iterate_batches
from ...records.codec import decode_all, decode_as
from ...runtime import Buffer
from ..offsets import PartitionLike, Position
from ..topology import PartitionLeader
from .record import ConsumerRecord

STAY_MS = 30_000
LEADER_MS = 1_000


@dataclass(slots=True)
class PreferredReplica:
    """The broker that a partition is fetched from: the leader, or a preferred replica (KIP-392).

    The leader names a replica in the consumer's rack. The consumer fetches from it until it fails,
    the leader changes, or `STAY_MS` have passed, and then asks the leader again. After a failure
    it fetches from the leader alone for `LEADER_MS`, as the leader would name the same replica.
    Times are those of now_ms().
    """

    address: str | None = None  # of the replica that is fetched from; None: the leader
    leader: PartitionLeader | None = None  # the leader that named it; None: set by the first fetch
    until_ms: int = 0  # end of the fetches from the replica
    leader_until_ms: int = 0  # until then only the leader is fetched from

    @property
    def is_away(self) -> bool:
        """True if another replica than the leader is fetched from."""
        return self.address is not None

    def source(self, leader: PartitionLeader, now_ms: int) -> PartitionLeader:
        """Return the broker to fetch from, for a partition with this leader."""
        self.leader = self.leader or leader
        if self.address is None or leader != self.leader or now_ms >= self.until_ms:
            self.address = None
            return leader
        return replace(leader, address=self.address)

    def rack_to_send(self, rack: str, now_ms: int) -> str:
        """Return the rack to send in a fetch request; "" prevents the leader from naming a
        replica."""
        return "" if now_ms < self.leader_until_ms else rack

    def named(self, address: str | None, now_ms: int) -> None:
        """Fetch from the replica that the leader named; None: its address is unknown."""
        self.address, self.leader, self.until_ms = address, None, now_ms + STAY_MS
        if address is None:
            self.leader_until_ms = now_ms + STAY_MS

    def leave(self, now_ms: int) -> bool:
        """Fetch from the leader again after a failure; return True if another replica was in
        use."""
        was_away, self.address = self.is_away, None
        if was_away:
            self.leader_until_ms = now_ms + LEADER_MS
        return was_away


PART_OFFSETS: Final = 10_000  # decoded in one step, about: bounds the memory of record objects
PARTS_MAX: Final = 32  # steps per batch: each decompresses the whole batch


@dataclass(frozen=True, slots=True)
class FetchedChunk:
    """Contiguous fetched batches: `PART_OFFSETS` offsets at most, or one batch."""

    batches: (
        memoryview  # whole record batches, perhaps none; the first may begin below the position
    )
    first_offset: int
    next_offset: int  # after the last batch, and after aborted batches that were left out

    def part_end(self, position: int) -> int:
        """Return the end offset of the next decoding step from `position`, which is in the
        chunk."""
        step = max(PART_OFFSETS, -(-(self.next_offset - self.first_offset) // PARTS_MAX))
        return min(self.next_offset, max(position, self.first_offset) + step)


class FetchedChunks:
    """The fetched chunks of a partition that are not decoded, oldest first."""

    __slots__ = ("_chunks", "rows", "size")

    def __init__(self) -> None:
        self._chunks: deque[FetchedChunk] = deque()
        self.size = 0  # bytes
        self.rows: object = None  # Arrow rows of the oldest chunk: see `arrow_reader`

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[FetchedChunk]:
        return iter(self._chunks)

    @property
    def oldest(self) -> FetchedChunk:
        """The oldest chunk; there must be one."""
        return self._chunks[0]

    def append(self, chunks: Sequence[FetchedChunk]) -> None:
        """Append the chunks of a response."""
        self._chunks.extend(chunks)
        self.size += sum(len(chunk.batches) for chunk in chunks)

    def pop(self) -> None:
        """Remove the oldest chunk."""
        self.rows = None
        self.size -= len(self._chunks.popleft().batches)

    def clear(self) -> None:
        """Remove all chunks."""
        self._chunks.clear()
        self.rows = None
        self.size = 0


@dataclass(slots=True)
class ReadEnd:
    """The exclusive end of the records to deliver, for a read until the end."""

    is_wanted: bool  # the offset must be looked up, with the start
    offset: int | None = None  # None: no end, or not looked up
    topic_id: bytes | None = None  # of the topic that the offset is in

    def limit(self, offset: int) -> int:
        """Return `offset`, limited by the end."""
        return offset if self.offset is None else min(offset, self.offset)

    def is_reached(self, position: int) -> bool:
        """Return True if everything up to the end was delivered."""
        return self.offset is not None and position >= self.offset


@dataclass(slots=True)
class FetchRetry:
    """The consecutive failures of a partition, and the time of the next attempt."""

    failures: int = 0
    failing_since_ms: int = 0  # time of the first failure
    failure: QuorumlogError | None = None  # the last one
    at_ms: int = 0  # time of the next attempt, on now_ms()

    def failed(self, error: QuorumlogError, *, now_ms: int) -> None:
        """Count a failure that will be retried."""
        self.failures += 1
        self.failure = error
        if self.failures == 1:
            self.failing_since_ms = now_ms

    def succeeded(self) -> None:
        """Reset the failure count after a successful response."""
        self.failures = self.failing_since_ms = self.at_ms = 0
        self.failure = None


class PartitionReader:
    """The reading state of one partition; see the module."""

    __slots__ = (
        "_make",
        "begin",
        "chunks",
        "end",
        "error",
        "fetch_offset",
        "generation",
        "high_watermark",
        "is_behind",
        "is_fetching",
        "is_from_group",
        "is_gone",
        "is_paused",
        "log_start_offset",
        "partition",
        "position",
        "preferred_replica",
        "records",
        "records_end",
        "resets",
        "retry",
        "target",
        "topic",
        "topic_id",
        "transacted",
        "waits_since_ms",
    )

    def __init__(self, place: PartitionLike, target: Position, *, wants_end: bool) -> None:
        self.topic, self.partition = place
        self._make = partial(ConsumerRecord, *place)
        self.target: Position | None = target  # start position; None once it is resolved
        self.end = ReadEnd(wants_end)
        self.topic_id: bytes | None = None  # of the topic that the position is in
        self.position = -1  # offset of the next record to be delivered
        self.begin = -1  # the first position, or that of the application's last seek
        self.transacted = -1  # the offset last stored in a transaction; -1: none
        self.fetch_offset = 0  # offset of the next fetch
        self.chunks = FetchedChunks()
        self.records: deque[ConsumerRecord] = deque()  # decoded, of one chunk, not delivered
        self.records_end = 0  # end of the decoded part; valid if there are records
        self.generation = 0  # number of seeks
        self.high_watermark = -1  # -1 until the first response
        self.log_start_offset = -1  # likewise
        self.is_behind = True  # the last response indicates more records to fetch
        self.waits_since_ms = 0  # start of the long poll; 0: none is pending
        self.is_fetching = False  # a fetch or a lookup is in flight
        self.is_paused = False
        self.is_from_group = False  # assigned by a group, which handles a new topic id itself
        self.is_gone = False  # the partition does not exist, and that was raised
        self.retry = FetchRetry()
        self.resets = 0  # consecutive: the reset offset was out of range, too
        self.preferred_replica = PreferredReplica()
        self.error: QuorumlogError | None = None  # raised by the next poll

    @classmethod
    def resumed_from(cls, old: "PartitionReader") -> "PartitionReader":
        """Return a reader at the position of another one, with nothing prefetched."""
        target = old.position if old.target is None else old.target
        reader = cls((old.topic, old.partition), target, wants_end=old.end.is_wanted)
        reader.position = old.position
        reader.begin = old.begin
        reader.topic_id = old.topic_id
        reader.end = replace(old.end)
        reader.is_paused = old.is_paused
        reader.high_watermark = old.high_watermark
        return reader

    # --- positions ---------------------------------------------------------------------------

    def seek(self, offset: int, *, keep_topic: bool = False) -> None:
        """Set the position to `offset` and drop prefetched records.

        `keep_topic`: the offset is in the topic of the present position.
        """
        self.drop_prefetched()
        self.target = None
        if not keep_topic:
            self.topic_id = None
        self.is_gone = False
        self.is_behind = True
        self.position = self.fetch_offset = offset
        self.retry.succeeded()
        self.error = None

    def bind(self, topic_id: bytes) -> bool:
        """Return True if the position is in the topic with this id; bind an unbound position to
        it.

        An end offset of another topic is marked for a new lookup.
        """
        if self.topic_id is None or not (self.target is None or isinstance(self.target, int)):
            self.topic_id = topic_id
        if self.topic_id != topic_id:
            return False
        if self.end.offset is not None and self.end.topic_id != topic_id:
            self.end = ReadEnd(is_wanted=True)
        return True

    def drop_prefetched(self) -> None:
        """Drop all prefetched records and invalidate fetches in flight."""
        self.records.clear()
        self.drop_chunks()
        self.fetch_offset = max(self.position, 0)

    def drop_chunks(self) -> None:
        """Drop the chunks that are not decoded; they are fetched again."""
        if self.chunks:
            self.is_behind = True
        self.chunks.clear()
        self.fetch_offset = self.records_end if self.records else max(self.position, 0)
        self.generation += 1
        self.is_fetching = False
        self.waits_since_ms = 0

    def begin_again(self, target: Position) -> None:
        """Look up a new starting position; all records were delivered before."""
        assert not self.has_prefetched, f"{self.topic}-{self.partition} has undelivered records"
        self.drop_prefetched()
        self.topic_id = None
        self.target = target

    def located(self, position: int, end_offset: int | None) -> None:
        """Set the looked-up position, and the end offset if it was requested."""
        self.seek(position, keep_topic=True)
        self.begin = position
        self.end = ReadEnd(is_wanted=False, offset=end_offset, topic_id=self.topic_id)

    # --- delivery ----------------------------------------------------------------------------

    @property
    def has_prefetched(self) -> bool:
        """True if prefetched records are not delivered yet."""
        return bool(self.records or self.chunks)

    @property
    def is_unlocated(self) -> bool:
        """True if the start or end offset must be looked up first."""
        return self.target is not None or self.end.is_wanted

    @property
    def is_at_end(self) -> bool:
        """True if no further record will be delivered."""
        return self.is_gone or self.end.is_reached(self.position)

    def take(self, count: int) -> list[ConsumerRecord]:
        """Deliver up to `count` decoded records and advance the position."""
        records = self.records
        if count >= len(records):
            taken = list(records)
            records.clear()
            if taken:  # skip control batches and gaps after the last record
                self.position = max(taken[-1].offset + 1, self.end.limit(self.records_end))
        else:
            taken = [records.popleft() for _ in range(count)]
            self.position = taken[-1].offset + 1 if taken else self.position
        return taken

    def take_one(self) -> ConsumerRecord:
        """Deliver the next decoded record; there must be one."""
        record = self.records.popleft()
        self.position = record.offset + 1
        if not self.records:
            self.position = max(self.position, self.end.limit(self.records_end))
        return record

    def decode(self) -> bool:
        """Decode chunks, or parts of them, until one has records; return True if one has.

        A batch that cannot be decoded is never skipped: the records before it are delivered, then
        the error is raised, then the batch is fetched again.
        """
        while not self.records and self.chunks:
            chunk = self.chunks.oldest
            end = chunk.part_end(self.position)
            try:
                found = self._decoded(chunk, end)
                if end >= chunk.next_offset:
                    self.chunks.pop()
            except QuorumlogError as error:
                end = self.cut(chunk, error)
                found = self._decoded(chunk, end)
            if not found:  # control batches, or only records before the position
                self.position = max(self.position, self.end.limit(end))
                continue
            self.records.extend(found)
            self.records_end = end
        return bool(self.records)

    def _decoded(self, chunk: FetchedChunk, end: int) -> list[ConsumerRecord]:
        return decode_as(
            self._make, chunk.batches, start_offset=self.position, end_offset=self.end.limit(end)
        )

    def cut(self, chunk: FetchedChunk, error: QuorumlogError) -> int:
        """Stop at the first batch of a chunk that cannot be decoded; return that batch's offset.

        The error is raised after the records before it were delivered.
        """
        # sometimes: a batch cannot be decoded
        end, last, cause = unreadable(chunk.batches, self.position, error)
        self.drop_chunks()
        self.fetch_offset = end
        self.error = unreadable_error(cause, self.topic, self.partition, first=end, last=last)
        return end

    def skip_to(self, end: int) -> None:
        """Advance the position to `end` and remove the chunks before it."""
        self.position = max(self.position, self.end.limit(end))
        while self.chunks and self.position >= self.end.limit(self.chunks.oldest.next_offset):
            self.chunks.pop()


def checked_chunks(records: bytes, fetch_offset: int, next_offset: int = 0) -> list[FetchedChunk]:
    """Split the records of a fetch response into chunks that reach `next_offset` at least.

    Raises CorruptionError unless they are whole batches in offset order, and they or `next_offset`
    are after `fetch_offset`.
    """
    view = memoryview(records)
    chunks: list[FetchedChunk] = []
    begin = first = end = 0  # of the chunk: byte position, first offset, end offset so far
    for position, header in iterate_batches(records):
        if header.base_offset < end or header.next_offset <= header.base_offset:
            raise CorruptionError(
                f"the batch at offset {header.base_offset} follows one that ends at {end}",
                position=position,
            )
        if position > begin and header.next_offset - first > PART_OFFSETS:
            chunks.append(FetchedChunk(view[begin:position], first, end))
            begin = position
        if position == begin:
            first = header.base_offset
        end = header.next_offset
    if max(end, next_offset) <= fetch_offset:
        raise CorruptionError(
            f"the response ends at offset {end}, before the requested offset {fetch_offset}"
        )
    chunks.append(
        FetchedChunk(view[begin:], first if records else fetch_offset, max(end, next_offset))
    )
    return chunks


def window(chunk: FetchedChunk, position: int, bytes_max: int) -> tuple[int, int, int]:
    """Return (first offset, end offset, bytes) of the batches from `position` that fit into
    `bytes_max`: at least one batch, or the chunk's end if none is left.
    """
    first = end = -1
    size = 0
    for _, header in iterate_batches(chunk.batches):
        if header.next_offset > position:
            if end >= 0 and size + header.size > bytes_max:
                break
            first = max(position, header.base_offset) if first < 0 else first
            size += header.size
            end = header.next_offset
    if end < 0:  # the rest was aborted
        return position, chunk.next_offset, 0
    return first, end, size


def unreadable(
    batches: Buffer, start_offset: int, error: QuorumlogError
) -> tuple[int, int, QuorumlogError]:
    """Return first offset, last offset and error of the first batch that cannot be decoded.

    `error` is the error of decoding all of them.
    """
    first = last = start_offset
    for first, last, batch in _each(batches):
        if last >= start_offset:
            try:
                decode_all(batch, start_offset=start_offset)
            except QuorumlogError as cause:
                return max(first, start_offset), last, cause
    return max(first, start_offset), last, error


def _each(batches: Buffer) -> Iterator[tuple[int, int, memoryview]]:
    view = memoryview(batches)
    for position, header in iterate_batches(batches):
        yield header.base_offset, header.next_offset - 1, view[position : position + header.size]


def unreadable_error(
    error: QuorumlogError, topic: str, partition: int, *, first: int, last: int
) -> QuorumlogError:
    """Return the error of a batch that cannot be decoded, with its offsets."""
    located = type(error)(
        f"offsets {first} to {last} cannot be read: {error.message}; seek to offset {last + 1} to "
        "skip them",
        topic=topic,
        partition=partition,
    )
    located.__cause__ = error
    return located


def out_of_range_error(error: QuorumlogError) -> OffsetOutOfRange:
    """Return the error for an offset out of range, with a remedy for the application.

    The command line replaces the remedy, which it finds by the text "; seek".
    """
    return OffsetOutOfRange(
        f"{error.message}; seek to an existing offset, 'earliest' or 'latest', or set "
        "on_out_of_range",
        topic=error.topic,
        partition=error.partition,
    )
