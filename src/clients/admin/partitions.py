"""Partitions in the admin client: creation, reassignment, election, replicas, deletion of
records."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ...errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    NoReassignmentInProgress,
    NotLeaderOrFollower,
    QuorumlogError,
    UnknownTopicId,
)
from ...ids import TopicPartition
from ...proto import admin_pb2
from ...proto import admin_pb2 as pb
from ...runtime.error_detail import decode_error
from ...services import (
    ADMIN_ALTER_REASSIGNMENTS,
    ADMIN_CREATE_PARTITIONS,
    ADMIN_DELETE_RECORDS,
    ADMIN_DESCRIBE_REPLICAS,
    ADMIN_ELECT_LEADERS,
    ADMIN_LIST_REASSIGNMENTS,
)
from ..connection import Connection
from ..offsets import (
    LATEST,
    PartitionLike,
    Position,
    ask_leaders,
    check_position,
    check_result_order,
    look_up,
)
from ..retry import Attempts, is_retriable_change
from ..topology import check_topic, invalid_response
from .descriptions import Partition, Topic, decode_partition, decode_topic

Assignments: TypeAlias = Sequence[Sequence[int]]
"""The brokers of each partition, by index; the preferred leader of each first."""

PARTS_MAX: Final = 1_000  # partitions per request; more are split into several requests


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """The outcome of a change of one partition."""

    topic: str
    partition: int
    error: QuorumlogError | None  # None: the change was made


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A reassignment in progress."""

    topic: str
    state: Partition  # the present state, with the replicas being added and removed

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.state.partition

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(node for node in self.state.replicas if node not in self.state.removing)


async def create_partitions(
    connection: Connection,
    topic: str,
    count: int,
    *,
    assignments: Assignments | None,
    validate_only: bool,
) -> Topic:
    """Send a request for more partitions to the controller."""
    if type(count) is not int or count < 1:
        raise InvalidPartitions(f"count is {count!r}: give 1 or more")
    answer = await connection.call_any(
        ADMIN_CREATE_PARTITIONS,
        pb.CreatePartitionsRequest(
            topic=topic,
            count=count,
            assignments=assignment_list(assignments or ()),
            validate_only=validate_only,
        ),
        retry_on=is_retriable_change,
    )
    connection.topology.record_offset(answer.metadata_offset)
    connection.topology.mark_stale(topic)
    return decode_topic(check_topic(answer.topic, topic))


async def alter_reassignments(
    connection: Connection,
    targets: Mapping[TopicPartition, Sequence[int]] | Mapping[PartitionLike, Sequence[int] | None],
) -> list[PartitionOutcome]:
    """Start reassignments; cancel those with target None."""
    parts = []
    for (topic, partition), target in targets.items():
        part = pb.PartitionReassignment(topic=topic, partition=checked_partition(partition))
        if target is not None:
            part.target.CopyFrom(assignment_list([target])[0])
        parts.append(part)
    outcomes = []
    for first in range(0, len(parts), PARTS_MAX):
        outcomes += await _alter_some(connection, parts[first : first + PARTS_MAX])
    return outcomes


async def _alter_some(
    connection: Connection, parts: Sequence[pb.PartitionReassignment]
) -> list[PartitionOutcome]:
    attempts = Attempts(may_retry=is_retriable_change)
    answer = await connection.call_any(
        ADMIN_ALTER_REASSIGNMENTS,
        pb.AlterReassignmentsRequest(partitions=parts),
        retry_on=attempts.retry_on,
    )
    connection.topology.record_offset(answer.metadata_offset)
    outcomes = _outcomes(connection, answer.results)
    if [(each.topic, each.partition) for each in outcomes] != [
        (part.topic, part.partition) for part in parts
    ]:
        raise invalid_response(f"returned {len(outcomes)} results for {len(parts)} partitions")
    if not attempts.is_outcome_unknown:
        return outcomes
    return [
        replace(each, error=None)
        if not part.HasField("target") and isinstance(each.error, NoReassignmentInProgress)
        else each  # an earlier attempt may have cancelled it
        for each, part in zip(outcomes, parts, strict=True)
    ]


async def list_reassignments(connection: Connection, topics: Sequence[str]) -> list[Reassignment]:
    """Query any broker for the reassignments in progress."""
    if isinstance(topics, str):
        raise InvalidRequest(f"topics is {topics!r}; give a list of names")
    request = pb.ListReassignmentsRequest(
        topics=topics, min_metadata_offset=connection.topology.metadata_offset
    )
    answer = await connection.call_any(
        ADMIN_LIST_REASSIGNMENTS, request, retry_on=is_retriable_change
    )
    connection.topology.record_offset(answer.metadata_offset)
    return [
        Reassignment(topic=each.topic, state=decode_partition(each.partition))
        for each in answer.reassignments
    ]


