"""The transaction coordinator of whole simulated nodes: decisions, markers and verification."""

import pytest
from tests.kit.replica_cluster import Cluster

from quorumlog.broker.transactions.config import TRANSACTIONS_TOPIC
from quorumlog.broker.transactions.requests import (
    AddedPartitions,
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducerId,
)
from quorumlog.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidRequest,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    QuorumlogError,
    TransactionAbortable,
)
from quorumlog.runtime import Runtime

from .coordinated import (
    ANSWER_MS,
    NAME,
    add,
    asked,
    begun,
    cluster,
    coordinating,
    coordinator,
    create,
    end,
    init,
    led,
    markers,
    on,
    produced,
    send,
    stable,
    tried,
)


def state(nodes: Cluster) -> str:
    """The state of the transactional id, as its coordinator describes it."""
    return tried(nodes, DescribeTransaction(transactional_id=NAME)).state


def added(nodes: Cluster, number: int, request: AddPartitions) -> AddedPartitions:
    """Add partitions at a node, as its front ends do."""

    async def main(runtime: Runtime) -> AddedPartitions:
        deadline_ms = runtime.clock.now_ms() + ANSWER_MS
        return await coordinator(nodes, number).add_partitions(request, deadline_ms=deadline_ms)

    return on(nodes, number, main)


def completes(nodes: Cluster) -> None:
    """Wait until the commit of the transactional id is complete."""
    for _ in range(600):
        if state(nodes) == "CompleteCommit":
            return
        nodes.world.run_for(100)
    assert state(nodes) == "CompleteCommit"


def coordinates_after(nodes: Cluster, old: int) -> None:
    """Wait until another node than `old` coordinates."""
    for _ in range(600):
        if coordinating(nodes) != old:
            return
        nodes.world.run_for(100)
    raise AssertionError("no other coordinator")


def test_committed_transaction_has_a_marker_in_each_partition() -> None:
    with cluster() as nodes:
        create(nodes, "t", partitions=3)
        producer = init(nodes)
        assert add(nodes, producer, ("t", 0), ("t", 1), ("t", 2)).errors == (None, None, None)
        for index in range(3):
            send(nodes, "t", producer, 0, b"x", partition=index)
        following = end(nodes, producer)
        assert following.producer_epoch == producer.producer_epoch + 1
        nodes.until(lambda: all(stable(nodes, "t", index) for index in range(3)))
        for index in range(3):
            assert markers(nodes, "t", index) == [(following.producer_epoch, True)]
        coordinates = coordinator(nodes, coordinating(nodes))
        nodes.until(lambda: coordinates.census().open == 0)
        assert coordinates.census().markers == 0
        assert coordinates.figures.commits == 1
        assert state(nodes) == "CompleteCommit"


def test_batch_of_a_partition_outside_of_the_transaction_is_refused() -> None:
    with cluster() as nodes:
        create(nodes, "t", partitions=2)
        producer = init(nodes)
        add(nodes, producer, ("t", 0))
        send(nodes, "t", producer, 0, b"in")
        with pytest.raises(TransactionAbortable):
            send(nodes, "t", producer, 0, b"out", partition=1)
        send(nodes, "t", producer, 0, b"added", partition=1, adds=True)
        following = end(nodes, producer, commit=False)
        nodes.until(lambda: stable(nodes, "t", 0) and stable(nodes, "t", 1))
        assert markers(nodes, "t", 0) == [(following.producer_epoch, False)]
        assert markers(nodes, "t", 1) == [(following.producer_epoch, False)]
        assert coordinator(nodes, coordinating(nodes)).figures.aborts == {"client": 1}


def test_next_transaction_begins_while_the_markers_of_the_last_one_are_written() -> None:
    """The client would pause before it repeats a refused batch."""
    with cluster() as nodes:
        create(nodes, "t", partitions=3)
        producer = init(nodes)
        for _ in range(20):
            for index in range(3):
                send(nodes, "t", producer, 0, b"x", partition=index, adds=True)
            producer = end(nodes, producer)
        nodes.until(lambda: all(stable(nodes, "t", index) for index in range(3)))
        assert [len(markers(nodes, "t", index)) for index in range(3)] == [20, 20, 20]


def test_addition_of_a_partition_waits_for_the_markers_of_the_last_transaction() -> None:
    """The client would pause before it repeats a refused request."""
    with cluster() as nodes:
        create(nodes, "t")
        producer, number = init(nodes), coordinating(nodes)
        send(nodes, "t", producer, 0, b"x", adds=True)
        producer = end(nodes, producer)
        request = AddPartitions(transactional_id=NAME, producer=producer, partitions=(("t", 0),))
        with pytest.raises(ConcurrentTransactions):
            asked(nodes, number, request)
        assert added(nodes, number, request) == AddedPartitions(errors=(None,))
        assert state(nodes) == "Ongoing"


