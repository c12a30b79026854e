"""Replies about many partitions are encoded and decoded in steps that yield the loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from immutables import Map

from quorumlog.errors import ElectionNotNeeded
from quorumlog.ids import Epoch, NodeId, Offset, TopicId
from quorumlog.metadata import (
    AlterReassignments,
    CreatePartitions,
    CreateTopic,
    ElectLeaders,
    PartitionImage,
    PartitionOutcome,
    PartitionOutcomes,
    PartitionsCreated,
    RelayedCommand,
    Reply,
    Submitted,
    TopicCreated,
    TopicImage,
)
from quorumlog.metadata.codec import ITEMS_A_STEP
from quorumlog.metadata.shell.relay_reply import decode_reply, encode_reply
from quorumlog.runtime import Runtime
from quorumlog.simulation import run

MANY = 4 * ITEMS_A_STEP + 1
ONE = NodeId(1)


def topic() -> TopicImage:
    partition = PartitionImage(
        replicas=(ONE,), isr=(ONE,), leader=ONE, leader_epoch=Epoch(0), partition_epoch=0
    )
    partitions = Map(dict.fromkeys(range(MANY), partition))
    return TopicImage(id=TopicId(b"t" * 16), name="t", partitions=partitions, configs=Map(a="b"))


def outcomes() -> PartitionOutcomes:
    error = ElectionNotNeeded("it leads", topic="t", partition=3)
    each = [PartitionOutcome(topic="t", partition=index) for index in range(MANY)]
    each[3] = PartitionOutcome(topic="t", partition=3, error=error)
    return PartitionOutcomes(outcomes=tuple(each))


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (CreateTopic(name="t"), TopicCreated(topic=topic())),
        (CreatePartitions(topic="t", count=MANY), PartitionsCreated(topic=topic())),
        (ElectLeaders(), outcomes()),
        (AlterReassignments(reassignments=()), outcomes()),
    ],
)
def test_reply_about_many_partitions_is_translated_in_steps(
    command: RelayedCommand[Any], reply: Reply
) -> None:
    async def turns_of(work: Coroutine[Any, Any, Any]) -> tuple[int, Any]:
        turns, task = 0, asyncio.ensure_future(work)
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return turns, task.result()

    async def main(_: Runtime) -> None:
        submitted = Submitted(reply=reply, offset=Offset(7), applied=False)
        turns, response = await turns_of(encode_reply(command, submitted))
        assert turns > 4
        turns, decoded = await turns_of(decode_reply(command, response))
        assert turns > 4
        assert decoded.offset == 7
        again = await encode_reply(command, decoded)
        assert again == response

    run(main)
