"""Responses to relayed commands, built in steps if they describe many partitions."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from immutables import Map
from msgspec.structs import replace

from ...ids import Offset
from ...proto import controller_pb2 as pb
from ..commands import PartitionOutcomes, PartitionsCreated, Reply, TopicCreated
from ..translation import describe_outcome, describe_partition, response_of

_Entry = TypeVar("_Entry")

PARTITIONS_AT_ONCE: Final = 250
"""Partitions described per step of the event loop, a few milliseconds."""


async def answer(
    reply: Reply, *, request: pb.RelayRequest, offset: Offset, applied: bool
) -> pb.RelayResponse:
    """Return the result of `response_of`, yielding to the event loop between steps."""
    encode = partial(response_of, request=request, offset=offset, applied=applied)
    match reply:
        case TopicCreated(topic=topic) | PartitionsCreated(topic=topic):
            response = encode(replace(reply, topic=replace(topic, partitions=Map())))
            created = isinstance(reply, TopicCreated)
            described = response.create_topic.topic if created else response.create_partitions.topic
            entries = topic.sorted_partitions()
            await _add(described.partitions, entries, lambda each: describe_partition(topic, *each))
        case PartitionOutcomes(outcomes=outcomes):
            response = encode(replace(reply, outcomes=()))
            elected = request.WhichOneof("command") == "elect_leaders"
            results = response.elect_leaders if elected else response.alter_reassignments
            await _add(results.results, outcomes, describe_outcome)
        case _:
            response = encode(reply)
    return response


async def _add(into: Any, entries: Sequence[_Entry], describe: Callable[[_Entry], Message]) -> None:
    """Append the descriptions of the entries to a repeated field."""
    for start in range(0, len(entries), PARTITIONS_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        into.extend(map(describe, entries[start : start + PARTITIONS_AT_ONCE]))
