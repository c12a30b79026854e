"""Where the reading of one partition is: what was fetched, what was decoded, what comes next.

Pure state and what keeps it consistent; the fetcher fills it, the consumer empties it. Between
them stand the positions `position <= records_end <= fetch_offset`: what the application gets next,
what is behind the decoded records, what the next fetch asks for. A seek bumps the generation, which
voids every answer that is under way.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...errors import CorruptionError, OffsetOutOfRange, QuorumlogError
from ...records.batch import iterate_batches
from ...records.codec import decode_all, decode_as
from ...runtime import Buffer
from ..offsets import Place, Position
from .nearby import Nearby
from .record import ConsumerRecord

PART_OFFSETS: Final = 10_000  # decoded at a time, about: records take many times their bytes
PARTS_MAX: Final = 32  # of one batch, which is inflated for each


@dataclass(frozen=True, slots=True)
class Chunk:
    """Batches that came together: of `PART_OFFSETS` at most, or one."""

    batches: memoryview  # whole record batches; the first may begin below the position
    first_offset: int
    next_offset: int  # behind the last of them

    def part_end(self, position: int) -> int:
        """Return where to end when it is decoded from `position` on, which is within it."""
        step = max(PART_OFFSETS, -(-(self.next_offset - self.first_offset) // PARTS_MAX))
        return min(self.next_offset, max(position, self.first_offset) + step)


class PartitionReader:
    """See the module."""

    __slots__ = (
        "_make",
        "buffered_bytes",
        "chunks",
        "end_offset",
        "end_topic_id",
        "error",
        "failing_since_ms",
        "failure",
        "failures",
        "fetch_offset",
        "generation",
        "high_watermark",
        "is_behind",
        "is_fetching",
        "is_given",
        "is_gone",
        "is_paused",
        "log_start_offset",
        "nearby",
        "partition",
        "position",
        "records",
        "records_end",
        "resets",
        "retry_ms",
        "rows",
        "target",
        "topic",
        "topic_id",
        "waits_since_ms",
        "wants_end",
    )

    def __init__(self, place: Place, target: Position, *, wants_end: bool) -> None:
        self.topic, self.partition = place
        self._make = partial(ConsumerRecord, *place)
        self.target: Position | None = target  # where to begin, until that is an offset
        self.wants_end = wants_end  # `end_offset` is to be looked up, with the target
        self.topic_id: bytes | None = None  # of the topic that the position is in
        self.position = -1  # offset of the next record that the application gets
        self.fetch_offset = 0  # offset that the next fetch asks for
        self.chunks: deque[Chunk] = deque()  # not decoded
        self.buffered_bytes = 0  # of the chunks
        self.rows: object = None  # Arrow rows of the oldest chunk: see `arrow_turn`
        self.records: deque[ConsumerRecord] = deque()  # decoded, of one chunk, not handed out
        self.records_end = 0  # behind that chunk; counts while there are records
        self.generation = 0  # counts seeks
        self.high_watermark = -1  # -1 until the first answer
        self.log_start_offset = -1  # likewise
        self.end_offset: int | None = None  # the application wants no more from here on
        self.end_topic_id: bytes | None = None  # of the topic that this end was found in
        self.is_behind = True  # there is something to fetch, as far as is known
        self.waits_since_ms = 0  # a long poll waits for news since then; 0: none does
        self.is_fetching = False  # or being looked up
        self.is_paused = False
        self.is_given = False  # by a group, which knows when its topic is another one
        self.is_gone = False  # there is no such partition any more, and the application knows
        self.failures = 0  # in a row
        self.failing_since_ms = 0  # of the first of them
        self.failure: QuorumlogError | None = None  # the newest of them
        self.resets = 0  # in a row: the offset that was found is out of range, too
        self.retry_ms = 0  # not fetched before, on now_ms()
        self.nearby = Nearby()
        self.error: QuorumlogError | None = None  # raised by the next poll

    @classmethod
    def going_on_from(cls, old: "PartitionReader") -> "PartitionReader":
        """Return a reader that is where another one is, with nothing read ahead."""
        target = old.position if old.target is None else old.target
        reader = cls((old.topic, old.partition), target, wants_end=old.wants_end)
        reader.position = old.position
        reader.topic_id = old.topic_id
        reader.end_offset, reader.end_topic_id = old.end_offset, old.end_topic_id
        reader.is_paused = old.is_paused
        reader.high_watermark = old.high_watermark
        return reader

    # --- moving ------------------------------------------------------------------------------

    def seek(self, offset: int) -> None:
        """Go on from `offset`; what was read ahead is dropped."""
        self.void()
        self.target = None
        self.topic_id = None
        self.is_gone = False
        self.is_behind = True
        self.position = self.fetch_offset = offset
        self.well()
        self.error = None

    def rewind(self, offset: int) -> None:
        """Go back to an offset that was read, in the same topic."""
        topic_id = self.topic_id
        self.seek(offset)
        self.topic_id = topic_id

    def bind(self, topic_id: bytes) -> bool:
        """Whether the position is one in this topic; one that is in none yet is from now on. An end
        in another topic is looked up again."""
        if self.topic_id is None or not (self.target is None or isinstance(self.target, int)):
            self.topic_id = topic_id
        if self.topic_id != topic_id:
            return False
        if self.end_offset is not None and self.end_topic_id != topic_id:
            self.end_offset, self.wants_end = None, True
        return True

    def void(self) -> None:
        """Drop what was read ahead; what is under way counts for nothing any more."""
        self.records.clear()
        self.forget_ahead()
        self.fetch_offset = max(self.position, 0)

    def forget_ahead(self) -> None:
        """Drop what was read ahead and not decoded: it is fetched again."""
        if self.chunks:
            self.is_behind = True
        self.chunks.clear()
        self.rows = None
        self.buffered_bytes = 0
        self.fetch_offset = self.records_end if self.records else max(self.position, 0)
        self.generation += 1
        self.is_fetching = False
        self.waits_since_ms = 0

    def begin_again(self, target: Position) -> None:
        """Look for a place to go on from; nothing is left to hand out."""
        assert not self.has_ahead, f"{self.topic}-{self.partition} has records to hand out"
        self.void()
        self.topic_id = None
        self.target = target

    def located(self, position: int, end_offset: int | None) -> None:
        """The target was looked up, and the end where it was wanted."""
        self.rewind(position)
        self.end_offset, self.end_topic_id = end_offset, self.topic_id
        self.wants_end = False

    def arrived(self, chunks: Sequence[Chunk]) -> None:
        """Take over what was fetched from `fetch_offset` on."""
        self.chunks.extend(chunks)
        self.buffered_bytes += sum(len(chunk.batches) for chunk in chunks)
        self.fetch_offset = chunks[-1].next_offset

    # --- failing -----------------------------------------------------------------------------

    def failed(self, error: QuorumlogError, *, now_ms: int) -> None:
        """Count a failure that will be repeated."""
        self.failures += 1
        self.failure = error
        if self.failures == 1:
            self.failing_since_ms = now_ms

    def well(self) -> None:
        """The leader answers."""
        self.failures = 0
        self.failing_since_ms = 0
        self.failure = None
        self.retry_ms = 0

    # --- handing out -------------------------------------------------------------------------

    @property
    def has_ahead(self) -> bool:
        """Whether anything was fetched and not handed out."""
        return bool(self.records or self.chunks)

    @property
    def is_unlocated(self) -> bool:
        """Whether its beginning or its end must be looked up first."""
        return self.target is not None or self.wants_end

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing more to deliver."""
        return self.is_gone or self.is_finished

    @property
    def is_finished(self) -> bool:
        """Whether all that was wanted has been delivered."""
        return self.end_offset is not None and self.position >= self.end_offset

    def take(self, count: int) -> list[ConsumerRecord]:
        """Hand out up to `count` decoded records and move the position behind them."""
        records = self.records
        if count >= len(records):
            taken = list(records)
            records.clear()
            if taken:  # over what follows the last record: control batches, gaps
                self.position = max(taken[-1].offset + 1, self.wanted(self.records_end))
        else:
            taken = [records.popleft() for _ in range(count)]
            self.position = taken[-1].offset + 1 if taken else self.position
        return taken

    def take_one(self) -> ConsumerRecord:
        """Hand out the next decoded record; there is one."""
        record = self.records.popleft()
        self.position = record.offset + 1
        if not self.records:
            self.position = max(self.position, self.wanted(self.records_end))
        return record

    def decode(self) -> bool:
        """Decode chunks, or parts of them, until one has records that are wanted; whether one has.

        What cannot be decoded is never skipped: what precedes it is handed out, then it is told,
        and fetched again.
        """
        while not self.records and self.chunks:
            chunk = self.chunks[0]
            end = chunk.part_end(self.position)
            try:
                found = self._decoded(chunk, end)
                if end >= chunk.next_offset:
                    self.pop_chunk()
            except QuorumlogError as error:
                end = self.cut(chunk, error)
                found = self._decoded(chunk, end)
            if not found:  # control batches, or nothing at or behind the position
                self.position = max(self.position, self.wanted(end))
                continue
            self.records.extend(found)
            self.records_end = end
        return bool(self.records)

    def _decoded(self, chunk: Chunk, end: int) -> list[ConsumerRecord]:
        return decode_as(
            self._make, chunk.batches, start_offset=self.position, end_offset=self.wanted(end)
        )

    def pop_chunk(self) -> Chunk:
        """Take the oldest chunk out."""
        self.rows = None
        chunk = self.chunks.popleft()
        self.buffered_bytes -= len(chunk.batches)
        return chunk

    def cut(self, chunk: Chunk, error: QuorumlogError) -> int:
        """End the reading at the first batch of a chunk that cannot be decoded, which is told when
        all in front of it has been handed out; return that batch's offset."""
        end, last, cause = unreadable(chunk.batches, self.position, error)
        self.forget_ahead()
        self.fetch_offset = end
        self.error = as_unreadable(cause, self.topic, self.partition, first=end, last=last)
        return end

    def wanted(self, end: int) -> int:
        """Return where reading up to `end` ends for the application."""
        return end if self.end_offset is None else min(end, self.end_offset)

    def skip_to(self, end: int) -> None:
        """Everything in front of `end` was handed out, or is nothing to hand out."""
        self.position = max(self.position, self.wanted(end))
        while self.chunks and self.position >= self.wanted(self.chunks[0].next_offset):
            self.pop_chunk()


