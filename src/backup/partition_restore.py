"""The restore of one partition: appends of its stored batches, at their offsets.

The target's end is the only state. Whatever ended the attempt before, the next append continues
there, so a repeat causes neither holes nor duplicates.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from ..clients.connection import Connection
from ..clients.mirror.source import ClusterSource, PartitionFetch
from ..clients.mirror.target import CopyBounds, CopyChunk, Target
from ..clients.offsets import PartitionLike
from ..errors import (
    BackupDamaged,
    BackupIncomplete,
    CorruptionError,
    MirrorOutOfPlace,
    QuorumlogError,
    TimedOut,
)
from ..records.batch import (
    BATCHES_MAX,
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    iterate_batches,
    without_records,
)
from ..runtime import Buffer, Runtime, Scope
from .bandwidth import Bandwidth
from .catalog import content_damage
from .manifest import OBJECT_BYTES_MAX, BackupPartition, StoredRange, range_path
from .objectstore import ObjectStore
from .plan import SPAN_MAX

CHUNK_BYTES: Final = 4 << 20  # of one append, or one larger batch


class StoredPartition:
    """The data objects of one partition, verified when they are read; one is read ahead."""

    def __init__(
        self,
        scope: Scope,
        store: ObjectStore,
        topic_id: str,
        index: int,
        ranges: Sequence[StoredRange],
    ) -> None:
        self._scope = scope
        self._store = store
        self._topic_id = topic_id
        self._index = index
        self._ranges = ranges
        self._ahead: dict[int, asyncio.Task[bytes]] = {}  # by position in the ranges

    def position(self, offset: int) -> int | None:
        """Return the position of the range with this offset, None if there is none."""
        position = bisect_right(self._ranges, offset, key=lambda each: each.end)
        if position < len(self._ranges) and self._ranges[position].first <= offset:
            return position
        return None

    async def content(self, position: int) -> bytes:
        """Return the content of a range. Raises BackupDamaged."""
        task = self._ahead.pop(position, None) or self._read(position)
        for other in self._ahead.values():  # of an earlier attempt
            other.cancel()
        self._ahead.clear()
        content = await task
        if position + 1 < len(self._ranges):
            self._ahead[position + 1] = self._read(position + 1)
        return content

    def _read(self, position: int) -> asyncio.Task[bytes]:
        return self._scope.spawn(self._verified(self._ranges[position]), name="object")

    async def _verified(self, stored: StoredRange) -> bytes:
        path = range_path(self._topic_id, self._index, stored)
        content = await self._store.get(path, size_max=OBJECT_BYTES_MAX)
        damage = content_damage(content, stored)
        if damage or content is None:
            raise BackupDamaged(
                f"{self._store.url}/{path}: {damage}; restore another backup, and find all damage"
                " with `quorumlog backup verify`"
            )
        return content


def chunks_from(content: bytes, stored: StoredRange, offset: int) -> Iterator[tuple[Buffer, int]]:
    """Yield the batches from an offset on in chunks of CHUNK_BYTES and at most BATCHES_MAX batches,
    each with its end offset.

    Raises BackupDamaged unless the content is whole plain batches within the range, in ascending
    order. The brokers check each batch's CRC.
    """
    view = memoryview(content)
    begin, count, at = 0, 0, stored.first
    end = offset
    try:
        for position, header in iterate_batches(content):
            is_plain = not header.attributes & (CONTROL_BIT | TRANSACTIONAL_BIT)
            if not (at <= header.base_offset < header.next_offset <= stored.end and is_plain):
                raise _malformed(stored, f"a batch of offset {header.base_offset} is out of place")
            at = header.next_offset
            if header.next_offset <= offset:
                begin = position + header.size
                continue
            if header.base_offset < offset:
                raise _malformed(stored, f"offset {offset} is inside of a batch")
            is_large = position + header.size - begin > CHUNK_BYTES and position > begin
            if is_large or count == BATCHES_MAX:
                yield view[begin:position], end
                begin, count = position, 0
            count += 1
            end = header.next_offset
    except CorruptionError as error:
        raise _malformed(stored, f"{error}") from None
    if begin < len(content):
        yield view[begin:], end


class PartitionRestore:
    """Appends the records of a partition to a topic that a restore has created."""

    def __init__(
        self,
        runtime: Runtime,
        connection: Connection,
        store: ObjectStore,
        place: PartitionLike,
        mark: str,
        *,
        topic_id: str,
        partition: BackupPartition,
        bandwidth: Bandwidth,
    ) -> None:
        """`place` is in the target, `mark` its topic's mirror.source, `topic_id` the backup's."""
        self._runtime = runtime
        self._connection = connection
        self._target = Target(connection)
        self._store = store
        self._place = place
        self._mark = mark
        self._topic_id = topic_id
        self._partition = partition
        self._bandwidth = bandwidth
        self.size = 0  # bytes that were appended

    async def run(self) -> None:
        """Append what the target lacks, and delete the records below the start. The end is that of
        the backup when this returns.

        Raises BackupDamaged, BackupIncomplete if the target has more, and the errors of the target
        and the store.
        """
        end, partition = (await self._append(0, ())).end, self._partition
        async with self._runtime.tasks.scope("objects") as scope:
            stored = StoredPartition(
                scope, self._store, self._topic_id, self._place[1], partition.ranges
            )
            while end < partition.end:
                position = stored.position(end)
                if position is None:
                    end = await self._fill(end, self._next_stored(end))
                else:
                    content = await stored.content(position)
                    end = await self._append_range(content, partition.ranges[position], end)
            scope.cancel()
        if end > partition.end:
            raise BackupIncomplete(
                f"the target's log ends at offset {end}, beyond the backup's end {partition.end};"
                " delete the topic and restore it again",
                topic=self._place[0],
                partition=self._place[1],
            )
        bounds = await self._connection.repeat(lambda _: self._committed(end))
        if bounds.start < partition.start:
            await self._target.delete_before(self._place[0], {self._place[1]: partition.start})

    def _next_stored(self, offset: int) -> int:
        """Return the first offset above one without an object that has one, or the end."""
        ranges = self._partition.ranges
        return ranges[0].first if ranges and offset < ranges[0].first else self._partition.end

    async def _append_range(self, content: bytes, stored: StoredRange, end: int) -> int:
        """Append a range's batches from the log's end on; return the new end, that of the range
        unless the log's end was another one."""
        for records, chunk_end in chunks_from(content, stored, end):
            first = next(iterate_batches(records))[1].base_offset
            if first - end >= SPAN_MAX:
                end = await self._fill(end, first)
            found = (await self._append(end, (records,))).end
            if found != chunk_end:
                return found
            await self._bandwidth.spend(len(records))
            self.size += len(records)
            end = chunk_end
        return end if end >= stored.end else await self._fill(end, stored.end)

    async def _fill(self, end: int, next_offset: int) -> int:
        """Append batches without records up to an offset: the log ends there, as the source did
        before records were compacted, aborted or markers."""
        while end < next_offset:
            to = min(end + SPAN_MAX, next_offset)
            found = (await self._append(end, (without_records(end, to),))).end
            if found != to:
                return found
            end = to
        return end

    async def _committed(self, end: int) -> CopyBounds:
        """Return the bounds; raise TimedOut, a retriable error, until the end is committed."""
        bounds = await self._append(end, ())
        if bounds.high_watermark < end:
            raise TimedOut(
                f"the log is committed up to offset {bounds.high_watermark} and ends at {end}; its"
                " replicas lag",
                topic=self._place[0],
                partition=self._place[1],
            )
        return bounds

    async def _append(self, end: int, parts: Sequence[Buffer]) -> CopyBounds:
        """Append at the log's end and return the bounds; without parts, or if the log ends
        elsewhere, only return them."""

        async def attempt(_: int) -> CopyBounds:
            address = await self._target.leader(self._place)
            chunk = CopyChunk(self._place, self._mark, end, parts)
            try:
                (found,) = await self._target.append(address, [chunk])
            except QuorumlogError:
                self._target.leader_failed(self._place)
                raise
            if found.error is None or (
                isinstance(found.error, MirrorOutOfPlace) and found.end >= 0
            ):
                return found
            self._target.leader_failed(self._place, found.error)
            raise found.error

        return await self._connection.repeat(attempt)


