"""The server side of replication: the port of the followers' streams, the streams, and epoch end
offsets.

A stream starts unidentified; its first request must identify the follower within a timeout.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from ....errors import InconsistentClusterId, InvalidRequest, Overloaded, QuorumlogError, TimedOut
from ....ids import NodeId, Offset, TopicId
from ....proto import replica_pb2 as pb
from ....runtime import ByteConnection, CallContext, Handler
from ....runtime.error_detail import encode_error
from ....runtime.frame_stream import FrameReader, FrameStream
from ....runtime.node_identity import BROKER_ROLE, check_role, check_sender
from ....services import REPLICA_ENDPOINT, REPLICA_EPOCH_END_OFFSETS
from ...replication_frames import ReplicationFrame, ReplicationFrameFormat
from .leader import FollowerSession, LeaderStream
from .replication import ReplicationManager

STREAMS_MAX: Final = 2_000
"""Limit of open streams: a few for each broker of the largest clusters."""

IDENTIFICATION_MS_MAX: Final = 10_000
"""The time within which a stream must identify its follower."""


class ReplicaService:
    """The handlers of `quorumlog.v1.Replica`, and the followers' streams."""

    def __init__(self, replication: ReplicationManager) -> None:
        self._replication = replication
        self._port = 0  # of streams; 0: not listening yet
        self._streams: dict[_ServedStream, None] = {}

    def listens_at(self, address: str) -> None:
        """Set the address of streams, which `accept` serves."""
        self._port = int(address.rpartition(":")[2])

    def handlers(self) -> Mapping[str, Handler]:
        """Return the table for `Network.serve`."""
        table = (
            Handler(REPLICA_ENDPOINT, self.endpoint),
            Handler(REPLICA_EPOCH_END_OFFSETS, self.epoch_end_offsets),
        )
        return {handler.method.path: handler for handler in table}

    async def endpoint(
        self, request: pb.ReplicaEndpointRequest, context: CallContext
    ) -> pb.ReplicaEndpointResponse:
        """Return the port of streams, if the caller addresses this broker."""
        check_role(context.sender, BROKER_ROLE)
        self._check_cluster(request.cluster_id)
        self._check_leader(request.leader_id)
        assert self._port, "calls are served before streams"
        return pb.ReplicaEndpointResponse(port=self._port)

    async def epoch_end_offsets(
        self, request: pb.EpochEndOffsetsRequest, context: CallContext
    ) -> pb.EpochEndOffsetsResponse:
        """Return the end offsets of leader epochs in logs led here."""
        check_role(context.sender, BROKER_ROLE)
        self._check_cluster(request.cluster_id)
        response = pb.EpochEndOffsetsResponse()
        for part in request.partitions:
            result = response.results.add()
            try:
                replica = self._replication.replica_of_id(TopicId(part.topic_id), part.partition)
                log = await replica.opened()
                replica.partition.check_leader(part.leader_epoch)
                ends = log.epochs.end_offset_for(part.epoch, log.log_end_offset)
                result.epoch, result.end_offset = ends
            except QuorumlogError as error:
                result.epoch = result.end_offset = -1
                result.error.CopyFrom(encode_error(error))
        return response

    def identify(self, stream: LeaderStream, first: pb.FollowRequest) -> FollowerSession:
        """Start the session of a stream with its first request; raise an error if the follower is
        refused."""
        self._check_cluster(first.cluster_id)
        self._check_leader(first.leader_id)
        check_sender(stream.client, first.broker_id, role=BROKER_ROLE)
        me = self._replication.node_id
        if first.broker_id == me or first.broker_id < 0:
            raise InvalidRequest(f"node {first.broker_id} cannot follow node {me}")
        follower, broker_epoch = NodeId(first.broker_id), Offset(first.broker_epoch)
        return self._replication.begin_session(stream, follower, broker_epoch)

    def accept(self, connection: ByteConnection) -> LeaderStream:
        """Create the stream of a new connection."""
        served = _ServedStream(self, connection)
        if len(self._streams) >= STREAMS_MAX:
            count = len(self._streams)
            served.stream.refuse(
                Overloaded(f"{count} streams are open, the limit is {STREAMS_MAX}; retry later")
            )
        self._streams[served] = None
        return served.stream

    def ended(self, served: "_ServedStream") -> None:
        """Remove a stream that has ended."""
        self._streams.pop(served, None)

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id != self._replication.cluster_id:
            raise InconsistentClusterId(
                f"this node belongs to cluster {self._replication.cluster_id!r}, the request is for"
                f" {cluster_id!r}; check the address"
            )

    def _check_leader(self, leader_id: int) -> None:
        me = self._replication.node_id
        if leader_id != me:
            raise InvalidRequest(
                f"the request is for node {leader_id}, this is node {me}; refresh the metadata"
            )


class _ServedStream:
    """One connection: unidentified first, then a follower's."""

    __slots__ = ("_identification_timer", "_service", "_session", "stream")

    def __init__(self, service: ReplicaService, connection: ByteConnection) -> None:
        self._service = service
        self._session: FollowerSession | None = None
        self.stream: LeaderStream = FrameStream(
            connection,
            FrameReader(ReplicationFrameFormat(pb.FollowRequest, is_unidentified=True)),
            take=self._take,
            ended=self._ended,
        )
        loop = asyncio.get_running_loop()
        self._identification_timer = loop.call_later(IDENTIFICATION_MS_MAX / 1000, self._time_out)

    def _take(self, frame: ReplicationFrame[pb.FollowRequest]) -> None:
        """Handle a request; raise an error if the first one is refused."""
        if self._session is None:
            self._session = self._service.identify(self.stream, frame.message)
            self._identification_timer.cancel()
        self._session.take(frame.message)

    def _time_out(self) -> None:
        self.stream.refuse(TimedOut("the stream was not identified in time"))

    def _ended(self, error: QuorumlogError | None) -> None:
        self._identification_timer.cancel()
        self._service.ended(self)
        loop = asyncio.get_running_loop()  # the other side needs time to read the reason
        loop.call_later(IDENTIFICATION_MS_MAX / 1000, self.stream.abort, "the stream was refused")
        if self._session is not None:
            self._session.close()
