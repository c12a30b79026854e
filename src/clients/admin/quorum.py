"""The metadata quorum: describe and change voters through the Quorum service.

Brokers and controllers both serve it.
"""

from dataclasses import dataclass

from ...errors import (
    ConnectionFailed,
    DuplicateVoter,
    Overloaded,
    VoterChangePending,
    VoterLagging,
    VoterNotFound,
)
from ...proto import quorum_pb2 as pb
from ...services import (
    QUORUM_ADD_VOTER,
    QUORUM_DESCRIBE,
    QUORUM_REMOVE_VOTER,
    QUORUM_TRANSFER_LEADERSHIP,
)
from ..connection import Connection
from ..retry import Attempts

_REFUSALS = (ConnectionFailed, Overloaded, VoterChangePending, VoterLagging)
"""Retriable errors after which certainly nothing was changed. After NotController, or a call
without a response, the outcome is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """A voter or an observer of the metadata log."""

    id: int
    directory_id: bytes  # 16 bytes: a node with a new disk is another replica
    address: str  # "host:port" for the other members, "" if unknown
    log_end_offset: int | None  # exclusive end of its copy of the leader's log; None: unknown
    lag: int | None  # records that it lacks; None: unknown
    heard_ms_ago: int | None  # since its last fetch; 0 for the leader; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The quorum according to its leader; without a leader, according to the answering node."""

    cluster_id: str
    leader: int | None  # node id; None if unknown
    epoch: int
    high_watermark: int  # exclusive end of the committed records
    voters: tuple[QuorumReplica, ...]  # by ascending id
    observers: tuple[QuorumReplica, ...]  # by ascending id; empty if no leader answered
    answered_by: int  # node id


async def describe_quorum(connection: Connection) -> Quorum:
    """Query any member, which asks the leader."""
    answer = await connection.call_any(QUORUM_DESCRIBE, pb.DescribeQuorumRequest())
    return Quorum(
        cluster_id=answer.cluster_id,
        leader=_known(answer.leader_id),
        epoch=answer.leader_epoch,
        high_watermark=answer.high_watermark,
        voters=tuple(_replica(each) for each in answer.voters),
        observers=tuple(_replica(each) for each in answer.observers),
        answered_by=answer.answered_by,
    )


async def add_voter(
    connection: Connection, node_id: int, *, directory_id: bytes | None, address: str
) -> None:
    """Add a voter; if a response was lost, compare the voters to recognise a success."""
    request = pb.AddVoterRequest(id=node_id, directory_id=directory_id or b"", address=address)
    attempts = Attempts(refusals=_REFUSALS)
    try:
        await connection.call_any(QUORUM_ADD_VOTER, request, retry_on=attempts.retry_on)
    except DuplicateVoter:
        if not attempts.is_outcome_unknown:
            raise
        quorum = await describe_quorum(connection)
        votes = {each.directory_id for each in quorum.voters if each.id == node_id}
        if not (votes if directory_id is None else directory_id in votes):
            raise


async def remove_voter(connection: Connection, node_id: int, *, directory_id: bytes | None) -> None:
    """Remove a voter; the directory id is resolved first, so that no retry removes another
    replica."""
    if directory_id is None:
        quorum = await describe_quorum(connection)
        found = [each for each in quorum.voters if each.id == node_id]
        if not found:
            ids = ", ".join(str(each.id) for each in quorum.voters)
            raise VoterNotFound(f"node {node_id} does not vote; voters are {ids}")
        directory_id = found[0].directory_id
    request = pb.RemoveVoterRequest(id=node_id, directory_id=directory_id)
    attempts = Attempts(refusals=_REFUSALS)
    try:
        await connection.call_any(QUORUM_REMOVE_VOTER, request, retry_on=attempts.retry_on)
    except VoterNotFound:
        if not attempts.is_outcome_unknown:
            raise


async def transfer_leadership(connection: Connection, to: int | None) -> int:
    """Ask the leader to transfer its leadership; return the epoch that ends."""
    request = pb.TransferLeadershipRequest(id=to)
    answer = await connection.call_any(QUORUM_TRANSFER_LEADERSHIP, request)
    return answer.leader_epoch


def _replica(each: pb.QuorumReplica) -> QuorumReplica:
    return QuorumReplica(
        id=each.id,
        directory_id=each.directory_id,
        address=each.address,
        log_end_offset=_known(each.log_end_offset),
        lag=_known(each.lag),
        heard_ms_ago=_known(each.heard_ms_ago),
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number
