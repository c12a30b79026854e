"""Compaction: the rules of one cleaning run, applied to the bytes of a log.

`KeyMapBuilder` maps keys to their newest offset in the dirty part of a log. `Compactor` then reads
the log from its start and outputs the remaining batches. Both are fed pieces of consecutive
batches, and verify CRC, offsets and leader epoch of each batch before using it. The codec
(`records.key_map`) processes plain batches many per call; the others are processed here one by
one.

The rules, below the end of the mapped part; everything above it stays unchanged:

1. A record stays if its key has no newer offset in the map. Offsets and order never change.
2. Records without a key are removed, as by Kafka's cleaner: they were written before the topic was
   compacted, and nothing can supersede them.
3. A tombstone (null value) that stays gives its batch a delete horizon: the time of the run plus
   `delete.retention.ms`, in the base timestamp, with bit 6 set; the records' deltas are relative to
   it. A later run that finds the horizon passed removes the tombstone, if it lies below the first
   dirty offset, so that no value of its key is removed at the same time.
4. Records of aborted transactions are removed at once.
5. Markers have no key to match (R25, KAFKA-14055). A marker without a batch of its transaction
   gets a delete horizon, and is removed once that passed.
6. A batch without records is removed, except the last one of the run, and the last one of each live
   producer, which has its sequence; these stay as headers. If only a marker of a live producer is
   known, that marker stays.
7. A batch of which some records stay keeps its header except length, count, CRC and largest
   timestamp (that of the remaining records), and is compressed by its own codec again. A batch of
   which all records stay is copied; so is a batch that would exceed the segment's size limit.
8. A compressed batch with a valid CRC and unreadable records stays unchanged, and its keys
   supersede nothing: with `record.validation=header` a producer may store one, and it must not
   block the cleaning of the log. An uncompressed one is corruption, since those are always checked.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from ..errors import CorruptionError, MessageTooLarge, UnsupportedCompression
from ..records.batch import (
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    NO_TIMESTAMP,
    OFFSET_MAX,
    BatchHeader,
    check_crc,
    parse_header,
)
from ..records.checksum import crc32c
from ..records.codec import batch_body
from ..records.compression import Buffer, compress
from ..records.control import Marker, MarkerType, parse_marker
from ..records.key_map import KeyMap, Sieve, rebase_records
from ..records.record import INT32_MAX, Body, Malformed
from .producer_state import LastRecord
from .transaction_index import AbortedTransaction


class CleanedTransactionMetadata:
    """The transactions met while reading a log, in the order of its batches.

    A log is read from its start, so a marker before which no batch of its transaction was found has
    outlived all of them. Batches without records count: they prove that the producer wrote.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}  # by producer, by first offset
        for entry in sorted(aborted, key=lambda entry: entry.first_offset):
            self._aborted.setdefault(entry.producer_id, []).append(entry)
        self._met: set[AbortedTransaction] = set()
        # producers with batches of an undecided or committed transaction
        self._open: set[int] = set()

    def on_batch(self, header: BatchHeader) -> bool:
        """Process a data batch; return True if its records were aborted."""
        if not header.is_transactional:
            return False
        entry = self._entry_at(header)
        if entry is None:
            self._open.add(header.producer_id)
            return False
        self._met.add(entry)
        return True

    def on_marker(self, header: BatchHeader, marker: Marker) -> bool:
        """Process a marker; return True if no batch of its transaction is left.

        Raises CorruptionError if it aborts batches that are missing in the transaction index: they
        would be treated as committed.
        """
        was_open = header.producer_id in self._open
        self._open.discard(header.producer_id)
        match marker.kind:
            case MarkerType.COMMIT:
                return not was_open
            case MarkerType.ABORT:
                if was_open:
                    raise CorruptionError(
                        f"the marker at offset {header.base_offset} aborts a transaction of "
                        f"producer {header.producer_id} that is not in the transaction index"
                    )
                entry = self._entry_at(header)
                return entry is None or entry not in self._met

    def is_left(self, entry: AbortedTransaction) -> bool:
        """Return True if a batch of an aborted transaction was found."""
        return entry in self._met

    def _entry_at(self, header: BatchHeader) -> AbortedTransaction | None:
        entries = self._aborted.get(header.producer_id, ())
        at = bisect_right(entries, header.base_offset, key=_first_offset)
        if at and header.last_offset <= entries[at - 1].last_offset:
            return entries[at - 1]
        return None