def test_abort_without_partitions_is_counted_and_needs_no_marker() -> None:
    with cluster() as nodes:
        producer = init(nodes)
        end(nodes, producer, commit=False)
        coordinates = coordinator(nodes, coordinating(nodes))
        assert coordinates.figures.aborts == {"client": 1}
        assert coordinates.figures.marker_requests == coordinates.census().open == 0


@pytest.mark.slow
def test_next_transaction_is_refused_while_markers_cannot_be_written() -> None:
    with cluster() as nodes:
        coordinates = coordinating(nodes)
        others = [number for number in nodes.numbers if number != coordinates]
        nodes.run(
            lambda log: log.admin.create_topic(
                "stuck", assignments=[others], configs={"min.insync.replicas": "2"}
            )
        )
        nodes.run(lambda log: log.admin.create_topic("t", assignments=[[others[0]]]))
        nodes.until(lambda: led(nodes, "stuck") == others[0] == led(nodes, "t"))
        producer = init(nodes)
        send(nodes, "stuck", producer, 0, b"x", adds=True)
        nodes.machine(others[1]).pause()
        following = end(nodes, producer)
        request = AddPartitions(transactional_id=NAME, producer=following, partitions=(("t", 0),))
        for begin in (
            lambda: send(nodes, "t", following, 0, b"y", adds=True),
            lambda: added(nodes, coordinates, request),
        ):
            before_ms = nodes.world.loop.now_ns // 1_000_000
            with pytest.raises(ConcurrentTransactions):
                begin()
            assert 100 <= nodes.world.loop.now_ns // 1_000_000 - before_ms < 1_000
        nodes.machine(others[1]).resume()
        completes(nodes)
        send(nodes, "t", following, 0, b"y", adds=True)


def test_transaction_that_times_out_is_aborted_and_its_producer_fenced() -> None:
    with cluster() as nodes:
        create(nodes, "t")
        producer = init(nodes, timeout_ms=5_000)
        send(nodes, "t", producer, 0, b"x", adds=True)
        nodes.world.run_for(10_000)
        nodes.until(lambda: stable(nodes, "t"))
        assert [commit for _, commit in markers(nodes, "t")] == [False]
        assert coordinator(nodes, coordinating(nodes)).figures.aborts == {"timeout": 1}
        with pytest.raises(QuorumlogError) as caught:
            end(nodes, producer, bumps_epoch=False)
        assert isinstance(caught.value, ProducerFenced)


@pytest.mark.slow
def test_next_coordinator_writes_the_markers_of_a_decided_transaction() -> None:
    with cluster(1, 2, 3, 4) as nodes:
        coordinates = coordinating(nodes)
        others = [number for number in nodes.numbers if number != coordinates]
        nodes.run(lambda log: log.admin.create_topic("t", assignments=[others]))
        nodes.until(lambda: led(nodes, "t") in others)
        producer = init(nodes)
        send(nodes, "t", producer, 0, b"x", adds=True)
        leader = led(nodes, "t")
        barrier = nodes.separate(coordinates, leader)
        end(nodes, producer)
        assert not stable(nodes, "t")
        assert state(nodes) == "PrepareCommit"
        nodes.crash(coordinates)
        nodes.join_again(barrier)
        coordinates_after(nodes, coordinates)
        nodes.until(lambda: stable(nodes, "t"), 60_000)
        assert [commit for _, commit in markers(nodes, "t")] == [True]
        completes(nodes)


@pytest.mark.slow
def test_markers_follow_the_leader_of_a_partition() -> None:
    with cluster(1, 2, 3, 4) as nodes:
        coordinates = coordinating(nodes)
        others = [number for number in nodes.numbers if number != coordinates]
        nodes.run(lambda log: log.admin.create_topic("t", assignments=[others]))
        nodes.until(lambda: led(nodes, "t") in others)
        producer = init(nodes)
        send(nodes, "t", producer, 0, b"x", adds=True)
        leader = led(nodes, "t")
        nodes.separate(coordinates, leader)
        end(nodes, producer)
        assert not stable(nodes, "t")
        nodes.crash(leader)
        nodes.until(lambda: led(nodes, "t") in others, 60_000)
        nodes.until(lambda: stable(nodes, "t"), 60_000)
        assert [commit for _, commit in markers(nodes, "t")] == [True]
        completes(nodes)


