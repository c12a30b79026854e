"""Rules P1 to P6 of staged commits, in a cluster of simulated nodes."""

from collections.abc import Iterator

import pytest

from quorumlog.broker.purgatory import Acks
from quorumlog.clients.log import AsyncLog
from quorumlog.errors import (
    InvalidProducerEpoch,
    OffsetOutOfRange,
    StageLost,
)

from .coordinated import cluster, coordinating, coordinator, create, led, markers
from .stage_client import NAME, StageClient

SEGMENT = "1048576"
INTERVAL_MS = 1_000


@pytest.fixture
def stage() -> Iterator[StageClient]:
    with cluster(retention_check_interval_ms=INTERVAL_MS) as nodes:
        create(nodes, "t", partitions=3)
        yield StageClient(nodes)


def settled(stage: StageClient) -> None:
    """Wait for the markers of all decided attempts."""
    for _ in range(100):
        if not stage.describe().stage.completing:
            return
        stage.nodes.world.run_for(200)
    raise AssertionError("markers are missing")


def test_marker_fences_the_epoch_of_an_attempt(stage: StageClient) -> None:
    """P1."""
    write = stage.open_write()
    producer = stage.sealed(0, write, "t", b"a")
    stage.commit(0, write, [producer])
    assert markers(stage.nodes, "t") == [(producer.producer_epoch + 1, True)]
    for partition, sequence in ((0, 1), (1, 0)):  # with the marker, and never registered
        with pytest.raises(InvalidProducerEpoch):
            stage.publish(producer, "t", sequence, b"late", partition=partition)
    assert [stage.committed("t", index) for index in range(2)] == [[b"a"], []]


def test_id_returns_to_the_pool_after_its_last_marker(stage: StageClient) -> None:
    """P2: with the epoch of the markers, in another attempt."""
    nodes = stage.nodes
    coordinating_node = coordinating(nodes)
    index = next(each for each in range(3) if led(nodes, "t", each) != coordinating_node)
    other = next(each for each in range(3) if each != index)
    write, absent = stage.open_write(), led(nodes, "t", index)
    first = stage.begun(0, write)
    for partition in (index, other):
        stage.publish(first, "t", 0, b"a", partition=partition)
    stage.seal(first, {("t", index): 1, ("t", other): 1})
    nodes.crash(absent)
    batch = stage.commit(0, write, [first], via=coordinating_node, timeout_ms=3_000)
    assert not batch.visible
    assert stage.committed("t", other) == [b"a"]
    second = stage.begun(1, stage.open_write())
    assert second.producer_id != first.producer_id
    nodes.start(absent)
    settled_after = stage.commit(0, write, [first])  # repeated: waits for the markers
    assert settled_after.visible
    third = stage.begun(1, stage.describe().stage.write_id, task=1)
    assert (third.producer_id, third.producer_epoch) == (first.producer_id, 1)
    assert stage.committed("t", index) == [b"a"]


def test_staged_records_are_not_deleted(stage: StageClient) -> None:
    """P3: neither by retention nor by DeleteRecords."""
    nodes = stage.nodes

    async def setup(log: AsyncLog) -> None:
        configs = {"retention.bytes": "0", "segment.bytes": SEGMENT}
        await log.admin.create_topic("r", partitions=1, configs=configs)

    nodes.run(setup)
    nodes.until(lambda: led(nodes, "r") > 0)
    write = stage.open_write()
    producer = stage.sealed(0, write, "r", b"staged")
    for _ in range(3):
        append = nodes.append(led(nodes, "r"), "r", bytes(700_000), acks=Acks.ALL)
        nodes.world.run_until(append, virtual_ms=10_000)
    log = nodes.replica(led(nodes, "r"), "r").log

    async def delete(client: AsyncLog) -> None:
        await client.admin.delete_records("r", {0: 2})

    nodes.world.run_for(3 * INTERVAL_MS)
    with pytest.raises(OffsetOutOfRange):
        nodes.run(delete)
    assert (log.log_start_offset, log.last_stable_offset) == (0, 0)
    stage.commit(0, write, [producer])
    nodes.until(lambda: log.log_start_offset > 0)


def test_compaction_ignores_staged_and_aborted_records(stage: StageClient) -> None:
    """P4."""
    nodes = stage.nodes

    async def setup(log: AsyncLog) -> None:
        configs = {
            "cleanup.policy": "compact",
            "segment.ms": "500",
            "min.cleanable.dirty.ratio": "0.0",
            "min.compaction.lag.ms": "0",
        }
        await log.admin.create_topic("c", partitions=1, configs=configs)

    async def send(log: AsyncLog) -> None:
        async with log.producer() as producer:
            await producer.send("c", b"kept", key=b"k")
            await producer.send("c", b"other", key=b"o")

    def rolled(*, has_staged: bool) -> None:
        """Roll segments until the cleaner has decided about the staged record."""
        for _ in range(10):
            nodes.world.run_for(INTERVAL_MS)
            nodes.run(send)
        leader = led(nodes, "c")
        values = nodes.values(leader, "c")
        assert (b"staged" in values) == has_staged, values
        assert b"kept" in values[:2]

    nodes.run(setup)
    nodes.until(lambda: led(nodes, "c") > 0)
    nodes.run(send)
    write = stage.open_write()
    producer = stage.begun(0, write)
    stage.publish(producer, "c", 0, b"staged", key=b"k")
    rolled(has_staged=True)
    assert stage.committed("c") == [b"kept", b"other"]
    stage.abort(0, write)
    settled(stage)
    rolled(has_staged=False)