def _first_offset(entry: AbortedTransaction) -> int:
    return entry.first_offset


CODEC_BITS: Final = 0x07
TIME_MAX: Final = 2**63 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRules:
    """The parameters of a cleaning run."""

    first_dirty_offset: int  # earlier runs cleaned the log below it
    end_offset: int  # exclusive; of the part that may be mapped
    wall_ms: int
    delete_retention_ms: int
    inflate_bytes_max: int
    aborted: tuple[AbortedTransaction, ...] = ()
    live_producers: Mapping[int, LastRecord]


class KeyMapBuilder:
    """Maps the keys of a log's dirty part, starting with any batch at or before it."""

    def __init__(self, rules: CompactionRules, keys: KeyMap, *, base_offset: int) -> None:
        """`base_offset`: a lower bound of the first batch's base offset."""
        self.mapped_end = rules.end_offset  # exact once `is_done`
        self.is_done = False
        self.last_offset = -1  # of the last batch processed
        self._rules = rules
        self._sieve = Sieve(keys, rules.first_dirty_offset, rules.end_offset, rules.wall_ms)
        self._sieve.next_offset = base_offset
        self._transactions = CleanedTransactionMetadata(rules.aborted)

    @property
    def next_offset(self) -> int:
        """The lowest valid base offset of the next batch."""
        return self._sieve.next_offset

    def feed(self, piece: Buffer) -> int:
        """Process whole batches; return the number of bytes processed. Raises CorruptionError."""
        sieve, position = self._sieve, 0
        while not self.is_done:
            taken = sieve.map_batches(piece, position)
            if taken > position:
                self.last_offset = sieve.next_offset - 1
            position = taken
            if len(piece) - position < HEADER_SIZE:
                break
            header = parse_header(piece, position)
            if header.base_offset >= self._rules.end_offset:
                self.is_done = True
                break
            if position + header.size > len(piece):
                break
            self._take(piece, position, header)
            if not self.is_done:
                position += header.size
        return position

    def _take(self, piece: Buffer, position: int, header: BatchHeader) -> None:
        admit(self._sieve, piece, position, header)
        if header.is_control:
            marker = parse_marker(piece, position, header)
            if marker is not None:
                self._transactions.on_marker(header, marker)
        elif (
            not self._transactions.on_batch(header)
            and header.last_offset >= self._rules.first_dirty_offset
        ):
            try:
                full = read_body(piece, position, header, self._rules, self._sieve.map_body)
            except UnreadableRecords:
                full = -1  # `Compactor` reports it
            if full >= 0:
                # sometimes: the key map of a cleaning run is full
                self.mapped_end = full
                self.is_done = True
                return
        self._sieve.next_offset = header.next_offset
        self._sieve.leader_epoch = header.leader_epoch
        self.last_offset = header.last_offset


