"""Which records compaction keeps: the rules of one round, applied to the bytes of a log.

`KeyScan` notes the newest offset of each key in the dirty part of a log; `Compactor` then takes the
log from its start and puts out what stays. Both are fed pieces of back-to-back batches, and believe
none of them before its CRC, its offsets and its leader epoch were checked. Usual batches are done
many at a call by the codec (`records.sieve`), the others one by one here.

The rules, below the end of what was mapped; from there on everything stays as it is:

1. A record stays when its key has no newer offset in the map. Offsets and order never change.
2. Records without a key leave, as with the field's own cleaner: such were written before the topic
   was compacted, and can be superseded by nothing.
3. A tombstone (null value) that stays gives its batch a delete horizon: the time of the round plus
   `delete.retention.ms`, in the base timestamp, with bit 6 set; the records' deltas then count from
   there. Once a later round finds the horizon passed, the tombstone leaves. It must lie below the
   first dirty offset for that, so that no value of its key leaves at the same time as it.
4. Records of aborted transactions leave at once.
5. Markers have no key to match (R25, KAFKA-14055). One whose transaction has no batch left gets a
   delete horizon, and leaves once that passed.
6. A batch without records leaves, but for the last one of the round, and the last one of each live
   producer, which has its sequence; these stay as headers. A live producer of whom only a marker is
   known keeps that.
7. A batch of which some records stay keeps everything of its header but length, count, CRC, largest
   timestamp (that of what stays), and is compressed by its own codec again. One of which all stay
   is copied; so is one that would outgrow what a segment may have.
8. A compressed batch whose CRC is right and whose records cannot be read stays as it is, and its
   keys supersede nothing: with `record.validation=header` a producer may store such, and no log may
   be kept from being cleaned by one. Uncompressed ones are damage: every producer's are looked at.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from ...errors import CorruptionError, MessageTooLarge, UnsupportedCompression
from ...records.batch import (
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
from ...records.checksum import crc32c
from ...records.codec import batch_body
from ...records.compression import Buffer, compress
from ...records.control import parse_marker
from ...records.record import INT32_MAX, Body, Malformed
from ...records.sieve import KeyMap, Sieve, rebase_records
from ..producers.states import LastRecord
from ..producers.transactions import AbortedTransaction
from .ended import EndedTransactions

CODEC_BITS: Final = 0x07
TIME_MAX: Final = 2**63 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a round keeps to."""

    first_dirty_offset: int  # below it earlier rounds have been
    end_offset: int  # exclusive; of what may be mapped
    wall_ms: int
    delete_retention_ms: int
    inflate_bytes_max: int
    aborted: tuple[AbortedTransaction, ...] = ()
    live_producers: Mapping[int, LastRecord]


class KeyScan:
    """Notes the keys of a log's dirty part, from any batch at or before it on."""

    def __init__(self, rules: Rules, keys: KeyMap, *, base_offset: int) -> None:
        """`base_offset`: no batch starts below it."""
        self.mapped_end = rules.end_offset  # exact once `is_done`
        self.is_done = False
        self.last_offset = -1  # of the last batch that was taken
        self._rules = rules
        self._sieve = Sieve(keys, rules.first_dirty_offset, rules.end_offset, rules.wall_ms)
        self._sieve.next_offset = base_offset
        self._transactions = EndedTransactions(rules.aborted)

    @property
    def next_offset(self) -> int:
        """The least offset that the next batch may have."""
        return self._sieve.next_offset

    def feed(self, piece: Buffer) -> int:
        """Take whole batches; return the bytes taken. Raises CorruptionError."""
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
            except Unreadable:
                full = -1  # the next pass tells
            if full >= 0:
                self.mapped_end = full
                self.is_done = True
                return
        self._sieve.next_offset = header.next_offset
        self._sieve.leader_epoch = header.leader_epoch
        self.last_offset = header.last_offset


