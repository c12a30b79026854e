"""Administration of logs: disk usage, producer ids, and deletion of records."""

import asyncio
from collections.abc import Collection, Sequence

from ...errors import OffsetOutOfRange, QuorumlogError, TimedOut
from ...metadata import check_not_internal
from ...runtime import Clock
from ...storage import Log
from ...storage.shell.data_directory import DataDirectory
from ..requests import ActiveProducer, DeletionOutcome, DeletionSpec, ReplicaSize
from .hosted_replicas import HostedReplicas
from .replica import Replica


class LogAdmin:
    """Administration of the logs of one node."""

    def __init__(self, clock: Clock, directory: DataDirectory, hosted: HostedReplicas) -> None:
        self._clock = clock
        self._directory = directory
        self._hosted = hosted

    async def log_sizes(
        self, topics: Collection[str], *, timeout_ms: int | None = None
    ) -> list[ReplicaSize]:
        """Return the disk usage of the partitions of some topics, or (none named) of all, by
        ascending topic and index.

        Closed logs are opened one by one. Logs that are not open at the timeout have an error
        instead. None: no timeout.
        """
        clock = self._clock
        end_ms = None if timeout_ms is None else clock.now_ms() + timeout_ms
        held = ((each.partition.topic, each.partition.index) for each in self._hosted)
        wanted = sorted(key for key in held if not topics or key[0] in topics)
        sizes = []
        for topic, index in wanted:
            replica = self._hosted.find(topic, index)
            if replica is None:
                continue  # deleted while this call waited
            try:
                log = await _opened_by(replica, None if end_ms is None else end_ms - clock.now_ms())
            except QuorumlogError as error:
                sizes.append(ReplicaSize(topic=topic, partition=index, error=error))
                continue
            sizes.append(
                ReplicaSize(
                    topic=topic,
                    partition=index,
                    size_bytes=log.size_bytes,
                    log_start_offset=log.log_start_offset,
                    log_end_offset=log.log_end_offset,
                )
            )
        return sizes

    async def producers(self, topic: str, partition: int) -> list[ActiveProducer]:
        """Return the producers in the log of a partition by ascending id; raise the errors of
        `HostedReplicas.replica_of`, and of the log.

        Batches without a sequence, as a group coordinator writes, and markers are not remembered by
        their timestamp. Then it is the time of the append: the age of an open transaction depends
        on it.
        """
        log = await self._hosted.replica_of(topic, partition).opened()
        states = log.producers.states
        return [
            ActiveProducer(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
                last_timestamp_ms=(
                    entry.batches[-1].timestamp
                    if entry.batches
                    else states.wall_ms - (states.age_ms - entry.touched_ms)
                ),
                coordinator_epoch=entry.coordinator_epoch,
                transaction_start=entry.transaction_start,
            )
            for producer_id, entry in sorted(states.entries())
        ]

    async def delete_records(self, specs: Sequence[DeletionSpec]) -> list[DeletionOutcome]:
        """Delete the first records of partitions concurrently; a failure affects only its
        partition.

        Records above the last stable offset are not deleted, nor those of internal topics. The new
        log start offset is durable before the answer. Opens closed logs.
        """
        return await asyncio.gather(*map(self._delete, specs))

    async def _delete(self, spec: DeletionSpec) -> DeletionOutcome:
        try:
            check_not_internal(spec.topic)
            replica = self._hosted.replica_of(spec.topic, spec.partition, spec.topic_id)
            log = await replica.opened()
            replica.partition.check_leader(None)
            log.note_high_watermark(replica.partition.high_watermark)
            start = await self._directory.truncation.delete_records(log, spec.before_offset)
            replica.watchers.log_start_moved()
            return DeletionOutcome(spec, start)
        except OffsetOutOfRange as error:
            place = OffsetOutOfRange(error.message, topic=spec.topic, partition=spec.partition)
            return DeletionOutcome(spec, -1, place)
        except QuorumlogError as error:
            return DeletionOutcome(spec, -1, error)


async def _opened_by(replica: Replica, left_ms: int | None) -> Log:
    """Return the log if it opens in time. An open continues after the timeout, but none is started
    then. Raises TimedOut."""
    if left_ms is not None and left_ms <= 0 and not replica.is_open:
        raise _timed_out()
    try:
        async with asyncio.timeout(None if left_ms is None else max(left_ms, 0) / 1000):
            return await replica.opened()
    except TimeoutError:
        raise _timed_out() from None


def _timed_out() -> TimedOut:
    return TimedOut("the log was not opened in time; retry, or name fewer topics")
