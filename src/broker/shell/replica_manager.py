"""The replica manager: it applies the metadata to the replicas of this node.

It makes replicas leaders or followers, applies configs, and deletes logs. `apply` works in steps,
between which the event loop runs. Once an offset is applied, its partitions serve; logs are opened
on demand, and deletions run in the background.

Between two steps, some partitions have newer metadata than others. The brokers' metadata is always
the newest. A decision based on an older partition state is refused by the controller, which
compares partition epochs.

Metadata from before a broker's current registration describes its previous run. A leader of that
time may have lost the end of its logs in a power failure, and its followers would truncate theirs.
So no role is taken before the image has the current registration.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import chain
from typing import Final

from ...errors import DiskFailed
from ...ids import NO_NODE, NodeId, TopicId
from ...metadata import (
    ImageDelta,
    MetadataImage,
    PartitionChange,
    PartitionImage,
    TopicImage,
    effective_configs,
    effective_min_isr,
)
from ...metadata.cluster_configs import may_elect_unclean
from ...raftlog import METADATA_LOG_NAME
from ...runtime import Runtime, Scope
from ...storage import FlushPolicy, LogConfig
from ...storage.shell.data_directory import DataDirectory
from ...storage.shell.maintenance import ClosedLog
from ..config import ReplicationConfig, RequestConfig
from ..isr import BrokerFacts, LeaderAndIsr
from ..partition import Partition
from ..partition_follower import FollowerState
from .hosted_replicas import HostedReplicas, unknown_partition
from .log_admin import LogAdmin
from .markers import PartitionMarkers
from .produce import ReplicaWriter
from .reads import ReplicaReader
from .replica import Replica
from .replication.replication import ControllerLink, ReplicationManager

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
    """The replicas of one broker, as its metadata requires them.

    Front ends use its parts: `hosted` looks replicas up, `writer` appends, `reader` reads,
    `log_admin` administers logs, and `markers` ends transactions. `replication` fetches from
    leaders and serves followers.
    """

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
        self.node_id = node_id
        self._scope = scope
        self._directory = directory
        self._produce_waits_max = requests.produce_waits_max
        self._has_registration = has_registration
        self._is_closed = False
        self._deleting: dict[str, asyncio.Event] = {}  # by folder; set when it is gone
        self._config = replication
        self.hosted = HostedReplicas(node_id)
        self.replication = ReplicationManager(
            runtime, scope, directory, node_id, find=self.hosted.find_by_id, config=replication
        )
        # Appends that need no other in-sync replica are refused after a lapse.
        accepts = replication.lapsed_accepts_acks_one
        has_lapsed = _never if accepts else self.replication.has_lapsed
        self.writer = ReplicaWriter(directory, self.hosted, has_lapsed=has_lapsed)
        self.reader = ReplicaReader(
            runtime.clock, directory, self.hosted.replica_of, waits_max=requests.fetch_waits_max
        )
        self.log_admin = LogAdmin(runtime.clock, directory, self.hosted)
        self.markers = PartitionMarkers(runtime.clock, directory, self.hosted)
        directory.maintenance.closed_logs = self._closed_logs

    # --- the image ----------------------------------------------------------------------------

    def attach(self, link: ControllerLink) -> None:
        """Start replication with this session."""
        self.replication.attach(link)
        self.reader.attach(link)

    def apply(self, delta: ImageDelta) -> Awaitable[None] | None:
        """Apply a metadata change. It is in effect when this call has returned None, or when the
        returned awaitable is done."""
        self.hosted.image = delta.after
        self.replication.apply_configs(delta)
        self.replication.apply_brokers(delta)
        if self.hosted.has_roles:
            steps = self._apply_delta(delta)
        elif self._has_registration(delta.after):
            self.hosted.has_roles = True
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
            self.replication.figures.led(before.isr, after.isr)
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
        replica = self.hosted.find(topic.name, index)
        if replica is None:
            replica = self._new_replica(topic, index, config)
        if state.leader == self.node_id:
            replica.lead(leader_state(state, min_isr, config), config)
        else:
            error = self.hosted.not_leader_error(topic.name, index, state)
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
            self.replication.deps,
            partition,
            topic_id=topic.id,
            config=config,
            after=self._deleting.get(partition.name),
        )
        self.hosted.add(replica)
        return replica

    def _broker_facts(self, node_id: NodeId) -> BrokerFacts | None:
        broker = self.hosted.image.broker(node_id)
        return None if broker is None else BrokerFacts(broker.epoch, broker.is_active, broker.rack)

    def _remove(self, topic: TopicImage, index: int, state: PartitionImage | None) -> int:
        """Remove a replica after the deletion of its topic (no state) or a reassignment; return the
        cost as a part of a step."""
        replica = self.hosted.pop(topic.name, index)
        if replica is None:
            return 1
        replica.give_up(
            unknown_partition(topic.name, index)
            if state is None
            else self.hosted.not_leader_error(topic.name, index, state)
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
        for name in self._directory.folders.names():
            if name == METADATA_LOG_NAME or self._is_known(name):
                continue
            topic_id = await self._directory.folders.topic_of(name)
            if topic_id is None:
                _LOG.warning("broker.unknown_folder name=%s", name)
                continue
            try:
                await self._directory.folders.delete(name)
            except DiskFailed as error:  # it only takes space, so the start continues
                _LOG.warning("broker.not_deleted log=%s error=%s", name, error)
            else:
                _LOG.info("broker.stray_deleted log=%s topic_id=%s", name, topic_id.hex())

    def _closed_logs(self) -> Iterator[ClosedLog]:
        """Yield the logs that no request has opened; retention applies to them too."""
        for replica in self.hosted:
            closed = replica.closed_log
            if closed is not None:
                yield closed

    def _is_known(self, name: str) -> bool:
        topic, _, index = name.rpartition("-")
        if name in self._deleting or self.hosted.find(topic, int(index)) is not None:
            return True  # a deletion may be under way; not a stray
        image = self.hosted.image.topic(topic)
        state = None if image is None else image.partitions.get(int(index))
        return state is not None and self.node_id in state.replicas

    async def close(self) -> None:
        """Stop replication; return when all deletions have ended."""
        self._is_closed = True
        await self.replication.close()
        for gone in list(self._deleting.values()):
            await gone.wait()

    def stop_waiting(self) -> None:
        """Answer long polls and end followers' streams, because the node is stopping."""
        self.reader.stop_waiting()
        self.replication.stop_serving()

    # --- leadership -------------------------------------------------------------------------------

    def may_be_replaced(self, replica: Replica, *, behind_ms: int, lease_ms: int) -> bool:
        """See `ReplicationManager.may_be_replaced`."""
        unclean = partial(may_be_unclean, self.hosted.image, replica.topic_id)
        return self.replication.may_be_replaced(
            replica, unclean, behind_ms=behind_ms, lease_ms=lease_ms
        )


def _never() -> bool:
    return False


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
