"""Partitions: reassignments, elections, replica status, disk usage, deletion of records."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from ..broker import DeletionOutcome, DeletionSpec, ReplicaSize
from ..broker.isr import ReplicaStatus
from ..broker.shell.hosted_replicas import HostedReplicas
from ..broker.shell.log_admin import LogAdmin
from ..errors import (
    DiskFailed,
    InvalidRequest,
    NotLeaderOrFollower,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from ..ids import NO_NODE, NodeId, Offset
from ..metadata import (
    AlterReassignments,
    ElectLeaders,
    MetadataImage,
    PartitionImage,
    PartitionOutcomes,
    Submitted,
    TopicImage,
    check_topic_name,
    effective_min_isr,
    moving_partitions,
)
from ..metadata.acls import AclOperation, AclResourceType
from ..runtime import Clock, Files
from ..runtime.steps import step_counter
from .audit import recorded
from .authorizer import Authorizer
from .metadata_access import MetadataAccess, existing_topic
from .request_context import RequestContext
from .validation import (
    ANSWER_MS,
    NAMES_MAX,
    check_assignments,
    check_names,
    check_partition,
    check_places,
    check_topic_id,
)

STEP: Final = 1_000  # partitions visited between two turns of other tasks


class PartitionStatus(Struct, frozen=True, kw_only=True):
    """The replicas of one partition as its leader has them, or the error."""

    topic: str
    partition: int
    high_watermark: Offset | int = -1
    min_isr: int = 0
    replicas: tuple[ReplicaStatus, ...] = ()
    error: QuorumlogError | None = None


class LogDirUsage(Struct, frozen=True, kw_only=True):
    """The data directory of this broker with the partitions in it."""

    path: str
    capacity_bytes: int
    free_bytes: int
    logs: tuple[ReplicaSize, ...]  # by ascending topic and partition
    descriptors: tuple[int, int]  # open ones of the process, and the limit; 0: unknown


class DeleteRecords(Struct, frozen=True):
    """A deletion of records, as the audit log has it."""

    partitions: tuple[DeletionSpec, ...]


class PartitionAdmin:
    """The operations on partitions."""

    def __init__(
        self,
        metadata: MetadataAccess,
        authorizer: Authorizer,
        hosted: HostedReplicas,
        log_admin: LogAdmin,
        files: Files,
        clock: Clock,
        *,
        node_id: NodeId,
        data_dir: str,
    ) -> None:
        self._metadata = metadata
        self._authorizer = authorizer
        self._hosted = hosted
        self._log_admin = log_admin
        self._files = files
        self._clock = clock
        self._node_id = node_id
        self._data_dir = data_dir

    # --- reassignments and leaders --------------------------------------------------------------

    async def alter_reassignments(
        self, command: AlterReassignments, context: RequestContext
    ) -> Submitted[PartitionOutcomes]:
        """Start or cancel reassignments, each with its own result."""
        authorize = partial(self._check_cluster, AclOperation.ALTER, context)
        authorize()
        moves = command.reassignments
        check_places("partitions", [(move.topic, move.partition) for move in moves])
        for move in moves:
            check_partition(move.topic, move.partition)
        check_assignments(move.replicas for move in moves if move.replicas is not None)
        return await self._metadata.submit(command, context, authorize)

    async def elect_leaders(
        self, command: ElectLeaders, context: RequestContext
    ) -> Submitted[PartitionOutcomes]:
        """Elect other leaders where that is possible."""
        authorize = partial(self._check_cluster, AclOperation.ALTER, context)
        authorize()
        if command.partitions:
            check_places("partitions", command.partitions)
        elif command.unclean:
            raise InvalidRequest(
                "partitions: empty for an unclean election, which may lose records; name each one"
            )
        for topic, index in command.partitions:
            check_partition(topic, index)
        return await self._metadata.submit(command, context, authorize)

    async def list_reassignments(
        self, topics: Sequence[str], context: RequestContext
    ) -> tuple[list[tuple[TopicImage, int, PartitionImage]], Offset]:
        """Return the reassignments in progress, of these topics or (none named) of all, and the
        offset of the metadata."""
        image = await self._metadata.reach(context)
        self._check_cluster(AclOperation.DESCRIBE, context)
        check_names(topics)
        wanted = {_named_topic(image, name).id for name in topics}
        moving = [each for each in moving_partitions(image) if not wanted or each[0].id in wanted]
        return moving, image.offset

    async def without_leader(self) -> list[tuple[str, int]]:
        """Return the partitions without a leader, by ascending topic and index. Other tasks run in
        between."""
        found: list[tuple[str, int]] = []
        take_turn = step_counter(STEP)
        for topic in self._metadata.image.sorted_topics():
            found += [
                (topic.name, index)
                for index, partition in topic.sorted_partitions()
                if partition.leader == NO_NODE
            ]
            await take_turn(len(topic.partitions))
        return found

    # --- replicas -------------------------------------------------------------------------------

    async def describe_replicas(
        self, partitions: Sequence[tuple[str, int]], context: RequestContext
    ) -> tuple[list[PartitionStatus], Offset]:
        """Describe the replicas of partitions that this broker leads, of all if none is named, and
        return the offset of the metadata. Other tasks run in between."""
        if partitions:
            check_places("partitions", partitions)
        for topic, index in partitions:
            check_partition(topic, index)
        image = await self._metadata.reach(context)
        described, take_turn = list[PartitionStatus](), step_counter(STEP)
        for topic, index in sorted(partitions or self._led(image)):
            denial = self._denial(AclOperation.DESCRIBE, topic, context)
            if denial is None:
                described.append(self._status(image, topic, index))
            elif partitions:
                described.append(PartitionStatus(topic=topic, partition=index, error=denial))
            await take_turn()
        return described, image.offset

    def _led(self, image: MetadataImage) -> Iterator[tuple[str, int]]:
        """Yield the partitions that this broker leads according to the image."""
        for topic_id, index in image.partitions_on(self._node_id):
            topic = image.topics_by_id[topic_id]
            if topic.partitions[index].leader == self._node_id:
                yield topic.name, index

    def _status(self, image: MetadataImage, name: str, index: int) -> PartitionStatus:
        try:
            replica = self._hosted.replica_of(name, index)
            state = image.partition(replica.topic_id, index)
            if state is None or state.leader != self._node_id:
                replica.check()
                raise NotLeaderOrFollower("this broker is not the leader any more; ask the leader")
        except QuorumlogError as error:
            return PartitionStatus(topic=name, partition=index, error=error)
        topic = image.topics_by_id[replica.topic_id]
        leader, now_ms = replica.partition.leader, self._clock.now_ms()
        statuses = [] if leader is None else leader.isr.replica_status(now_ms)
        return PartitionStatus(
            topic=name,
            partition=index,
            high_watermark=replica.partition.high_watermark,
            min_isr=effective_min_isr(topic.configs, replication_factor=state.replication_factor),
            replicas=tuple(statuses or _unopened(state)),
        )

    async def describe_log_dir(
        self, topics: Sequence[str], context: RequestContext, *, directory_only: bool = False
    ) -> LogDirUsage:
        """Return the sizes of partitions on this broker's disk, of these topics or (none named) of
        all; unopened logs are opened for it. `directory_only`: no partitions."""
        self._check_cluster(AclOperation.DESCRIBE, context)
        if len(topics) > NAMES_MAX:
            raise InvalidRequest(f"topics: {len(topics)} entries; give 0..{NAMES_MAX}")
        for name in topics:
            check_topic_name(name)
            existing_topic(self._metadata.image, name)
        path, files = self._data_dir, self._files
        try:
            capacity_bytes, free_bytes = files.capacity_bytes(path), files.free_bytes(path)
        except OSError as error:
            raise DiskFailed(f"{path}: cannot read its size: {error.strerror or error}") from error
        sizes: Sequence[ReplicaSize] = ()
        if not directory_only:
            left_ms = self._metadata.left_ms(context) - ANSWER_MS
            sizes = await self._log_admin.log_sizes(frozenset(topics), timeout_ms=left_ms)
        return LogDirUsage(
            path=path,
            capacity_bytes=capacity_bytes,
            free_bytes=free_bytes,
            logs=tuple(sizes),
            descriptors=files.descriptors(),
        )

    async def delete_records(
        self, specs: Sequence[DeletionSpec], context: RequestContext
    ) -> list[DeletionOutcome]:
        """Advance the log start offsets of partitions that this broker leads, for good; each has
        its own outcome."""
        check_places("partitions", [(spec.topic, spec.partition) for spec in specs])
        for spec in specs:
            check_partition(spec.topic, spec.partition)
            check_topic_id(spec.topic_id)
        await self._metadata.reach(context)
        denials: dict[str, QuorumlogError | None] = {}
        take_turn = step_counter(STEP)
        for topic in dict.fromkeys(spec.topic for spec in specs):
            denials[topic] = self._denial(AclOperation.DELETE, topic, context)
            await take_turn()
        allowed = [spec for spec in specs if denials[spec.topic] is None]
        outcomes = iter(await self._delete_records(allowed, context))
        return [
            next(outcomes) if denial is None else DeletionOutcome(spec, -1, denial)
            for spec, denial in ((spec, denials[spec.topic]) for spec in specs)
        ]

    async def _delete_records(
        self, specs: Sequence[DeletionSpec], context: RequestContext
    ) -> list[DeletionOutcome]:
        outcomes: list[DeletionOutcome] = []
        if specs:
            with recorded(self._metadata.audit, context.client, DeleteRecords(tuple(specs))):
                outcomes = await self._log_admin.delete_records(specs)
        return outcomes

    # --- authorization --------------------------------------------------------------------------

    def _check_cluster(self, operation: AclOperation, context: RequestContext) -> None:
        self._authorizer.check(context.client, operation, AclResourceType.CLUSTER)

    def _denial(
        self, operation: AclOperation, topic: str, context: RequestContext
    ) -> QuorumlogError | None:
        return self._authorizer.denial(context.client, operation, AclResourceType.TOPIC, topic)


def _named_topic(image: MetadataImage, name: str) -> TopicImage:
    topic = image.topic(name)
    if topic is None:
        raise UnknownTopicOrPartition("the topic does not exist; check the name", topic=name)
    return topic


def _unopened(state: PartitionImage) -> list[ReplicaStatus]:
    """Return the status of the replicas while the leader's log is not open yet."""
    return [
        ReplicaStatus(
            node_id=node,
            log_end_offset=-1,
            caught_up_ms_ago=-1,
            in_sync=node in state.isr,
            reason="" if node in state.isr else "the leader is taking over",
        )
        for node in state.replicas
    ]