def test_readers_wait_for_every_attempt_until_an_operator_aborts_the_name(
    stage: StageClient,
) -> None:
    """P5."""
    nodes, write = stage.nodes, stage.open_write()
    opened, sealed = stage.begun(0, write, task=1), stage.sealed(0, write, "t", b"a")
    stage.publish(opened, "t", 0, b"b")
    append = nodes.append(led(nodes, "t"), "t", b"plain", acks=Acks.ALL)
    nodes.world.run_until(append, virtual_ms=10_000)
    assert stage.committed("t") == []
    found = stage.describe()
    assert (found.stage.open, found.stage.sealed, len(found.attempts)) == (1, 1, 2)
    assert [(each.topic, each.partition) for each in found.partitions] == [("t", 0)]
    nodes.world.run_for(1_000)
    census = coordinator(nodes, coordinating(nodes)).census()
    assert (census.staged_names, census.attempts_open, census.attempts_sealed) == (1, 1, 1)
    assert census.attempts_oldest_ms >= 1_000

    async def abort(log: AsyncLog) -> list[str]:
        listed = [each.name for each in await log.admin.list_transactions() if each.is_open]
        await log.admin.abort_transaction(NAME)
        return listed

    ids = sorted((opened.producer_id, sealed.producer_id))
    assert nodes.run(abort) == [f"{NAME}#{each}" for each in ids]
    settled(stage)
    assert stage.committed("t") == [b"plain"]
    with pytest.raises(StageLost):
        stage.commit(0, write, [sealed])


@pytest.mark.parametrize("index", range(3))
def test_leader_reports_a_commit_of_which_it_lacks_records(stage: StageClient, index: int) -> None:
    """P6: on each node, one of which is the coordinator."""
    nodes, write = stage.nodes, stage.open_write()
    producer = stage.begun(0, write)
    stage.publish(producer, "t", 0, b"a", b"b", partition=index)
    stage.seal(producer, {("t", index): 3})
    assert stage.commit(0, write, [producer]).records == 3
    torn = {
        number: node.parts.replicas.markers.torn_commits
        for number, node in nodes.nodes.items()
        if node.parts.replicas is not None
    }
    assert torn == {number: int(number == led(nodes, "t", index)) for number in nodes.nodes}
    other = stage.begun(1, stage.open_write())
    stage.publish(other, "t", 0, b"c", partition=index)
    stage.seal(other, {("t", index): 1})
    stage.commit(1, stage.describe().stage.write_id, [other])
    assert sum(torn.values()) == 1


def test_new_coordinator_has_the_attempts_and_the_commit(stage: StageClient) -> None:
    nodes, write = stage.nodes, stage.open_write()
    index = next(each for each in range(3) if led(nodes, "t", each) != coordinating(nodes))
    producer = stage.begun(0, write)
    stage.publish(producer, "t", 0, b"a", partition=index)
    stage.seal(producer, {("t", index): 1})
    nodes.crash(coordinating(nodes))
    assert stage.begun(0, write) == producer
    batch = stage.commit(0, write, [producer])
    assert stage.commit(0, write, [producer]) == batch
    assert stage.committed("t", index) == [b"a"]


def test_unclean_leader_reports_the_commit_that_it_lost(stage: StageClient) -> None:
    """P6: the only replica with the staged records fails before the commit."""
    nodes = stage.nodes
    lost, kept = sorted(set(nodes.nodes) - {coordinating(nodes)})

    async def setup(log: AsyncLog) -> None:
        configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        await log.admin.create_topic("u", assignments=[[lost, kept]], configs=configs)

    nodes.run(setup)
    nodes.until(lambda: led(nodes, "u") == lost)
    nodes.crash(kept)
    write = stage.open_write()
    producer = stage.sealed(0, write, "u", b"a", b"b")
    nodes.crash(lost, power=True)
    nodes.start(kept)
    nodes.until(lambda: nodes.leader("u") == kept, virtual_ms=60_000)
    batch = stage.commit(0, write, [producer])
    assert (batch.records, batch.visible) == (2, True)
    replicas = nodes.nodes[kept].parts.replicas
    assert replicas is not None
    assert replicas.markers.torn_commits == 1
    assert stage.committed("u") == []
