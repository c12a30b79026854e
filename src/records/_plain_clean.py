"""The codec's part for compaction in plain Python: the reference for `_codec_clean.pxi`.

It maps keys to their newest offsets and filters the records of batches. The compiled loops over
whole batches may stop before any batch. The loops here always stop at once, so the caller processes
each batch by itself.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from ._plain import _put_varint, _Reader
from .compression import Buffer
from .record import INT32_MAX, INT64_MAX, INT64_MIN, Body, Fault

SEED_SIZE: Final = 16
HASH_SIZE: Final = 16
NO_OFFSET: Final = -1


class KeyMap:
    """The newest offset of each key; at most nine of ten slots are used.

    A key is identified by a 128-bit hash under the seed, so every key costs the same memory. Two of
    n keys collide with a probability below n^2 / 2^129: 4e-26 for the five million keys that 128
    MiB hold. An attacker without the seed cannot raise that probability, and each cleaning run
    draws a new seed. (The hash is BLAKE2b here; compiled, SipHash-2-4 with 128 bits, at 24 bytes a
    slot.)
    """

    def __init__(self, slot_count: int, seed: Buffer) -> None:
        if not 2 <= slot_count <= 1 << 32:
            raise ValueError(f"{slot_count} slots")
        if len(seed) < SEED_SIZE:
            raise ValueError(f"a buffer of {len(seed)} bytes, {SEED_SIZE} are needed")
        self.capacity = slot_count * 9 // 10
        self._seed = bytes(seed[:SEED_SIZE])
        self._offsets: dict[bytes, int] = {}

    @property
    def count(self) -> int:
        """Number of keys in the map."""
        return len(self._offsets)

    def offset_of(self, key: Buffer) -> int:
        """Return the newest offset of a key, -1 if the map does not have it."""
        return self._offsets.get(self._hash(key), NO_OFFSET)

    def put(self, key: Buffer, offset: int) -> bool:
        """Record an offset of a key; return False if the map has no free slot for a new key."""
        hashed = self._hash(key)
        known = self._offsets.get(hashed)
        if known is None and len(self._offsets) >= self.capacity:
            return False
        self._offsets[hashed] = offset if known is None else max(known, offset)
        return True

    def _hash(self, key: Buffer) -> bytes:
        return blake2b(key, digest_size=HASH_SIZE, key=self._seed).digest()


class Sieve:
    """Builds the key map from batches, then filters batches by it.

    Keys are mapped in [first_offset, end_offset). A record below `end_offset` stays if its key has
    no newer offset in the map, unless it is a tombstone below `first_offset` in a batch that is
    due. All records from `end_offset` stay.
    """

    def __init__(self, keys: KeyMap, first_offset: int, end_offset: int, wall_ms: int) -> None:
        self.keys = keys
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.wall_ms = wall_ms  # ms; a batch is due if its delete horizon is not later
        self.next_offset = 0  # lowest valid base offset of the next batch
        self.leader_epoch = -1  # lowest valid leader epoch of the next batch
        self.records_read = 0  # passed through the filter
        self.records_kept = 0
        self._stays: list[int] = []
        self._output = bytearray()
        self._notes: array[int] = array("q")

    def keep_batches(self, last_offsets: Iterable[int]) -> None:
        """Keep the batches with these last offsets, even without records."""
        self._stays = sorted(last_offsets)

    def stays_empty(self, last_offset: int) -> bool:
        """Return True if the batch is listed in `keep_batches`."""
        at = bisect_left(self._stays, last_offset)
        return at < len(self._stays) and self._stays[at] == last_offset

    def map_batches(self, buffer: Buffer, position: int) -> int:
        """Add the keys of plain batches from `position`; return the position of the first batch not
        processed.

        Processing stops at a batch that reaches beyond the buffer, starts at or above `end_offset`,
        is compressed or transactional, has keys that do not fit into the map, or is invalid.
        """
        return _checked(buffer, position)

    def map_body(self, body: Body) -> int:
        """Add the keys of a body; return the offset of the first key without a free slot, or -1.
        Raises Malformed, with no key added."""
        full = NO_OFFSET
        for record in list(_records(body)):
            if record.key is None or full != NO_OFFSET:
                continue
            is_wanted = self.first_offset <= record.offset < self.end_offset
            if is_wanted and not self.keys.put(record.key, record.offset):
                full = record.offset
        return full

    def filter_batches(self, buffer: Buffer, position: int) -> int:
        """Output the remaining part of plain batches from `position`; return the position of the
        first batch not processed.

        Processing stops at a batch that reaches beyond the buffer, is compressed or transactional,
        needs a delete horizon, or is invalid.
        """
        return _checked(buffer, position)

    def filter_body(self, body: Body, is_due: bool) -> tuple[memoryview | None, int, int, bool]:
        """Return (records, count, max timestamp, has tombstones) of the records of a body that
        stay.

        The records are None if all of them stay. Raises Malformed.
        """
        kept = []
        count = 0
        for record in _records(body):
            count += 1
            if self._keeps(record, is_due):
                kept.append(record)
        self.records_read += count
        self.records_kept += len(kept)
        return (
            None if len(kept) == count else memoryview(b"".join(record.raw for record in kept)),
            len(kept),
            max((record.timestamp_ms for record in kept), default=-1),
            any(record.is_tombstone for record in kept),
        )

    def _keeps(self, record: "_Found", is_due: bool) -> bool:
        if record.offset >= self.end_offset:
            return True
        if record.key is None:
            return False
        if record.is_tombstone and is_due and record.offset < self.first_offset:
            return False
        return self.keys.offset_of(record.key) <= record.offset

    def add(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Append a batch to the output."""
        self._output += batch
        self._notes.extend((len(batch), last_offset, max_timestamp))

    def take(self) -> tuple[memoryview, memoryview]:
        """Return the batches output since the last call, and (size, last offset, max timestamp) of
        each as int64."""
        output, notes = self._output, self._notes
        self._output, self._notes = bytearray(), array("q")
        return memoryview(output), memoryview(notes)