async def elect_leaders(
    connection: Connection, partitions: Iterable[PartitionLike], *, unclean: bool
) -> list[PartitionOutcome]:
    """Elect leaders; without partitions wherever the preferred replica can lead and does not."""
    parts = [
        pb.TopicPartition(topic=topic, partition=checked_partition(partition))
        for topic, partition in partitions
    ]
    if unclean and not parts:
        raise InvalidRequest("an unclean election may lose records: name each partition")
    outcomes = []
    for first in range(0, max(1, len(parts)), PARTS_MAX):
        answer = await connection.call_any(
            ADMIN_ELECT_LEADERS,
            pb.ElectLeadersRequest(
                kind=pb.ELECTION_KIND_UNCLEAN if unclean else pb.ELECTION_KIND_PREFERRED,
                partitions=parts[first : first + PARTS_MAX],
            ),
            retry_on=is_retriable_change,
        )
        connection.topology.record_offset(answer.metadata_offset)
        outcomes += _outcomes(connection, answer.results)
    return outcomes


def assignment_list(assignments: Sequence[Sequence[object]]) -> list[pb.ReplicaAssignment]:
    """Return the messages of replica assignments; raise InvalidReplicaAssignment if one is
    invalid."""
    listed = []
    for replicas in assignments:
        nodes = [node for node in replicas if type(node) is int and 0 <= node < 2**31]
        if not nodes or len(nodes) < len(list(replicas)):
            raise InvalidReplicaAssignment(
                f"the replicas of a partition are {replicas!r}; give a list of node ids"
            )
        listed.append(pb.ReplicaAssignment(replicas=nodes))
    return listed


def checked_partition(partition: int) -> int:
    """Return a partition's number; raise InvalidRequest if it is invalid."""
    if type(partition) is not int or not 0 <= partition < 2**31:
        raise InvalidRequest(f"partition is {partition!r}; give 0 or more")
    return partition


