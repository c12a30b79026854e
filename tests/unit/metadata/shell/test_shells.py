"""Controller, publisher and broker session over a real log and network, on both runtimes."""

import asyncio
from dataclasses import replace

import pytest
from tests.kit.waits import AMPLE_S
from tests.unit.metadata.shell.stack import (
    CALL_MS,
    CLUSTER,
    ONE,
    PATIENT,
    QUICK,
    Run,
    answer_on,
    create,
    run_simulated,
    started,
)

from quorumlog.errors import (
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidReplicationFactor,
    InvalidRequest,
    NotController,
    StaleBrokerEpoch,
    StaleMetadata,
    TimedOut,
    TopicAlreadyExists,
    TransportError,
    UnknownTopicOrPartition,
)
from quorumlog.ids import NO_NODE, ClusterId, DirectoryId, NodeId, Offset, TopicId
from quorumlog.metadata import CreateTopic, DeleteTopic, FenceBroker, ImageDelta, UnfenceBroker
from quorumlog.metadata.shell import (
    BrokerSession,
    ControllerLocator,
)
from quorumlog.proto import admin_pb2
from quorumlog.proto import controller_pb2 as pb
from quorumlog.runtime import Runtime
from quorumlog.services import CONTROLLER_RELAY
from quorumlog.simulation import CrashPoint, Faults, SimWorld
from quorumlog.simulation.entropy import SimEntropy


