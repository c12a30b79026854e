"""The answer to a relayed command, put together in steps where it describes many partitions."""

import asyncio
from dataclasses import replace
from typing import Final

from immutables import Map

from ...ids import Offset
from ...proto import controller_pb2 as pb
from ..commands import PartitionsCreated, Reply, TopicCreated
from ..translation import describe_partition, response_of

PARTITIONS_AT_ONCE: Final = 250
"""Partitions that are described in one step of the loop, a few milliseconds."""


async def answer(
    reply: Reply, *, request: pb.RelayRequest, offset: Offset, applied: bool
) -> pb.RelayResponse:
    """Return what `response_of` does; others have their turn meanwhile."""
    if (
        not isinstance(reply, TopicCreated | PartitionsCreated)
        or len(reply.topic.partitions) <= PARTITIONS_AT_ONCE
    ):
        return response_of(reply, request=request, offset=offset, applied=applied)
    topic = reply.topic
    bare = replace(reply, topic=replace(topic, partitions=Map()))
    response = response_of(bare, request=request, offset=offset, applied=applied)
    created = isinstance(reply, TopicCreated)
    described = response.create_topic.topic if created else response.create_partitions.topic
    entries = topic.sorted_partitions()
    for start in range(0, len(entries), PARTITIONS_AT_ONCE):
        await asyncio.sleep(0)
        described.partitions.extend(
            describe_partition(topic, *entry)
            for entry in entries[start : start + PARTITIONS_AT_ONCE]
        )
    return response