class Compactor:
    """Outputs the remaining batches of a log, from its first batch on."""

    def __init__(
        self,
        rules: CompactionRules,
        keys: KeyMap,
        *,
        base_offset: int,
        mapped_end: int,
        kept_empty: Iterable[int],
    ) -> None:
        """`mapped_end`: the exclusive end of the part mapped in `keys`; `kept_empty`: last offsets
        of batches that stay without records."""
        self.rewritten = 0  # batches output with other content, even of equal length
        self.unread = 0  # batches with unreadable records, and the reason of the first
        self.unread_reason = ""
        self.growth_max = TIME_MAX  # bytes by which batches may grow in total
        self._rules = rules
        self._end = mapped_end
        self._horizon_ms = min(rules.wall_ms + rules.delete_retention_ms, TIME_MAX)
        self._sieve = Sieve(keys, rules.first_dirty_offset, mapped_end, rules.wall_ms)
        self._sieve.next_offset = base_offset
        self._sieve.keep_batches(kept_empty)
        self._transactions = CleanedTransactionMetadata(rules.aborted)
        self._records_aside = 0  # processed here, not by the sieve

    @property
    def next_offset(self) -> int:
        """The lowest valid base offset of the next batch."""
        return self._sieve.next_offset

    @property
    def records_read(self) -> int:
        """Number of records below the mapped end."""
        return self._sieve.records_read + self._records_aside

    @property
    def records_kept(self) -> int:
        """Number of those records that stay, without markers."""
        return self._sieve.records_kept

    def feed(self, piece: Buffer) -> int:
        """Process whole batches; return the number of bytes processed. Raises CorruptionError."""
        sieve, position = self._sieve, 0
        while True:
            position = sieve.filter_batches(piece, position)
            if len(piece) - position < HEADER_SIZE:
                return position
            header = parse_header(piece, position)
            if position + header.size > len(piece):
                return position
            admit(sieve, piece, position, header)
            self._take(piece, position, header)
            sieve.next_offset = header.next_offset
            sieve.leader_epoch = header.leader_epoch
            position += header.size

    def take(self) -> tuple[memoryview, memoryview]:
        """Return the bytes output since the last call, and (size, last offset, max timestamp) of
        each batch in them as int64."""
        return self._sieve.take()

    def is_left(self, entry: AbortedTransaction) -> bool:
        """Return True if the transaction index still needs an aborted transaction.

        Its batches lose their records in this run, but readers that already have them still need
        the entry. It stays as long as the run found a batch of the transaction.
        """
        return entry.last_offset >= self._end or self._transactions.is_left(entry)

    def _take(self, piece: Buffer, position: int, header: BatchHeader) -> None:
        if header.base_offset >= self._end:
            self._put_whole(piece, position, header)
        elif header.is_control:
            self._take_control(piece, position, header)
        elif self._transactions.on_batch(header):
            # sometimes if header.record_count: compaction removes aborted records
            self._records_aside += header.record_count
            self._put_empty(piece, position, header)
        else:
            self._take_data(piece, position, header)

    def _take_data(self, piece: Buffer, position: int, header: BatchHeader) -> None:
        is_due = header.has_delete_horizon and header.base_timestamp <= self._rules.wall_ms

        def stay(body: Body) -> tuple[Body, memoryview | None, int, int, bool]:
            return body, *self._sieve.filter_body(body, is_due)

        try:
            body, records, count, timestamp, has_tombstones = read_body(
                piece, position, header, self._rules, stay
            )
        except UnreadableRecords as unreadable:
            self.unread += 1
            self.unread_reason = self.unread_reason or str(unreadable)
            self._put_whole(piece, position, header)
            return
        wants_horizon = (
            has_tombstones and not header.has_delete_horizon and header.last_offset < self._end
        )
        if count == 0:
            self._put_empty(piece, position, header)
            return
        if records is not None:
            body = body._replace(buffer=records, start=0, end=len(records), record_count=count)
            timestamp = header.max_timestamp if header.log_append_time else timestamp
            kept = header._replace(record_count=count, max_timestamp=timestamp)
        else:
            kept = header
        if wants_horizon and self._put_with_horizon(kept, body):
            return
        if records is None or not self._put_grown(seal(kept, records), header.size):
            self._put_whole(piece, position, header)

    def _take_control(self, piece: Buffer, position: int, header: BatchHeader) -> None:
        if header.record_count == 0:
            is_gone = is_due = True
        else:
            marker = parse_marker(piece, position, header)
            is_gone = marker is not None and self._transactions.on_marker(header, marker)
            is_due = header.has_delete_horizon and header.base_timestamp <= self._rules.wall_ms
        if is_gone and is_due and not self._is_needed(header):
            # sometimes: compaction removes a marker
            return
        if is_gone and not header.has_delete_horizon and header.record_count:
            body = read_body(piece, position, header, self._rules, _itself)
            if header.last_offset < self._end and self._put_with_horizon(header, body):
                return
        self._put_whole(piece, position, header)

    def _is_needed(self, header: BatchHeader) -> bool:
        """Return True if a control batch must stay although nothing needs its marker."""
        last = self._rules.live_producers.get(header.producer_id)
        is_last = last is not None and last.last_offset < 0 and last.epoch == header.producer_epoch
        # sometimes if is_last: compaction keeps the last marker of a live producer
        return is_last or self._sieve.stays_empty(header.last_offset)

    # --- output ---

    def _put_whole(self, piece: Buffer, position: int, header: BatchHeader) -> None:
        self._sieve.add(
            memoryview(piece)[position : position + header.size],
            header.last_offset,
            header.max_timestamp,
        )

    def _put_empty(self, piece: Buffer, position: int, header: BatchHeader) -> None:
        """Output a batch without remaining records, if it must stay."""
        if not self._sieve.stays_empty(header.last_offset):
            return
        if header.record_count == 0:
            self._put_whole(piece, position, header)
            return
        # sometimes: compaction keeps an empty batch
        empty = header._replace(
            attributes=header.attributes & ~(CODEC_BITS | DELETE_HORIZON_BIT),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        )
        self._put(seal(empty, b""))

    def _put_with_horizon(self, header: BatchHeader, body: Body) -> bool:
        """Output the batch with these records and a delete horizon. Return False, with no output,
        if it cannot have one: it then keeps its tombstones longer."""
        records: Buffer = memoryview(body.buffer)[body.start : body.end]
        if not header.log_append_time:  # the deltas are relative to the base timestamp
            try:
                records = rebase_records(body, header.base_timestamp - self._horizon_ms)
            except OverflowError:
                return False
        if HEADER_SIZE + len(records) > INT32_MAX:
            return False
        batch = seal(
            header._replace(
                attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=self._horizon_ms
            ),
            records,
        )
        return self._put_grown(batch, header.size)

    def _put_grown(self, batch: bytes, size: int) -> bool:
        """Output a batch that had `size` bytes. Return False, with no output, if it grows too
        much."""
        growth = max(0, len(batch) - size)
        if growth > self.growth_max:
            return False
        self.growth_max -= growth
        self._put(batch)
        return True

    def _put(self, batch: bytes) -> None:
        self.rewritten += 1
        header = parse_header(batch)
        self._sieve.add(
            batch,
            header.last_offset,
            header.max_timestamp,
        )


