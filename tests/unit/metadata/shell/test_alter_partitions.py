"""AlterPartition requests of leaders: one command for a request, one result for each partition."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from msgspec import structs
from tests.unit.metadata.shell.stack import (
    CALL_MS,
    ONE,
    PATIENT,
    Run,
    SessionStream,
    Stack,
    started,
)

from quorumlog.errors import (
    ConnectionFailed,
    InconsistentClusterId,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicId,
)
from quorumlog.ids import Epoch, NodeId, Offset, TopicId
from quorumlog.metadata import AlteredPartition, CreateTopic, IsrChange
from quorumlog.metadata.shell import BrokerSession, ControllerLocator
from quorumlog.proto import controller_pb2 as pb
from quorumlog.runtime import Runtime
from quorumlog.services import CONTROLLER_ALTER_PARTITIONS


def change(stack: Stack, partition: int, *isr: int, epoch_off: int = 0) -> IsrChange:
    """Return an ISR change as the current leader of a partition of "t" requests it."""
    image = stack.publisher.image
    topic = image.topic("t")
    assert topic is not None
    state = topic.partitions[partition]
    return IsrChange(
        topic_id=topic.id,
        partition=partition,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch + epoch_off,
        isr=tuple((NodeId(node), image.brokers[NodeId(node)].epoch) for node in isr),
    )


@asynccontextmanager
async def two_brokers(runtime: Runtime, path: str) -> AsyncIterator[tuple[Stack, BrokerSession]]:
    """Start broker 1 with a session, broker 2 by hand, and topic "t" on both, led by broker 1."""
    config = replace(PATIENT, applied_wait_ms=10)
    async with started(runtime, path, config) as stack, stack.session() as session:
        stream = await with_second_broker(stack, session)
        yield stack, session
        stream.abort("the test is over")


async def with_second_broker(stack: Stack, session: BrokerSession) -> SessionStream:
    stream = await stack.stream(2, b"b")
    answer = await stream.receive()
    assert answer is not None
    beat = pb.BrokerHeartbeat(sequence=1, applied_offset=answer.broker_epoch)
    await stream.send(pb.BrokerSessionRequest(heartbeat=beat))
    await stack.until(lambda: stack.publisher.image.brokers[NodeId(2)].is_active)
    two = (NodeId(1), NodeId(2))
    command = CreateTopic(name="t", assignments=(two, two))
    await session.submit(command, timeout_ms=CALL_MS)
    return stream


def test_each_partition_has_its_own_result_after_the_commit(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with two_brokers(runtime, path) as (stack, session):
            nowhere = structs.replace(change(stack, 0, 1), topic_id=TopicId(b"?" * 16))
            asked = [change(stack, 1, 1), change(stack, 0, 1, epoch_off=-1), nowhere]
            reply = await session.alter_partitions(asked, timeout_ms=CALL_MS)
            done, stale, unknown = reply.results
            assert done == AlteredPartition(
                leader=ONE, leader_epoch=Epoch(0), isr=(ONE,), partition_epoch=1
            )
            assert isinstance(stale, InvalidUpdateVersion)
            assert isinstance(unknown, UnknownTopicId)
            topic = stack.metadata.committed_image.topic("t")
            assert topic is not None
            assert [topic.partitions[index].isr for index in (0, 1)] == [(1, 2), (1,)]

    run(main)


def test_old_broker_epoch_is_refused_as_a_whole(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with two_brokers(runtime, path) as (stack, session):
            session.broker_epoch = Offset(session.broker_epoch - 1)
            with pytest.raises(StaleBrokerEpoch):
                await session.alter_partitions([change(stack, 0, 1)], timeout_ms=CALL_MS)

    run(main)


def test_a_partition_named_twice_and_another_cluster_are_refused(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with two_brokers(runtime, path) as (stack, session):
            twice = [change(stack, 0, 1), change(stack, 0, 1, 2)]
            with pytest.raises(InvalidRequest, match="more than once"):
                await session.alter_partitions(twice, timeout_ms=CALL_MS)
            channel = runtime.network.channel(stack.listener.address)
            strange = pb.AlterPartitionsRequest(cluster_id="other", broker_id=ONE)
            with pytest.raises(InconsistentClusterId):
                await channel.call(CONTROLLER_ALTER_PARTITIONS, strange, timeout_ms=CALL_MS)

    run(main)


def test_request_without_a_controller_fails_at_once(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack:
            session = BrokerSession(
                runtime,
                config=stack.session_config(),
                publisher=stack.publisher,
                controllers=ControllerLocator.fixed({ONE: "127.0.0.1:1"}),
            )
            with pytest.raises(NotController, match="not registered"):
                await session.alter_partitions([], timeout_ms=CALL_MS)
            session.broker_epoch = Offset(7)
            with pytest.raises(ConnectionFailed):
                await session.alter_partitions([], timeout_ms=CALL_MS)
        async with started(runtime, path) as stack, stack.session() as session:
            await stack.raft.close()
            with pytest.raises(NotController):
                async with asyncio.timeout(CALL_MS / 2 / 1000):
                    await session.alter_partitions([], timeout_ms=CALL_MS)

    run(main)
