"""The coordinator of a broker: serves the partitions of an internal topic that the broker leads.

It follows the metadata: a `CoordinatorShard` starts and ends with each leadership. Its module is
imported when the first one starts, so a broker without groups and transactions starts without it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from ....errors import CoordinatorNotAvailable, NotCoordinator, Stopping
from ....ids import NO_NODE, Epoch, NodeId
from ....metadata.delta import ImageDelta
from ....metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage
from ....runtime import Runtime, Scope
from ....storage.shell.data_directory import DataDirectory
from ...shell.replica import Replica
from ..key_hash import CACHED_LENGTH_MAX, partition_of
from .internal_topic import CoordinatorNames, InternalTopic, InternalTopicSettings

if TYPE_CHECKING:
    from ...shell.producer_ids import ControllerRelay
    from ..shard import CoordinatorRequest
    from .coordinator_shard import CoordinatorDeps, CoordinatorShard, ReplyCallback


class CoordinatorMetrics:
    """Counters since the start; times in ms."""

    __slots__ = ("decisions", "load_ms_total", "loads", "reloads")

    def __init__(self) -> None:
        self.decisions = 0  # with records
        self.loads = 0
        self.load_ms_total = 0
        self.reloads = 0  # reloads after a failed append

    def loaded(self, took_ms: int) -> None:
        """Count a loaded partition."""
        self.loads += 1
        self.load_ms_total += took_ms


R = TypeVar("R")
T = TypeVar("T", bound="CoordinatorShard[Any]")

LOADS_AT_ONCE: Final = 2
KEYS_MAX: Final = 4_096
"""The limit of keys that are cached with their shards."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorContext:
    """The parts of a broker that its coordinators use."""

    runtime: Runtime
    scope: Scope
    directory: DataDirectory
    node_id: NodeId
    replica_of: Callable[[str, int], Replica]  # a replica that this broker leads
    may_be_replaced: MayBeReplaced
    formed_for: Callable[[], int]  # number of nodes that the cluster was formed with, if known


