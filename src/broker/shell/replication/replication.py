"""The replication side of a broker: fetchers, followers' streams, and the in-sync replicas.

Owns the fetchers (one for each leading broker), the followers' streams, the ISR requests, and the
periodic lag check. All of it starts with the broker's session with the controllers.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from ....errors import QuorumlogError, Stopping, UnknownTopicId
from ....ids import ClusterId, NodeId, Offset, TopicId
from ....metadata import ImageDelta
from ....runtime import Runtime, Scope
from ....storage.shell.data_directory import DataDirectory
from ...config import ReplicationConfig
from ..metrics import ReplicationMetrics
from ..replica import Replica, ReplicaDeps
from .alter_partition import AlterPartitionLink, AlterPartitionManager
from .follower import FetcherLink as FetcherLink
from .follower import FollowerIdentity, ReplicaFetcherManager
from .leader import Find, FollowerSession, LeaderStream, SharedReads

_LOG = logging.getLogger("quorumlog.broker")

CHECKED_A_STEP: Final = 200
"""Partitions checked in one step."""


class ControllerLink(FetcherLink, AlterPartitionLink, Protocol):
    """The broker's session with the controllers, for replication."""


class ReplicationManager:
    """The replication side of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        directory: DataDirectory,
        node_id: NodeId,
        *,
        find: Find,
        config: ReplicationConfig,
    ) -> None:
        self.cluster_id: ClusterId = directory.meta.cluster_id
        self._runtime = runtime
        self._scope = scope
        self._directory = directory
        self.node_id = node_id
        self._find = find
        self._config = config
        self._link: ControllerLink | None = None
        self._isr: AlterPartitionManager | None = None
        self._addresses: dict[NodeId, str] = {}  # of brokers, for followers
        self._sessions: dict[NodeId, FollowerSession] = {}  # the current one of each follower
        self._shared_reads = SharedReads()
        self._shared: dict[Replica, None] = {}  # replicated partitions led here, with open logs
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self.fetchers = ReplicaFetcherManager(
            runtime,
            scope,
            directory,
            FollowerIdentity(
                cluster_id=self.cluster_id, node_id=node_id, broker_epoch=self._broker_epoch
            ),
            address_of=self._address_of,
            config=config,
        )
        self.deps = ReplicaDeps(
            clock=runtime.clock,
            scope=scope,
            directory=directory,
            follow=self.fetchers.follow,
            forget=self._forget,
            review_isr=self.review_isr,
            failed=self._failed,
        )

    # --- the session and the metadata ---------------------------------------------------------

    def attach(self, link: ControllerLink) -> None:
        """Start replication with this session; once."""
        assert self._link is None, "attached twice"
        self._link = link
        self._isr = AlterPartitionManager(self._runtime.clock, link)
        self._tasks = [
            self._scope.spawn(self._isr.run(), name="broker.isr"),
            self._scope.spawn(self._check_lag(), name="broker.lag"),
        ]
        for replica in self._shared:
            self._isr.request_change(replica)

    def has_lapsed(self) -> bool:
        """Return True if the controllers may have elected another leader for the partitions of this
        broker."""
        return self._link is not None and self._link.is_lapsed()

    def may_be_replaced(
        self,
        replica: Replica,
        may_be_unclean: Callable[[], bool],
        *,
        behind_ms: int,
        lease_ms: int,
    ) -> bool:
        """Return True if another node may lead a partition that this node leads.

        It cannot while the controllers are reached and the metadata is at most `behind_ms` old. Nor
        can it while every electable node has provably followed this node within `lease_ms`; so
        replicas that have lost the controllers together continue to serve.

        `may_be_unclean` returns True if the controllers may elect any replica. While the ISR is too
        small, any replica counts as electable too, because the last one to leave the ISR has all
        committed records (KIP-966). Unclean elections requested by an operator are not considered.
        """
        leader = replica.partition.leader
        if leader is None:
            return True
        link = self._link
        if link is not None and not link.is_lapsed() and not link.is_behind(for_ms=behind_ms):
            return False
        since_ms = self._runtime.clock.now_ms() - lease_ms
        electable = leader.isr.maximal_isr()
        if leader.isr.is_under_min_isr or may_be_unclean():
            electable = (*electable, *leader.state.replicas)
        for node in electable:
            if node == self.node_id:
                continue
            session = self._sessions.get(node)
            if session is None:
                return True
            followed_ms = session.followed_ms(
                replica.topic_id, replica.partition.index, leader.state.leader_epoch
            )
            if followed_ms is None or followed_ms < since_ms:
                return True
        return False

    def apply_configs(self, delta: ImageDelta) -> None:
        """Apply the cluster's configs."""
        configs = delta.after.cluster_configs
        if configs is not delta.before.cluster_configs:
            self.fetchers.set_rate(int(configs.get("replication.throttled.rate", "-1")))

    def apply_brokers(self, delta: ImageDelta) -> None:
        """Apply changes of the brokers' metadata."""
        for before, after in delta.changed_brokers():
            broker = after or before
            assert broker is not None, "a change of no broker"
            if after is None:
                self._addresses.pop(broker.id, None)
            else:
                self._addresses[broker.id] = after.node_address
            self.fetchers.broker_changed(broker.id)
            session = self._sessions.get(broker.id)
            if session is not None:
                session.review()

    async def close(self) -> None:
        """Stop the fetchers and tasks."""
        await self.fetchers.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _broker_epoch(self) -> int:
        return -1 if self._link is None else self._link.broker_epoch

    def _address_of(self, node_id: NodeId) -> str:
        return self._addresses.get(node_id, "")

    # --- followers of this node ---------------------------------------------------------------

    def replica_of_id(self, topic_id: TopicId, partition: int) -> Replica:
        """Return the replica by its topic's id; raise UnknownTopicId."""
        replica = self._find(topic_id, partition)
        if replica is None:
            raise UnknownTopicId(
                "this broker has no replica of this topic id; refresh the metadata",
                partition=partition,
            )
        return replica

    def begin_session(
        self, stream: LeaderStream, follower: NodeId, broker_epoch: Offset
    ) -> FollowerSession:
        """Serve a follower on its stream; its previous session ends. Raises Stopping."""
        if self._is_stopping:
            raise Stopping("the broker is stopping; its partitions will get other leaders")
        before = self._sessions.get(follower)
        if before is not None:
            before.supersede()
        session = self._sessions[follower] = FollowerSession(
            self._runtime.clock,
            self._directory,
            stream,
            follower=follower,
            broker_epoch=broker_epoch,
            shared=self._shared_reads,
            find=self._find,
            review_isr=self.review_isr,
        )
        self._scope.spawn(self._serve(session), name=f"broker.follower.{follower}")
        return session

    async def _serve(self, session: FollowerSession) -> None:
        try:
            await session.run()
        finally:
            if self._sessions.get(session.follower) is session:
                del self._sessions[session.follower]

    def stop_serving(self) -> None:
        """End all followers' streams and refuse new ones, because the node is stopping."""
        self._is_stopping = True
        for session in list(self._sessions.values()):
            session.end(Stopping("the broker is stopping; its partitions will get other leaders"))

    # --- in-sync replicas -------------------------------------------------------------------------

    def review_isr(self, replica: Replica) -> None:
        """Request an ISR change if the partition needs one."""
        leader = replica.partition.leader
        if leader is None or len(leader.state.replicas) < 2:
            return
        self._shared[replica] = None
        if self._isr is not None:
            self._isr.request_change(replica)

    def _forget(self, replica: Replica) -> None:
        self.fetchers.unfollow(replica)
        self._shared_reads.drop(replica)
        if not replica.partition.is_leader:
            self._shared.pop(replica, None)

    @property
    def figures(self) -> ReplicationMetrics:
        """The counters of replication."""
        return self.deps.figures

    def lags(self, found: dict[NodeId, int]) -> Iterator[None]:
        """Record, for each follower, its largest lag in records over the partitions led here; yield
        between steps."""
        for number, replica in enumerate(list(self._shared), 1):
            leader = replica.partition.leader
            if leader is not None:
                for node, remote in leader.isr.remotes.items():
                    lag = max(0, leader.isr.log_end_offset - remote.log_end_offset)
                    found[node] = max(lag, found.get(node, 0))
            if number % CHECKED_A_STEP == 0:
                yield

    async def _check_lag(self) -> None:
        """Advance the time of all partitions twice per replica.lag.time.max.ms. Not after a stall
        of this node, because fetches sent during the stall have not been read yet."""
        clock = self._runtime.clock
        pause_ms = self._config.lag_time_max_ms // 2
        while True:
            before_ms = clock.now_ms()
            await asyncio.sleep(pause_ms / 1000)
            if clock.now_ms() - before_ms > pause_ms + 1_000:
                continue
            for number, replica in enumerate(list(self._shared)):
                leader = replica.partition.leader
                if leader is not None and not replica.is_given_up:
                    replica.progressed(leader.tick(clock.now_ms()))
                    self.review_isr(replica)
                if number % CHECKED_A_STEP == CHECKED_A_STEP - 1:
                    await asyncio.sleep(0)

    # --- failures -----------------------------------------------------------------------------

    def _failed(self, replica: Replica, error: QuorumlogError) -> None:
        """Handle the failure of a log. If the partition has other replicas, this broker stops, so
        that they take over. Otherwise its other partitions continue."""
        if replica.is_shared:
            self._runtime.tasks.stop_node(
                f"the log of {replica.partition.name} failed, and other brokers hold it: {error}"
            )
