"""Deletion of the first records of partitions, concurrently and independently.

Records above the high watermark are not deleted. The new log start offset is durable before the
answer.
"""

import asyncio
from collections.abc import Callable, Sequence

from ...errors import OffsetOutOfRange, QuorumlogError
from ...storage.shell.data_directory import DataDirectory
from ..requests import DeletionOutcome, DeletionSpec
from .replica import Replica


async def delete_records(
    directory: DataDirectory,
    find: Callable[[str, int, bytes], Replica],
    specs: Sequence[DeletionSpec],
) -> list[DeletionOutcome]:
    """Delete the records of the specs. A failure does not affect other partitions. Opens closed
    logs.

    `find` returns the replica of (topic, partition, topic id), or raises the reason why there is
    none.
    """

    async def delete(spec: DeletionSpec) -> DeletionOutcome:
        try:
            replica = find(spec.topic, spec.partition, spec.topic_id)
            log = await replica.opened()
            replica.partition.check_leader(None)
            log.note_high_watermark(replica.partition.high_watermark)
            start = await directory.delete_records(log, spec.before_offset)
            replica.start_moved()
            return DeletionOutcome(spec, start)
        except OffsetOutOfRange as error:
            place = OffsetOutOfRange(error.message, topic=spec.topic, partition=spec.partition)
            return DeletionOutcome(spec, -1, place)
        except QuorumlogError as error:
            return DeletionOutcome(spec, -1, error)

    return await asyncio.gather(*map(delete, specs))
