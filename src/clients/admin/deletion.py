"""DeleteRecords: deletion of the oldest records of a topic, with one call per leader."""

from collections.abc import Mapping
from typing import TypeAlias

from ...errors import InvalidRequest, QuorumlogError, UnknownTopicId
from ...proto import admin_pb2
from ...runtime.error_detail import decode_error
from ...services import ADMIN_DELETE_RECORDS
from ..answers import senseless
from ..connection import Connection
from ..offsets import LATEST, Place, Position, ask_leaders, check_places, check_position, look_up

Before: TypeAlias = Position | Mapping[int, Position]
"""The position before which records are deleted, in every partition or by partition."""


def places_to_delete(topic: str, before: Before, *, partitions: int) -> dict[Place, Position]:
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
    wanted: Mapping[Place, Position],
    *,
    topic_id: bytes,
    deadline_ms: int,
) -> dict[int, int]:
    """Delete the records before each partition's position; return the new log start offsets.

    "latest" is the high watermark at the moment of the deletion. Only the topic with `topic_id` is
    touched: a retry never deletes records of a newer topic of the same name.
    """
    timed = {place: at for place, at in wanted.items() if at != "latest"}
    offsets = await look_up(connection, timed, deadline_ms=deadline_ms)
    codes = {place: offsets.get(place, LATEST) for place in wanted}

    async def ask(
        connection: Connection,
        address: str,
        codes: Mapping[Place, int],
        topic_ids: Mapping[str, bytes],
        timeout_ms: int,
    ) -> dict[Place, int | QuorumlogError]:
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
    codes: Mapping[Place, int],
    topic_id: bytes,
    timeout_ms: int,
) -> dict[Place, int | QuorumlogError]:
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
        check_places(answer.results, codes)
    except QuorumlogError as error:
        return dict.fromkeys(codes, error)
    connection.topology.saw_offset(answer.metadata_offset)
    return {place: _start(result) for place, result in zip(codes, answer.results, strict=True)}


def _start(result: admin_pb2.DeleteRecordsResult) -> int | QuorumlogError:
    if result.HasField("error"):
        return decode_error(result.error)
    if result.log_start_offset < 0:
        return senseless(f"returned log start offset {result.log_start_offset}")
    return result.log_start_offset
