"""The service `Quorum`: the leader, voters and observers, and changes of the voters.

Every controller serves it on each of its listeners.
"""

from collections.abc import Mapping

from ...api.quorum import (
    AddVoter,
    LeadershipTransferred,
    QuorumAdmin,
    QuorumDescription,
    QuorumReplicaState,
    RemoveVoter,
    TransferLeadership,
    VoterAdded,
)
from ...api.request_context import context_of
from ...errors import QuorumlogError
from ...ids import NodeId
from ...proto import quorum_pb2 as pb
from ...runtime import CallContext, Channel, ClientIdentity, Handler, Network
from ...services import (
    QUORUM_ADD_VOTER,
    QUORUM_DESCRIBE,
    QUORUM_REMOVE_VOTER,
    QUORUM_TRANSFER_LEADERSHIP,
)


class QuorumService:
    """Handlers of `quorumlog.v1.Quorum`."""

    def __init__(self, quorum: QuorumAdmin) -> None:
        self._quorum = quorum

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(QUORUM_DESCRIBE, self.describe),
            Handler(QUORUM_ADD_VOTER, self.add_voter),
            Handler(QUORUM_REMOVE_VOTER, self.remove_voter),
            Handler(QUORUM_TRANSFER_LEADERSHIP, self.transfer),
        )
        return {handler.method.path: handler for handler in table}

    async def describe(
        self, request: pb.DescribeQuorumRequest, context: CallContext
    ) -> pb.DescribeQuorumResponse:
        """Return the leader's description; if no leader answers, the local one."""
        described = await self._quorum.describe(context_of(context), is_local=request.local)
        return pb.DescribeQuorumResponse(
            cluster_id=described.cluster_id,
            leader_id=described.leader_id,
            leader_epoch=described.leader_epoch,
            high_watermark=described.high_watermark,
            voters=map(_replica, described.voters),
            observers=map(_replica, described.observers),
            answered_by=described.answered_by,
            is_broker_alone=described.is_broker_alone,
        )

    async def add_voter(
        self, request: pb.AddVoterRequest, context: CallContext
    ) -> pb.AddVoterResponse:
        """Add a node that replicates the log to the voters."""
        change = AddVoter(
            id=request.id,
            directory_id=request.directory_id,
            address=request.address,
            cluster_id=request.cluster_id,
        )
        added = await self._quorum.add_voter(change, context_of(context))
        return pb.AddVoterResponse(directory_id=added.directory_id, address=added.address)

    async def remove_voter(
        self, request: pb.RemoveVoterRequest, context: CallContext
    ) -> pb.RemoveVoterResponse:
        """Remove a voter."""
        change = RemoveVoter(
            id=request.id,
            directory_id=request.directory_id,
            cluster_id=request.cluster_id,
        )
        directory_id = await self._quorum.remove_voter(change, context_of(context))
        return pb.RemoveVoterResponse(directory_id=directory_id)

    async def transfer(
        self, request: pb.TransferLeadershipRequest, context: CallContext
    ) -> pb.TransferLeadershipResponse:
        """Transfer the leadership to another voter."""
        change = TransferLeadership(
            id=request.id if request.HasField("id") else None,
            cluster_id=request.cluster_id,
        )
        done = await self._quorum.transfer(change, context_of(context))
        return pb.TransferLeadershipResponse(
            leader_id=done.leader_id, leader_epoch=done.leader_epoch
        )


class QuorumClient:
    """Calls of the service at other nodes; implements `api.quorum.QuorumPeers`."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._channels: dict[str, Channel] = {}  # to present and past leaders: as many as voters

    async def describe(self, address: str, timeout_ms: int) -> QuorumDescription:
        """Return the state of the node itself."""
        return await _describe(self._channel(address), timeout_ms)

    async def has_controller_role(self, address: str, node_id: NodeId, timeout_ms: int) -> bool:
        """Return False if the node of this id reports that it has no controller role. A node that
        does not answer passes."""
        channel = self._network.channel(address)
        try:
            described = await _describe(channel, timeout_ms)
        except QuorumlogError:
            return True
        finally:
            await channel.close()
        return not (described.answered_by == node_id and described.is_broker_alone)

    async def add_voter(
        self, address: str, change: AddVoter, client: ClientIdentity, timeout_ms: int
    ) -> VoterAdded:
        """Add a voter at the leader."""
        request = pb.AddVoterRequest(
            cluster_id=change.cluster_id,
            id=change.id,
            directory_id=change.directory_id,
            address=change.address,
        )
        channel = self._channel(address)
        added = await channel.call(
            QUORUM_ADD_VOTER, request, timeout_ms=timeout_ms, on_behalf_of=client
        )
        return VoterAdded(directory_id=added.directory_id, address=added.address)

    async def remove_voter(
        self, address: str, change: RemoveVoter, client: ClientIdentity, timeout_ms: int
    ) -> bytes:
        """Remove a voter at the leader; return its directory id."""
        request = pb.RemoveVoterRequest(
            cluster_id=change.cluster_id,
            id=change.id,
            directory_id=change.directory_id,
        )
        channel = self._channel(address)
        removed = await channel.call(
            QUORUM_REMOVE_VOTER, request, timeout_ms=timeout_ms, on_behalf_of=client
        )
        return removed.directory_id

    async def transfer(
        self, address: str, change: TransferLeadership, client: ClientIdentity, timeout_ms: int
    ) -> LeadershipTransferred:
        """Transfer the leadership at the leader."""
        request = pb.TransferLeadershipRequest(cluster_id=change.cluster_id, id=change.id)
        channel = self._channel(address)
        done = await channel.call(
            QUORUM_TRANSFER_LEADERSHIP, request, timeout_ms=timeout_ms, on_behalf_of=client
        )
        return LeadershipTransferred(
            leader_id=NodeId(done.leader_id), leader_epoch=done.leader_epoch
        )

    def _channel(self, address: str) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._network.channel(address)
        return channel


async def _describe(channel: Channel, timeout_ms: int) -> QuorumDescription:
    request = pb.DescribeQuorumRequest(local=True)
    described = await channel.call(QUORUM_DESCRIBE, request, timeout_ms=timeout_ms)
    return QuorumDescription(
        cluster_id=described.cluster_id,
        leader_id=NodeId(described.leader_id),
        leader_epoch=described.leader_epoch,
        high_watermark=described.high_watermark,
        voters=tuple(map(_read_replica, described.voters)),
        observers=tuple(map(_read_replica, described.observers)),
        answered_by=NodeId(described.answered_by),
        is_broker_alone=described.is_broker_alone,
    )


def _replica(replica: QuorumReplicaState) -> pb.QuorumReplica:
    return pb.QuorumReplica(
        id=replica.id,
        directory_id=replica.directory_id,
        address=replica.address,
        log_end_offset=replica.log_end_offset,
        lag=replica.lag,
        heard_ms_ago=replica.heard_ms_ago,
    )


def _read_replica(replica: pb.QuorumReplica) -> QuorumReplicaState:
    return QuorumReplicaState(
        id=NodeId(replica.id),
        directory_id=replica.directory_id,
        address=replica.address,
        log_end_offset=replica.log_end_offset,
        lag=replica.lag,
        heard_ms_ago=replica.heard_ms_ago,
    )
