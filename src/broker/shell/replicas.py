"""The replica manager: every partition this node leads, and what the front doors ask of them.

Follows the metadata image delta by delta: becomes leader, takes new configs, deletes logs. All of
`apply` is bookkeeping without waiting, so an applied offset means that the partition serves; logs
open at their first request and deletions run behind. One writer a partition: the directory's owner
task, in the order of `submit`.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence

from ...errors import (
    NotLeaderOrFollower,
    QuorumlogError,
    StorageError,
    TimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...ids import NO_NODE, NodeId, TopicId
from ...metadata import (
    EMPTY_IMAGE,
    ImageDelta,
    PartitionImage,
    TopicImage,
    effective_configs,
)
from ...raftlog import METADATA_LOG_NAME
from ...records import check_size
from ...runtime import Buffer, Runtime, Scope
from ...storage import FlushPolicy, Log, LogConfig, Origin
from ...storage.shell.channel import Appended
from ...storage.shell.directory import Directory
from ...storage.shell.housekeeping import ClosedLog
from ..partition import Acks, LeaderState, Partition
from ..requests import (
    AppendResult,
    DeletionOutcome,
    DeletionSpec,
    FetchOutcome,
    FetchSpec,
    LogSize,
    OffsetOutcome,
    OffsetSpec,
    refuse_transactional,
)
from .appends import PendingAppend
from .deletions import delete_records
from .reads import Reads
from .replica import Replica

_LOG = logging.getLogger("quorumlog.broker")


class ReplicaManager:
    """The partitions of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        directory: Directory,
        node_id: NodeId,
        *,
        produce_waits_max: int,
        fetch_waits_max: int,
    ) -> None:
        self._runtime = runtime
        self._scope = scope
        self._directory = directory
        self._node_id = node_id
        self._produce_waits_max = produce_waits_max
        self._image = EMPTY_IMAGE
        self._replicas: dict[tuple[str, int], Replica] = {}
        self._deleting: dict[str, asyncio.Event] = {}  # by folder; set when it is gone
        self._reads = Reads(runtime.clock, directory, self.replica_of, waits_max=fetch_waits_max)
        directory.housekeeping.closed_logs = self._closed_logs

    # --- the image ----------------------------------------------------------------------------

    def apply(self, delta: ImageDelta) -> None:
        """Take one step of the metadata: what it names is served, or refused, when this returns."""
        self._image = delta.after
        settings = _TopicSettings()
        for change in delta.changed_partitions():
            if change.after is None:
                self._remove(change.topic, change.index)
            else:
                self._take(change.topic, change.index, change.after, settings)
        for before, after in delta.changed_topics():
            if before.configs != after.configs:
                for index, state in after.sorted_partitions():
                    self._take(after, index, state, settings)

    def _take(
        self, topic: TopicImage, index: int, state: PartitionImage, settings: "_TopicSettings"
    ) -> None:
        key = (topic.name, index)
        replica = self._replicas.get(key)
        if state.leader != self._node_id:
            if replica is not None:
                error = self._not_leader(topic.name, index, state)
                replica.resign(error, state.leader_epoch)
            return
        leader, config = settings.of(topic, state)
        if replica is not None:
            replica.lead(leader, config)
            return
        partition = Partition(
            topic=topic.name,
            index=index,
            node_id=self._node_id,
            waits_max=self._produce_waits_max,
        )
        self._replicas[key] = Replica(
            self._scope,
            self._directory,
            partition,
            topic_id=topic.id,
            leader=leader,
            config=config,
            after=self._deleting.get(partition.name),
        )

    def _remove(self, topic: TopicImage, index: int) -> None:
        replica = self._replicas.pop((topic.name, index), None)
        if replica is None:
            return
        replica.give_up(_unknown(topic.name, index))
        name = replica.partition.name
        gone = self._deleting[name] = asyncio.Event()
        self._scope.spawn(self._delete(replica, name, gone), name=f"delete {name}")

    async def _delete(self, replica: Replica, name: str, gone: asyncio.Event) -> None:
        try:
            await replica.delete()
        except StorageError as error:  # what is left is a stray at the next start
            _LOG.warning("broker.not_deleted log=%s error=%s", name, error)
        finally:
            gone.set()
            if self._deleting.get(name) is gone:
                del self._deleting[name]

    async def sweep(self) -> None:
        """Delete the folders of topics that are no more: they were deleted while the node was
        down, or it died over their deletion (R29). Once, when the whole image is applied.

        A folder that does not say whose it is stays, since it cannot be ours.
        """
        for name in self._directory.log_names():
            if name == METADATA_LOG_NAME or self._is_known(name):
                continue
            topic_id = await self._directory.topic_of_folder(name)
            if topic_id is None:
                _LOG.warning("broker.unknown_folder name=%s", name)
                continue
            try:
                await self._directory.delete_folder(name)
            except StorageError as error:  # it only takes up room: no reason not to start
                _LOG.warning("broker.not_deleted log=%s error=%s", name, error)
            else:
                _LOG.info("broker.stray_deleted log=%s topic_id=%s", name, topic_id.hex())

    def _closed_logs(self) -> Iterator[ClosedLog]:
        """Yield the logs that no request has opened: old records leave them too."""
        for replica in list(self._replicas.values()):
            closed = replica.closed_log
            if closed is not None:
                yield closed

    def _is_known(self, name: str) -> bool:
        topic, _, index = name.rpartition("-")
        image = self._image.topic(topic)
        return image is not None and int(index) in image.partitions

    async def close(self) -> None:
        """Return when no deletion is under way any more."""
        for gone in list(self._deleting.values()):
            await gone.wait()

    @property
    def reading(self) -> Reads:
        """The reading side, for whoever looks at its figures."""
        return self._reads

    def stop_waiting(self) -> None:
        """Have long polls answer now; the node is stopping."""
        self._reads.stop_waiting()

    # --- the front doors ----------------------------------------------------------------------

    def replica_of(self, topic: str, partition: int, topic_id: bytes = b"") -> Replica:
        """Return the replica that serves a partition here; raises UnknownTopicOrPartition,
        NotLeaderOrFollower, and UnknownTopicId where the topic has another id (empty: any)."""
        replica = self._replicas.get((topic, partition))
        if replica is not None:
            if topic_id and topic_id != replica.topic_id:
                raise _another(topic, partition)
            return replica
        image = self._image.topic(topic)
        if image is None:
            raise _unknown(topic, partition)
        if topic_id and topic_id != image.id:
            raise _another(topic, partition)
        if partition not in image.partitions:
            raise _unknown(topic, partition)
        raise self._not_leader(topic, partition, image.partitions[partition])

    def _not_leader(self, topic: str, partition: int, state: PartitionImage) -> NotLeaderOrFollower:
        """Say who leads a partition that this node does not."""
        broker = self._image.broker(state.leader)
        address = broker.grpc_address if broker is not None else ""
        if state.leader == NO_NODE:
            message = "no node leads this partition now; repeat after a moment"
        elif address:
            message = f"node {state.leader} at {address} leads this partition; ask it"
        else:
            message = f"node {state.leader} leads this partition; refresh the metadata and ask it"
        return NotLeaderOrFollower(
            message,
            topic=topic,
            partition=partition,
            leader_id=state.leader,
            leader_address=address,
            leader_epoch=state.leader_epoch,
        )

    def topic_id(self, topic: str) -> TopicId:
        """Return the id of the topic that has this name now; raises UnknownTopicOrPartition."""
        image = self._image.topic(topic)
        if image is None:
            raise _unknown(topic, None)
        return image.id

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; raises UnknownTopicOrPartition."""
        image = self._image.topic(topic)
        if image is None:
            raise _unknown(topic, None)
        return len(image.partitions)

    def led_here(self, topic: str, start: int) -> int:
        """Return the first partition from `start` on, in a circle, that this node leads.

        Raises UnknownTopicOrPartition, or NotLeaderOrFollower when it leads none of them.
        """
        count = self.partition_count(topic)
        image = self._image.topic(topic)
        assert image is not None, f"{topic} has {count} partitions"
        for step in range(count):
            index = (start + step) % count
            if image.partitions[index].leader == self._node_id:
                return index
        index = start % count
        raise self._not_leader(topic, index, image.partitions[index])

    async def log_sizes(
        self, topics: Collection[str], *, timeout_ms: int | None = None
    ) -> list[LogSize]:
        """Return what partitions take here, of some topics or (none named) of all, by ascending
        topic and index.

        Logs that nobody has used yet are opened for it, one by one; those whose turn has not come
        when the time is up have an error in their place. Without a timeout it takes what it takes.
        """
        clock = self._runtime.clock
        end_ms = None if timeout_ms is None else clock.now_ms() + timeout_ms
        wanted = sorted(key for key in self._replicas if not topics or key[0] in topics)
        sizes = []
        for topic, index in wanted:
            replica = self._replicas.get((topic, index))
            if replica is None:
                continue  # deleted meanwhile
            try:
                log = await _opened_by(replica, None if end_ms is None else end_ms - clock.now_ms())
            except QuorumlogError as error:
                sizes.append(LogSize(topic=topic, partition=index, error=error))
                continue
            sizes.append(
                LogSize(
                    topic=topic,
                    partition=index,
                    size_bytes=log.size_bytes,
                    log_start_offset=log.log_start_offset,
                    log_end_offset=log.log_end_offset,
                )
            )
        return sizes

    async def check_append(
        self, topic: str, partition: int, *, size: int, acks: Acks, topic_id: bytes = b""
    ) -> None:
        """Raise what an append of one batch would be refused with now, as far as that can be told
        without its bytes. Waits only while the log opens."""
        replica = self.replica_of(topic, partition, topic_id)
        log = await replica.opened()
        replica.partition.admit(acks, None)
        check_size(size, log.config.message_bytes_max)

    async def submit(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        *,
        acks: Acks,
        leader_epoch: int | None,
        topic_id: bytes = b"",
    ) -> PendingAppend:
        """Give whole batches their place in a partition's log, in the order of calls.

        Waits only while the log opens. Raises what makes the append impossible, and then nothing
        is stored; what happens later comes from `PendingAppend.settle`.
        """
        replica = self.replica_of(topic, partition, topic_id)
        refuse_transactional(records)
        log = await replica.opened()
        state = replica.partition.admit(acks, leader_epoch)
        future = self._directory.append_nowait(
            log,
            records,
            leader_epoch=state.leader_epoch,
            origin=Origin.CLIENT,
            flush=replica.flushes and acks is not Acks.NONE,
        )
        future.add_done_callback(_retrieve)
        return PendingAppend(self._runtime.clock, replica, future, acks)

    async def append(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        *,
        acks: Acks,
        leader_epoch: int | None,
        timeout_ms: int,
    ) -> AppendResult:
        """Append whole batches and wait as `acks` demands; see `submit` and `settle`."""
        deadline_ms = self._runtime.clock.now_ms() + timeout_ms
        pending = await self.submit(topic, partition, records, acks=acks, leader_epoch=leader_epoch)
        return await pending.settle(deadline_ms)

    async def fetch(
        self, specs: Sequence[FetchSpec], *, max_wait_ms: int, min_bytes: int, max_bytes: int
    ) -> list[FetchOutcome]:
        """Read partitions below their high watermarks; see `Reads.fetch`."""
        return await self._reads.fetch(
            specs, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes
        )

    async def list_offsets(self, specs: Sequence[OffsetSpec]) -> list[OffsetOutcome]:
        """Translate positions into offsets; see `Reads.list_offsets`."""
        return await self._reads.list_offsets(specs)

    async def delete_records(self, specs: Sequence[DeletionSpec]) -> list[DeletionOutcome]:
        """Delete the first records of partitions; see `deletions.delete_records`."""
        return await delete_records(self._directory, self.replica_of, specs)


async def _opened_by(replica: Replica, left_ms: int | None) -> Log:
    """Return a replica's log if it opens in time; the opening goes on in any case, and none begins
    when the time is up. Raises TimedOut."""
    if left_ms is not None and left_ms <= 0 and not replica.is_open:
        raise _not_in_time()
    try:
        async with asyncio.timeout(None if left_ms is None else max(left_ms, 0) / 1000):
            return await replica.opened()
    except TimeoutError:
        raise _not_in_time() from None


def _not_in_time() -> TimedOut:
    return TimedOut("the log was not opened in time; ask again, or for fewer topics")


def _retrieve(append: "asyncio.Future[Appended]") -> None:
    """Look at the outcome, so that nobody is warned when its caller is gone."""
    if not append.cancelled():
        append.exception()


class _TopicSettings:
    """What the configs of topics come to, read once for all partitions of a topic alike."""

    __slots__ = ("_read",)

    def __init__(self) -> None:
        self._read: dict[tuple[TopicId, int], tuple[int, LogConfig]] = {}  # by id and replicas

    def of(self, topic: TopicImage, state: PartitionImage) -> tuple[LeaderState, LogConfig]:
        """Return what the image says of a partition led here, with its topic's configs."""
        replicas = len(state.replicas)
        found = self._read.get((topic.id, replicas))
        if found is None:
            configs = effective_configs(topic.configs, replication_factor=replicas)
            min_isr = min(int(configs["min.insync.replicas"]), replicas)
            found = (min_isr, LogConfig.from_topic_configs(configs))
            self._read[topic.id, replicas] = found
        min_isr, config = found
        leader = LeaderState(
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=state.isr,
            min_isr=min_isr,
            counts_flushed=config.flush_policy is FlushPolicy.FSYNC,
        )
        return leader, config


def _another(topic: str, partition: int) -> UnknownTopicId:
    return UnknownTopicId(
        "the topic of this name is another one than the request was made for: it was deleted and "
        "made anew; look its name up again, and take no offset over",
        topic=topic,
        partition=partition,
    )


def _unknown(topic: str, partition: int | None) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(
        "no such topic or partition here; create it, or refresh the metadata",
        topic=topic,
        partition=partition,
    )
