"""Positions in a log (earliest, latest, an offset, a time) and their lookup.

A plain int is an offset; a `datetime` (naive: UTC) or a `TimestampMs` is a time. The types keep
the two apart.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from ..errors import InvalidRequest, QuorumlogError, UnknownTopicOrPartition
from ..ids import TopicPartition
from ..proto import admin_pb2, log_pb2
from ..runtime.error_detail import decode_error
from ..services import LOG_LIST_OFFSETS
from .connection import Connection
from .retry import is_retriable
from .topology import PartitionLeader, by_address, invalid_response


@dataclass(frozen=True, slots=True)
class TimestampMs:
    """A time as a position: milliseconds since 1970 (UTC), >= 0."""

    ms: int


Position: TypeAlias = Literal["earliest", "latest"] | int | datetime | TimestampMs

Bound: TypeAlias = Position | Mapping[int, Position]
"""A position in every partition, or positions by partition."""


PartitionLike: TypeAlias = tuple[str, int]
"""A `TopicPartition`, or a plain tuple (topic, partition)."""

Partitions: TypeAlias = str | PartitionLike | Iterable[str | PartitionLike]
"""A topic (by name), a partition, or several of them."""

AskLeader: TypeAlias = Callable[
    [Connection, str, Mapping[PartitionLike, int], Mapping[str, bytes], int],
    Awaitable[Mapping[PartitionLike, int | QuorumlogError]],
]
"""A request for the partitions of one leader; see `ask_leader`."""

PlaceT = TypeVar("PlaceT", bound=PartitionLike)
T = TypeVar("T")

OFFSET_MAX = 2**63 - 1
PARTITION_END = 2**31
LATEST = -1
EARLIEST = -2
BEYOND = -1  # the ListOffsets result for a time after the last record

ISOLATION_NUMBERS: Mapping[str, log_pb2.Isolation] = {
    "read_committed": log_pb2.ISOLATION_READ_COMMITTED,
    "read_uncommitted": log_pb2.ISOLATION_READ_UNCOMMITTED,
}
"""The protocol's numbers of the isolation levels."""


def parse_partition(wanted: Any) -> TopicPartition:
    """Return the partition of an argument; raise InvalidRequest if it is malformed."""
    if not isinstance(wanted, tuple) or len(wanted) != 2:
        raise InvalidRequest(
            f"{wanted!r} is not a partition: give TopicPartition(topic, partition) or a tuple"
        )
    topic, partition = wanted
    if not isinstance(topic, str) or not topic:
        raise InvalidRequest(f"{topic!r} is not a topic: give its name as a str")
    if type(partition) is not int or not 0 <= partition < PARTITION_END:
        raise InvalidRequest(f"{partition!r} is not a partition: give a number >= 0", topic=topic)
    return TopicPartition(topic, partition)


def list_partitions(wanted: Any) -> list[TopicPartition]:
    """Return the partitions of an argument: one partition, or an iterable of them; raise
    InvalidRequest if it is malformed."""
    if is_partition(wanted):
        return [parse_partition(wanted)]
    if isinstance(wanted, str | bytes) or not isinstance(wanted, Iterable):
        raise InvalidRequest(
            f"{wanted!r} is not a list of partitions: give TopicPartition(topic, partition), or "
            "several"
        )
    return [parse_partition(each) for each in wanted]


def is_partition(wanted: Any) -> bool:
    """Return True for a tuple (topic, partition), False for a tuple of topics or partitions."""
    return isinstance(wanted, tuple) and len(wanted) == 2 and not isinstance(wanted[1], str | tuple)


def by_partition(found: Mapping[PartitionLike, T]) -> dict[TopicPartition, T]:
    """Return the same values by `TopicPartition`."""
    return {TopicPartition(*partition): value for partition, value in found.items()}


