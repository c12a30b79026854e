"""Answers about many partitions: the same as at once, and others have their turn."""

import asyncio

import pytest
from immutables import Map

from quorumlog.errors import ElectionNotNeeded
from quorumlog.ids import Epoch, NodeId, Offset, TopicId
from quorumlog.metadata import (
    PartitionImage,
    PartitionOutcome,
    PartitionOutcomes,
    PartitionsCreated,
    Reply,
    TopicCreated,
    TopicImage,
)
from quorumlog.metadata.shell.relay_reply import PARTITIONS_AT_ONCE, answer
from quorumlog.metadata.translation import response_of
from quorumlog.proto import controller_pb2 as pb
from quorumlog.runtime import Runtime
from quorumlog.simulation import run

MANY = 4 * PARTITIONS_AT_ONCE + 1
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
        ("create_topic", TopicCreated(topic=topic())),
        ("create_partitions", PartitionsCreated(topic=topic())),
        ("elect_leaders", outcomes()),
        ("alter_reassignments", outcomes()),
    ],
)
def test_an_answer_about_many_partitions_is_put_together_in_steps(
    command: str, reply: Reply
) -> None:
    async def main(_: Runtime) -> None:
        request = pb.RelayRequest()
        getattr(request, command).SetInParent()
        turns = 0
        task = asyncio.ensure_future(answer(reply, request=request, offset=Offset(7), applied=True))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 4
        whole = response_of(reply, request=request, offset=Offset(7), applied=True)
        assert task.result() == whole

    run(main)
