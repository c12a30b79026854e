"""Partition placement and leadership: new partitions, reassignments, leader elections."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ...errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    NoReassignmentInProgress,
    QuorumlogError,
)
from ...proto import admin_pb2 as pb
from ...runtime.error_detail import decode_error
from ...services import (
    ADMIN_ALTER_REASSIGNMENTS,
    ADMIN_CREATE_PARTITIONS,
    ADMIN_ELECT_LEADERS,
    ADMIN_LIST_REASSIGNMENTS,
)
from ..answers import check_topic, senseless
from ..connection import Connection
from ..offsets import Place
from .attempts import Attempts, is_worth_repeating
from .descriptions import Partition, Topic, partition_of_answer, topic_of_answer

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
        retry_on=is_worth_repeating,
    )
    connection.topology.saw_offset(answer.metadata_offset)
    connection.doubt(topic)
    return topic_of_answer(check_topic(answer.topic, topic))


async def alter_reassignments(
    connection: Connection, targets: Mapping[Place, Sequence[int] | None]
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
    attempts = Attempts(is_worth_repeating=is_worth_repeating)
    answer = await connection.call_any(
        ADMIN_ALTER_REASSIGNMENTS,
        pb.AlterReassignmentsRequest(partitions=parts),
        retry_on=attempts.retry_on,
    )
    connection.topology.saw_offset(answer.metadata_offset)
    outcomes = _outcomes(connection, answer.results)
    if [(each.topic, each.partition) for each in outcomes] != [
        (part.topic, part.partition) for part in parts
    ]:
        raise senseless(f"returned {len(outcomes)} results for {len(parts)} partitions")
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
        ADMIN_LIST_REASSIGNMENTS, request, retry_on=is_worth_repeating
    )
    connection.topology.saw_offset(answer.metadata_offset)
    return [
        Reassignment(topic=each.topic, state=partition_of_answer(each.partition))
        for each in answer.reassignments
    ]


async def elect_leaders(
    connection: Connection, partitions: Iterable[Place], *, unclean: bool
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
            retry_on=is_worth_repeating,
        )
        connection.topology.saw_offset(answer.metadata_offset)
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
            connection.doubt(result.topic)
        outcomes.append(
            PartitionOutcome(topic=result.topic, partition=result.partition, error=error)
        )
    return outcomes