def _outcomes(
    connection: Connection, results: Iterable[pb.PartitionOutcome]
) -> list[PartitionOutcome]:
    outcomes = []
    for result in results:
        error = decode_error(result.error) if result.HasField("error") else None
        if error is None:
            connection.topology.mark_stale(result.topic)
        outcomes.append(
            PartitionOutcome(topic=result.topic, partition=result.partition, error=error)
        )
    return outcomes


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica of a partition."""

    broker: int
    log_end_offset: int | None  # at its last fetch; None: no fetch in this leader epoch
    caught_up_ms_ago: int | None  # since it had the leader's whole log; None: never in this epoch
    in_sync: bool
    reason: str  # the reason if it is not in sync, a sentence; else empty


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReplicas:
    """The replicas of one partition according to its leader."""

    topic: str
    partition: int
    leader: int | None  # the answering leader; None if there is none
    high_watermark: int | None  # None on an error
    min_isr: int | None  # None on an error
    replicas: tuple[Replica, ...]  # the leader included, in the order of the assignment
    error: QuorumlogError | None  # the reason if the other fields are unknown


async def describe_replicas(
    connection: Connection, leaders: Mapping[PartitionLike, int | None]
) -> list[PartitionReplicas]:
    """Query all leaders concurrently, each once; return the results in the given order.

    If a leader does not answer, its partitions carry the error.
    """
    led: dict[int, list[PartitionLike]] = defaultdict(list)
    for place, leader in leaders.items():
        if leader is not None:
            led[leader].append(place)
    calls = [
        _ask(connection, leader, places[first : first + PARTS_MAX])
        for leader, places in led.items()
        for first in range(0, len(places), PARTS_MAX)
    ]
    found = {
        (each.topic, each.partition): each
        for answers in await asyncio.gather(*calls)
        for each in answers
    }
    return [
        found[place] if place in found else _unknown(place, None, _leaderless(place))
        for place in leaders
    ]


async def _ask(
    connection: Connection, leader: int, places: Sequence[PartitionLike]
) -> list[PartitionReplicas]:
    request = pb.DescribeReplicasRequest(
        partitions=[
            pb.TopicPartition(topic=topic, partition=partition) for topic, partition in places
        ],
        min_metadata_offset=connection.topology.metadata_offset,
    )
    try:
        answer = await connection.call_broker(
            leader, ADMIN_DESCRIBE_REPLICAS, request, retry_on=lambda _: False
        )
        described = {
            (each.topic, each.partition): _replicas(each, leader) for each in answer.partitions
        }
        if described.keys() != set(places):
            raise invalid_response(
                f"returned {len(described)} results for {len(places)} partitions"
            )
    except QuorumlogError as error:
        return [_unknown(place, leader, error) for place in places]
    connection.topology.record_offset(answer.metadata_offset)
    return list(described.values())


def _replicas(each: pb.ReplicasDescription, leader: int) -> PartitionReplicas:
    if each.HasField("error"):
        return _unknown((each.topic, each.partition), leader, decode_error(each.error))
    return PartitionReplicas(
        topic=each.topic,
        partition=each.partition,
        leader=leader,
        high_watermark=each.high_watermark,
        min_isr=each.min_isr,
        replicas=tuple(_all(each.replicas)),
        error=None,
    )


def _all(replicas: Iterable[pb.ReplicaDescription]) -> Iterable[Replica]:
    for each in replicas:
        yield Replica(
            broker=each.broker,
            log_end_offset=None if each.log_end_offset < 0 else each.log_end_offset,
            caught_up_ms_ago=None if each.caught_up_ms_ago < 0 else each.caught_up_ms_ago,
            in_sync=each.in_sync,
            reason=each.reason,
        )


def _unknown(place: PartitionLike, leader: int | None, error: QuorumlogError) -> PartitionReplicas:
    topic, partition = place
    return PartitionReplicas(
        topic=topic,
        partition=partition,
        leader=leader,
        high_watermark=None,
        min_isr=None,
        replicas=(),
        error=error,
    )


def _leaderless(place: PartitionLike) -> NotLeaderOrFollower:
    topic, partition = place
    return NotLeaderOrFollower(
        "the partition has no leader to query", topic=topic, partition=partition
    )


Before: TypeAlias = Position | Mapping[int, Position]
"""The position before which records are deleted, in every partition or by partition."""


def places_to_delete(
    topic: str, before: Before, *, partitions: int
) -> dict[PartitionLike, Position]:
    """Return the position of each named partition; raise InvalidRequest if one is invalid."""
    by_partition = (
        before if isinstance(before, Mapping) else dict.fromkeys(range(partitions), before)
    )
    if not by_partition:
        raise InvalidRequest("before names no partition; nothing would be deleted")
    for partition, position in by_partition.items():
        if type(partition) is not int or partition < 0:
            raise InvalidRequest(f"partition is {partition!r}; give 0 or more")
        check_position(position)
    return {(topic, partition): position for partition, position in by_partition.items()}


async def delete_before(
    connection: Connection,
    wanted: Mapping[PartitionLike, Position],
    *,
    topic_id: bytes,
    deadline_ms: int,
) -> dict[int, int]:
    """Delete the records before each partition's position; return the new log start offsets.

    "latest" is the last stable offset at the moment of the deletion. Only the topic with `topic_id`
    is touched: a retry never deletes records of a newer topic of the same name.
    """
    timed = {place: at for place, at in wanted.items() if at != "latest"}
    offsets = await look_up(connection, timed, deadline_ms=deadline_ms)
    codes = {place: offsets.get(place, LATEST) for place in wanted}

    async def ask(
        connection: Connection,
        address: str,
        codes: Mapping[PartitionLike, int],
        topic_ids: Mapping[str, bytes],
        timeout_ms: int,
    ) -> dict[PartitionLike, int | QuorumlogError]:
        return await _ask_leader(connection, address, codes, topic_id, timeout_ms)

    found = await ask_leaders(
        connection,
        codes,
        deadline_ms,
        ask=ask,
        is_final=lambda error: isinstance(error, UnknownTopicId),
    )
    return {partition: found[topic, partition] for topic, partition in wanted}


async def _ask_leader(
    connection: Connection,
    address: str,
    codes: Mapping[PartitionLike, int],
    topic_id: bytes,
    timeout_ms: int,
) -> dict[PartitionLike, int | QuorumlogError]:
    request = admin_pb2.DeleteRecordsRequest(
        partitions=[
            admin_pb2.DeleteRecordsPartition(
                topic=topic, partition=partition, before_offset=code, topic_id=topic_id
            )
            for (topic, partition), code in codes.items()
        ],
        min_metadata_offset=connection.topology.metadata_offset,
    )
    try:
        channel = connection.channel(address)
        answer = await channel.call(ADMIN_DELETE_RECORDS, request, timeout_ms=timeout_ms)
        check_result_order(answer.results, codes)
    except QuorumlogError as error:
        return dict.fromkeys(codes, error)
    connection.topology.record_offset(answer.metadata_offset)
    return {place: _start(result) for place, result in zip(codes, answer.results, strict=True)}


def _start(result: admin_pb2.DeleteRecordsResult) -> int | QuorumlogError:
    if result.HasField("error"):
        return decode_error(result.error)
    if result.log_start_offset < 0:
        return invalid_response(f"returned log start offset {result.log_start_offset}")
    return result.log_start_offset
