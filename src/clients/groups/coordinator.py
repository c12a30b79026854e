"""Requests to the group coordinator, from members and from the admin client; any broker relays
them.

Responses are validated. Retriable errors are retried until the deadline of a call.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ...errors import InvalidRequest, QuorumlogError, UnknownTopicId, UnknownTopicOrPartition
from ...ids import ProducerIdentity
from ...proto import groups_pb2, transactions_pb2
from ...runtime import Clock
from ...runtime.error_detail import decode_error
from ...services import (
    GROUPS_COMMIT_OFFSETS,
    GROUPS_FETCH_OFFSETS,
    GROUPS_HEARTBEAT,
    TRANSACTIONS_ADD_OFFSETS,
)
from ..connection import Connection
from ..offsets import OFFSET_MAX, PartitionLike
from ..producer_identity import identity_message
from ..retry import is_retriable
from ..topology import invalid_response
from .member import GroupHeartbeat

HEARTBEAT_MS = 10_000  # time limit of one heartbeat with its retries
CLIENT_ID = "quorumlog"
GONE = (UnknownTopicId, UnknownTopicOrPartition)
NUMBER_MAX = 2**31 - 1  # of partitions and leader epochs
GONE_ATTEMPTS = 4  # to commit an offset in a topic that is unknown to the coordinator

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset of a group in one partition."""

    offset: int  # of the next record to read
    note: str = ""  # free text of the committer
    leader_epoch: int | None = None  # of the last record read; None: unknown
    commit_ms: int = -1  # time of the commit, milliseconds since 1970 (UTC); -1: not committed
    topic_id: bytes = b""  # of the topic that the offset is in; empty: unknown

    @property
    def committed_at(self) -> datetime | None:
        """The time of the commit; None before it."""
        if self.commit_ms < 0:
            return None
        return datetime.fromtimestamp(self.commit_ms / 1000, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of a request: a member with its epoch, or no member (empty id)."""

    member_id: str = ""
    epoch: int = -1


OUTSIDE = Caller()


class TransactionalCommit(NamedTuple):
    """The transaction that a commit belongs to."""

    transactional_id: str
    producer: ProducerIdentity
    on_send: Callable[[], None]  # called before the offsets are sent, and sent again


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """The constant fields of a member's heartbeats."""

    group: str
    member_id: str
    instance_id: str
    rack: str
    assignor: str
    rebalance_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """The coordinator's response to a heartbeat."""

    epoch: int
    interval_ms: int
    assignment: Mapping[PartitionLike, bytes] | None  # with topic ids; None: unchanged
    session_ms: int  # session timeout; 0: not returned
    sent_ms: int  # earliest time at which the answered attempt was sent, on `steady_ms`


def steady_ms(clock: Clock) -> int:
    """Return milliseconds of a monotonic clock that advances while code runs; for every thread.

    The loop's clock is for the loop's thread only.
    """
    return clock.busy_us() // 1_000


async def heartbeat(
    connection: Connection, identity: MemberIdentity, beat: GroupHeartbeat, *, retry: GroupHeartbeat
) -> HeartbeatResult:
    """Send one heartbeat; a retry sends `retry`, since the response may have been lost.

    Raises the coordinator's error, or the failure of the last attempt.
    """
    clock, request = connection.runtime.clock, _to_heartbeat(identity, beat)
    sent_ms = steady_ms(clock)

    def is_to_be_repeated(error: BaseException) -> bool:
        nonlocal sent_ms
        sent_ms = steady_ms(clock)  # before the retry is sent
        request.CopyFrom(_to_heartbeat(identity, retry))
        return is_retriable(error)

    answer = await connection.call_any(
        GROUPS_HEARTBEAT,
        request,
        deadline_ms=clock.now_ms() + HEARTBEAT_MS,
        retry_on=is_to_be_repeated,
        is_short=True,
    )
    numbers = (answer.member_epoch, answer.heartbeat_interval_ms, answer.session_timeout_ms)
    if not beat.is_leave and (min(numbers[:2]) < 1 or numbers[2] < 0):
        raise invalid_response(
            f"answered a heartbeat with epoch {numbers[0]}, an interval of {numbers[1]} ms and a "
            f"session of {numbers[2]} ms"
        )
    assignment = None
    if answer.HasField("assignment"):
        assignment = {
            (each.topic, each.partition): each.topic_id
            for each in answer.assignment.partitions
            if each.topic
        }
    return HeartbeatResult(
        epoch=answer.member_epoch,
        interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
        session_ms=answer.session_timeout_ms,
        sent_ms=sent_ms,
    )


def _to_heartbeat(
    identity: MemberIdentity, beat: GroupHeartbeat
) -> groups_pb2.GroupHeartbeatRequest:
    request = groups_pb2.GroupHeartbeatRequest(
        group=identity.group,
        member_id=identity.member_id,
        member_epoch=beat.epoch,
        instance_id=identity.instance_id,
        client_id=CLIENT_ID,  # in every heartbeat: another value counts as a change
    )
    if beat.is_first:
        request.rack = identity.rack
        request.assignor = identity.assignor
        request.rebalance_timeout_ms = identity.rebalance_timeout_ms
    if beat.subscription is not None:
        request.subscription.topics.extend(beat.subscription.topics)
        request.subscription.pattern = beat.subscription.pattern
        request.subscription.SetInParent()
    if beat.owned is not None:
        request.owned.SetInParent()
        request.owned.partitions.extend(_partitions(beat.owned))
    return request


async def commit(
    connection: Connection,
    group: str,
    offsets: Mapping[PartitionLike, CommittedOffset],
    *,
    by: Caller = OUTSIDE,
    transaction: TransactionalCommit | None = None,
    deadline_ms: int,
) -> None:
    """Store offsets, with a `transaction` once it commits; raise the first error, after which other
    offsets may be stored.

    An offset in a deleted topic is given up after `GONE_ATTEMPTS`; not at once, since the
    coordinator's metadata may not have a new topic yet.
    """
    left = dict(offsets)
    gone: list[QuorumlogError] = []
    attempts = 0

    async def attempt(remaining_ms: int) -> None:
        request = groups_pb2.CommitOffsetsRequest(
            group=group,
            member_id=by.member_id,
            member_epoch=by.epoch,
            offsets=[_to_commit(place, each) for place, each in left.items()],
        )
        until_ms = connection.runtime.clock.now_ms() + remaining_ms
        results = await _commit(connection, request, transaction, until_ms)
        nonlocal attempts
        attempts += 1
        failures = []
        for place, error in _outcomes(results, list(left)):
            if error is None:
                del left[place]
            elif isinstance(error, GONE) and attempts >= GONE_ATTEMPTS:
                del left[place]
                gone.append(error)
            else:
                failures.append(error)
        if failures:
            raise min(failures, key=lambda error: error.retriable)

    if left:
        await connection.repeat(attempt, deadline_ms=deadline_ms)
    if gone:
        raise gone[0]


async def _commit(
    connection: Connection,
    request: groups_pb2.CommitOffsetsRequest,
    transaction: TransactionalCommit | None,
    deadline_ms: int,
) -> Iterable[groups_pb2.OffsetResult]:
    """Send a commit, in a transaction if there is one; return the result of each offset."""
    if transaction is None:
        stored = await connection.call_any(GROUPS_COMMIT_OFFSETS, request, deadline_ms=deadline_ms)
        return stored.results
    added = await connection.call_any(
        TRANSACTIONS_ADD_OFFSETS,
        transactions_pb2.AddOffsetsRequest(
            transactional_id=transaction.transactional_id,
            producer=identity_message(transaction.producer),
            commit=request,
        ),
        deadline_ms=deadline_ms,
    )
    return added.results


async def fetch(
    connection: Connection,
    group: str,
    places: Collection[PartitionLike] | None,
    *,
    by: Caller = OUTSIDE,
    require_stable: bool = True,
    deadline_ms: int,
) -> dict[PartitionLike, CommittedOffset | None]:
    """Return the committed offsets of these partitions (None: of all that have one).

    `require_stable`: wait for the end of transactions with offsets; else return the last ones that
    are in force.
    """
    asked = None if places is None else list(dict.fromkeys(places))

    async def attempt(remaining_ms: int) -> dict[PartitionLike, CommittedOffset | None]:
        request = groups_pb2.FetchOffsetsRequest(
            group=group,
            partitions=_partitions(asked or ()),
            require_stable=require_stable,
            member_id=by.member_id,
            member_epoch=by.epoch,
        )
        answer = await connection.call_any(
            GROUPS_FETCH_OFFSETS,
            request,
            deadline_ms=connection.runtime.clock.now_ms() + remaining_ms,
        )
        failures = [error for _, error in _outcomes(answer.results, asked) if error is not None]
        if failures:
            raise min(failures, key=lambda error: error.retriable)
        return {_place(result): _committed(result.offset) for result in answer.results}

    if asked == []:
        return {}
    return await connection.repeat(attempt, deadline_ms=deadline_ms)


async def log_absent_topics(connection: Connection, group: str, topics: Iterable[str]) -> None:
    """Log the topics that do not exist; the subscription takes effect once they are created."""
    for topic in topics:
        try:
            await connection.layout(topic)
        except UnknownTopicOrPartition:
            _log.warning("group.topic_absent group=%s topic=%s", group, topic)
        except QuorumlogError:
            return  # heartbeats fail with the same error


def to_commit(
    offsets: Mapping[Any, "int | CommittedOffset"] | Mapping[Any, int],
) -> dict[PartitionLike, CommittedOffset]:
    """Return validated offsets; raise InvalidRequest if one is invalid."""
    found: dict[PartitionLike, CommittedOffset] = {}
    for place, value in offsets.items():
        given = value if isinstance(value, CommittedOffset) else CommittedOffset(value)
        number = given.offset
        if type(number) is not int or not 0 <= number <= OFFSET_MAX:
            raise InvalidRequest(f"{number!r} is not an offset to commit: give 0 or more")
        if not (isinstance(place, tuple) and len(place) == 2 and _is_text(place[0])):
            raise _invalid_partition(place)
        if not _is_number(place[1]):
            raise _invalid_partition(place)
        if not (_is_text(given.note) and isinstance(given.topic_id, bytes)):
            raise InvalidRequest(f"{given!r} is not an offset to commit: give note as a str")
        if not (given.leader_epoch in (None, -1) or _is_number(given.leader_epoch)):
            raise InvalidRequest(f"{given.leader_epoch!r} is not a leader epoch: give 0 or more")
        found[place] = given
    return found


def _invalid_partition(place: Any) -> InvalidRequest:
    return InvalidRequest(
        f"{place!r} is not a partition: give offsets by TopicPartition or tuple, e.g. "
        "{('flights', 0): 42}"
    )


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= NUMBER_MAX


def _is_text(value: Any) -> bool:
    """Return True for a str that UTF-8 can encode: without lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def _to_commit(place: PartitionLike, offset: CommittedOffset) -> groups_pb2.CommittedOffset:
    return groups_pb2.CommittedOffset(
        topic=place[0],
        partition=place[1],
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        note=offset.note,
        topic_id=offset.topic_id,
    )


def _committed(offset: groups_pb2.CommittedOffset) -> CommittedOffset | None:
    if offset.offset < 0:
        return None
    return CommittedOffset(
        offset.offset,
        offset.note,
        offset.leader_epoch if offset.HasField("leader_epoch") else None,
        offset.commit_ms,
        offset.topic_id,
    )


def _partitions(places: Iterable[PartitionLike]) -> list[groups_pb2.GroupPartition]:
    return [groups_pb2.GroupPartition(topic=topic, partition=number) for topic, number in places]


def _place(result: groups_pb2.OffsetResult) -> PartitionLike:
    return (result.offset.topic, result.offset.partition)


def _outcomes(
    results: Iterable[groups_pb2.OffsetResult], asked: list[PartitionLike] | None
) -> list[tuple[PartitionLike, QuorumlogError | None]]:
    """Return each partition's error, or None.

    Raises UnknownServerError unless the results are for the requested partitions.
    """
    found = [
        (_place(result), decode_error(result.error) if result.HasField("error") else None)
        for result in results
    ]
    if asked is not None and [place for place, _ in found] != asked:
        raise invalid_response(f"returned {len(found)} offsets for {len(asked)} partitions")
    return found