def check_position(position: Position) -> None:
    """Raise InvalidRequest unless the value is a position."""
    if isinstance(position, datetime) or position in ("earliest", "latest"):
        return
    number = position.ms if isinstance(position, TimestampMs) else position
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= OFFSET_MAX:
        raise InvalidRequest(
            f"{position!r} is not a position: give 'earliest', 'latest', an offset, a datetime, or "
            "TimestampMs(milliseconds since 1970)"
        )


def position_code(position: Literal["earliest", "latest"] | datetime | TimestampMs) -> int:
    """Return the timestamp of a ListOffsets request: milliseconds since 1970, LATEST or
    EARLIEST."""
    if isinstance(position, TimestampMs):
        return position.ms
    if isinstance(position, datetime):
        zoned = position if position.tzinfo is not None else position.replace(tzinfo=UTC)
        return max(0, round(zoned.timestamp() * 1000))
    return LATEST if position == "latest" else EARLIEST


async def resolve(
    connection: Connection,
    topic: str,
    partitions: Sequence[int],
    position: Position,
    *,
    isolation_level: str = "read_uncommitted",
    deadline_ms: int | None = None,
) -> dict[int, int]:
    """Return the offset of a position in each partition of a topic; see `look_up`."""
    wanted = {(topic, partition): position for partition in partitions}
    found = await look_up(
        connection, wanted, isolation_level=isolation_level, deadline_ms=deadline_ms
    )
    return {partition: offset for (_, partition), offset in found.items()}


async def look_up(
    connection: Connection,
    wanted: Mapping[PartitionLike, Position],
    *,
    isolation_level: str = "read_uncommitted",
    deadline_ms: int | None = None,
) -> dict[PartitionLike, int]:
    """Return the offset of each partition's position, in the given order, with one call per
    leader.

    With "read_committed" the end is the last stable offset, otherwise the high watermark. A time
    resolves to the first offset at or after it, and to the end if there is none. A position that
    is an offset is returned as it is, without a call. Raises the first error that is not retriable,
    or the last error at the deadline.
    """
    found: dict[PartitionLike, int] = {}
    codes: dict[PartitionLike, int] = {}
    for place, position in wanted.items():
        check_position(position)
        if isinstance(position, int):
            found[place] = position
        else:
            codes[place] = position_code(position)
    ask = partial(ask_leader, isolation_level=isolation_level)
    found |= await ask_leaders(connection, codes, deadline_ms, ask=ask)
    beyond = {place: code for place, code in codes.items() if found[place] == BEYOND}
    ends = await ask_leaders(connection, dict.fromkeys(beyond, LATEST), deadline_ms, ask=ask)
    # A record of that time may have been appended below this end since the first call.
    again = await ask_leaders(connection, beyond, deadline_ms, ask=ask)
    for place, end_offset in ends.items():
        found[place] = end_offset if again[place] == BEYOND else min(end_offset, again[place])
    return {place: found[place] for place in wanted}


async def ask_leaders(
    connection: Connection,
    codes: Mapping[PartitionLike, int],
    deadline_ms: int | None,
    *,
    ask: AskLeader,
    is_final: Callable[[BaseException], bool] = lambda _: False,
) -> dict[PartitionLike, int]:
    """Call the leaders with `ask` until each partition has a result.

    `is_final` returns True for retriable errors that must not be retried.
    """
    found: dict[PartitionLike, int] = {}
    absent: QuorumlogError | None = None

    async def attempt(remaining_ms: int) -> None:
        nonlocal absent
        until_ms = connection.runtime.clock.now_ms() + remaining_ms
        leaders: dict[PartitionLike, PartitionLeader] = {}
        for place in codes:
            if place not in found:
                try:
                    leaders[place] = await connection.leader(*place, deadline_ms=until_ms)
                except UnknownTopicOrPartition as error:
                    absent = error  # from the metadata, after the wait for a new topic
                    raise
        topic_ids = {topic: leader.topic_id for (topic, _), leader in leaders.items()}
        timeout_ms = min(remaining_ms, connection.config.request_timeout_ms)
        answers = await asyncio.gather(
            *(
                ask(
                    connection,
                    address,
                    {place: codes[place] for place in places},
                    topic_ids,
                    timeout_ms,
                )
                for address, places in by_address(leaders).items()
            )
        )
        failures: list[QuorumlogError] = []
        for (topic, partition), answer in (each for part in answers for each in part.items()):
            if isinstance(answer, int):
                found[topic, partition] = answer
            else:
                failures.append(answer)
                if answer.retriable:
                    connection.update_leader(topic, partition, answer)
        if failures:
            raise min(failures, key=lambda failure: failure.retriable)

    if codes:
        await connection.repeat(
            attempt,
            deadline_ms=deadline_ms,
            retry_on=lambda error: (
                error is not absent and is_retriable(error) and not is_final(error)
            ),
        )
    return found