def test_broker_registers_and_is_unfenced(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session() as session:
            broker = stack.publisher.image.brokers[ONE]
            assert broker.is_active
            assert broker.epoch == session.broker_epoch
            assert broker.incarnation_id == session.incarnation_id
            assert not session.is_lapsed()

    run(main)


def test_created_topic_is_applied_at_the_response(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session() as session:
            created = await session.submit(create("a", partitions=3), timeout_ms=CALL_MS)
            topic = stack.publisher.image.topic("a")
            assert topic is not None
            assert created.applied
            assert created.offset == stack.publisher.applied_offset
            assert created.reply.topic.id == topic.id
            assert [p.leader for _, p in created.reply.topic.sorted_partitions()] == [1, 1, 1]

    run(main)


def test_repeated_creation_is_a_success_and_another_id_is_not(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session() as session:
            request = create("a", b"x" * 16)
            first = await session.submit(request, timeout_ms=CALL_MS)
            again = await session.submit(request, timeout_ms=CALL_MS)
            assert again.reply == first.reply
            with pytest.raises(TopicAlreadyExists):
                await session.submit(create("a", b"y" * 16), timeout_ms=CALL_MS)

    run(main)


def test_concurrent_creations_are_decided_one_after_another(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session() as session:
            requests = [create("same", bytes([n + 1]) * 16) for n in range(8)]
            calls = (session.submit(request, timeout_ms=CALL_MS) for request in requests)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            refused = [o for o in outcomes if isinstance(o, TopicAlreadyExists)]
            assert len(refused) == 7
            assert len(stack.publisher.image.topics_by_id) == 1

    run(main)


def test_no_response_before_the_commit_not_even_to_a_retry(run: Run) -> None:
    """A retry changes nothing, but the change that it confirms may be uncommitted."""

    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session():
            command = CreateTopic(name="a", topic_id=TopicId(b"x" * 16))

            async def submit() -> int:
                outcome = await stack.controller.submit(command)
                assert stack.metadata.committed_image.offset >= outcome.offset
                assert stack.raft.status().high_watermark > outcome.offset
                return outcome.offset

            first, repeat = await asyncio.gather(submit(), submit())
            assert first == repeat

    run(main)


def test_deleted_topic_is_removed_at_the_response(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session() as session:
            created = await session.submit(create("a"), timeout_ms=CALL_MS)
            request = DeleteTopic(name="a")
            deleted = await session.submit(request, timeout_ms=CALL_MS)
            assert deleted.applied
            assert deleted.reply.topic_id == created.reply.topic.id
            assert stack.publisher.image.topic("a") is None
            with pytest.raises(UnknownTopicOrPartition):
                await session.submit(request, timeout_ms=CALL_MS)

    run(main)


def test_restarted_node_has_the_same_metadata_and_a_new_registration(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session() as session:
            await session.submit(create("a", partitions=2), timeout_ms=CALL_MS)
            before, epoch = stack.publisher.image, session.broker_epoch
        async with started(runtime, path) as stack:
            await stack.publisher.wait_applied(before.offset, CALL_MS)
            assert stack.publisher.image == before
            async with stack.session() as session:
                assert session.broker_epoch > epoch
                topic = stack.publisher.image.topic("a")
                assert topic is not None
                partition = topic.partitions[0]
                assert (partition.leader, partition.isr) == (ONE, (ONE,))
                assert partition.leader_epoch == 2, "its old leadership ended with its old process"

    run(main)


def test_response_names_a_broker_that_did_not_apply_in_time(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        config = replace(PATIENT, applied_wait_ms=100)
        async with started(runtime, path, config) as stack, stack.session() as session:
            slow = asyncio.Event()

            async def wait(delta: ImageDelta) -> None:
                await slow.wait()

            stack.publisher.subscribe(wait)
            created = await session.submit(create("a"), timeout_ms=CALL_MS)
            assert not created.applied
            with pytest.raises(StaleMetadata):
                await stack.publisher.wait_applied(created.offset, 10)
            slow.set()
            await stack.publisher.wait_applied(created.offset, CALL_MS)

    run(main)


def test_silent_broker_is_fenced_and_leads_nothing() -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path, QUICK) as stack:
            stream = await stack.stream(2, b"a")
            answer = await answer_on(stream)
            heartbeat = pb.BrokerHeartbeat(sequence=7, applied_offset=answer.broker_epoch)
            await stream.send(pb.BrokerSessionRequest(heartbeat=heartbeat))
            assert (await answer_on(stream)).sequence == 7
            await stack.until(lambda: stack.publisher.image.brokers[NodeId(2)].is_active)
            relayed = pb.RelayRequest(
                cluster_id=CLUSTER,
                broker_id=2,
                create_topic=admin_pb2.CreateTopicRequest(name="a", topic_id=b"x" * 16),
            )
            channel = runtime.network.channel(stack.listener.address)
            await channel.call(CONTROLLER_RELAY, relayed, timeout_ms=CALL_MS)
            await stack.until(lambda: stack.is_fenced(2))
            topic = stack.publisher.image.topic("a")
            assert topic is not None
            assert topic.partitions[0].leader == NO_NODE
            await stream.send(pb.BrokerSessionRequest(heartbeat=heartbeat))
            with pytest.raises(StaleBrokerEpoch):
                await stream.receive()

    run_simulated(main)


def test_heartbeats_alone_keep_a_broker_unfenced() -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path, QUICK) as stack, stack.session() as session:
            epoch = session.broker_epoch
            other = await stack.stream(2, b"a")
            answer = await answer_on(other)
            beat = pb.BrokerHeartbeat(sequence=1, applied_offset=answer.broker_epoch)
            await other.send(pb.BrokerSessionRequest(heartbeat=beat))
            await stack.until(lambda: stack.publisher.image.brokers[NodeId(2)].is_active)
            await stack.until(lambda: stack.is_fenced(2))
            assert session.unfenced.is_set()
            assert session.broker_epoch == epoch

    run_simulated(main)


def test_broker_unfenced_at_the_expiry_of_its_session_is_fenced() -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path, QUICK) as stack:
            stream = await stack.stream(2, b"a")
            epoch = Offset((await answer_on(stream)).broker_epoch)
            stream.abort("it is killed")
            # The queued command does not depend on a stream that existed for a while.
            await stack.until(lambda: stack.publisher.image.broker(2) is not None)
            await asyncio.sleep(0.7)
            await stack.controller.submit(UnfenceBroker(broker_id=NodeId(2), broker_epoch=epoch))
            await stack.until(lambda: not stack.is_fenced(2))
            await stack.until(lambda: stack.is_fenced(2))

    run_simulated(main)


def test_broker_is_unfenced_only_after_it_applied_its_fencing(run: Run) -> None:
    """Until then it may serve partitions that other brokers lead by now."""

    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack:
            stream = await stack.stream(2, b"a")
            epoch = Offset((await answer_on(stream)).broker_epoch)

            async def beat(applied: Offset) -> pb.BrokerSessionResponse:
                heartbeat = pb.BrokerHeartbeat(sequence=1, applied_offset=applied)
                await stream.send(pb.BrokerSessionRequest(heartbeat=heartbeat))
                return await answer_on(stream)

            await beat(epoch)
            await stack.until(lambda: stack.publisher.image.brokers[NodeId(2)].is_active)
            known = stack.publisher.image.offset
            await stack.controller.submit(FenceBroker(broker_id=NodeId(2), broker_epoch=epoch))
            fenced_at = stack.metadata.committed_image.offset
            for _ in range(5):
                assert (await beat(known)).fenced
            await beat(fenced_at)
            await stack.until(lambda: not stack.is_fenced(2))

    run(main)


def test_broker_that_applies_its_fencing_has_lapsed(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session() as session:
            assert not session.is_lapsed()
            hold = asyncio.Event()

            async def wait(_: ImageDelta) -> None:
                await hold.wait()

            stack.publisher.subscribe(wait)
            fence = FenceBroker(broker_id=ONE, broker_epoch=session.broker_epoch)
            await stack.controller.submit(fence)
            async with asyncio.timeout(AMPLE_S):
                while not session.is_lapsed():  # noqa: ASYNC110 (there is no event)
                    await asyncio.sleep(0.01)
            assert not stack.is_fenced(1), "the node has not applied its fencing yet"
            hold.set()
            await session.unfenced.wait()
            await stack.until(lambda: not stack.is_fenced(1))
            async with asyncio.timeout(AMPLE_S):
                while session.is_lapsed():  # noqa: ASYNC110 (there is no event)
                    await asyncio.sleep(0.01)

    run(main)


def test_second_process_under_a_live_id_is_refused(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session():
            stream = await stack.stream(1, b"z")
            with pytest.raises(DuplicateBrokerRegistration, match="by a live process"):
                await stream.receive()

    run(main)


def test_broken_stream_is_opened_again_with_the_same_registration(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session() as session:
            epoch, address = session.broker_epoch, stack.listener.address
            await stack.listener.close(0)
            stack.listener = await runtime.network.serve(address, stack.controller.handlers())
            await session.submit(create("a"), timeout_ms=CALL_MS)
            await session.unfenced.wait()
            assert session.broker_epoch == epoch

    run(main)


def test_controlled_shutdown_is_granted_and_moves_leaderships(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session() as session:
            await session.submit(create("a"), timeout_ms=CALL_MS)
            assert await session.shutdown(CALL_MS)
            broker = stack.publisher.image.brokers[ONE]
            topic = stack.publisher.image.topic("a")
            assert topic is not None
            assert broker.stopping
            assert topic.partitions[0].leader == NO_NODE
            assert topic.partitions[0].elr == (ONE,)
            await stack.until(lambda: stack.is_fenced(1))

    run(main)


def test_broker_of_another_cluster_is_refused(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack:
            config = stack.session_config(cluster_id=ClusterId("other"))
            session = BrokerSession(
                runtime,
                config=config,
                publisher=stack.publisher,
                controllers=ControllerLocator.fixed({ONE: stack.listener.address}),
            )
            with pytest.raises(InconsistentClusterId):
                await session.run()

    run(main)


def test_registration_with_bad_ids_is_refused(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack:
            stream = await stack.stream(1, b"")
            with pytest.raises(InvalidRequest):
                await stream.receive()
            config = stack.session_config(directory_id=DirectoryId(b"short"))
            assert stack.publisher.image.broker(config.broker_id) is None

    run(main)


def test_each_block_of_producer_ids_is_assigned_once(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack:
            channel = runtime.network.channel(stack.listener.address)

            async def take() -> int:
                request = pb.RelayRequest(cluster_id=CLUSTER, broker_id=NO_NODE)
                request.allocate_producer_ids.broker_epoch = -1
                answer = await channel.call(CONTROLLER_RELAY, request, timeout_ms=CALL_MS)
                assert answer.allocate_producer_ids.producer_id_len == 1000
                return answer.allocate_producer_ids.producer_id_start

            starts = await asyncio.gather(*(take() for _ in range(20)))
            assert sorted(starts) == [1000 * n for n in range(20)]
        async with started(runtime, path) as stack:
            await stack.until(lambda: stack.publisher.image.next_producer_id == 20_000)

    run(main)


def test_controller_that_does_not_lead_refuses(run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with started(runtime, path) as stack, stack.session():
            await stack.raft.close()
            assert not stack.controller.is_active
            relayed = pb.RelayRequest(
                cluster_id=CLUSTER,
                broker_id=1,
                create_topic=admin_pb2.CreateTopicRequest(name="a", topic_id=b"x" * 16),
            )
            channel = runtime.network.channel(stack.listener.address)
            with pytest.raises(NotController):
                await channel.call(CONTROLLER_RELAY, relayed, timeout_ms=CALL_MS)

    run(main)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(25))
def test_acknowledged_topics_survive_crashes_power_cuts_and_broken_links(seed: int) -> None:
    """The node dies several times at random file operations, and its links break."""
    entropy = SimEntropy(f"metadata/{seed}")
    faults = Faults.draw(entropy.stream("faults"))
    acknowledged: dict[str, bytes] = {}
    last: list[dict[str, bytes]] = []

    async def live(runtime: Runtime) -> None:
        async with started(runtime, "/data") as stack, stack.session() as session:
            life = str(runtime.clock.wall_ms())
            for number in range(30):
                name = f"topic-{life}-{number}"
                topic_id = runtime.entropy.stream(name).token(16)
                while name not in acknowledged:
                    try:
                        await session.submit(create(name, topic_id), timeout_ms=CALL_MS)
                    except (TransportError, TimedOut):
                        continue  # with the same id a retry is harmless
                    except InvalidReplicationFactor:
                        await session.unfenced.wait()  # fenced in between: no broker to place it on
                        continue
                    acknowledged[name] = topic_id
            image = stack.publisher.image
            last.append({topic.name: topic.id for topic in image.sorted_topics()})

    with SimWorld(seed, faults=faults) as world:
        node = world.node("one")
        for _ in range(3):
            moment = ("before", "inside", "after")[entropy.below(3)]
            operations = 1 + entropy.below(200)
            point = CrashPoint(operations=operations, power=entropy.below(2) == 1, moment=moment)
            node.crash_at(point)
            node.spawn(live)
            world.run_until(lambda: not node.alive, virtual_ms=600_000)
            assert node.killed or node.exit_error is None, node.exit_error
            world.run_for(1 + entropy.below(5000))
        node.crash_at(None)
        node.spawn(live)
        world.run_until(lambda: not node.alive, virtual_ms=600_000)
        assert node.exit_error is None, node.exit_error
    kept = last[-1]
    assert {name: kept.get(name) for name in acknowledged} == acknowledged
