"""Level `intruder`: level `node` with a machine that forges the messages of nodes.

It reaches every internal listener of a cluster with certified nodes, and knows all ids, epochs and
offsets. It has no certificate, or that of a user, of a node of another cluster, or of a broker with
another id. It sends votes,
entries, registrations, changes of metadata, requests of followers and transaction markers under the
ids of the nodes. Each one must be refused, and all checks of level `node` hold.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from quorumlog.broker.replication_frames import ReplicationFrameFormat, encode_frame
from quorumlog.errors import (
    ClusterAuthorizationFailed,
    NotImplementedHere,
    QuorumlogError,
    StreamBroken,
    TransportError,
)
from quorumlog.ids import DirectoryId, Epoch, NodeId, Offset
from quorumlog.proto import admin_pb2, controller_pb2, raft_pb2, replica_pb2, transactions_pb2
from quorumlog.proto import transaction_coordination_pb2 as coordination_pb2
from quorumlog.raftlog.codec import (
    Introduction,
    encode_introduction,
    encode_message,
    encode_vote_request,
)
from quorumlog.raftlog.frames import RAFT_FRAMES
from quorumlog.raftlog.frames import encode_frame as encode_raft_frame
from quorumlog.raftlog.log_view import LogEnd
from quorumlog.raftlog.messages import AppendRequest, VoteRequest
from quorumlog.raftlog.voters import Voter
from quorumlog.runtime import ANONYMOUS_CLIENT, ClientIdentity, PeerCertificate, Runtime
from quorumlog.runtime.frame_stream import FrameReader, open_stream
from quorumlog.runtime.node_identity import node_uri
from quorumlog.services import (
    CONTROLLER_ALTER_PARTITIONS,
    CONTROLLER_BROKER_SESSION,
    CONTROLLER_RELAY,
    RAFT_VOTE,
    REPLICA_ENDPOINT,
    TRANSACTION_COORDINATION_WRITE_MARKERS,
    TRANSACTIONS_ABORT,
)
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimWorld

from ..checkers.violation import Violation
from ..cluster.nodes import CLUSTER_ID, Cluster, ClusterNode
from .node.level import Run, play_run

MACHINE: Final = "intruder"
BOTH: Final = ("broker", "controller")
OUTSIDER: Final = NodeId(77)
"""The node id in its certificate, which no node has."""
PAUSE_MS: Final = (20, 600)
CALL_MS: Final = 1_000
ADMINISTRATOR: Final = ClientIdentity("User:admin", "10.0.0.1")

CERTIFICATES: Final = {
    "none": None,
    "user": PeerCertificate("CN=mallory", (), ()),
    "elsewhere": PeerCertificate("CN=n1", (node_uri("elsewhere", 1, BOTH),), ()),
    "broker": PeerCertificate("CN=n77", (node_uri(CLUSTER_ID, OUTSIDER, ("broker",)),), ()),
}
"""The certificates that it may have, by kind."""

T = TypeVar("T")
Forgery: TypeAlias = Callable[[ClusterNode], Awaitable[None]]


class Intruder:
    """The program of the machine."""

    def __init__(
        self, runtime: Runtime, cluster: Cluster, entropy: SimEntropy, *, is_broker: bool
    ) -> None:
        """`is_broker`: its certificate is that of the broker OUTSIDER."""
        self.refused: Counter[str] = Counter()  # by forgery
        self.is_over = False
        self._runtime = runtime
        self._cluster = cluster
        self._entropy = entropy
        self._forgeries: list[Forgery] = [
            self.vote,
            self.own_vote,
            self.entries,
            self.relay,
            self.shrink_isr,
            self.register,
            self.follow,
        ]
        if not is_broker:  # a broker may do these for its own partitions
            self._forgeries += [self.ask_port, self.markers, self.abort_transaction]

    async def run(self) -> None:
        """Forge messages until the clients have ended."""
        entropy = self._entropy
        while not self.is_over:
            await asyncio.sleep(entropy.uniform(*PAUSE_MS) / 1000)
            forge = self._forgeries[entropy.below(len(self._forgeries))]
            target = _pick(entropy, self._cluster.nodes)
            name = forge.__name__
            try:
                await forge(target)
            except (ClusterAuthorizationFailed, StreamBroken):
                self.refused[name] += 1
                continue
            except (TransportError, NotImplementedHere):
                continue  # the node is down, or has not that role
            except QuorumlogError as error:
                raise Violation("ForgedMessage", f"{name} at {target.name}: {error!r}") from error
            raise Violation("ForgedMessage", f"{name} at {target.name}: it was accepted")

    # --- the quorum ----------------------------------------------------------------------------

    async def vote(self, target: ClusterNode) -> None:
        """Ask for a vote as another voter, in a far epoch and with a log beyond all others."""
        await self._vote(self._other(self._cluster.controllers, target).voter, target)

    async def own_vote(self, target: ClusterNode) -> None:
        """Ask for a vote under the id of its certificate, which has not the role."""
        await self._vote(Voter(OUTSIDER, DirectoryId(b"o" * 16)), target)

    async def _vote(self, sender: Voter, target: ClusterNode) -> None:
        request = VoteRequest(
            sender=sender,
            receiver=target.voter,
            epoch=Epoch(1_000),
            log_end=LogEnd(Epoch(1_000), Offset(1 << 40)),
            pre_vote=False,
            is_transfer=True,
        )
        call = raft_pb2.VoteCall(
            introduction=self._introduction(sender, target), request=encode_vote_request(request)
        )
        channel = self._runtime.network.channel(target.config.controller_listener)
        try:
            await channel.call(RAFT_VOTE, call, timeout_ms=CALL_MS, on_behalf_of=self._behalf())
        finally:
            await channel.close()

    async def entries(self, target: ClusterNode) -> None:
        """Send a heartbeat as the leader of a far epoch."""
        sender = self._other(self._cluster.controllers, target).voter
        request = AppendRequest(
            sender=sender,
            receiver=target.voter,
            epoch=Epoch(1_000),
            prev=LogEnd(Epoch(0), Offset(0)),
            entries=(),
            high_watermark=Offset(0),
        )
        frame = raft_pb2.RaftFrame(
            introduction=self._introduction(sender, target), messages=[encode_message(request)]
        )
        await self._send(target, encode_raft_frame(frame), lambda: FrameReader(RAFT_FRAMES))

    def _introduction(self, sender: Voter, target: ClusterNode) -> raft_pb2.Introduction:
        mine = Introduction(
            sender=sender, incarnation=self._entropy.token(8), stream_number=1_000_000
        )
        return encode_introduction(mine, cluster_id=CLUSTER_ID, receiver=target.voter)

    # --- the controller ------------------------------------------------------------------------

    async def relay(self, target: ClusterNode) -> None:
        """Delete a topic as a broker."""
        await self._call_controller(
            target,
            controller_pb2.RelayRequest(
                cluster_id=CLUSTER_ID,
                broker_id=_pick(self._entropy, self._cluster.brokers).node_id,
                delete_topic=admin_pb2.DeleteTopicRequest(
                    name=_pick(self._entropy, self._cluster.options.topics).name
                ),
            ),
        )

    async def shrink_isr(self, target: ClusterNode) -> None:
        """Remove all followers from the ISR of partitions, as their leader."""
        image, leader = self._cluster.newest_image, _pick(self._entropy, self._cluster.brokers)
        known = image.broker(leader.node_id)
        if known is None:
            raise StreamBroken("the broker has not registered yet")
        request = controller_pb2.AlterPartitionsRequest(
            cluster_id=CLUSTER_ID, broker_id=known.id, broker_epoch=known.epoch
        )
        for topic in image.sorted_topics():
            for index, state in topic.sorted_partitions():
                if state.leader == known.id:
                    change = request.partitions.add(
                        topic_id=topic.id,
                        partition=index,
                        leader_epoch=state.leader_epoch,
                        partition_epoch=state.partition_epoch,
                    )
                    change.isr.add(broker_id=known.id, broker_epoch=known.epoch)
        await self._call_controller(target, request)

    async def _call_controller(
        self,
        target: ClusterNode,
        request: controller_pb2.RelayRequest | controller_pb2.AlterPartitionsRequest,
    ) -> None:
        channel = self._runtime.network.channel(target.config.controller_listener)
        try:
            behalf = self._behalf()
            if isinstance(request, controller_pb2.RelayRequest):
                await channel.call(
                    CONTROLLER_RELAY, request, timeout_ms=CALL_MS, on_behalf_of=behalf
                )
            else:
                await channel.call(
                    CONTROLLER_ALTER_PARTITIONS, request, timeout_ms=CALL_MS, on_behalf_of=behalf
                )
        finally:
            await channel.close()

    async def register(self, target: ClusterNode) -> None:
        """Register as a new process of a broker, which fences the real one."""
        broker = _pick(self._entropy, self._cluster.brokers)
        registration = controller_pb2.BrokerRegistration(
            cluster_id=CLUSTER_ID,
            broker_id=broker.node_id,
            incarnation_id=self._entropy.token(16),
            directory_id=broker.directory_id,
            grpc_address=f"{MACHINE}:9094",
            internal_address=f"{MACHINE}:9093",
            boot_id=broker.sim.device.boot_id,
        )
        channel = self._runtime.network.channel(target.config.controller_listener)
        try:
            stream = await channel.stream(CONTROLLER_BROKER_SESSION, timeout_ms=CALL_MS)
            await stream.send(controller_pb2.BrokerSessionRequest(registration=registration))
            await stream.receive()
        finally:
            await channel.close()

    # --- brokers -------------------------------------------------------------------------------

    async def ask_port(self, target: ClusterNode) -> None:
        """Ask a leader for the port of its followers' streams."""
        request = replica_pb2.ReplicaEndpointRequest(
            cluster_id=CLUSTER_ID, leader_id=target.node_id
        )
        channel = self._runtime.network.channel(target.config.controller_listener)
        try:
            await channel.call(REPLICA_ENDPOINT, request, timeout_ms=CALL_MS)
        finally:
            await channel.close()

    async def follow(self, target: ClusterNode) -> None:
        """Report all records of a leader as replicated, as its follower."""
        image, leader = self._cluster.newest_image, target.node_id
        known = image.broker(self._other(self._cluster.brokers, target).node_id)
        if known is None:
            raise StreamBroken("the broker has not registered yet")
        request = replica_pb2.FollowRequest(
            cluster_id=CLUSTER_ID,
            broker_id=known.id,
            broker_epoch=known.epoch,
            leader_id=leader,
            max_bytes=1,
        )
        for topic in image.sorted_topics():
            for index, state in topic.sorted_partitions():
                if state.leader == leader and known.id in state.replicas:
                    end = self._end_of(target, topic.name, index)
                    request.partitions.add(
                        topic_id=topic.id,
                        partition=index,
                        log_end_offset=end,
                        flushed_end_offset=end,
                        last_epoch=state.leader_epoch,
                        leader_epoch=state.leader_epoch,
                        high_watermark=end,
                    )
        answers = ReplicationFrameFormat(replica_pb2.FollowResponse, is_unidentified=False)
        await self._send(target, encode_frame(request), lambda: FrameReader(answers))

    async def markers(self, target: ClusterNode) -> None:
        """Abort whatever transaction a partition has, as a coordinator."""
        request = coordination_pb2.WriteMarkersRequest(
            cluster_id=CLUSTER_ID, broker_id=target.node_id, wait_ms=CALL_MS
        )
        for producer_id in range(20):
            entry = request.entries.add(
                producer_id=producer_id, producer_epoch=0, coordinator_epoch=1_000
            )
            for topic in self._cluster.newest_image.sorted_topics():
                for index, state in topic.sorted_partitions():
                    if state.leader == target.node_id:
                        entry.targets.add(
                            topic=topic.name,
                            partition=index,
                            topic_id=topic.id,
                            leader_epoch=state.leader_epoch,
                        )
        channel = self._runtime.network.channel(target.config.controller_listener)
        try:
            await channel.call(TRANSACTION_COORDINATION_WRITE_MARKERS, request, timeout_ms=CALL_MS)
        finally:
            await channel.close()

    async def abort_transaction(self, target: ClusterNode) -> None:
        """Abort a transaction on behalf of an administrator."""
        request = transactions_pb2.AbortTransactionRequest(transactional_id="writer-0")
        channel = self._runtime.network.channel(target.config.controller_listener)
        try:
            await channel.call(
                TRANSACTIONS_ABORT, request, timeout_ms=CALL_MS, on_behalf_of=ADMINISTRATOR
            )
        finally:
            await channel.close()

    # --- inside --------------------------------------------------------------------------------

    def _behalf(self) -> ClientIdentity | None:
        """Return the client of a call that the intruder pretends to forward: a handler must not
        take it for the sender."""
        return _pick(self._entropy, (None, ADMINISTRATOR, ANONYMOUS_CLIENT))

    def _other(self, nodes: list[ClusterNode], target: ClusterNode) -> ClusterNode:
        return _pick(self._entropy, [node for node in nodes if node is not target])

    def _end_of(self, node: ClusterNode, topic: str, index: int) -> int:
        """Return the log end offset of a replica."""
        replicas = None if node.node is None else node.node.parts.replicas
        if replicas is None:
            return 0
        try:
            replica = replicas.hosted.replica_of(topic, index)
        except QuorumlogError:
            return 0
        return replica.log.log_end_offset if replica.is_open else 0

    async def _send(
        self, target: ClusterNode, frame: Any, reader: Callable[[], FrameReader[Any]]
    ) -> None:
        """Send a first frame to each byte listener of a node, which a scan of its ports finds.
        Raise StreamBroken if all refuse it."""
        for address in self._cluster.world.fabric.byte_addresses(target.name):
            if await self._is_answered(address, frame, reader()):
                return
        raise StreamBroken("every listener refuses it")

    async def _is_answered(self, address: str, frame: Any, reader: FrameReader[Any]) -> bool:
        """Return True if a frame follows that is no error."""
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def settle(is_answered: bool, _: object) -> None:
            if not answered.done():
                answered.set_result(is_answered)

        stream = await open_stream(
            self._runtime.network,
            address,
            reader,
            take=partial(settle, True),
            ended=partial(settle, False),
        )
        stream.send(frame)
        try:
            async with asyncio.timeout(CALL_MS / 1000):
                return await answered
        except TimeoutError:
            return False
        finally:
            stream.abort("done")


def _pick(entropy: SimEntropy, items: Sequence[T]) -> T:
    return items[entropy.below(len(items))]


def play(world: SimWorld) -> dict[str, int]:
    """Run a seed; raises AssertionError with a violation."""
    entropy = world.entropy.stream("scenario")
    run = Run.of(world, entropy)
    drawn = entropy.stream("intruder")
    machine = world.node(MACHINE)
    kind = _pick(drawn, tuple(CERTIFICATES))
    machine.machine.certificate = CERTIFICATES[kind]
    is_broker = kind == "broker"
    intruders: list[Intruder] = []

    async def main(runtime: Runtime) -> None:
        intruders.append(Intruder(runtime, run.cluster, drawn, is_broker=is_broker))
        await intruders[0].run()

    def look() -> None:
        if not machine.alive and machine.exit_error is not None:
            raise machine.exit_error
        intruders[0].is_over = run.notes.is_over

    machine.spawn(main)
    world.run_for(1)
    run.look = look
    facts = play_run(run, entropy)
    refused = intruders[0].refused
    return facts | {"refused": refused.total(), "forgeries": len(refused), kind: 1}