def checked_chunks(records: bytes, fetch_offset: int) -> list[Chunk]:
    """Return what an answer had; raises CorruptionError unless it is whole batches in offset order
    of which the last reaches beyond what was asked for."""
    view = memoryview(records)
    chunks: list[Chunk] = []
    begin = first = end = 0  # of the chunk: its position, offset, and where it ends as yet
    for position, header in iterate_batches(records):
        if header.base_offset < end or header.next_offset <= header.base_offset:
            raise CorruptionError(
                f"the batch at offset {header.base_offset} follows what ends at {end}",
                position=position,
            )
        if position > begin and header.next_offset - first > PART_OFFSETS:
            chunks.append(Chunk(view[begin:position], first, end))
            begin = position
        if position == begin:
            first = header.base_offset
        end = header.next_offset
    if end <= fetch_offset:
        raise CorruptionError(f"the answer ends at offset {end}, from {fetch_offset} was asked for")
    chunks.append(Chunk(view[begin:], first, end))
    return chunks


def window(chunk: Chunk, position: int, bytes_max: int) -> tuple[int, int, int]:
    """Return (first offset, end offset, bytes) of the batches from `position` on that fit into
    `bytes_max`, of one batch at least."""
    first = end = -1
    size = 0
    for _, header in iterate_batches(chunk.batches):
        if header.next_offset > position:
            if end >= 0 and size + header.size > bytes_max:
                break
            first = max(position, header.base_offset) if first < 0 else first
            size += header.size
            end = header.next_offset
    return first, end, size


def unreadable(
    batches: Buffer, start_offset: int, error: QuorumlogError
) -> tuple[int, int, QuorumlogError]:
    """Return where the first batch that cannot be decoded begins, its last offset, and why.

    `error` is what decoding all of them raised.
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


def as_unreadable(
    error: QuorumlogError, topic: str, partition: int, *, first: int, last: int
) -> QuorumlogError:
    """Return the error of a batch that cannot be decoded, saying where it is."""
    told = type(error)(
        f"offsets {first} to {last} cannot be read: {error.message}; reading may go on from offset "
        f"{last + 1}, without them",
        topic=topic,
        partition=partition,
    )
    told.__cause__ = error
    return told


def with_way_out(error: QuorumlogError) -> OffsetOutOfRange:
    """Return what tells the application that its offset is none of the log's, and what to do."""
    what = error.message.partition(";")[0]  # behind it a broker speaks to those who write clients
    return OffsetOutOfRange(
        f"{what}; seek to an offset that is there, 'earliest' or 'latest', or make the consumer "
        "with on_out_of_range",
        topic=error.topic,
        partition=error.partition,
    )