class Compactor:
    """Puts out what stays of a log, whose batches it takes from the first one on."""

    def __init__(
        self,
        rules: Rules,
        keys: KeyMap,
        *,
        base_offset: int,
        mapped_end: int,
        kept_empty: Iterable[int],
    ) -> None:
        """`mapped_end`: the exclusive end of what is in `keys`; `kept_empty`: last offsets of
        batches that stay without records."""
        self.rewritten = 0  # batches that were put out otherwise than they came, of this length too
        self.unread = 0  # batches whose records could not be read, and why the first one's not
        self.unread_reason = ""
        self.growth_max = TIME_MAX  # bytes by which batches may become longer
        self._rules = rules
        self._end = mapped_end
        self._horizon_ms = min(rules.wall_ms + rules.delete_retention_ms, TIME_MAX)
        self._sieve = Sieve(keys, rules.first_dirty_offset, mapped_end, rules.wall_ms)
        self._sieve.next_offset = base_offset
        self._sieve.keep_batches(kept_empty)
        self._transactions = EndedTransactions(rules.aborted)
        self._records_aside = 0  # read here, not by the sieve

    @property
    def next_offset(self) -> int:
        """The least offset that the next batch may have."""
        return self._sieve.next_offset

    @property
    def records_read(self) -> int:
        """Records of batches below the mapped end."""
        return self._sieve.records_read + self._records_aside

    @property
    def records_kept(self) -> int:
        """Those of them that stay, markers not counted."""
        return self._sieve.records_kept

    def feed(self, piece: Buffer) -> int:
        """Take whole batches; return the bytes taken. Raises CorruptionError."""
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
        """Return what was put out since the last call, and (size, last offset, max timestamp) of
        each batch in it as int64."""
        return self._sieve.take()

    def is_left(self, entry: AbortedTransaction) -> bool:
        """Whether the transaction index still needs an aborted transaction.

        Its batches lose their records in this round, but readers that have them already will ask
        for it: so it stays for as long as the round met any.
        """
        return entry.last_offset >= self._end or self._transactions.is_left(entry)

    def _take(self, piece: Buffer, position: int, header: BatchHeader) -> None:
        if header.base_offset >= self._end:
            self._put_whole(piece, position, header)
        elif header.is_control:
            self._take_control(piece, position, header)
        elif self._transactions.on_batch(header):
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
        except Unreadable as unreadable:
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
            return
        if is_gone and not header.has_delete_horizon and header.record_count:
            body = read_body(piece, position, header, self._rules, _itself)
            if header.last_offset < self._end and self._put_with_horizon(header, body):
                return
        self._put_whole(piece, position, header)

    def _is_needed(self, header: BatchHeader) -> bool:
        """Whether a control batch has to stay though nothing needs its marker."""
        last = self._rules.live_producers.get(header.producer_id)
        is_last = last is not None and last.last_offset < 0 and last.epoch == header.producer_epoch
        return is_last or self._sieve.stays_empty(header.last_offset)

    # --- putting out ---

    def _put_whole(self, piece: Buffer, position: int, header: BatchHeader) -> None:
        self._sieve.add(
            memoryview(piece)[position : position + header.size],
            header.last_offset,
            header.max_timestamp,
        )

    def _put_empty(self, piece: Buffer, position: int, header: BatchHeader) -> None:
        """Put a batch of which no record stays, if it has to."""
        if not self._sieve.stays_empty(header.last_offset):
            return
        if header.record_count == 0:
            self._put_whole(piece, position, header)
            return
        empty = header._replace(
            attributes=header.attributes & ~(CODEC_BITS | DELETE_HORIZON_BIT),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        )
        self._put(seal(empty, b""))

    def _put_with_horizon(self, header: BatchHeader, body: Body) -> bool:
        """Put the batch with these records and a delete horizon; False, and nothing is put, when it
        cannot have one: it then keeps its tombstones for longer."""
        records: Buffer = memoryview(body.buffer)[body.start : body.end]
        if not header.log_append_time:  # the deltas count
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
        """Put a batch that had `size` bytes; False, and nothing is put, when it grows too much."""
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
    """Raise CorruptionError unless the batch is whole, right, and follows the one before."""
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


class Unreadable(Exception):
    """A compressed batch has a right CRC, and records that cannot be read."""


def read_body(
    piece: Buffer, position: int, header: BatchHeader, rules: Rules, take: Callable[[Body], T]
) -> T:
    """Return what `take` makes of the records of a batch; raises Unreadable where they cannot be
    read and are compressed, else CorruptionError."""
    try:
        return take(batch_body(piece, position, header, inflate_limit=rules.inflate_bytes_max))
    except Malformed as fault:
        reason = str(fault)
    except (MessageTooLarge, UnsupportedCompression, CorruptionError) as error:
        reason = error.message
    told = f"the batch at offset {header.base_offset} cannot be compacted: {reason}"
    if header.attributes & CODEC_BITS:
        raise Unreadable(told)
    raise CorruptionError(told, position=position)


def _itself(body: Body) -> Body:
    return body


def seal(header: BatchHeader, records: Buffer) -> bytes:
    """Return the batch of a header and its records, which are compressed by its codec."""
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
