"""The replica manager: the partitions of this node, and the requests of the front ends to them.

It follows the metadata: it makes replicas leaders or followers, applies configs, and deletes logs.
`apply` works in steps, between which the event loop runs. Once an offset is applied, its partitions
serve; logs are opened on demand, and deletions run in the background. Each partition has one
writer: the directory's owner task, in the order of `submit`.

Between two steps, some partitions have newer metadata than others. The brokers' metadata is always
the newest. A decision based on an older partition state is refused by the controller, which
compares partition epochs.

Metadata from before a broker's current registration describes its previous run. A leader of that
time may have lost the end of its logs in a power failure, and its followers would truncate theirs.
So no role is taken before the image has the current registration.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final

from ...errors import (
    DiskFailed,
    NotLeaderOrFollower,
    QuorumlogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...ids import NO_NODE, NodeId, TopicId
from ...metadata import (
    EMPTY_IMAGE,
    ImageDelta,
    MetadataImage,
    PartitionChange,
    PartitionImage,
    TopicImage,
    check_not_internal,
    effective_configs,
    effective_min_isr,
)
from ...metadata.cluster_configs import may_elect_unclean
from ...raftlog import METADATA_LOG_NAME
from ...records import check_size
from ...runtime import Buffer, Runtime, Scope
from ...storage import FlushPolicy, LogConfig
from ...storage.shell.append_queue import Appended
from ...storage.shell.data_directory import DataDirectory
from ...storage.shell.maintenance import ClosedLog
from ..config import ReplicationConfig, RequestConfig
from ..isr import BrokerFacts, LeaderAndIsr
from ..partition import Partition
from ..partition_follower import FollowerState
from ..purgatory import Acks
from ..replication.shell.replication import ControllerLink, ReplicationManager
from ..requests import (
    ActiveProducer,
    DeletionOutcome,
    DeletionSpec,
    EpochEndOutcome,
    EpochEndSpec,
    FetchOutcome,
    FetchSpec,
    FoundRecords,
    OffsetOutcome,
    OffsetSpec,
    ReplicaSize,
    refuse_transactional,
)
from .log_admin import active_producers, delete_records, log_sizes
from .metrics import ProduceMetrics
from .produce import DelayedProduce
from .reads import ReplicaReader, epoch_ends
from .replica import Replica

_LOG = logging.getLogger("quorumlog.broker")

UPDATES_A_STEP: Final = 100
"""Replicas updated in one step."""
SKIPS_A_STEP: Final = 1_000
"""Maximum number of partitions of other nodes that one step skips."""


class TopicSettings:
    """Caches derived settings while one metadata change is applied."""

    __slots__ = ("_cache",)

    def __init__(self) -> None:
        self._cache: dict[tuple[TopicId, int], tuple[int, LogConfig]] = {}

    def of(self, topic: TopicImage, state: PartitionImage) -> tuple[int, LogConfig]:
        """Return min.insync.replicas and the log's configuration for a partition.

        Replicas that a reassignment adds or removes do not count. The controller uses the same
        number for leader elections and for the cost of restarts.
        """
        replicas = state.replication_factor
        found = self._cache.get((topic.id, replicas))
        if found is None:
            configs = effective_configs(topic.configs, replication_factor=replicas)
            min_isr = effective_min_isr(topic.configs, replication_factor=replicas)
            found = (min_isr, LogConfig.from_topic_configs(configs))
            self._cache[topic.id, replicas] = found
        return found


class ReplicaManager:
    """The partitions of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        directory: DataDirectory,
        node_id: NodeId,
        *,
        requests: RequestConfig,
        replication: ReplicationConfig,
        has_registration: Callable[[MetadataImage], bool] = lambda image: True,
    ) -> None:
        """`has_registration` returns True if an image has the broker's current registration."""
        self._runtime = runtime
        self._scope = scope
        self._directory = directory
        self.node_id = node_id
        self._produce_waits_max = requests.produce_waits_max
        self._image = EMPTY_IMAGE
        self._has_registration = has_registration
        self._is_closed = False
        self._has_roles = False  # an image with the current registration has been applied
        self._replicas: dict[tuple[str, int], Replica] = {}
        self._by_id: dict[tuple[TopicId, int], Replica] = {}  # by topic id
        self._deleting: dict[str, asyncio.Event] = {}  # by folder; set when it is gone
        self.producing = ProduceMetrics()
        self._reads = ReplicaReader(
            runtime.clock, directory, self.replica_of, waits_max=requests.fetch_waits_max
        )
        self._config = replication
        self._replication = ReplicationManager(
            runtime, scope, directory, node_id, find=self._find, config=replication
        )
        directory.maintenance.closed_logs = self._closed_logs

    # --- the image ----------------------------------------------------------------------------

    def attach(self, link: ControllerLink) -> None:
        """Start replication with this session."""
        self._replication.attach(link)
        self._reads.attach(link)

    def apply(self, delta: ImageDelta) -> Awaitable[None] | None:
        """Apply a metadata change. It is in effect when this call has returned None, or when the
        returned awaitable is done."""
        self._image = delta.after
        self._replication.apply_configs(delta)
        self._replication.apply_brokers(delta)
        if self._has_roles:
            steps = self._apply_delta(delta)
        elif self._has_registration(delta.after):
            self._has_roles = True
            steps = self._apply_image(delta.after)
        else:
            return None
        for _ in steps:
            return self._continue(steps)
        return None

    async def _continue(self, steps: Iterator[None]) -> None:
        for _ in chain((None,), steps):
            await asyncio.sleep(0)
            if self._is_closed:
                return

    def _apply_delta(self, delta: ImageDelta) -> Iterator[None]:
        """Apply the changes of a delta; yield between steps."""
        settings = TopicSettings()
        left = SKIPS_A_STEP
        for change in delta.changed_partitions():
            left -= self._apply_change(change, settings)
            if left <= 0:
                yield
                left = SKIPS_A_STEP
        for before, after in delta.changed_topics():
            if before.configs == after.configs:
                continue
            for index, state in after.sorted_partitions():
                left -= self._apply_state(after, index, state, settings)
                if left <= 0:
                    yield
                    left = SKIPS_A_STEP

    def _apply_change(self, change: PartitionChange, settings: TopicSettings) -> int:
        """Apply one change; return its cost as a part of a step."""
        topic, index, before, after = change.topic, change.index, change.before, change.after
        if after is None:
            return self._remove(topic, index, None)
        used = self._apply_state(topic, index, after, settings)
        if before is not None and after.leader == self.node_id:
            self._replication.figures.led(before.isr, after.isr)
        return used

    def _apply_image(self, image: MetadataImage) -> Iterator[None]:
        """Apply an image as a whole; yield between steps."""
        settings = TopicSettings()
        for number, (topic_id, index) in enumerate(image.partitions_on(self.node_id), 1):
            topic = image.topics_by_id[topic_id]
            self._apply_state(topic, index, topic.partitions[index], settings)
            if number % UPDATES_A_STEP == 0:
                yield

    def _apply_state(
        self, topic: TopicImage, index: int, state: PartitionImage, settings: TopicSettings
    ) -> int:
        """Lead, follow or give up a partition; return the cost as a part of a step."""
        if self.node_id not in state.replicas:
            return self._remove(topic, index, state)
        min_isr, config = settings.of(topic, state)
        replica = self._replicas.get((topic.name, index))
        if replica is None:
            replica = self._new_replica(topic, index, config)
        if state.leader == self.node_id:
            replica.lead(leader_state(state, min_isr, config), config)
        else:
            error = self._not_leader(topic.name, index, state)
            counts = self.node_id in state.isr or self.node_id in state.elr
            replica.may_discard_log = state.leader != NO_NODE and not counts
            replica.is_moving_in = self.node_id in state.adding and self.node_id not in state.isr
            replica.follow(follower_state(state), config, error)
        return SKIPS_A_STEP // UPDATES_A_STEP

    def _new_replica(self, topic: TopicImage, index: int, config: LogConfig) -> Replica:
        partition = Partition(
            topic.name,
            index,
            self.node_id,
            waits_max=self._produce_waits_max,
            brokers=self._broker_facts,
            lag_time_max_ms=self._config.lag_time_max_ms,
        )
        replica = Replica(
            self._replication.deps,
            partition,
            topic_id=topic.id,
            config=config,
            after=self._deleting.get(partition.name),
        )
        self._replicas[topic.name, index] = self._by_id[topic.id, index] = replica
        return replica

    def _broker_facts(self, node_id: NodeId) -> BrokerFacts | None:
        broker = self._image.broker(node_id)
        return None if broker is None else BrokerFacts(broker.epoch, broker.is_active, broker.rack)

    def _remove(self, topic: TopicImage, index: int, state: PartitionImage | None) -> int:
        """Remove a replica after the deletion of its topic (no state) or a reassignment; return the
        cost as a part of a step."""
        replica = self._replicas.pop((topic.name, index), None)
        if replica is None:
            return 1
        del self._by_id[replica.topic_id, index]
        replica.give_up(
            _unknown(topic.name, index)
            if state is None
            else self._not_leader(topic.name, index, state)
        )
        name = replica.partition.name
        gone = self._deleting[name] = asyncio.Event()
        self._scope.spawn(self._delete(replica, name, gone), name=f"delete {name}")
        return SKIPS_A_STEP // UPDATES_A_STEP

    async def _delete(self, replica: Replica, name: str, gone: asyncio.Event) -> None:
        try:
            await replica.delete()
        except DiskFailed as error:  # the rest is a stray folder at the next start
            _LOG.warning("broker.not_deleted log=%s error=%s", name, error)
        finally:
            gone.set()
            if self._deleting.get(name) is gone:
                del self._deleting[name]

    async def sweep(self) -> None:
        """Delete the folders of partitions that this node does not hold: they were deleted or
        reassigned while it was down, or it crashed during the deletion (R29). Call it once, when
        the whole image is applied.

        A folder without a topic id is kept.
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
            except DiskFailed as error:  # it only takes space, so the start continues
                _LOG.warning("broker.not_deleted log=%s error=%s", name, error)
            else:
                _LOG.info("broker.stray_deleted log=%s topic_id=%s", name, topic_id.hex())

    def _closed_logs(self) -> Iterator[ClosedLog]:
        """Yield the logs that no request has opened; retention applies to them too."""
        for replica in list(self._replicas.values()):
            closed = replica.closed_log
            if closed is not None:
                yield closed

    def _is_known(self, name: str) -> bool:
        topic, _, index = name.rpartition("-")
        if (topic, int(index)) in self._replicas or name in self._deleting:
            return True  # a deletion may be under way; not a stray
        image = self._image.topic(topic)
        state = None if image is None else image.partitions.get(int(index))
        return state is not None and self.node_id in state.replicas

    async def close(self) -> None:
        """Stop replication; return when all deletions have ended."""
        self._is_closed = True
        await self._replication.close()
        for gone in list(self._deleting.values()):
            await gone.wait()

    @property
    def replication(self) -> ReplicationManager:
        """The replication side, for its service and metrics."""
        return self._replication

    @property
    def reading(self) -> ReplicaReader:
        """The read side, for metrics."""
        return self._reads

    def stop_waiting(self) -> None:
        """Answer long polls and end followers' streams, because the node is stopping."""
        self._reads.stop_waiting()
        self._replication.stop_serving()

    # --- front ends -------------------------------------------------------------------------------

    def replica_of(self, topic: str, partition: int, topic_id: bytes = b"") -> Replica:
        """Return the replica of a partition.

        Raises UnknownTopicOrPartition, NotLeaderOrFollower, and UnknownTopicId if the topic has
        another id (empty: not checked).
        """
        replica = self._replicas.get((topic, partition))
        if replica is not None:
            if topic_id and topic_id != replica.topic_id:
                raise _other_topic_id(topic, partition)
            return replica
        image = self._image.topic(topic)
        if image is None:
            raise _unknown(topic, partition)
        if topic_id and topic_id != image.id:
            raise _other_topic_id(topic, partition)
        if partition not in image.partitions:
            raise _unknown(topic, partition)
        raise self._not_leader(topic, partition, image.partitions[partition])

    def may_be_replaced(self, replica: Replica, *, behind_ms: int, lease_ms: int) -> bool:
        """See `ReplicationManager.may_be_replaced`."""
        unclean = partial(may_be_unclean, self._image, replica.topic_id)
        return self._replication.may_be_replaced(
            replica, unclean, behind_ms=behind_ms, lease_ms=lease_ms
        )

    def local_replica(self, topic: str, partition: int) -> Replica:
        """Return the replica in any role; raise UnknownTopicOrPartition."""
        replica = self._replicas.get((topic, partition))
        if replica is None:
            raise _unknown(topic, partition)
        return replica

    def _find(self, topic_id: TopicId, partition: int) -> Replica | None:
        return self._by_id.get((topic_id, partition))

    def _not_leader(self, topic: str, partition: int, state: PartitionImage) -> NotLeaderOrFollower:
        """Return the error that names the leader of a partition."""
        broker = self._image.broker(state.leader)
        address = broker.grpc_address if broker is not None else ""
        if state.leader == NO_NODE:
            message = "the partition has no leader; retry shortly"
        elif state.leader == self.node_id:
            address = ""  # this broker's own: another address would not help the client
            message = (
                "this broker is about to lead this partition; retry shortly"
                if self._has_roles
                else "this broker has just started and is not registered yet; retry shortly"
            )
        elif address:
            message = (
                f"broker {state.leader} at {address} leads this partition; send the request there"
            )
        else:
            message = f"broker {state.leader} leads this partition; refresh the metadata"
        return NotLeaderOrFollower(
            message,
            topic=topic,
            partition=partition,
            leader_id=state.leader,
            leader_address=address,
            leader_epoch=state.leader_epoch,
        )

    def topic_id(self, topic: str) -> TopicId:
        """Return the current id of a topic; raise UnknownTopicOrPartition."""
        image = self._image.topic(topic)
        if image is None:
            raise _unknown(topic, None)
        return image.id

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic; raise UnknownTopicOrPartition."""
        image = self._image.topic(topic)
        if image is None:
            raise _unknown(topic, None)
        return len(image.partitions)

    def led_here(self, topic: str, start: int) -> int:
        """Return the first partition from `start` on, cyclically, that this node leads.

        Raises UnknownTopicOrPartition, or NotLeaderOrFollower if it leads none.
        """
        count = self.partition_count(topic)
        image = self._image.topic(topic)
        assert image is not None, f"{topic} has {count} partitions"
        for step in range(count):
            index = (start + step) % count
            if image.partitions[index].leader == self.node_id:
                return index
        index = start % count
        raise self._not_leader(topic, index, image.partitions[index])

    async def log_sizes(
        self, topics: Collection[str], *, timeout_ms: int | None = None
    ) -> list[ReplicaSize]:
        """Return the disk usage of partitions; see `log_admin.log_sizes`."""
        return await log_sizes(self._runtime.clock, self._replicas, topics, timeout_ms=timeout_ms)

    async def check_append(
        self, topic: str, partition: int, *, size: int, acks: Acks, topic_id: bytes = b""
    ) -> None:
        """Raise the error with which an append of one batch would be refused now, as far as that is
        known without its bytes. Waits only while the log opens."""
        check_not_internal(topic)
        replica = self.replica_of(topic, partition, topic_id)
        log = await replica.opened()
        replica.partition.check_leader(None).admit(acks, lapsed=self._has_lapsed(acks))
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
    ) -> DelayedProduce:
        """Assign offsets to whole batches in a partition's log, in the order of calls.

        Waits only while the log opens. After an error, nothing is stored; later errors come from
        `DelayedProduce.wait_until`.
        """
        check_not_internal(topic)
        replica = self.replica_of(topic, partition, topic_id)
        await replica.opened()
        return self._append(replica, records, acks, leader_epoch)

    def submit_nowait(
        self, topic: str, partition: int, records: Buffer, acks: Acks, topic_id: bytes = b""
    ) -> DelayedProduce:
        """Append as `submit` does to an open log; see `opening`. Raises the errors of `submit`, and
        the error with which the log failed to open."""
        replica = self._replicas.get((topic, partition))
        if replica is None or (topic_id and topic_id != replica.topic_id):
            replica = self.replica_of(topic, partition, topic_id)
        if replica.is_internal:
            check_not_internal(topic)
        if not replica.is_open:
            replica.check_open()
        return self._append(replica, records, acks, None)

    def opening(self, topic: str, partition: int) -> Coroutine[Any, Any, None] | None:
        """Return an awaitable for the open of the log before `submit_nowait`, or None. It raises
        nothing."""
        replica = self._replicas.get((topic, partition))
        if replica is None or replica.is_open:
            return None
        replica.begin_open()
        return _wait_open(replica)

    def _append(
        self, replica: Replica, records: Buffer, acks: Acks, leader_epoch: int | None
    ) -> DelayedProduce:
        """Queue batches for an open log."""
        refuse_transactional(records)
        leader = replica.partition.check_leader(leader_epoch)
        state = leader.admit(acks, lapsed=self._has_lapsed(acks))
        append = DelayedProduce(
            self._directory.completed, replica, records, acks, state.leader_epoch
        )
        self._directory.submit(replica.log, append)
        return append

    def _has_lapsed(self, acks: Acks) -> bool:
        if acks is Acks.ALL or self._config.lapsed_accepts_acks_one:
            return False
        return self._replication.has_lapsed

    async def append(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        *,
        acks: Acks,
        leader_epoch: int | None,
        timeout_ms: int,
    ) -> Appended:
        """Append whole batches and wait for the acknowledgement; see `submit`."""
        deadline_ms = self._runtime.clock.now_ms() + timeout_ms
        pending = await self.submit(topic, partition, records, acks=acks, leader_epoch=leader_epoch)
        return await pending.wait_until(self._runtime.clock, deadline_ms)

    async def fetch(
        self, specs: Sequence[FetchSpec], *, max_wait_ms: int, min_bytes: int, max_bytes: int
    ) -> list[FetchOutcome]:
        """Read partitions below their high watermarks; see `ReplicaReader.fetch`."""
        return await self._reads.fetch(
            specs, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes
        )

    async def find(
        self, specs: Sequence[FetchSpec], *, max_wait_ms: int, min_bytes: int, max_bytes: int
    ) -> list[FoundRecords]:
        """Locate records for zero-copy sends; see `ReplicaReader.find`."""
        return await self._reads.find(
            specs, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes
        )

    def find_nowait(
        self, specs: Sequence[FetchSpec], *, min_bytes: int, max_bytes: int
    ) -> list[FoundRecords] | None:
        """Locate records without waiting, else return None; see `ReplicaReader`."""
        return self._reads.find_nowait(specs, min_bytes=min_bytes, max_bytes=max_bytes)

    async def list_offsets(self, specs: Sequence[OffsetSpec]) -> list[OffsetOutcome]:
        """Translate positions into offsets; see `ReplicaReader.list_offsets`."""
        return await self._reads.list_offsets(specs)

    async def epoch_ends(self, specs: Sequence[EpochEndSpec]) -> list[EpochEndOutcome]:
        """Return end offsets of leader epochs; see `reads.epoch_ends`."""
        return await epoch_ends(self.replica_of, specs)

    async def producers(self, topic: str, partition: int) -> list[ActiveProducer]:
        """Return the producers in the log of a partition; raise the errors of `replica_of`, and of
        the log."""
        log = await self.replica_of(topic, partition).opened()
        return active_producers(log)

    async def delete_records(self, specs: Sequence[DeletionSpec]) -> list[DeletionOutcome]:
        """Delete the first records of partitions; see `log_admin.delete_records`."""
        return await delete_records(self._directory, self.replica_of, specs)


async def _wait_open(replica: Replica) -> None:
    with suppress(QuorumlogError):  # the next request gets the error
        await replica.opened()


def _other_topic_id(topic: str, partition: int) -> UnknownTopicId:
    return UnknownTopicId(
        "the topic was deleted and created again under this name; look up its id, and do not"
        " reuse offsets of the old topic",
        topic=topic,
        partition=partition,
    )


def _unknown(topic: str, partition: int | None) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(
        "no such topic or partition; create it, or refresh the metadata",
        topic=topic,
        partition=partition,
    )


def may_be_unclean(image: MetadataImage, topic_id: TopicId) -> bool:
    """Return True if a replica outside the ISR may be elected leader without a request."""
    topic = image.topic_of_id(topic_id)
    return topic is None or may_elect_unclean(topic.configs, image.cluster_configs)


def leader_state(state: PartitionImage, min_isr: int, config: LogConfig) -> LeaderAndIsr:
    """Return the metadata for the partition's leader."""
    return LeaderAndIsr(
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        isr=state.isr,
        min_isr=min_isr,
        counts_flushed=config.flush_policy is FlushPolicy.FSYNC,
        replicas=state.replicas,
        recovering=state.recovering,
        mirrors=config.mirror_source,
    )


def follower_state(state: PartitionImage) -> FollowerState:
    """Return the metadata for the partition's followers."""
    return FollowerState(
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
    )
