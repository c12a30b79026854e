"""What a leader serves its followers: the port of their streams, the streams, and where epochs end.

A stream begins with strangers: whoever connects has a moment to say who it is, and means.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from ....errors import InconsistentClusterId, InvalidRequest, Overloaded, QuorumlogError, TimedOut
from ....ids import NodeId, Offset, TopicId
from ....proto import replica_pb2 as pb
from ....runtime import ByteConnection, CallContext, Handler
from ....runtime.error_detail import encode_error
from ....services import REPLICA_ENDPOINT, REPLICA_EPOCH_END_OFFSETS
from ..replicas import ReplicaManager
from .follow_session import FollowSession, LeaderStream
from .follow_stream import FollowStream

STREAMS_MAX: Final = 2_000
"""Open at once, strangers included: a few for each broker of the largest clusters."""

STRANGER_MS_MAX: Final = 10_000
"""Who says nothing for so long is nobody."""


class ReplicaService:
    """Handlers of `quorumlog.v1.Replica`, and the followers' streams."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._port = 0  # where streams are taken; 0: nowhere yet
        self._streams: dict[_ServedStream, None] = {}

    def listens_at(self, address: str) -> None:
        """Streams are taken at this address, which `accept` serves."""
        self._port = int(address.rpartition(":")[2])

    def handlers(self) -> Mapping[str, Handler]:
        """Return the table that `Network.serve` takes."""
        table = (
            Handler(REPLICA_ENDPOINT, self.endpoint),
            Handler(REPLICA_EPOCH_END_OFFSETS, self.epoch_end_offsets),
        )
        return {handler.method.path: handler for handler in table}

    async def endpoint(
        self, request: pb.ReplicaEndpointRequest, context: CallContext
    ) -> pb.ReplicaEndpointResponse:
        """Tell where streams are taken, to who means this broker."""
        self._check_cluster(request.cluster_id)
        self._check_leader(request.leader_id)
        assert self._port, "calls are served before streams"
        return pb.ReplicaEndpointResponse(port=self._port)

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

    def introduce(self, stream: LeaderStream, first: pb.FollowRequest) -> FollowSession:
        """Begin the session of a stream by its first request; raises who is refused."""
        self._check_cluster(first.cluster_id)
        self._check_leader(first.leader_id)
        me = self._replicas.node_id
        if first.broker_id == me or first.broker_id < 0:
            raise InvalidRequest(f"node {first.broker_id} cannot follow node {me}")
        follower, broker_epoch = NodeId(first.broker_id), Offset(first.broker_epoch)
        return self._replicas.begin_session(stream, follower, broker_epoch)

    def accept(self, connection: ByteConnection) -> LeaderStream:
        """Somebody has connected."""
        served = _ServedStream(self, connection)
        if len(self._streams) >= STREAMS_MAX:
            count = len(self._streams)
            served.stream.refuse(Overloaded(f"{count} streams are open here: wait and repeat"))
        self._streams[served] = None
        return served.stream

    def ended(self, served: "_ServedStream") -> None:
        """A stream is over."""
        self._streams.pop(served, None)

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id != self._replicas.cluster_id:
            raise InconsistentClusterId(
                f"this is a node of cluster {self._replicas.cluster_id!r}, the caller means"
                f" {cluster_id!r}: check the address"
            )

    def _check_leader(self, leader_id: int) -> None:
        me = self._replicas.node_id
        if leader_id != me:
            raise InvalidRequest(f"node {leader_id} is meant, and this is node {me}")


class _ServedStream:
    """One connection that somebody opened here: a stranger, then a follower."""

    __slots__ = ("_service", "_session", "_stranger", "stream")

    def __init__(self, service: ReplicaService, connection: ByteConnection) -> None:
        self._service = service
        self._session: FollowSession | None = None
        self.stream: LeaderStream = FollowStream(
            connection, pb.FollowRequest, is_stranger=True, take=self._take, ended=self._ended
        )
        loop = asyncio.get_running_loop()
        self._stranger = loop.call_later(STRANGER_MS_MAX / 1000, self._look)

    def _take(self, request: pb.FollowRequest, records: memoryview) -> None:
        """Take a request; raises what is wrong with the first one."""
        if self._session is None:
            self._session = self._service.introduce(self.stream, request)
            self._stranger.cancel()
        self._session.take(request)

    def _look(self) -> None:
        self.stream.refuse(TimedOut("a stream was opened, and nobody was introduced"))

    def _ended(self, error: QuorumlogError) -> None:
        self._stranger.cancel()
        self._service.ended(self)
        loop = asyncio.get_running_loop()  # the other side has a moment to read why
        loop.call_later(STRANGER_MS_MAX / 1000, self.stream.abort, "it was refused")
        if self._session is not None:
            self._session.close()
