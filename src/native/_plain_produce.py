"""Produce requests in plain Python: what `_produce` does in C, and its documentation.

A run is a number of complete requests in one buffer that a connection received. The usual request
is placed here: its batches are checked, get their offsets, and are stamped in the buffer. The
caller then writes each tail with one call and sends the responses. Every other request is left to
the general path, with nothing changed: this module returns no error.

A request is usual if it has version 3 to 13, an ASCII client id, no transactional id, acks of -1, 0
or 1, no tagged fields and nothing behind its last field; and if every batch of it is the next one
of its tail, see `RunTail.check`.
"""

from array import array
from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from ..errors import QuorumlogError
from ..records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    NO_PRODUCER,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    parse_header,
)
from ..records.record import Body
from ..records.validate import TimestampLimits, ValidationMode, validate_batch

VERSION_MIN: Final = 3
VERSION_MAX: Final = 13
FLEXIBLE: Final = 9  # the first version with varints and tagged fields
BY_ID: Final = 13  # the first version with topic ids
FRAME_BYTES_MIN: Final = 8
CLIENT_ID_BYTES_MAX: Final = 1_024
TAILS_MAX: Final = 64  # logs of one run
PRODUCERS_MAX: Final = 16  # producers of one log in one run
BATCHES_KEPT: Final = 5  # batches of a producer that a log remembers
INFLATION_EXPECTED: Final = 4  # inflated bytes of one compressed byte

_ID_BYTES: Final = 16
_SEQUENCE_MASK: Final = 2**31 - 1
_NONE: Final = -1
_PRODUCE_KEY: Final = 0

_SIZE: Final = Struct(">i")
_HEADER: Final = Struct(">hhih")  # key, version, correlation id, length of the client id
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_OFFSET: Final = Struct(">q")
_EPOCH_AT: Final = 12  # in a batch; the base offset is at 0
_RESULT: Final = Struct(">ihqq")  # partition, error code, base offset, log append time
_RESULT_5: Final = Struct(">ihqqq")  # and the log start offset

Stored: TypeAlias = tuple[int, int, int, int, int]
"""A batch of a producer: first and last sequence, first and last offset, newest timestamp."""

EntryOf: TypeAlias = "Callable[[int], Sequence[object] | None]"
"""Returns the state of a producer, None for an unknown one: its epoch, the coordinator epoch, the
next sequence and the first offset of its open transaction come first; -1 is none."""

Find: TypeAlias = "Callable[[int, bool, bytes, int], RunTail | None]"
"""Returns the tail of a partition by acks, whether the title is a topic id, the title (a name or
an id) and the partition; None if its batches cannot be placed."""

PlacedPart: TypeAlias = "tuple[int, RunTail, int]"
"""The partition, its tail, and the base offset of its batch."""

PlacedRequest: TypeAlias = "tuple[int, int, list[tuple[bytes, list[PlacedPart]]]]"
"""The correlation id, the version, and the topics: each with its title as in the request."""


class Unusual(Exception):
    """The request is left to the general path."""


class _Producer:
    """The state of a producer within a run."""

    def __init__(self, epoch: int, next_sequence: int) -> None:
        self.epoch = epoch
        self.next_sequence = next_sequence
        self.last_offset = _NONE  # of its last batch in this run
        self.stored: list[Stored] = []