@pytest.mark.slow
def test_markers_of_a_stuck_partition_delay_no_other_transaction() -> None:
    with cluster() as nodes:
        coordinates = coordinating(nodes)
        others = [number for number in nodes.numbers if number != coordinates]
        replicas = [others[0], others[1]]
        nodes.run(
            lambda log: log.admin.create_topic(
                "stuck", assignments=[replicas], configs={"min.insync.replicas": "2"}
            )
        )
        nodes.run(lambda log: log.admin.create_topic("t", assignments=[[others[0]]]))
        nodes.until(lambda: led(nodes, "stuck") == others[0] == led(nodes, "t"))
        first, second = init(nodes), init(nodes, "other")
        send(nodes, "stuck", first, 0, b"x", adds=True)
        nodes.machine(others[1]).pause()
        end(nodes, first)
        nodes.world.run_for(3_000)
        send(nodes, "t", second, 0, b"y", adds=True, name="other")
        before_ms = nodes.world.loop.now_ns // 1_000_000
        end(nodes, second, name="other")
        nodes.until(lambda: len(markers(nodes, "t")) == 1)
        assert nodes.world.loop.now_ns // 1_000_000 - before_ms < 500
        assert state(nodes) == "PrepareCommit"
        nodes.machine(others[1]).resume()
        completes(nodes)


@pytest.mark.slow
def test_coordinator_stops_with_markers_that_cannot_be_written() -> None:
    with cluster() as nodes:
        coordinates = coordinating(nodes)
        others = [number for number in nodes.numbers if number != coordinates]
        nodes.run(lambda log: log.admin.create_topic("t", assignments=[[others[0]]]))
        nodes.until(lambda: led(nodes, "t") == others[0])
        producer = init(nodes)
        send(nodes, "t", producer, 0, b"x", adds=True)
        nodes.separate(coordinates, others[0])
        end(nodes, producer)

        async def stop(_: Runtime) -> None:
            await nodes.nodes[coordinates].stop()

        on(nodes, coordinates, stop)


def test_deleted_topic_counts_as_done() -> None:
    with cluster() as nodes:
        create(nodes, "kept")
        create(nodes, "gone")
        producer = init(nodes)
        for topic in ("kept", "gone"):
            send(nodes, topic, producer, 0, b"x", adds=True)
        nodes.run(lambda log: log.admin.delete_topic("gone"))
        end(nodes, producer)
        completes(nodes)
        assert [commit for _, commit in markers(nodes, "kept")] == [True]


def test_other_brokers_name_the_coordinator() -> None:
    with cluster() as nodes:
        producer = init(nodes)
        number = next(n for n in nodes.numbers if n != coordinating(nodes))
        request = EndTransaction(
            transactional_id=NAME, producer=producer, commit=True, bumps_epoch=True
        )
        with pytest.raises(NotCoordinator, match=f"broker {coordinating(nodes)}"):
            asked(nodes, number, request)


@pytest.mark.parametrize("name", ["", "x" * 8_151])
def test_invalid_transactional_id_is_refused(name: str) -> None:
    with (
        cluster(1) as nodes,
        pytest.raises(InvalidRequest, match="transactional id or staged name"),
    ):
        asked(nodes, 1, InitProducerId(transactional_id=name, timeout_ms=1_000))


@pytest.mark.slow
def test_isolated_coordinator_answers_no_verification() -> None:
    """A batch of an ended transaction would be appended after its marker."""
    with cluster() as nodes:
        create(nodes, "t")
        producer = init(nodes)
        send(nodes, "t", producer, 0, b"x", adds=True)
        old = coordinating(nodes)
        nodes.cut_off(old)
        nodes.world.run_for(5_000)
        task = begun(
            nodes,
            old,
            AddPartitions(transactional_id=NAME, producer=producer, partitions=(("t", 0),)),
        )
        nodes.world.run_until(task, virtual_ms=30_000)
        assert isinstance(task.exception(), CoordinatorNotAvailable | NotCoordinator)


def test_verification_without_a_coordinator_is_retriable() -> None:
    with cluster() as nodes:
        create(nodes, "t")
        producer = init(nodes)
        old = coordinating(nodes)
        leader = led(nodes, "t")
        if leader == old:
            send(nodes, "t", producer, 0, b"x", adds=True)
            return
        nodes.separate(old, leader)
        task = produced(nodes, "t", producer, 0, b"x", adds=True)
        nodes.world.run_until(task, virtual_ms=30_000)
        assert isinstance(task.exception(), NotEnoughReplicas)


def test_internal_topic_is_compacted_and_in_three_replicas() -> None:
    with cluster() as nodes:
        init(nodes)
        publisher = nodes.nodes[1].parts.publisher
        assert publisher is not None
        topic = publisher.image.topic(TRANSACTIONS_TOPIC)
        assert topic is not None
        assert topic.configs["cleanup.policy"] == "compact"
        assert topic.configs["min.insync.replicas"] == "2"
        assert [len(state.replicas) for state in topic.partitions.values()] == [3]
