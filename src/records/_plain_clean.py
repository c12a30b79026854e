"""Compaction's part of the codec in plain Python: what defines the other, in `_codec_clean.pxi`.

The newest offset of each key, and what of a body stays. The loops over whole batches may stop in
front of any batch, and here they take none: their caller goes batch by batch then.
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
    """The newest offset of each key, of so many keys that nine of ten slots are taken.

    A key is known by a hash of 128 bits under the seed, and so costs the same whatever its size.
    Two of n keys share one with a probability below n^2 / 2^129: for the five million that 128 MiB
    hold, 4e-26. Nobody who does not know the seed can do better than that chance, and a round draws
    a new one. (Here the hash is BLAKE2b; compiled, SipHash-2-4 with 128 bits, at 24 bytes a slot.)
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
        """Keys in the map."""
        return len(self._offsets)

    def offset_of(self, key: Buffer) -> int:
        """Return the newest offset noted for a key, -1 when there is none."""
        return self._offsets.get(self._hash(key), NO_OFFSET)

    def put(self, key: Buffer, offset: int) -> bool:
        """Note an offset; False when the map has no room for another key."""
        hashed = self._hash(key)
        known = self._offsets.get(hashed)
        if known is None and len(self._offsets) >= self.capacity:
            return False
        self._offsets[hashed] = offset if known is None else max(known, offset)
        return True

    def _hash(self, key: Buffer) -> bytes:
        return blake2b(key, digest_size=HASH_SIZE, key=self._seed).digest()


class Sieve:
    """Notes the keys of batches, then keeps of batches what is newest.

    Keys are noted in [first_offset, end_offset). A record below `end_offset` stays when it has a
    key of which the map knows nothing newer, unless it is a tombstone below `first_offset` whose
    batch is due. Everything from `end_offset` on stays.
    """

    def __init__(self, keys: KeyMap, first_offset: int, end_offset: int, wall_ms: int) -> None:
        self.keys = keys
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.wall_ms = wall_ms  # a batch is due when its delete horizon is not later
        self.next_offset = 0  # the least that the next batch may start at
        self.leader_epoch = -1  # the least that it may have
        self.records_read = 0  # filtered
        self.records_kept = 0
        self._stays: list[int] = []
        self._output = bytearray()
        self._notes: array[int] = array("q")

    def keep_batches(self, last_offsets: Iterable[int]) -> None:
        """Let the batches that end there stay, even when none of their records does."""
        self._stays = sorted(last_offsets)

    def stays_empty(self, last_offset: int) -> bool:
        """Whether the batch is one of `keep_batches`."""
        at = bisect_left(self._stays, last_offset)
        return at < len(self._stays) and self._stays[at] == last_offset

    def map_batches(self, buffer: Buffer, position: int) -> int:
        """Note the keys of usual batches from `position` on; return where it stopped.

        That is in front of a batch that reaches beyond the buffer, does not start below
        `end_offset`, or wants a look: it is compressed, of a transaction, full of new keys, wrong.
        """
        return _checked(buffer, position)

    def map_body(self, body: Body) -> int:
        """Note the keys of a body; return the offset of the first for which there was no room, or
        -1. Raises Malformed, and has noted none then."""
        full = NO_OFFSET
        for record in list(_records(body)):
            if record.key is None or full != NO_OFFSET:
                continue
            is_wanted = self.first_offset <= record.offset < self.end_offset
            if is_wanted and not self.keys.put(record.key, record.offset):
                full = record.offset
        return full

    def filter_batches(self, buffer: Buffer, position: int) -> int:
        """Put out what stays of usual batches from `position` on; return where it stopped.

        That is in front of a batch that reaches beyond the buffer or wants a look: it is
        compressed, of a transaction, gets a delete horizon, or is wrong.
        """
        return _checked(buffer, position)

    def filter_body(self, body: Body, is_due: bool) -> tuple[memoryview | None, int, int, bool]:
        """Return (records, count, max timestamp, has tombstones) of what stays of a body.

        The records are None when all of them stay. Raises Malformed.
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
        """Put a batch out behind the others."""
        self._output += batch
        self._notes.extend((len(batch), last_offset, max_timestamp))

    def take(self) -> tuple[memoryview, memoryview]:
        """Return the batches put out since the last call, and (size, last offset, max timestamp)
        of each as int64."""
        output, notes = self._output, self._notes
        self._output, self._notes = bytearray(), array("q")
        return memoryview(output), memoryview(notes)


class _Found(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    is_tombstone: bool
    raw: memoryview  # all its bytes


def _checked(buffer: Buffer, position: int) -> int:
    if not 0 <= position <= len(buffer):
        raise ValueError(f"position {position} in a buffer of {len(buffer)} bytes")
    return position


def _records(body: Body) -> Iterator[_Found]:
    """Yield the records of a body; raises Malformed where one is wrong."""
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
    """Return the records of a body with `by` added to each timestamp delta; raises Malformed,
    OverflowError when a delta or a record's length leaves its range."""
    if not INT64_MIN <= by <= INT64_MAX:
        raise _no_fit(0, by)
    reader = _Reader(body)
    output = bytearray()
    for reader.index in range(body.record_count):
        start = reader.position
        delta = reader.record()[0] + by
        end = reader.position
        reader.position = start
        reader.varint(end, 5)  # once more: length, attributes, the old delta
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
