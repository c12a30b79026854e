"""The group coordinator of a broker: serves the groups in the partitions of `__consumer_offsets`
that it leads.

It follows the metadata: a `CoordinatorShard` starts and ends with each leadership. Its module is
imported when the first one starts, so a broker without groups starts without it.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ....errors import CoordinatorNotAvailable, NotCoordinator, Stopping
from ....ids import NO_NODE, NodeId
from ....metadata.delta import ImageDelta
from ....metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage
from ....runtime import Runtime, Scope
from ....storage.shell.data_directory import DataDirectory
from ...shell.replica import Replica
from ..config import OFFSETS_TOPIC, GroupConfig
from .group_ids import check_group, partition_of
from .metrics import GroupCensus, GroupMetrics
from .offsets_topic import OffsetsTopic

if TYPE_CHECKING:
    from ...shell.producer_ids import ControllerRelay
    from ..requests import GroupRequest, ListedGroup
    from .coordinator_shard import CoordinatorDeps, CoordinatorShard, ReplyCallback

R = TypeVar("R")

_LOG = logging.getLogger("quorumlog.groups")

LOADS_AT_ONCE: Final = 2

BEHIND_MS: Final = 3_000
"""While a coordinator's metadata may be older than this, it serves only while all electable
replicas follow it, as without a controller. At most a session timeout, so that the next coordinator
ends no session in between."""

LEASE_MS: Final = 1_500
"""Without a controller, a coordinator serves for this long after the last proof that no other
broker can lead the partition. At most a session timeout, which another coordinator would start for
every member."""


class MayBeReplaced(Protocol):
    """Returns True if another broker may lead the partition by now."""

    def __call__(self, replica: Replica, *, behind_ms: int, lease_ms: int) -> bool:
        """See `ReplicationManager.may_be_replaced`."""


class GroupCoordinator:
    """The groups of this broker, for the front ends. Belongs to the loop's thread."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        directory: DataDirectory,
        config: GroupConfig,
        *,
        node_id: NodeId,
        replica_of: Callable[[str, int], Replica],
        may_be_replaced: MayBeReplaced,
        formed_for: Callable[[], int],
    ) -> None:
        """`replica_of` returns a replica that this broker leads; `may_be_replaced` returns True if
        another broker may lead it by now; `formed_for` returns the number of nodes that the cluster
        was formed with, as far as known."""
        self.figures = GroupMetrics()
        self._runtime = runtime
        self._scope = scope
        self._directory = directory
        self._config = config
        self.node_id = node_id
        self._replica_of = replica_of
        session_ms = min(config.session_timeout_min_ms, config.consumer_session_ms)
        self._may_be_replaced = partial(
            may_be_replaced,
            behind_ms=min(BEHIND_MS, session_ms),
            lease_ms=min(LEASE_MS, session_ms),
        )
        self._image = EMPTY_IMAGE
        self._offsets: TopicImage | None = None  # of that image; read by every request
        self._shards: dict[int, CoordinatorShard] = {}
        self._deps: CoordinatorDeps | None = None  # created with the first groups
        self._is_closed = False
        ids = runtime.entropy.stream("offsets topic")
        self._topic = OffsetsTopic(
            runtime.clock,
            config,
            image=self._present_image,
            formed_for=formed_for,
            new_id=lambda: ids.token(16),
        )

    @property
    def image(self) -> MetadataImage:
        """The latest metadata."""
        return self._image

    @property
    def has_topic(self) -> bool:
        """True if the topic of offsets exists; without it there are no groups."""
        return self._offsets is not None

    def attach(self, relay: "ControllerRelay") -> None:
        """Set the relay to the controller that creates the missing topic."""
        self._topic.attach(relay)

    # --- requests ---------------------------------------------------------------------------------

    async def ask(self, request: "GroupRequest[R]", *, deadline_ms: int) -> R:
        """Decide a request and store the result; return the answer once that is committed.

        `deadline_ms` is by the runtime's clock. Raises InvalidGroupId; NotCoordinator,
        CoordinatorLoading, CoordinatorNotAvailable (also at the deadline: the outcome is then
        unknown), Overloaded; and the errors of the request.
        """
        check_group(request.group)
        if self._topic.image is None:
            await self._create_topic(deadline_ms)
        return await self._shard_of(request.group).ask(request, deadline_ms)

    def submit(
        self, request: "GroupRequest[R]", reply: "ReplyCallback"
    ) -> Callable[[], None] | None:
        """Decide a request without a task; only if `has_topic`.

        `reply` is called once with the answer or the error: within this call, which then returns
        None, or later. The returned function cancels a later call. Raises the errors of `ask` that
        precede a decision.
        """
        shard = self._shard_of(request.group)
        ticket = shard.submit(request, reply)
        return None if ticket is None else partial(shard.cancel, ticket)

    def _shard_of(self, group: str) -> "CoordinatorShard":
        shard = self._shards.get(self.partition_of(group))
        if shard is None:
            raise self._not_coordinator_error(group)
        return shard

    def partition_of(self, group: str) -> int:
        """Return the partition of `__consumer_offsets` that stores a group; raise
        InvalidGroupId."""
        check_group(group)
        topic = self._offsets
        wanted = self._config.offsets_partitions
        return partition_of(group, wanted if topic is None else len(topic.partitions))

    async def coordinator_of(self, group: str, *, deadline_ms: int) -> NodeId:
        """Return the broker that coordinates a group; create the topic at first use.

        Raises InvalidGroupId; CoordinatorNotAvailable if the partition has no leader.
        """
        check_group(group)
        if self._topic.image is None:
            await self._create_topic(deadline_ms)
        leader = self._leader_of(self.partition_of(group))
        broker = self._image.broker(leader)
        if leader == NO_NODE or broker is None or broker.fenced:
            raise CoordinatorNotAvailable(
                f"{OFFSETS_TOPIC}-{self.partition_of(group)}: the partition has no leader; retry"
            )
        return leader

    def list_groups(self) -> "list[ListedGroup]":
        """Return the groups that this broker coordinates, by ascending name; raise
        CoordinatorLoading while some of them are loading."""
        found = [line for _, shard in sorted(self._shards.items()) for line in shard.listings()]
        return sorted(found, key=lambda line: line.group)

    async def _create_topic(self, deadline_ms: int) -> None:
        if self._is_closed:
            raise Stopping("the broker is stopping; send the request to another one")
        await self._topic.wait_until_created(deadline_ms, spawn=self._scope.spawn)

    def _leader_of(self, partition: int) -> NodeId:
        topic = self._topic.image
        state = None if topic is None else topic.partitions.get(partition)
        return NO_NODE if state is None else state.leader

    def _not_coordinator_error(self, group: str) -> NotCoordinator | CoordinatorNotAvailable:
        partition = self.partition_of(group)
        leader = self._leader_of(partition)
        if leader == NO_NODE:
            return CoordinatorNotAvailable(
                f"{OFFSETS_TOPIC}-{partition}: the partition has no leader; retry"
            )
        return NotCoordinator(
            f"group {group}: this broker is not the coordinator; send the request to broker"
            f" {leader}"
            if leader != self.node_id
            else f"group {group}: the coordinator of this broker is starting or stopping; retry"
        )

    # --- for the metrics --------------------------------------------------------------------------

    def census(self) -> GroupCensus:
        """Count the groups, members and offsets; O(groups)."""
        found = GroupCensus()
        for _, shard in sorted(self._shards.items()):
            groups = shard.groups
            if groups is None:
                found.partitions_read += 1
                continue
            found.partitions_served += 1
            found.offsets += groups.offset_count
            found.members += groups.member_count()
            for line in groups.listings():
                counted = found.groups_by_state.get(line.state, 0)
                found.groups_by_state[line.state] = counted + 1
        return found

    # --- the image --------------------------------------------------------------------------------

    def _present_image(self) -> MetadataImage:
        return self._image

    def apply(self, delta: ImageDelta) -> None:
        """Apply a metadata change; call it after the replicas have applied it."""
        self._image = delta.after
        before, after = delta.before.topic(OFFSETS_TOPIC), delta.after.topic(OFFSETS_TOPIC)
        self._offsets = after
        if self._is_closed:
            return
        if before is not after:
            self._update_shards(after)
            self._topic.applied()
        if self._shards and delta.touched_topics:
            deleted = delta.deleted_topics()
            for shard in list(self._shards.values()):
                shard.image_changed(delta.after, deleted)

    def _update_shards(self, topic: TopicImage | None) -> None:
        """Start and end shards according to the leaders of the topic's partitions."""
        led = {}
        for index, state in topic.sorted_partitions() if topic is not None else ():
            if state.leader == self.node_id:
                led[index] = state.leader_epoch
        for index, shard in list(self._shards.items()):
            if led.get(index) != shard.leader_epoch:
                del self._shards[index]
                shard.end(
                    NotCoordinator(
                        f"{OFFSETS_TOPIC}-{index}: another broker coordinates its groups; look up"
                        " the coordinator again"
                    )
                )
        for index, epoch in led.items():
            if index not in self._shards:
                shard = self._shards[index] = self._new_shard(index, epoch)
                self._scope.spawn(shard.run(), name=f"groups of partition {index}")

    def _new_shard(self, partition: int, epoch: int) -> "CoordinatorShard":
        from ....ids import Epoch
        from .coordinator_shard import CoordinatorDeps, CoordinatorShard

        if self._deps is None:
            self._deps = CoordinatorDeps(
                clock=self._runtime.clock,
                entropy=self._runtime.entropy.stream("group members"),
                directory=self._directory,
                config=self._config,
                figures=self.figures,
                replica_of=self._replica_of,
                image=self._present_image,
                may_be_replaced=self._may_be_replaced,
                loading=asyncio.Semaphore(LOADS_AT_ONCE),
            )
        return CoordinatorShard(self._deps, partition, Epoch(epoch))

    async def close(self) -> None:
        """End every coordinator shard; pending requests fail with NotCoordinator."""
        self._is_closed = True
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            shard.end(NotCoordinator("the broker is stopping; look up the coordinator again"))