class Coordinator(Generic[T], ABC):
    """The part of a coordinator that groups and transactions share, for the front ends. Belongs to
    the loop's thread."""

    def __init__(
        self,
        context: CoordinatorContext,
        names: CoordinatorNames,
        topic: InternalTopicSettings,
        figures: CoordinatorMetrics,
        *,
        new_topic_id: Callable[[], bytes],
        waits_max: int,
        session_ms: int = BEHIND_MS,
    ) -> None:
        """`waits_max` limits the pending requests of one partition. `session_ms` is the shortest
        session timeout."""
        self.node_id = context.node_id
        self._context = context
        self._names = names
        self._partitions = topic.partitions  # until the topic exists
        self._metrics = figures
        self._waits_max = waits_max
        self._may_be_replaced = partial(
            context.may_be_replaced,
            behind_ms=min(BEHIND_MS, session_ms),
            lease_ms=min(LEASE_MS, session_ms),
        )
        self._image = EMPTY_IMAGE
        self._stored: TopicImage | None = None  # of that image; read by every request
        self._shards: dict[int, T] = {}
        self._shards_by_key: dict[str, T] = {}  # of recent requests
        self._deps: CoordinatorDeps | None = None  # created with the first shard
        self._is_closed = False
        self._topic = InternalTopic(
            context.runtime.clock,
            topic,
            image=self._present_image,
            formed_for=context.formed_for,
            new_id=new_topic_id,
        )

    @abstractmethod
    def _new_shard(self, deps: "CoordinatorDeps", partition: int, leader_epoch: Epoch) -> T:
        """Return the shard of one leadership."""

    @abstractmethod
    def check_key(self, key: str) -> None:
        """Raise the error of an invalid key."""

    def _creates_topic(self, request: "CoordinatorRequest[Any]") -> bool:
        """Return True if the request creates the missing internal topic."""
        return True

    @property
    def image(self) -> MetadataImage:
        """The latest metadata."""
        return self._image

    @property
    def has_topic(self) -> bool:
        """True if the internal topic exists; without it there is nothing to coordinate."""
        return self._stored is not None

    def attach(self, relay: "ControllerRelay") -> None:
        """Set the relay to the controller that creates the missing topic."""
        self._topic.attach(relay)

    # --- requests ---------------------------------------------------------------------------------

    async def ask(self, request: "CoordinatorRequest[R]", *, deadline_ms: int) -> R:
        """Decide a request and store the result; return the answer once that is committed.

        `deadline_ms` is by the runtime's clock. Raises the error of an invalid key; NotCoordinator,
        CoordinatorLoading, CoordinatorNotAvailable (also at the deadline: the outcome is then
        unknown), Overloaded; and the errors of the request.
        """
        key = request.key
        self.check_key(key)
        if self._topic.image is None:
            if not self._creates_topic(request):
                raise NotCoordinator(
                    f"{self._names.entity} {key}: {self._names.topic} does not exist yet; look up"
                    " the coordinator, which creates it"
                )
            await self._create_topic(deadline_ms)
        return await self._shard_of(key).ask(request, deadline_ms)

    async def ask_partition(
        self, partition: int, request: "CoordinatorRequest[R]", *, deadline_ms: int
    ) -> R:
        """Decide a request that concerns a partition of the internal topic; otherwise like
        `ask`."""
        shard = self._shards.get(partition)
        if shard is None:
            raise self._no_shard_error(partition, f"{self._names.topic}-{partition}")
        return await shard.ask(request, deadline_ms)

    def submit(
        self, request: "CoordinatorRequest[R]", reply: "ReplyCallback"
    ) -> Callable[[], None] | None:
        """Decide a request without a task; only if `has_topic`.

        `reply` is called once with the answer or the error: within this call, which then returns
        None, or later. The returned function cancels a later call. Raises the errors of `ask` that
        precede a decision.
        """
        shard = self._shard_of(request.key)
        ticket = shard.submit(request, reply)
        return None if ticket is None else partial(shard.cancel, ticket)

    def answer_at_once(self, request: "CoordinatorRequest[Any]") -> Any:
        """Return the answer to a request that stores nothing and depends on nothing uncommitted;
        UNDECIDED, without an effect, if it needs `submit`. Raises the error of an invalid key, and
        NotCoordinator."""
        return self._shard_of(request.key).answer_at_once(request)

    def _shard_of(self, key: str) -> T:
        shard = self._shards_by_key.get(key)
        if shard is not None:
            return shard
        partition = self.partition_of(key)
        shard = self._shards.get(partition)
        if shard is None:
            raise self._no_shard_error(partition, f"{self._names.entity} {key}")
        if len(key) <= CACHED_LENGTH_MAX:
            if len(self._shards_by_key) >= KEYS_MAX:
                self._shards_by_key.clear()
            self._shards_by_key[key] = shard
        return shard

    def partition_of(self, key: str) -> int:
        """Return the partition of the internal topic that stores a key; raise the error of an
        invalid key."""
        self.check_key(key)
        topic = self._stored
        return partition_of(key, self._partitions if topic is None else len(topic.partitions))

    async def coordinator_of(self, key: str, *, deadline_ms: int) -> NodeId:
        """Return the broker that coordinates a key; create the topic at first use.

        Raises the error of an invalid key; CoordinatorNotAvailable if the partition has no leader.
        """
        self.check_key(key)
        if self._topic.image is None:
            await self._create_topic(deadline_ms)
        return self.leader_of(key)

    def leader_of(self, key: str) -> NodeId:
        """Return the broker that coordinates a key; raise the error of an invalid key, and
        CoordinatorNotAvailable if there is none."""
        partition = self.partition_of(key)
        leader = self._leader_of(partition)
        broker = self._image.broker(leader)
        if leader == NO_NODE or broker is None or broker.fenced:
            raise CoordinatorNotAvailable(
                f"{self._names.topic}-{partition}: the partition has no leader; retry"
            )
        return leader

    async def _create_topic(self, deadline_ms: int) -> None:
        if self._is_closed:
            raise Stopping("the broker is stopping; send the request to another one")
        await self._topic.wait_until_created(deadline_ms, spawn=self._context.scope.spawn)

    def _leader_of(self, partition: int) -> NodeId:
        topic = self._topic.image
        state = None if topic is None else topic.partitions.get(partition)
        return NO_NODE if state is None else state.leader

    def _no_shard_error(
        self, partition: int, name: str
    ) -> NotCoordinator | CoordinatorNotAvailable:
        leader = self._leader_of(partition)
        if leader == NO_NODE:
            return CoordinatorNotAvailable(
                f"{self._names.topic}-{partition}: the partition has no leader; retry"
            )
        return NotCoordinator(
            f"{name}: this broker is not the coordinator; send the request to broker {leader}"
            if leader != self.node_id
            else f"{name}: the coordinator of this broker is starting or stopping; retry"
        )

    # --- the image --------------------------------------------------------------------------------

    def _present_image(self) -> MetadataImage:
        return self._image

    def apply(self, delta: ImageDelta) -> None:
        """Apply a metadata change; call it after the replicas have applied it."""
        self._image = delta.after
        topic = self._names.topic
        before, after = delta.before.topic(topic), delta.after.topic(topic)
        self._stored = after
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
        self._shards_by_key.clear()
        names = self._names
        led = {}
        for index, state in topic.sorted_partitions() if topic is not None else ():
            if state.leader == self.node_id:
                led[index] = state.leader_epoch
        for index, shard in list(self._shards.items()):
            if led.get(index) != shard.leader_epoch:
                del self._shards[index]
                shard.end(
                    NotCoordinator(
                        f"{names.topic}-{index}: another broker coordinates its {names.entities};"
                        " look up the coordinator again"
                    )
                )
        for index, epoch in led.items():
            if index not in self._shards:
                shard = self._new_shard(self._shard_deps(), index, Epoch(epoch))
                self._shards[index] = shard
                self._context.scope.spawn(
                    shard.run(), name=f"{names.entities} of partition {index}"
                )

    def _shard_deps(self) -> "CoordinatorDeps":
        from .coordinator_shard import CoordinatorDeps

        if self._deps is None:
            self._deps = CoordinatorDeps(
                clock=self._context.runtime.clock,
                directory=self._context.directory,
                figures=self._metrics,
                waits_max=self._waits_max,
                replica_of=self._context.replica_of,
                image=self._present_image,
                may_be_replaced=self._may_be_replaced,
                loading=asyncio.Semaphore(LOADS_AT_ONCE),
            )
        return self._deps

    async def close(self) -> None:
        """End every coordinator shard; pending requests fail with NotCoordinator."""
        self._is_closed = True
        self._shards_by_key.clear()
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            shard.end(NotCoordinator("the broker is stopping; look up the coordinator again"))
