"""The replicating side of a broker: whom it follows, who follows it, and who is in sync.

Owns the fetchers (one a leading broker), the streams of followers, the requests for other in-sync
replicas, and the look at who lags. None of it runs before the broker has a session with the
controllers.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from ....errors import QuorumlogError, Stopping
from ....ids import ClusterId, NodeId, Offset
from ....metadata import ImageDelta
from ....runtime import Runtime, Scope
from ....storage.shell.data_directory import Directory
from ..figures import ReplicationFigures
from ..replica import Replica, Surroundings
from .fetcher import ControllerLink as FetcherLink
from .fetcher import Fetchers, FollowerIdentity, ReplicationConfig
from .follow_session import Find, FollowSession, LeaderStream
from .isr_requests import IsrLink, IsrRequests

_LOG = logging.getLogger("quorumlog.broker")

CHECKED_A_STEP: Final = 200
"""Partitions whose followers are looked at before others get the loop."""


class ControllerLink(FetcherLink, IsrLink, Protocol):
    """What replication asks of the broker's session with the controllers."""


class Replication:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        directory: Directory,
        node_id: NodeId,
        *,
        find: Find,
        config: ReplicationConfig,
    ) -> None:
        self.cluster_id: ClusterId = directory.meta.cluster_id
        self._runtime = runtime
        self._scope = scope
        self._directory = directory
        self._node_id = node_id
        self._find = find
        self._config = config
        self._link: ControllerLink | None = None
        self._isr: IsrRequests | None = None
        self._addresses: dict[NodeId, str] = {}  # of brokers, for followers
        self._sessions: dict[NodeId, FollowSession] = {}  # the newest of each follower
        self._shared: dict[Replica, None] = {}  # led here, with other replicas, and open
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self.fetchers = Fetchers(
            runtime,
            scope,
            directory,
            FollowerIdentity(
                cluster_id=self.cluster_id, node_id=node_id, broker_epoch=self._broker_epoch
            ),
            address_of=self._address_of,
            config=config,
        )
        self.around = Surroundings(
            clock=runtime.clock,
            scope=scope,
            directory=directory,
            follow=self.fetchers.follow,
            forget=self._forget,
            look_at_isr=self.look_at_isr,
            failed=self._failed,
        )

    # --- the session and the metadata ---------------------------------------------------------

    def attach(self, link: ControllerLink) -> None:
        """Replicate from now on, as the broker of this session; once."""
        assert self._link is None, "attached twice"
        self._link = link
        self._isr = IsrRequests(self._runtime.clock, link)
        self._tasks = [
            self._scope.spawn(self._isr.run(), name="broker.isr"),
            self._scope.spawn(self._watch_lag(), name="broker.lag"),
        ]
        for replica in self._shared:
            self._isr.look(replica)

    @property
    def has_lapsed(self) -> bool:
        """Whether another node may lead what this one does, for all that it has heard."""
        return self._link is not None and self._link.is_lapsed()

    def may_be_replaced(
        self,
        replica: Replica,
        may_be_unclean: Callable[[], bool],
        *,
        behind_ms: int,
        lease_ms: int,
    ) -> bool:
        """Whether another node may lead a partition by now that this one leads. It may not while
        the controllers are heard and what they had committed `behind_ms` ago is known, nor while
        everybody whom they could elect has followed this node for certain within `lease_ms`: so
        replicas that have lost the controllers together go on. `may_be_unclean`: they could elect
        any replica; so could they, or nearly, while too few are in sync: who fell out of that last
        has all that is committed (KIP-966). Not looked at are unclean elections that somebody asks
        for by hand."""
        leadership = replica.partition.leadership
        if leadership is None:
            return True
        link = self._link
        if link is not None and not link.is_lapsed() and not link.is_behind(for_ms=behind_ms):
            return False
        since_ms = self._runtime.clock.now_ms() - lease_ms
        electable = leadership.maximal_isr()
        if leadership.is_under_min_isr or may_be_unclean():
            electable = (*electable, *leadership.state.replicas)
        for node in electable:
            if node == leadership.node_id:
                continue
            session = self._sessions.get(node)
            if session is None:
                return True
            followed_ms = session.followed_ms(
                replica.topic_id, replica.partition.index, leadership.state.leader_epoch
            )
            if followed_ms is None or followed_ms < since_ms:
                return True
        return False

    def configured(self, delta: ImageDelta) -> None:
        """Take in what is configured for the cluster."""
        configs = delta.after.cluster_configs
        if configs is not delta.before.cluster_configs:
            self.fetchers.set_rate(int(configs.get("replication.throttled.rate", "-1")))

    def brokers_changed(self, delta: ImageDelta) -> None:
        """Take in what the image says of the brokers."""
        for before, after in delta.changed_brokers():
            broker = after or before
            assert broker is not None, "a change of no broker"
            if after is None:
                self._addresses.pop(broker.id, None)
            else:
                self._addresses[broker.id] = after.replica_address or after.grpc_address
            self.fetchers.broker_changed(broker.id)
            session = self._sessions.get(broker.id)
            if session is not None:
                session.reconsider()

    async def close(self) -> None:
        """End what runs."""
        await self.fetchers.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _broker_epoch(self) -> int:
        return -1 if self._link is None else self._link.broker_epoch

    def _address_of(self, node_id: NodeId) -> str:
        return self._addresses.get(node_id, "")

    # --- followers of this node ---------------------------------------------------------------

    def begin_session(
        self, stream: LeaderStream, follower: NodeId, broker_epoch: Offset
    ) -> FollowSession:
        """Serve a follower on its stream; the session before it ends. Raises Stopping."""
        if self._is_stopping:
            raise Stopping("the node is stopping; the partitions will have other leaders")
        before = self._sessions.get(follower)
        if before is not None:
            before.supersede()
        session = self._sessions[follower] = FollowSession(
            self._runtime.clock,
            self._directory,
            stream,
            follower=follower,
            broker_epoch=broker_epoch,
            find=self._find,
            look_at_isr=self.look_at_isr,
        )
        self._scope.spawn(self._serve(session), name=f"broker.follower.{follower}")
        return session

    async def _serve(self, session: FollowSession) -> None:
        try:
            await session.run()
        finally:
            if self._sessions.get(session.follower) is session:
                del self._sessions[session.follower]

    def stop_serving(self) -> None:
        """End the streams of followers, now and those to come: the node is stopping."""
        self._is_stopping = True
        for session in list(self._sessions.values()):
            session.end(Stopping("the node is stopping; the partitions will have other leaders"))

    # --- in-sync replicas -------------------------------------------------------------------------

    def look_at_isr(self, replica: Replica) -> None:
        """Other replicas may be in sync now."""
        leader = replica.partition.leader
        if leader is None or len(leader.replicas) < 2:
            return
        self._shared[replica] = None
        if self._isr is not None:
            self._isr.look(replica)

    def _forget(self, replica: Replica) -> None:
        self.fetchers.forget(replica)
        if not replica.partition.is_leader:
            self._shared.pop(replica, None)

    @property
    def figures(self) -> ReplicationFigures:
        """What replication came to."""
        return self.around.figures

    def lags(self, found: dict[NodeId, int]) -> Iterator[None]:
        """Note how many records each follower lacks of the partition led here that it is furthest
        behind in; yields now and then, so that others get the loop."""
        for number, replica in enumerate(list(self._shared), 1):
            leadership = replica.partition.leadership
            if leadership is not None:
                for node, remote in leadership.remotes.items():
                    lag = max(0, leadership.log_end_offset - remote.log_end_offset)
                    found[node] = max(lag, found.get(node, 0))
            if number % CHECKED_A_STEP == 0:
                yield

    async def _watch_lag(self) -> None:
        """Look at everybody twice in replica.lag.time.max.ms. Not after a stall of this node: what
        was sent meanwhile has not been read yet."""
        clock = self._runtime.clock
        pause_ms = self._config.lag_time_max_ms // 2
        while True:
            before_ms = clock.now_ms()
            await asyncio.sleep(pause_ms / 1000)
            if clock.now_ms() - before_ms > pause_ms + 1_000:
                continue
            for number, replica in enumerate(list(self._shared)):
                if replica.partition.is_leader and not replica.is_given_up:
                    replica.progressed(replica.partition.tick(clock.now_ms()))
                    self.look_at_isr(replica)
                if number % CHECKED_A_STEP == CHECKED_A_STEP - 1:
                    await asyncio.sleep(0)

    # --- failures -----------------------------------------------------------------------------

    def _failed(self, replica: Replica, error: QuorumlogError) -> None:
        """A log cannot be used any more. Where others hold the partition they take over, so this
        broker ends; where none does the rest is of more use than nothing."""
        if replica.is_shared:
            self._runtime.tasks.stop_node(
                f"the log of {replica.partition.name} failed, and other brokers hold it: {error}"
            )