async def ask_leader(
    connection: Connection,
    address: str,
    codes: Mapping[PartitionLike, int],
    topic_ids: Mapping[str, bytes],
    timeout_ms: int,
    *,
    isolation_level: str = "read_uncommitted",
) -> dict[PartitionLike, int | QuorumlogError]:
    """Send one ListOffsets request to a broker.

    Returns for each partition its offset, BEYOND for a time after the last record, or an error.
    `topic_ids` guard against a topic that was deleted and created again.
    """
    request = list_offsets_request(
        codes,
        topic_ids,
        isolation=ISOLATION_NUMBERS[isolation_level],
        min_metadata_offset=connection.topology.metadata_offset,
    )
    try:
        channel = connection.channel(address)
        answer = await channel.call(LOG_LIST_OFFSETS, request, timeout_ms=timeout_ms)
        found = listed_offsets(answer, codes)
    except QuorumlogError as error:
        return dict.fromkeys(codes, error)
    connection.topology.record_offset(answer.metadata_offset)
    return found


def list_offsets_request(
    codes: Mapping[PlaceT, int],
    topic_ids: Mapping[str, bytes],
    *,
    isolation: log_pb2.Isolation | None = None,
    min_metadata_offset: int = 0,
) -> log_pb2.ListOffsetsRequest:
    """Return the request for times (see `position_code`) of partitions of one leader."""
    return log_pb2.ListOffsetsRequest(
        partitions=[
            log_pb2.ListOffsetsPartition(
                topic=topic, partition=partition, timestamp_ms=code, topic_id=topic_ids[topic]
            )
            for (topic, partition), code in codes.items()
        ],
        isolation=isolation,
        min_metadata_offset=min_metadata_offset,
    )


def listed_offsets(
    answer: log_pb2.ListOffsetsResponse, codes: Mapping[PlaceT, int]
) -> dict[PlaceT, int | QuorumlogError]:
    """Return the offset, BEYOND or the error of each partition; raise UnknownServerError for an
    inconsistent response."""
    check_result_order(answer.results, codes)
    return {
        place: _offset(result, code)
        for (place, code), result in zip(codes.items(), answer.results, strict=True)
    }


def check_result_order(
    results: "Sequence[log_pb2.ListOffsetsResult] | Sequence[admin_pb2.DeleteRecordsResult]",
    places: Collection[PartitionLike],
) -> None:
    """Raise UnknownServerError unless the results are for the requested partitions, in order."""
    if [(result.topic, result.partition) for result in results] != list(places):
        raise invalid_response(f"returned {len(results)} results for {len(places)} partitions")


def _offset(result: log_pb2.ListOffsetsResult, code: int) -> int | QuorumlogError:
    """Return the offset of a result, BEYOND for a time after the last record, or an error."""
    if result.HasField("error"):
        return decode_error(result.error)
    if result.offset < 0 and not (code >= 0 and result.offset == BEYOND):
        return invalid_response(f"returned offset {result.offset}")
    return result.offset
