"""The service `Replica`, on leaders: followers read here, and tools ask where epochs end."""

from collections.abc import Mapping

from ...errors import InconsistentClusterId, InvalidRequest, QuorumlogError
from ...ids import NodeId, Offset, TopicId
from ...proto import replica_pb2 as pb
from ...runtime import CallContext, Handler, Runtime
from ...runtime.error_detail import encode_error
from ...services import REPLICA_EPOCH_END_OFFSETS, REPLICA_FOLLOW
from .follow_session import LeaderStream
from .replicas import ReplicaManager


class ReplicaService:
    """Handlers of `quorumlog.v1.Replica`."""

    def __init__(self, runtime: Runtime, replicas: ReplicaManager) -> None:
        self._runtime = runtime
        self._replicas = replicas

    def handlers(self) -> Mapping[str, Handler]:
        """Return the table that `Network.serve` takes."""
        table = (
            Handler(REPLICA_FOLLOW, self.follow),
            Handler(REPLICA_EPOCH_END_OFFSETS, self.epoch_end_offsets),
        )
        return {handler.method.path: handler for handler in table}

    async def follow(self, stream: LeaderStream, context: CallContext) -> None:
        """Serve one follower's fetches until it ends them."""
        first = await stream.receive()
        if first is None:
            raise InvalidRequest("the stream ended without a FollowRequest; send one first")
        self._check_cluster(first.cluster_id)
        me = self._replicas.node_id
        if first.leader_id != me:
            raise InvalidRequest(f"node {first.leader_id} is meant, and this is node {me}")
        if first.broker_id == me or first.broker_id < 0:
            raise InvalidRequest(f"node {first.broker_id} cannot follow node {me}")
        session = self._replicas.new_session(NodeId(first.broker_id), Offset(first.broker_epoch))
        try:
            async with self._runtime.tasks.scope("broker.follow") as scope:
                await session.run(stream, first, scope)
        finally:
            self._replicas.session_ended(session)

    async def epoch_end_offsets(
        self, request: pb.EpochEndOffsetsRequest, context: CallContext
    ) -> pb.EpochEndOffsetsResponse:
        """Tell where leader epochs end in the logs that are led here."""
        self._check_cluster(request.cluster_id)
        response = pb.EpochEndOffsetsResponse()
        for part in request.partitions:
            result = response.results.add()
            try:
                replica = self._replicas.replica_of_id(TopicId(part.topic_id), part.partition)
                log = await replica.opened()
                replica.partition.check_leader(part.leader_epoch)
                result.epoch, result.end_offset = log.end_offset_for(part.epoch)
            except QuorumlogError as error:
                result.epoch = result.end_offset = -1
                result.error.CopyFrom(encode_error(error))
        return response

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id != self._replicas.cluster_id:
            raise InconsistentClusterId(
                f"this is a node of cluster {self._replicas.cluster_id!r}, the caller means"
                f" {cluster_id!r}: check the address"
            )