# --- single batches ----------------------------------------------------------------------------


def admit(sieve: Sieve, piece: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptionError unless the batch is whole, valid, and follows the previous one."""
    if header.base_offset < sieve.next_offset or not (
        0 <= header.last_offset_delta < OFFSET_MAX - header.base_offset
    ):
        raise CorruptionError(
            f"a batch of offsets {header.base_offset} to {header.last_offset} follows offset "
            f"{sieve.next_offset - 1}",
            position=position,
        )
    if header.leader_epoch < sieve.leader_epoch:
        raise CorruptionError(
            f"a batch of epoch {header.leader_epoch} follows epoch {sieve.leader_epoch}",
            position=position,
        )
    check_crc(piece, position, header)


class UnreadableRecords(Exception):
    """A compressed batch has a valid CRC but unreadable records."""


def read_body(
    piece: Buffer,
    position: int,
    header: BatchHeader,
    rules: CompactionRules,
    take: Callable[[Body], T],
) -> T:
    """Return `take(body)` of a batch. If the records are unreadable, raise UnreadableRecords for a
    compressed batch, CorruptionError for another one."""
    try:
        return take(batch_body(piece, position, header, inflate_limit=rules.inflate_bytes_max))
    except Malformed as fault:
        reason = str(fault)
    except (MessageTooLarge, UnsupportedCompression, CorruptionError) as error:
        reason = error.message
    message = f"the batch at offset {header.base_offset} cannot be compacted: {reason}"
    if header.attributes & CODEC_BITS:
        raise UnreadableRecords(message)
    raise CorruptionError(message, position=position)


def _itself(body: Body) -> Body:
    return body


def seal(header: BatchHeader, records: Buffer) -> bytes:
    """Return the batch of a header and its records, compressed by its codec."""
    packed = compress(header.codec, records) if len(records) else b""
    header = header._replace(batch_length=HEADER_SIZE - LENGTH_END + len(packed), crc=0)
    if header.batch_length > INT32_MAX:
        raise CorruptionError(
            f"the batch at offset {header.base_offset} cannot be compacted: it would have "
            f"{header.batch_length} bytes"
        )
    fields = HEADER.pack(*header)
    crc = crc32c(packed, crc32c(fields[CRC_START:]))
    return b"".join((fields[: CRC_START - 4], crc.to_bytes(4, "big"), fields[CRC_START:], packed))