class RunTail:
    """The end of one log while batches are placed behind it.

    One object serves all runs of a segment. `owner` and `entry_of` are the caller's. Limits:
    `batch_bytes_max` of one batch, `position_max` of the file, `offset_max` (the highest end
    offset). `keys_required`: of a compacted topic. `takes_compressed`: compressed batches are
    stored as they come, and their records are checked. `index_base` and `interval_bytes` are those
    of the segment's index.
    """

    def __init__(
        self,
        owner: object,
        entry_of: EntryOf,
        *,
        batch_bytes_max: int,
        keys_required: bool,
        takes_compressed: bool,
        position_max: int,
        offset_max: int,
        index_base: int,
        interval_bytes: int,
    ) -> None:
        self.owner = owner
        self._entry_of = entry_of
        self._batch_bytes_max = batch_bytes_max
        self._keys_required, self._takes_compressed = keys_required, takes_compressed
        self._position_max, self._offset_max = position_max, offset_max
        self._index_base, self._interval_bytes = index_base, interval_bytes

    def begin(
        self,
        next_offset: int,
        position: int,
        leader_epoch: int,
        log_start_offset: int,
        bytes_max: int,
        oldest_ms: int,
        newest_ms: int,
        timestamp_max: int,
        entries_max: int,
        bytes_since_entry: int,
        max_timestamp: int,
        max_timestamp_offset: int,
        last_time: int,
    ) -> None:
        """Begin a run. Its batches get the offsets from `next_offset` on and `leader_epoch`, and go
        to `position` of the file. Limits: `bytes_max` of all batches, [`oldest_ms`, `newest_ms`] of
        the records, `timestamp_max` of a batch in ms, `entries_max` of the index. The others are
        the state of the index, see `storage.index.SegmentIndex`; `last_time` is its newest
        timestamp, -1 none."""
        self.base_offset = self.next_offset = next_offset
        self.position = position
        self.log_start_offset = log_start_offset
        self.size = 0  # bytes of the placed batches
        self.count = 0  # of the placed batches
        self._buffers: list[memoryview] = []  # the placed batches
        self.max_timestamp = max_timestamp
        self.max_timestamp_offset = max_timestamp_offset
        self.bytes_since_entry = bytes_since_entry
        self.error: QuorumlogError | None = None  # of the write, set by the caller
        self._leader_epoch = leader_epoch
        self._bytes_left = bytes_max
        self._oldest_ms, self._newest_ms = oldest_ms, newest_ms
        self._timestamp_max = timestamp_max
        self._entries_left = entries_max
        self._last_time = last_time
        self._offsets, self._positions = array("I"), array("I")
        self._times, self._time_offsets = array("q"), array("I")
        self._producers: dict[int, _Producer] = {}

    def take_buffers(self) -> list[memoryview]:
        """Return the placed batches for their write, and forget them: the tail outlives the run and
        must not hold the memory of its frames."""
        buffers, self._buffers = self._buffers, []
        return buffers

    def index_entries(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Return the new entries of the index in memory: relative offsets and positions (32 bits
        each), timestamps (64 bits) and their relative offsets (32 bits)."""
        columns = (self._offsets, self._positions, self._times, self._time_offsets)
        offsets, positions, times, time_offsets = (column.tobytes() for column in columns)
        return offsets, positions, times, time_offsets

    @property
    def has_producers(self) -> bool:
        """True if the state of a producer was read."""
        return bool(self._producers)

    def producers(self) -> list[tuple[int, int, int, list[Stored]]]:
        """Return the last offset, the id, the next sequence and the newest batches, at most five,
        of each producer with a batch in this run, by the last offset."""
        return sorted(
            (one.last_offset, producer_id, one.next_sequence, one.stored[-BATCHES_KEPT:])
            for producer_id, one in self._producers.items()
            if one.stored
        )

    def place_replicated(self, batches: memoryview) -> int:
        """Place whole batches of a leader, which keep their offsets and epochs. Return the number
        of bytes placed, from the start on; the caller appends the rest in another way.

        A batch is placed if it is valid in its CRC, starts at the next offset, has the run's leader
        epoch and timestamps, is within the limits, neither a control batch nor transactional, and
        the next one of its producer, see `check`. It may be compressed.
        """
        placed = 0
        while placed < len(batches):
            header = self._replicated_header(batches[placed:])
            if header is None:
                break
            self._add(header)
            placed += header.size
        if placed:
            self._buffers.append(batches[:placed])
        return placed

    def _replicated_header(self, batches: memoryview) -> BatchHeader | None:
        """Return the header of the first batch if it can be placed next as it is."""
        try:
            header = parse_header(batches)
            if header.size > len(batches) or not self._has_room(header.size):
                return None
            check_crc(batches, 0, header)
        except QuorumlogError:
            return None
        if header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) or header.last_offset_delta < 0:
            return None
        if (header.base_offset, header.leader_epoch) != (self.next_offset, self._leader_epoch):
            return None
        return header if self._is_next(header) else None

    def _has_room(self, size: int) -> bool:
        """Return True if a batch of this size is within the limits of the run and the segment."""
        if not HEADER_SIZE <= size <= self._bytes_left or self._entries_left <= 0:
            return False
        return self.position + self.size + size <= self._position_max

    def check(self, batch: memoryview, inflated_left: int) -> int | None:
        """Return the bytes to which the batch of a client was inflated, 0 for an uncompressed one;
        None if it cannot be placed next.

        It can be placed if it is sound, with timestamps, not transactional, within the limits, and
        the next one of its producer, if it has one. The producer is known and has no open
        transaction. A compressed one inflates to at most `inflated_left` bytes, and is not tried
        if `INFLATION_EXPECTED` would lead beyond them.
        """
        size = len(batch)
        if size > self._batch_bytes_max or not self._has_room(size):
            return None
        try:
            header = parse_header(batch)
            body = self._sound_body(batch, header, inflated_left)
        except (QuorumlogError, Unusual):
            return None
        if header.attributes & TRANSACTIONAL_BIT or not self._is_next(header):
            return None
        return body.end - body.start if header.attributes & CODEC_MASK else 0

    def _is_next(self, header: BatchHeader) -> bool:
        """Return True if a valid batch is within the limits of timestamps and offsets, and the next
        one of its producer."""
        if not 0 <= header.max_timestamp <= self._timestamp_max:
            return False
        if self.next_offset + header.last_offset_delta + 1 > self._offset_max:
            return False
        if header.producer_id == NO_PRODUCER:
            return True
        known = self._find(header.producer_id)
        return (
            known is not None
            and known.epoch == header.producer_epoch
            and known.next_sequence == header.base_sequence
        )

    def place(self, batch: memoryview, header: BatchHeader) -> None:
        """Place a checked batch of a client: stamp it, and add it."""
        _OFFSET.pack_into(batch, 0, self.next_offset)
        _I32.pack_into(batch, _EPOCH_AT, self._leader_epoch)
        self._buffers.append(batch)
        self._add(header)

    def _add(self, header: BatchHeader) -> None:
        """Add a checked batch to the index and its producer."""
        base_offset, size = self.next_offset, header.size
        last_offset = base_offset + header.last_offset_delta
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, last_offset
        if self.bytes_since_entry > self._interval_bytes:
            self._offsets.append(last_offset - self._index_base)
            self._positions.append(self.position + self.size)
            if self.max_timestamp >= 0 and self.max_timestamp > self._last_time:
                self._times.append(self.max_timestamp)
                self._time_offsets.append(self.max_timestamp_offset - self._index_base)
                self._last_time = self.max_timestamp
            self.bytes_since_entry = 0
            self._entries_left -= 1
        self.bytes_since_entry += size
        self.size += size
        self._bytes_left -= size
        self.next_offset = last_offset + 1
        self.count += 1
        known = self._find(header.producer_id) if header.producer_id != NO_PRODUCER else None
        if known is not None:
            first = known.next_sequence
            last = (first + header.last_offset_delta) & _SEQUENCE_MASK
            known.stored.append((first, last, base_offset, last_offset, header.max_timestamp))
            known.next_sequence = (last + 1) & _SEQUENCE_MASK
            known.last_offset = last_offset

    def _sound_body(self, batch: memoryview, header: BatchHeader, inflated_left: int) -> Body:
        """Return the records of one valid batch of a client. Raises Unusual, QuorumlogError."""
        size = len(batch)
        if header.size != size:
            raise Unusual
        if header.attributes & CODEC_MASK and (
            not self._takes_compressed or INFLATION_EXPECTED * (size - HEADER_SIZE) > inflated_left
        ):
            raise Unusual
        body = validate_batch(
            batch,
            0,
            header,
            mode=ValidationMode.FULL,
            max_bytes=size,
            inflate_limit=inflated_left,
            keys_required=self._keys_required,
            timestamps=TimestampLimits(0, -self._oldest_ms, self._newest_ms),
        )
        assert body is not None, "the records are checked in full"
        return body

    def _find(self, producer_id: int) -> _Producer | None:
        """Return the state of a known producer without an open transaction."""
        known = self._producers.get(producer_id)
        if known is not None or len(self._producers) == PRODUCERS_MAX:
            return known
        entry = self._entry_of(producer_id)
        if entry is None:
            return None
        epoch, _, next_sequence, transaction_start, *_ = entry
        assert isinstance(epoch, int)
        assert isinstance(next_sequence, int)
        assert isinstance(transaction_start, int)
        if transaction_start >= 0 or next_sequence < 0:
            return None
        known = self._producers[producer_id] = _Producer(epoch, next_sequence)
        return known


class _Topic(NamedTuple):
    """A topic of a request."""

    title: bytes  # as encoded in the request
    parts: list[tuple[int, RunTail, memoryview]]  # partition, tail, batch


class ProduceRun:
    """Usual produce requests with the same acks and timeout, in their order.

    The run ends with the first request that is not added, with `count_max` requests, and with a
    frame above `frame_bytes_max` bytes. Its compressed batches inflate to at most
    `inflated_bytes_max` bytes.
    """

    def __init__(
        self, find: Find, frame_bytes_max: int, count_max: int, inflated_bytes_max: int
    ) -> None:
        self.count = 0  # of the requests
        self.size = 0  # bytes of their frames
        self.acks = 0
        self.timeout_ms = 0
        self.tails: list[RunTail] = []  # those without a batch included
        self._find = find
        self._frame_bytes_max, self._count_max = frame_bytes_max, count_max
        self._inflated_left = inflated_bytes_max
        self._is_over = False
        self._known: dict[tuple[bytes, int], RunTail] = {}
        self._placed: list[PlacedRequest] = []
        self._answers: list[bytes] = []

    def take(self, buffer: memoryview, start: int, end: int) -> int:
        """Add the requests with frames one behind the other in [start, end) of a writable
        buffer, each behind its size. Return the position behind the last one that was added. The
        buffer must not change until the tails are written."""
        if not 0 <= start <= end <= len(buffer):
            raise ValueError(f"[{start}, {end}) of {len(buffer)} bytes")
        while end - start >= _SIZE.size:
            (size,) = _SIZE.unpack_from(buffer, start)
            behind = start + _SIZE.size + size
            if size < FRAME_BYTES_MIN or behind > end:
                break
            if not self.take_frame(buffer[start + _SIZE.size : behind]):
                break
            start = behind
        return start

    def take_frame(self, frame: memoryview) -> bool:
        """Add the request of one frame, a writable buffer; return False if it was not added."""
        if self._is_over or self.count >= self._count_max or len(frame) > self._frame_bytes_max:
            return False
        try:
            self._add(frame)
        except (Unusual, StructError, IndexError):
            self._is_over = True
            return False
        return True

    @property
    def responses(self) -> bytes:
        """The responses to all requests, as sent; empty with acks=0."""
        return b"".join(self._answers)

    def requests(self) -> list[PlacedRequest]:
        """Return the placed requests, to encode other responses than `responses`."""
        return self._placed

    def _add(self, frame: memoryview) -> None:
        cursor = FrameCursor(frame)
        key, version, correlation_id, client_id_size = cursor.next(_HEADER)
        if key != _PRODUCE_KEY or not VERSION_MIN <= version <= VERSION_MAX:
            raise Unusual
        if client_id_size > CLIENT_ID_BYTES_MAX:
            raise Unusual
        if client_id_size > 0 and not cursor.take(client_id_size).isascii():
            raise Unusual
        cursor.is_flexible = version >= FLEXIBLE
        cursor.no_tags()
        if (cursor.varint() if cursor.is_flexible else cursor.next(_I16)[0] + 1) != 0:
            raise Unusual
        (acks,), (timeout_ms,) = cursor.next(_I16), cursor.next(_I32)
        topic_count = cursor.count()
        if not -1 <= acks <= 1 or topic_count < 1:
            raise Unusual
        if self.count and (acks, timeout_ms) != (self.acks, self.timeout_ms):
            raise Unusual
        seen: set[int] = set()
        topics = [self._read_topic(cursor, version, acks, seen) for _ in range(topic_count)]
        cursor.no_tags()
        if cursor.left:
            raise Unusual
        placed = [(topic.title, _place(topic.parts)) for topic in topics]
        self._placed.append((correlation_id, version, placed))
        if acks:
            self._answers.append(_encode(correlation_id, version, placed))
        self.acks, self.timeout_ms = acks, timeout_ms
        self.count += 1
        self.size += len(frame)

    def _read_topic(self, cursor: "FrameCursor", version: int, acks: int, seen: set[int]) -> _Topic:
        """Read a topic and check its batches; nothing is placed yet."""
        start = cursor.at
        if version >= BY_ID:
            size = _ID_BYTES
        else:
            size = cursor.varint() - 1 if cursor.is_flexible else cursor.next(_I16)[0]
        title = cursor.take(size)
        encoded = bytes(cursor.frame[start : cursor.at])
        part_count = cursor.count()
        if not title or part_count < 1:
            raise Unusual
        parts = []
        for _ in range(part_count):
            (partition,) = cursor.next(_I32)
            at, size = cursor.at_bytes()
            cursor.no_tags()
            batch = cursor.frame[at : at + size]
            tail = self._tail_of(acks, version >= BY_ID, title, partition)
            inflated = None if id(tail) in seen else tail.check(batch, self._inflated_left)
            if inflated is None:
                raise Unusual
            self._inflated_left -= inflated
            seen.add(id(tail))
            parts.append((partition, tail, batch))
        cursor.no_tags()
        return _Topic(encoded, parts)

    def _tail_of(self, acks: int, by_id: bool, title: bytes, partition: int) -> RunTail:
        tail = self._known.get((title, partition))
        if tail is not None:
            return tail
        if len(self.tails) == TAILS_MAX:
            raise Unusual
        tail = self._find(acks, by_id, title, partition)
        if tail is None or any(tail is other for other in self.tails):
            raise Unusual  # unknown, or a topic by its name and by its id
        self._known[title, partition] = tail
        self.tails.append(tail)
        return tail


class FrameCursor:
    """Reads the fields of a frame; raises Unusual or StructError beyond its end."""

    def __init__(self, frame: memoryview) -> None:
        self.frame = frame
        self.at = 0
        self.is_flexible = False

    @property
    def left(self) -> int:
        """The number of bytes that were not read."""
        return len(self.frame) - self.at

    def next(self, fields: Struct) -> tuple[int, ...]:
        """Read some fields."""
        values = fields.unpack_from(self.frame, self.at)
        self.at += fields.size
        return values

    def take(self, size: int) -> bytes:
        """Read `size` bytes."""
        start = self._skip(size)
        return bytes(self.frame[start : start + size])

    def at_bytes(self) -> tuple[int, int]:
        """Read bytes behind their length; return their position and length."""
        size = self.count()
        return self._skip(size), size

    def count(self) -> int:
        """Read the length of an array or of bytes; null is -1."""
        return self.varint() - 1 if self.is_flexible else self.next(_I32)[0]

    def varint(self) -> int:
        """Read an unsigned varint of at most 31 bits in at most 5 bytes."""
        value = shift = 0
        while shift < 35:
            byte = self.frame[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > _SEQUENCE_MASK:
                    break
                return value
            shift += 7
        raise Unusual

    def no_tags(self) -> None:
        """Read an empty list of tagged fields, in a flexible version."""
        if self.is_flexible and self.take(1) != b"\0":
            raise Unusual

    def _skip(self, size: int) -> int:
        if not 0 <= size <= self.left:
            raise Unusual
        start = self.at
        self.at += size
        return start


def _place(parts: Sequence[tuple[int, RunTail, memoryview]]) -> list[PlacedPart]:
    placed = []
    for partition, tail, batch in parts:
        placed.append((partition, tail, tail.next_offset))
        tail.place(batch, parse_header(batch))
    return placed


def _encode(
    correlation_id: int, version: int, topics: Sequence[tuple[bytes, Sequence[PlacedPart]]]
) -> bytes:
    """Return the response to a placed request: its size, its header and its body."""
    flexible = version >= FLEXIBLE
    no_tags = b"\0" if flexible else b""
    out = [_I32.pack(correlation_id), no_tags, encode_count(len(topics), flexible)]
    for title, parts in topics:
        out += (title, encode_count(len(parts), flexible))
        for partition, tail, base_offset in parts:
            if version >= 5:
                start = tail.log_start_offset
                out.append(_RESULT_5.pack(partition, 0, base_offset, _NONE, start))
            else:
                out.append(_RESULT.pack(partition, 0, base_offset, _NONE))
            if flexible:
                out.append(b"\1\0\0")  # no record errors, no message, no tagged fields
            elif version >= 8:
                out.append(b"\0\0\0\0\xff\xff")
        out.append(no_tags)
    out += (_I32.pack(0), no_tags)  # throttle time
    body = b"".join(out)
    return _SIZE.pack(len(body)) + body


def encode_count(count: int, flexible: bool) -> bytes:
    """Return the length of an array."""
    if not flexible:
        return _I32.pack(count)
    left, out = count + 1, bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
