"""Invalid requests to a cluster fail with typed errors that name the remedy, and have no partial
effect."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import pytest
from tests.scenarios.cluster.cluster_under_test import (
    PLACE,
    asked,
    in_sync,
    is_fenced,
    plan,
    refused,
    started,
)
from tests.simulation.cluster.scripted import ScriptedCluster

from quorumlog.clients.admin.admin import AsyncAdmin
from quorumlog.errors import (
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NotEnoughReplicas,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.proto import admin_pb2 as pb
from quorumlog.runtime import Runtime
from quorumlog.runtime.error_detail import decode_error
from quorumlog.services import ADMIN_ALTER_REASSIGNMENTS

pytestmark = pytest.mark.slow


def names(stage: ScriptedCluster) -> list[str]:
    """Return the names of all topics."""
    return [topic.name for topic in asked(stage, lambda admin: admin.list_topics())]


# --- replication factor ----------------------------------------------------------------------


def test_more_replicas_than_brokers_are_refused_and_no_topic_is_left() -> None:
    with started() as stage:
        error = refused(
            stage, lambda a: a.create_topic("u", replication=4), InvalidReplicationFactor
        )
        assert "replication factor 4" in error
        assert "exceeds the 3 usable brokers" in error
        assert "start more brokers or lower the replication factor" in error
        assert names(stage) == ["t"]


def test_no_replica_at_all_is_refused() -> None:
    with started() as stage:
        error = refused(
            stage, lambda a: a.create_topic("u", replication=0), InvalidReplicationFactor
        )
        assert "replication is 0: give 1 or more" in error
        assert names(stage) == ["t"]


def test_a_broker_that_is_down_does_not_count_until_it_is_back() -> None:
    with started() as stage:
        down = stage.followers(PLACE)[0]
        stage.take_down(down)
        stage.until(lambda: is_fenced(stage, down), "it is fenced")
        error = refused(
            stage, lambda a: a.create_topic("u", replication=3), InvalidReplicationFactor
        )
        assert f"exceeds the 2 usable brokers of 3: broker {down.node_id} is fenced; start" in error
        error = refused(stage, lambda a: a.create_partitions("t", 2), InvalidReplicationFactor)
        assert "exceeds the 2 usable brokers" in error
        stage.produce(PLACE, 1)
        stage.bring_up(down)
        stage.until(lambda: in_sync(stage, down), "it is back")
        asked(stage, lambda a: a.create_topic("u", replication=3))
        asked(stage, lambda a: a.create_partitions("t", 2))
        stage.produce(("t", 1), 1)
        stage.produce(("u", 0), 1)


# --- min.insync.replicas ---------------------------------------------------------------------


def test_a_min_isr_above_the_replicas_is_refused_by_both_requests() -> None:
    with started() as stage:
        four = {"min.insync.replicas": "4"}
        for error in (
            refused(
                stage, lambda a: a.create_topic("u", replication=3, configs=four), InvalidConfig
            ),
            refused(stage, lambda a: a.alter_configs("t", four), InvalidConfig),
        ):
            assert "min.insync.replicas is 4, above the replication factor 3" in error
            assert "give 1..3" in error
        assert names(stage) == ["t"]
        stage.produce(PLACE, 1)


def test_a_partition_with_fewer_replicas_than_its_min_isr_needs_all_of_them_and_no_more() -> None:
    """A reassignment removed replicas after the config was set."""
    with started(plan(min_isr=3)) as stage:
        stage.produce(PLACE, 3)
        outcomes = asked(stage, lambda a: a.reassign_partitions({PLACE: (1, 2)}))
        assert [each.error for each in outcomes] == [None]
        stage.until(lambda: stage.partition(PLACE).replicas == (1, 2), "two are left")
        stage.produce(PLACE, 3)
        error = refused(
            stage,
            lambda a: a.alter_configs("t", {"min.insync.replicas": "3"}),
            InvalidConfig,
        )
        assert "give 1..2" in error
        asked(stage, lambda a: a.alter_configs("t", {"retention.ms": "1000000"}))
        assert len(stage.finish()[PLACE]) == 6


def test_writes_with_all_are_refused_below_the_min_isr_and_continue_once_it_is_met() -> None:
    with started(plan(min_isr=3)) as stage:
        stage.produce(PLACE, 2)
        down = stage.followers(PLACE)[0]
        stage.take_down(down)
        stage.until(lambda: not in_sync(stage, down), "it has left")

        async def once() -> None:
            async with stage.client().producer(linger_ms=0, delivery_timeout_ms=2_000) as producer:
                await producer.send_and_wait("t", b"refused", partition=0)

        with pytest.raises(TimedOut) as caught:
            stage.do(lambda runtime: once())
        assert "2 of min.insync.replicas=3); wait" in caught.value.message
        assert isinstance(caught.value.__cause__, NotEnoughReplicas)
        assert len(stage.read(PLACE)) == 2
        writing = stage.begin_to_produce(PLACE, 2)
        stage.run(1_000)
        assert not writing.done()
        stage.bring_up(down)
        stage.until(writing.done, "it is written")
        writing.result()
        assert len(stage.finish()[PLACE]) == 4


# --- configs ----------------------------------------------------------------------------------


BAD_CONFIGS: Final[tuple[tuple[str, str, str], ...]] = (
    ("retention.mss", "1", "did you mean retention.ms?"),
    ("retention.ms", "soon", "'soon'"),
    ("retention.ms", "-2", "0 or more, or -1 for no limit"),
    ("min.insync.replicas", "0", "1..2147483647"),
    ("flush.policy", "sometimes", "replicated"),
    ("unclean.leader.election.enable", "maybe", "true"),
)


def test_a_bad_config_is_refused_by_name_and_nothing_beside_it_is_set() -> None:
    with started() as stage:
        before = asked(stage, lambda a: a.describe_topic("t")).configs
        for name, value, words in BAD_CONFIGS:
            mixed = {"segment.ms": "100000", name: value}
            for call in (_creating(mixed), _altering(mixed)):
                error = refused(stage, call, InvalidConfig)
                assert name in error
                assert words in error
        assert asked(stage, lambda a: a.describe_topic("t")).configs == before
        assert names(stage) == ["t"]


def _creating(configs: dict[str, str]) -> Callable[[AsyncAdmin], Awaitable[object]]:
    return lambda admin: admin.create_topic("u", configs=configs)


def _altering(configs: dict[str, str]) -> Callable[[AsyncAdmin], Awaitable[object]]:
    return lambda admin: admin.alter_configs("t", configs)


BAD_CLUSTER_CONFIGS: Final[tuple[tuple[str, str, str], ...]] = (
    ("replication.throttled.rates", "1", "did you mean replication.throttled.rate?"),
    ("leader.imbalance.check.interval.seconds", "0", "1..86400"),
    ("retention.ms", "1", "set it for a topic"),
    ("unclean.leader.election.enable", "perhaps", "true"),
)


def test_a_bad_config_of_the_cluster_is_refused_with_the_valid_values() -> None:
    with started() as stage:
        for name, value, words in BAD_CLUSTER_CONFIGS:
            mixed = {"leader.imbalance.per.broker.percentage": "11", name: value}
            error = refused(stage, _altering_all(mixed), InvalidConfig)
            assert name in error
            assert words in error
        found = asked(stage, lambda a: a.describe_configs(cluster=True))
        assert found["leader.imbalance.per.broker.percentage"].value == "10"


def _altering_all(configs: dict[str, str]) -> Callable[[AsyncAdmin], Awaitable[object]]:
    return lambda admin: admin.alter_cluster_configs(configs)


# --- reassignments ---------------------------------------------------------------------------


def test_a_move_to_no_broker_is_refused_and_stops_no_other() -> None:
    with started(plan(partitions=2)) as stage:
        stage.produce(PLACE, 2)
        before = stage.partition(PLACE)
        targets = {PLACE: (1, 9), ("t", 1): (2, 1)}
        unknown, other = asked(stage, lambda a: a.reassign_partitions(targets))
        assert isinstance(unknown.error, InvalidReplicaAssignment)
        assert "broker 9 is not registered" in unknown.error.message
        assert other.error is None
        stage.until(lambda: stage.partition(("t", 1)).replicas == (2, 1), "the other has moved")
        assert stage.partition(PLACE) == before
        assert asked(stage, lambda a: a.list_reassignments()) == []
        stage.produce(("t", 1), 2)
        stage.finish()


def test_a_move_twice_to_one_broker_or_to_none_is_refused() -> None:
    """The quorumlog client detects it; the broker rejects it from other clients."""
    with started() as stage:
        before = stage.partition(PLACE)
        for target in ((1, 1), ()):
            error = refused(stage, _moving(target), InvalidReplicaAssignment)
            assert "list of node ids" in error or "each once" in error
            with pytest.raises(InvalidReplicaAssignment) as caught:
                stage.do(partial(_move_raw, stage, target))
            assert "each once" in caught.value.message or "give 1..100" in caught.value.message
        assert stage.partition(PLACE) == before


def _moving(target: tuple[int, ...]) -> Callable[[AsyncAdmin], Awaitable[object]]:
    return lambda admin: admin.reassign_partitions({PLACE: target})


async def _move_raw(stage: ScriptedCluster, target: tuple[int, ...], runtime: Runtime) -> None:
    """Send a request that the quorumlog client rejects. Raise the error of the partition."""
    part = pb.PartitionReassignment(topic="t", partition=0)
    part.target.CopyFrom(pb.ReplicaAssignment(replicas=target))
    channel = runtime.network.channel(stage.cluster.brokers[0].config.grpc_listener)
    answer = await channel.call(
        ADMIN_ALTER_REASSIGNMENTS, pb.AlterReassignmentsRequest(partitions=[part]), timeout_ms=5_000
    )
    await channel.close()
    raise decode_error(answer.results[0].error)


def test_a_move_of_an_unknown_partition_is_refused_by_name() -> None:
    with started() as stage:
        outcomes = asked(
            stage, lambda a: a.reassign_partitions({("t", 7): (1, 2), ("nothing", 0): (1, 2)})
        )
        for each in outcomes:
            assert isinstance(each.error, UnknownTopicOrPartition)
        assert "0..0" in str(outcomes[0].error)
        assert "nothing" in str(outcomes[1].error)


@pytest.mark.long
def test_a_move_to_a_dead_broker_waits_accepts_writes_and_can_be_cancelled() -> None:
    with started(plan(replication=2, min_isr=2), brokers=4) as stage:
        stage.produce(PLACE, 2)
        before = set(stage.partition(PLACE).replicas)
        outside = next(b for b in stage.cluster.brokers if b.node_id not in before)
        stage.take_down(outside)
        stage.until(lambda: is_fenced(stage, outside), "it is fenced")
        leader = stage.leader(PLACE)
        target = (leader.node_id, outside.node_id)
        (outcome,) = asked(stage, lambda a: a.reassign_partitions({PLACE: target}))
        assert outcome.error is None
        stage.run(5_000)
        stage.produce(PLACE, 2)
        assert asked(stage, lambda a: a.list_reassignments()) != []
        (outcome,) = asked(stage, lambda a: a.cancel_reassignments([PLACE]))
        assert outcome.error is None
        assert set(stage.partition(PLACE).replicas) == before
        (outcome,) = asked(stage, lambda a: a.reassign_partitions({PLACE: target}))
        stage.bring_up(outside)
        stage.until(lambda: set(stage.partition(PLACE).replicas) == set(target), "it has moved")
        assert len(stage.finish()[PLACE]) == 4