async def has_end_of(
    connection: Connection,
    store: ObjectStore,
    place: PartitionLike,
    *,
    topic_id: str,
    partition: BackupPartition,
) -> bool:
    """Return True if a partition of the target has the records of a backup: it begins and ends
    around them, and has the batch of the last stored offset.

    A restored batch has its source's leader epoch in place of a sequence, so an equal batch is of
    the same log.
    """
    reader = ClusterSource(connection)
    start, end = await reader.bounds(place)
    if start < partition.start or end < partition.end:
        return False
    if not partition.ranges:
        return True
    last = partition.ranges[-1]
    if start >= last.end:
        return False  # nothing is left to compare

    async def attempt(_: int) -> bytes:
        address, epoch = await reader.leadership(place)
        want = PartitionFetch(place, last.end - 1, epoch, 1)
        (piece,) = await reader.fetch(address, [want], max_wait_ms=0)
        if piece.error is not None:
            reader.leader_failed(place, piece.error)
            raise piece.error
        return b"".join(
            bytes(memoryview(piece.records)[position : position + header.size])
            for position, header in iterate_batches(piece.records)
            if header.base_offset < last.end
        )

    batch = await connection.repeat(attempt)
    path = range_path(topic_id, place[1], last)
    if not 0 < len(batch) <= last.size:
        return False
    stored = await store.get_end(path, len(batch), of=last.size)
    return _without_epoch(batch) == _without_epoch(stored)


def _without_epoch(batch: bytes) -> bytes:
    """Return a batch without its leader epoch, which the target's leader sets."""
    return batch[:12] + batch[16:]


def _malformed(stored: StoredRange, reason: str) -> BackupDamaged:
    return BackupDamaged(
        f"the object of offsets {stored.first} to {stored.end}: malformed: {reason}; restore"
        " another backup"
    )
