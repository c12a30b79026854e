"""The groups that this broker coordinates: those in the partitions of `__consumer_offsets` that it
leads.

Follows the metadata: a `Term` begins with each leadership and ends with it. What a term needs is
imported when the first one begins: a broker without groups starts without it.
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
from ....storage.shell.directory import Directory
from ...shell.replica import Replica
from ..config import OFFSETS_TOPIC, GroupConfig
from .figures import Census, GroupFigures
from .naming import check_group, partition_of
from .topic import OffsetsTopic

if TYPE_CHECKING:
    from ...shell.producer_ids import ControllerRelay
    from ..requests import GroupListing, GroupRequest
    from .term import Around, Tell, Term

R = TypeVar("R")

_LOG = logging.getLogger("quorumlog.groups")

LOADS_AT_ONCE: Final = 2

BEHIND_MS: Final = 3_000
"""A coordinator that may lack older metadata goes by who follows it, as one that no controller is
heard from does. Within it, the next one does not end a session either."""

LEASE_MS: Final = 1_500
"""So long after it was heard of that nobody else coordinates a group, this broker does, while no
controller is heard. No longer than a session, which another one would begin for every member."""


class MayBeReplaced(Protocol):
    """Says whether another broker may lead a partition by now."""

    def __call__(self, replica: Replica, *, behind_ms: int, lease_ms: int) -> bool:
        """See `Replication.may_be_replaced`."""


class GroupCoordinator:
    """What the front doors ask of groups. Belongs to the loop's thread."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        directory: Directory,
        config: GroupConfig,
        *,
        node_id: NodeId,
        replica_of: Callable[[str, int], Replica],
        may_be_replaced: MayBeReplaced,
        formed_for: Callable[[], int],
    ) -> None:
        """`replica_of` finds what this broker leads, `may_be_replaced` whether another one may
        lead it by now; `formed_for` says of how many nodes the cluster was formed, as far as is
        known."""
        self.figures = GroupFigures()
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
        self._offsets: TopicImage | None = None  # of that image: every request asks for it
        self._terms: dict[int, Term] = {}
        self._around: Around | None = None  # made with the first term
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
        """The newest metadata that were taken."""
        return self._image

    @property
    def has_topic(self) -> bool:
        """Whether the topic of offsets is there: without it no group is."""
        return self._offsets is not None

    def attach(self, relay: "ControllerRelay") -> None:
        """Ask the controller through this session for the topic, where it is missing."""
        self._topic.attach(relay)

    # --- requests ---------------------------------------------------------------------------------

    async def ask(self, request: "GroupRequest[R]", *, deadline_ms: int) -> R:
        """Have a request decided and stored; returns its answer once that is committed.

        `deadline_ms` is by the runtime's clock. Raises InvalidGroupId; NotCoordinator,
        CoordinatorLoading, CoordinatorNotAvailable (also at the deadline: the outcome is then
        unknown), Overloaded; and what the request is refused with.
        """
        check_group(request.group)
        if self._topic.image is None:
            await self._made(deadline_ms)
        return await self._term_of(request.group).ask(request, deadline_ms)

    def begin(self, request: "GroupRequest[R]", tell: "Tell") -> Callable[[], None] | None:
        """As `ask`, without a task, and only where `has_topic`: `tell` is called once, with the
        answer or the error that comes instead. That happens within this call, which returns None
        then, or later, unless what it returns is called: nobody waits any longer. Raises what `ask`
        does before anything is decided."""
        term = self._term_of(request.group)
        ticket = term.begin(request, tell)
        return None if ticket is None else partial(term.forget, ticket)

    def _term_of(self, group: str) -> "Term":
        term = self._terms.get(self.partition_of(group))
        if term is None:
            raise self._elsewhere(group)
        return term

    def partition_of(self, group: str) -> int:
        """Return the partition of `__consumer_offsets` that a group lives in, or will live in;
        raises InvalidGroupId."""
        check_group(group)
        topic = self._offsets
        wanted = self._config.offsets_partitions
        return partition_of(group, wanted if topic is None else len(topic.partitions))

    async def coordinator_of(self, group: str, *, deadline_ms: int) -> NodeId:
        """Return the broker that coordinates a group; makes the topic at first use. Raises
        InvalidGroupId, and CoordinatorNotAvailable: nobody does now, ask again."""
        check_group(group)
        if self._topic.image is None:
            await self._made(deadline_ms)
        leader = self._leader_of(self.partition_of(group))
        broker = self._image.broker(leader)
        if leader == NO_NODE or broker is None or broker.fenced:
            raise CoordinatorNotAvailable(
                f"nobody leads partition {self.partition_of(group)} of {OFFSETS_TOPIC} now: repeat"
            )
        return leader

    def list_groups(self) -> "list[GroupListing]":
        """Return the groups that this broker coordinates, by ascending name; raises
        CoordinatorLoading while some of them are being read."""
        found = [line for _, term in sorted(self._terms.items()) for line in term.listings()]
        return sorted(found, key=lambda line: line.group)

    async def _made(self, deadline_ms: int) -> None:
        if self._is_closed:
            raise Stopping("the node is stopping: ask another broker")
        await self._topic.made(deadline_ms, spawn=self._scope.spawn)

    def _leader_of(self, partition: int) -> NodeId:
        topic = self._topic.image
        state = None if topic is None else topic.partitions.get(partition)
        return NO_NODE if state is None else state.leader

    def _elsewhere(self, group: str) -> NotCoordinator | CoordinatorNotAvailable:
        partition = self.partition_of(group)
        leader = self._leader_of(partition)
        if leader == NO_NODE:
            return CoordinatorNotAvailable(
                f"nobody leads partition {partition} of {OFFSETS_TOPIC} now: repeat"
            )
        return NotCoordinator(
            f"node {leader} coordinates group {group}: ask that broker"
            if leader != self.node_id
            else f"this broker is about to coordinate group {group}, or stops: repeat"
        )

    # --- for the metrics --------------------------------------------------------------------------

    def census(self) -> Census:
        """Count what is coordinated here; costs a look at every group."""
        found = Census()
        for _, term in sorted(self._terms.items()):
            shard = term.shard
            if shard is None:
                found.partitions_read += 1
                continue
            found.partitions_served += 1
            found.offsets += shard.offset_count
            found.members += shard.member_count()
            for line in shard.listings():
                counted = found.groups_by_state.get(line.state, 0)
                found.groups_by_state[line.state] = counted + 1
        return found

    # --- the image --------------------------------------------------------------------------------

    def _present_image(self) -> MetadataImage:
        return self._image

    def apply(self, delta: ImageDelta) -> None:
        """Take one step of the metadata, after the replicas have."""
        self._image = delta.after
        before, after = delta.before.topic(OFFSETS_TOPIC), delta.after.topic(OFFSETS_TOPIC)
        self._offsets = after
        if self._is_closed:
            return
        if before is not after:
            self._take(after)
            self._topic.applied()
        if self._terms and delta.touched_topics:
            deleted = delta.deleted_topics()
            for term in list(self._terms.values()):
                term.image_changed(delta.after, deleted)

    def _take(self, topic: TopicImage | None) -> None:
        """Begin and end terms, as the topic now says."""
        led = {}
        for index, state in topic.sorted_partitions() if topic is not None else ():
            if state.leader == self.node_id:
                led[index] = state.leader_epoch
        for index, term in list(self._terms.items()):
            if led.get(index) != term.leader_epoch:
                del self._terms[index]
                term.end(
                    NotCoordinator(
                        f"another broker coordinates the groups of partition {index} now: look up"
                        " which, and ask that one"
                    )
                )
        for index, epoch in led.items():
            if index not in self._terms:
                term = self._terms[index] = self._new_term(index, epoch)
                self._scope.spawn(term.run(), name=f"groups of partition {index}")

    def _new_term(self, partition: int, epoch: int) -> "Term":
        from ....ids import Epoch
        from .term import Around, Term

        if self._around is None:
            self._around = Around(
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
        return Term(self._around, partition, Epoch(epoch))

    async def close(self) -> None:
        """End every term; who waits is told to look for another coordinator."""
        self._is_closed = True
        terms, self._terms = self._terms, {}
        for term in terms.values():
            term.end(NotCoordinator("this broker stops: look up who coordinates the group"))
