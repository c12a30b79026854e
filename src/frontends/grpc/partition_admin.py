"""The partition methods of the service `Admin`: partition counts, reassignments, elections, replica
status.

Changes are forwarded to the active controller. Lists are answered from this broker's image, and
replica status from this broker's state as leader.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ...broker.shell.replica_manager import ReplicaManager
from ...errors import InvalidRequest, NotLeaderOrFollower, QuorumlogError, UnknownTopicOrPartition
from ...ids import NodeId
from ...metadata import (
    MetadataImage,
    TopicImage,
    check_topic_name,
    describe_partition,
    moving_partitions,
)
from ...metadata.topic_configs import effective_min_isr
from ...proto import admin_pb2 as pb
from ...runtime import CallContext, Handler
from ...services import (
    ADMIN_ALTER_REASSIGNMENTS,
    ADMIN_CREATE_PARTITIONS,
    ADMIN_DESCRIBE_REPLICAS,
    ADMIN_ELECT_LEADERS,
    ADMIN_LIST_REASSIGNMENTS,
)
from .metadata_access import MetadataAccess
from .translation import fill_error
from .validation import NAMES_MAX, check_assignments, check_partition, check_places, check_topic_id

STEP: Final = 1_000  # partitions described between two turns of other tasks


class PartitionAdmin:
    """Handlers of the partition methods of `quorumlog.v1.Admin`."""

    def __init__(
        self, metadata: MetadataAccess, replicas: ReplicaManager, *, node_id: NodeId
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._node_id = node_id

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(ADMIN_CREATE_PARTITIONS, self.create_partitions),
            Handler(ADMIN_ALTER_REASSIGNMENTS, self.alter_reassignments),
            Handler(ADMIN_LIST_REASSIGNMENTS, self.list_reassignments),
            Handler(ADMIN_ELECT_LEADERS, self.elect_leaders),
            Handler(ADMIN_DESCRIBE_REPLICAS, self.describe_replicas),
        )
        return {handler.method.path: handler for handler in table}

    async def create_partitions(
        self, request: pb.CreatePartitionsRequest, context: CallContext
    ) -> pb.CreatePartitionsResponse:
        """Raise the partition count of a topic; an unchanged count succeeds."""
        check_topic_name(request.topic)
        check_topic_id(request.topic_id)
        if request.count < 1:
            raise InvalidRequest(f"count: {request.count}; give 1 or more", topic=request.topic)
        check_assignments(request.assignments)
        return (await self._metadata.submit(request, context)).create_partitions

    async def alter_reassignments(
        self, request: pb.AlterReassignmentsRequest, context: CallContext
    ) -> pb.AlterReassignmentsResponse:
        """Start or cancel reassignments, each with its own result."""
        check_places("partitions", request.partitions)
        for part in request.partitions:
            check_partition(part.topic, part.partition)
        check_assignments(each.target for each in request.partitions if each.HasField("target"))
        return (await self._metadata.submit(request, context)).alter_reassignments

    async def list_reassignments(
        self, request: pb.ListReassignmentsRequest, context: CallContext
    ) -> pb.ListReassignmentsResponse:
        """Return the reassignments in progress."""
        check_names(request.topics)
        image = await self._metadata.reach(request.min_metadata_offset, context)
        response = pb.ListReassignmentsResponse(metadata_offset=image.offset)
        wanted = {_known(image, name).id for name in request.topics}
        for topic, index, partition in moving_partitions(image):
            if not wanted or topic.id in wanted:
                described = describe_partition(topic, index, partition)
                response.reassignments.add(topic=topic.name, partition=described)
        return response

    async def describe_replicas(
        self, request: pb.DescribeReplicasRequest, context: CallContext
    ) -> pb.DescribeReplicasResponse:
        """Describe the replicas of partitions that this broker leads, of all if none is named.
        Other tasks run in between."""
        if request.partitions:
            check_places("partitions", request.partitions)
        for part in request.partitions:
            check_partition(part.topic, part.partition)
        image = await self._metadata.reach(request.min_metadata_offset, context)
        named = [(part.topic, part.partition) for part in request.partitions]
        response = pb.DescribeReplicasResponse(broker=self._node_id, metadata_offset=image.offset)
        for count, (topic, index) in enumerate(sorted(named or self._led(image)), 1):
            response.partitions.append(self._standing(image, topic, index))
            if count % STEP == 0:
                await asyncio.sleep(0)
        return response

    def _led(self, image: MetadataImage) -> Iterator[tuple[str, int]]:
        """Yield the partitions that this broker leads according to the image."""
        for topic_id, index in image.partitions_on(self._node_id):
            topic = image.topics_by_id[topic_id]
            if topic.partitions[index].leader == self._node_id:
                yield topic.name, index

    def _standing(self, image: MetadataImage, name: str, index: int) -> pb.ReplicasDescription:
        described = pb.ReplicasDescription(topic=name, partition=index)
        try:
            replica = self._replicas.replica_of(name, index)
            state = image.partition(replica.topic_id, index)
            if state is None or state.leader != self._node_id:
                replica.check()
                raise NotLeaderOrFollower("this broker is not the leader any more; ask the leader")
        except QuorumlogError as error:
            fill_error(described.error, error, name, index)
            return described
        topic = image.topics_by_id[replica.topic_id]
        described.high_watermark = replica.partition.high_watermark
        described.min_isr = effective_min_isr(
            topic.configs, replication_factor=state.replication_factor
        )
        leader, now_ms = replica.partition.leader, self._metadata.now_ms()
        statuses = [] if leader is None else leader.isr.replica_status(now_ms)
        described.replicas.extend(
            pb.ReplicaDescription(
                broker=each.node_id,
                log_end_offset=each.log_end_offset,
                caught_up_ms_ago=each.caught_up_ms_ago,
                in_sync=each.in_sync,
                reason=each.reason,
            )
            for each in statuses
        )
        if not statuses:  # its log is not open yet
            described.replicas.extend(
                pb.ReplicaDescription(
                    broker=node,
                    log_end_offset=-1,
                    caught_up_ms_ago=-1,
                    in_sync=node in state.isr,
                    reason="" if node in state.isr else "the leader is taking over",
                )
                for node in state.replicas
            )
        return described

    async def elect_leaders(
        self, request: pb.ElectLeadersRequest, context: CallContext
    ) -> pb.ElectLeadersResponse:
        """Elect other leaders where that is possible."""
        if request.kind not in pb.ElectionKind.values():
            raise InvalidRequest(
                f"kind: {request.kind}; give ELECTION_KIND_PREFERRED or ELECTION_KIND_UNCLEAN"
            )
        if request.partitions:
            check_places("partitions", request.partitions)
        elif request.kind == pb.ELECTION_KIND_UNCLEAN:
            raise InvalidRequest(
                "partitions: empty for an unclean election, which may lose records; name each one"
            )
        for part in request.partitions:
            check_partition(part.topic, part.partition)
        return (await self._metadata.submit(request, context)).elect_leaders


def check_names(names: Sequence[str]) -> None:
    """Raise InvalidRequest or InvalidTopic for too many or invalid names."""
    if len(names) > NAMES_MAX:
        raise InvalidRequest(f"topics: {len(names)} entries; give 0..{NAMES_MAX}")
    for name in names:
        check_topic_name(name)


def _known(image: MetadataImage, name: str) -> TopicImage:
    topic = image.topic(name)
    if topic is None:
        raise UnknownTopicOrPartition("the topic does not exist; check the name", topic=name)
    return topic
