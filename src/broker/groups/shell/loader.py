"""Reads a partition of `__consumer_offsets` in slices, between which the event loop runs."""

import asyncio
import logging
from collections import deque
from dataclasses import replace
from typing import Final

from ....errors import CorruptionError
from ....records import Record, decode_all, iterate_batches
from ....storage import Log
from ....storage.shell.data_directory import DataDirectory
from ..formats import decode
from ..records import GroupRecord, TargetEpoch

_LOG = logging.getLogger("quorumlog.groups")

READ_BYTES: Final = 256 << 10
"""The size of one read; a larger batch is read whole."""
RECORDS_A_STEP: Final = 200
"""Records decoded in one slice: about two milliseconds."""


class GroupLogReader:
    """Reads the records of [log start, `end_offset`) of a partition, in order.

    A damaged record or batch is logged and skipped.
    """

    def __init__(
        self, directory: DataDirectory, log: Log, *, end_offset: int, partition: int
    ) -> None:
        self._reader = directory.reader
        self._log = log
        self._end_offset = end_offset
        self._partition = partition
        self._offset: int = log.log_start_offset
        self._read: deque[Record] = deque()  # read and not decoded

    async def take(self) -> list[GroupRecord] | None:
        """Return the next records, possibly none, and None at the end. Each call yields to the
        event loop.

        Raises DiskFailed, Overloaded.
        """
        await asyncio.sleep(0)
        if not self._read and not await self._fill():
            return None
        taken = [self._read.popleft() for _ in range(min(RECORDS_A_STEP, len(self._read)))]
        found = [_decode(record, self._partition) for record in taken]
        return [record for record in found if record is not None]

    async def _fill(self) -> bool:
        """Read the next bytes; return False at the end."""
        if self._offset >= self._end_offset:
            return False
        found = self._log.read(
            self._offset, max_bytes=READ_BYTES, end_offset=self._end_offset, min_one=True
        )
        if found is None:
            return False
        content = await self._reader.read(found)
        # The content may be empty: the read may find that compaction has removed everything up to
        # the next segment.
        end = found.end_of(content) if content else found.next_offset
        self._read.extend(_decoded(content, self._offset, self._end_offset, self._partition))
        self._offset = max(self._offset + 1, end)
        return True


def _decoded(content: bytes, start: int, end: int, partition: int) -> list[Record]:
    """Return the records of [start, end), without those of a damaged batch."""
    try:
        return decode_all(content, start_offset=start, end_offset=end)
    except CorruptionError:
        pass
    records: list[Record] = []
    view = memoryview(content)
    try:
        for position, header in iterate_batches(view):
            batch = view[position : position + header.size]
            try:
                records += decode_all(batch, start_offset=start, end_offset=end)
            except CorruptionError as error:
                _LOG.error(
                    "groups.damaged_batch partition=%d offset=%d error=%s",
                    partition,
                    header.base_offset,
                    error,
                )
    except CorruptionError as error:
        _LOG.error("groups.damaged_batch partition=%d offset=%d error=%s", partition, start, error)
    return records


def _decode(record: Record, partition: int) -> GroupRecord | None:
    try:
        found = decode(record.key, record.value, offset=record.offset, partition=partition)
        if isinstance(found, TargetEpoch):
            return replace(found, stored_ms=record.timestamp_ms)
        return found
    except CorruptionError as error:
        _LOG.error(
            "groups.damaged_record partition=%d offset=%d error=%s",
            partition,
            record.offset,
            error,
        )
        return None
