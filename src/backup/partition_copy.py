"""The backup of one partition: reused objects, and new ones for records that the store lacks."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..clients.mirror.batches import PreparedBatches
from ..errors import BackupIncomplete, OffsetOutOfRange
from ..records.checksum import crc32c
from ..runtime import Buffer, Runtime, Scope
from .catalog import damage_of
from .manifest import BackupPartition, StoredRange, range_path
from .objectstore import ObjectStore
from .plan import ReusedRange, reusable_ranges
from .source_partition import SourcePartition

OBJECT_BYTES: Final = 16 << 20
"""Size at which a data object ends. A partition has two objects and a response in memory."""


@dataclass(slots=True)
class _Content:
    """The batches of one object."""

    parts: list[Buffer] = field(default_factory=list)
    size: int = 0
    records: int = 0
    end: int = -1  # after the last batch; -1: none
    next_offset: int = -1

    def add(self, found: PreparedBatches) -> None:
        if found.size:
            self.parts += found.parts
            self.size += found.size
            self.records += found.count
            self.end = found.end_offset
        self.next_offset = found.next_offset


class PartitionCopy:
    """Stores the committed records of [start, end) of one partition."""

    def __init__(
        self,
        runtime: Runtime,
        store: ObjectStore,
        reader: SourcePartition,
        *,
        topic_id: str,
        index: int,
        start: int,
        end: int,
        is_compacted: bool,
        proven: Sequence[StoredRange],
        listed: Sequence[StoredRange],
        on_store: Callable[[int], None],
    ) -> None:
        """`proven` and `listed`: see `reusable_ranges`. `is_compacted`: the log's cleaner may have
        removed records since. `on_store` gets the size of each new object."""
        self._runtime = runtime
        self._store = store
        self._reader = reader
        self._topic_id = topic_id
        self._index = index
        self._start = start
        self._end = end
        self._is_compacted = is_compacted
        self._proven = frozenset(proven).intersection(listed)
        self._on_store = on_store
        self._reusable = reusable_ranges(proven, listed, start=start, end=end)
        self._ranges: list[StoredRange] = []
        self._put: asyncio.Task[None] | None = None  # of the newest object

    async def run(self) -> BackupPartition:
        """Store what the store lacks, and return the partition.

        Its start is above the captured one if retention deleted records before they were read.
        Raises BackupIncomplete if the topic was deleted or lost records.
        """
        stops = [self._end]
        if self._is_compacted:
            # An old object may have a record of which the log has removed even the tombstone.
            # So all is read again, in the same ranges: those of a backup are not stored again.
            stops = [each.stored.end for each in self._reusable] + stops
        else:
            self._ranges = [each.stored for each in await self._valid(self._reusable)]
        at = self._ranges[-1].end if self._ranges else self._start
        async with self._runtime.tasks.scope("objects") as scope:
            for stop in stops:
                while at < stop:
                    try:
                        content = await self._read(at, stop)
                    except OffsetOutOfRange:
                        at = await self._skip_deleted(at)
                        continue
                    if content.size:
                        is_range = content.next_offset == stop and stop != self._end
                        await self._keep(scope, content, stop if is_range else content.end)
                    at = content.next_offset
        return BackupPartition(self._start, self._end, self._ranges)

    async def _valid(self, reusable: Sequence[ReusedRange]) -> list[ReusedRange]:
        """Return the reusable ranges that the source still has.

        A batch of equal offsets and leader epoch in two logs proves that everything below is equal,
        too. So of the ranges in the newest backup only the last one is compared, of others each.
        """
        proven = [each for each in reusable if each.is_proven]
        others = [each for each in reusable if not each.is_proven]
        while proven and not await self._is_equal(proven[-1].stored):
            proven.pop()
            others = []
        for each in others:
            if not await self._is_equal(each.stored) or await self._is_damaged(each.stored):
                break
            proven.append(each)
        return proven

    async def _is_equal(self, stored: StoredRange) -> bool:
        """Return True if an object ends with the source's batch of its last offset."""
        try:
            batch = await self._reader.batch_before(stored.end)
        except OffsetOutOfRange:
            return False
        if not 0 < len(batch) <= stored.size:
            return False
        path = range_path(self._topic_id, self._index, stored)
        return batch == await self._store.get_end(path, len(batch), of=stored.size)

    async def _is_damaged(self, stored: StoredRange) -> bool:
        """Return True if an object without a manifest is not whole: a power loss during its put."""
        path = range_path(self._topic_id, self._index, stored)
        return bool(await damage_of(self._store, path, stored))

    async def _read(self, offset: int, stop: int) -> _Content:
        """Read the content of the next object."""
        content = _Content(next_offset=offset)
        while content.size < OBJECT_BYTES and content.next_offset < stop:
            content.add(await self._reader.read(content.next_offset, stop))
        return content

    async def _skip_deleted(self, offset: int) -> int:
        """Start at the log's new start, after retention deleted records that were not read yet."""
        start = await self._reader.start()
        if start <= offset:
            raise BackupIncomplete(
                f"partition {self._index} ends before offset {offset}: it lost committed records"
                " during the backup"
            )
        self._start = min(start, self._end)
        self._ranges.clear()  # all of them are below
        return self._start

    async def _keep(self, scope: Scope, content: _Content, end: int) -> None:
        """Add an object of the batches up to `end`; store it unless an earlier backup has it."""
        first = self._ranges[-1].end if self._ranges else self._start
        crc = 0
        for part in content.parts:
            crc = crc32c(part, crc)
        stored = StoredRange(first, end, content.records, content.size, crc)
        self._ranges.append(stored)
        if self._put is not None:
            await self._put
        if stored not in self._proven:
            whole = b"".join(content.parts)
            self._put = scope.spawn(self._store_object(stored, whole), name="put")

    async def _store_object(self, stored: StoredRange, whole: bytes) -> None:
        await self._store.put(range_path(self._topic_id, self._index, stored), whole)
        self._on_store(stored.size)