class _Found(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    is_tombstone: bool
    raw: memoryview  # all bytes of the record


def _checked(buffer: Buffer, position: int) -> int:
    if not 0 <= position <= len(buffer):
        raise ValueError(f"position {position} in a buffer of {len(buffer)} bytes")
    return position


def _records(body: Body) -> Iterator[_Found]:
    """Yield the records of a body; raises Malformed at an invalid record."""
    reader = _Reader(body)
    last_delta = -1
    for reader.index in range(body.record_count):
        start = reader.position
        timestamp_delta, delta, key, value, _ = reader.record()
        if not last_delta < delta <= body.last_offset_delta:
            raise reader.fault(Fault.OFFSET)
        last_delta = delta
        timestamp_ms = body.append_timestamp
        if timestamp_ms is None:
            timestamp_ms = body.base_timestamp + timestamp_delta
            if not INT64_MIN <= timestamp_ms <= INT64_MAX:
                raise reader.fault(Fault.TIMESTAMP)
        raw = reader.data[start : reader.position]
        yield _Found(body.base_offset + delta, timestamp_ms, key, value is None, raw)
    reader.index = body.record_count
    reader.finish()


def rebase_records(body: Body, by: int) -> memoryview:
    """Return the records of a body with `by` added to each timestamp delta; raises Malformed, and
    OverflowError if a delta or a record's length leaves its range."""
    if not INT64_MIN <= by <= INT64_MAX:
        raise _no_fit(0, by)
    reader = _Reader(body)
    output = bytearray()
    for reader.index in range(body.record_count):
        start = reader.position
        delta = reader.record()[0] + by
        end = reader.position
        reader.position = start
        reader.varint(end, 5)  # skip the length, the attributes and the old delta
        content = bytearray(reader.data[reader.position : reader.position + 1])
        reader.position += 1
        reader.varint(end, 10)
        if not INT64_MIN <= delta <= INT64_MAX:
            raise _no_fit(reader.index, by)
        _put_varint(content, delta)
        content += reader.data[reader.position : end]
        if len(content) > INT32_MAX:
            raise _no_fit(reader.index, by)
        _put_varint(output, len(content))
        output += content
        reader.position = end
    reader.index = body.record_count
    reader.finish()
    return memoryview(output)


def _no_fit(index: int, by: int) -> OverflowError:
    return OverflowError(f"record {index} does not fit with its timestamp moved by {by}")
