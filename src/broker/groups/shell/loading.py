"""Reading a partition of `__consumer_offsets` into a shard, in slices that let the loop run."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

from ....errors import CorruptionError
from ....records import Record, decode_all, iterate_batches
from ....storage import Log
from ....storage.shell.directory import Directory
from ..formats import decode
from ..records import GroupRecord

_LOG = logging.getLogger("quorumlog.groups")

READ_BYTES: Final = 256 << 10
"""Of one read; one larger batch is read whole."""
RECORDS_A_STEP: Final = 200
"""Records that are taken in before others get the loop: about two milliseconds."""


async def stored_records(
    directory: Directory, log: Log, *, end_offset: int, partition: int
) -> AsyncIterator[GroupRecord | None]:
    """Yield the records of [log start, end_offset) in their order, and None where others had the
    loop: the caller may be wanted no more.

    What is damaged is told in the journal and passed over, a record or a batch. Raises
    StorageError, Overloaded.
    """
    offset, taken = log.log_start_offset, 0
    while offset < end_offset:
        found = log.read(offset, max_bytes=READ_BYTES, end_offset=end_offset, min_one=True)
        if found is None:
            return
        content = await directory.read(found)
        if not content:
            return
        for record in _decoded(content, offset, end_offset, partition):
            group_record = _decode(record, partition)
            if group_record is not None:
                yield group_record
            taken += 1
            if taken % RECORDS_A_STEP == 0:
                await asyncio.sleep(0)
                yield None
        offset = max(offset + 1, found.end_of(content))
        yield None


def _decoded(content: bytes, start: int, end: int, partition: int) -> list[Record]:
    """Return the records of [start, end); without those of a damaged batch."""
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
        return decode(record.key, record.value, offset=record.offset, partition=partition)
    except CorruptionError as error:
        _LOG.error(
            "groups.damaged_record partition=%d offset=%d error=%s",
            partition,
            record.offset,
            error,
        )
        return None
