"""Positions in a log: earliest, latest, an offset, a time; and looking them up.

A plain int is an offset, a `datetime` a time (without a zone: UTC), so that the two can never be
mixed up.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from ..errors import InvalidRequest
from ..proto import log_pb2
from ..runtime.error_detail import decode_error
from ..services import LOG_LIST_OFFSETS
from .connection import Connection
from .topology import Leader

Position: TypeAlias = Literal["earliest", "latest"] | int | datetime

LATEST = -1
EARLIEST = -2


def check_position(position: Position) -> None:
    """Raise InvalidRequest unless the value is a position."""
    if isinstance(position, datetime) or position in ("earliest", "latest"):
        return
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise InvalidRequest(
            f"{position!r} is no position: give 'earliest', 'latest', an offset or a datetime"
        )


async def resolve(
    connection: Connection, topic: str, partitions: Sequence[int], position: Position
) -> dict[int, int]:
    """Return the offset of a position for each partition, in the order given.

    A time resolves to the first offset at or after it, and to the end where there is none.
    """
    check_position(position)
    if isinstance(position, int):
        return dict.fromkeys(partitions, position)
    code = _code(position)
    offsets = await asyncio.gather(
        *(_list_offset(connection, topic, partition, code) for partition in partitions)
    )
    found = dict(zip(partitions, offsets, strict=True))
    beyond = [partition for partition, offset in found.items() if offset < 0]
    if beyond:
        found |= await resolve(connection, topic, beyond, "latest")
    return found


def _code(position: Literal["earliest", "latest"] | datetime) -> int:
    """Return what ListOffsets takes: milliseconds since 1970, or a negative mark."""
    if isinstance(position, datetime):
        zoned = position if position.tzinfo is not None else position.replace(tzinfo=UTC)
        return max(0, round(zoned.timestamp() * 1000))
    return LATEST if position == "latest" else EARLIEST


async def _list_offset(connection: Connection, topic: str, partition: int, code: int) -> int:
    request = log_pb2.ListOffsetsRequest(
        partitions=[
            log_pb2.ListOffsetsPartition(topic=topic, partition=partition, timestamp_ms=code)
        ]
    )

    async def ask(leader: Leader, timeout_ms: int) -> int:
        channel = connection.channel(leader.address)
        request.min_metadata_offset = connection.topology.metadata_offset
        answer = await channel.call(LOG_LIST_OFFSETS, request, timeout_ms=timeout_ms)
        connection.topology.saw_offset(answer.metadata_offset)
        if len(answer.results) != 1:
            raise InvalidRequest(f"{leader.address} answers {len(answer.results)} of 1 parts")
        result = answer.results[0]
        if result.HasField("error"):
            raise decode_error(result.error)
        return result.offset

    return await connection.call_leader(topic, partition, ask)
