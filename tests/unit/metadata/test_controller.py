"""Decisions of the controller about topics and brokers, and every refusal."""

from typing import Any

import pytest

from quorumlog.errors import (
    CorruptionError,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    QuorumlogError,
    StaleBrokerEpoch,
    TopicAlreadyExists,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from quorumlog.ids import NO_NODE, NodeId, Offset, TopicId
from quorumlog.metadata import (
    AllocateProducerIds,
    DeleteTopic,
    FenceBroker,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
    decide,
)
from quorumlog.metadata.replay import replay
from quorumlog.proto import metadata_records_pb2 as pb

Cluster = Any  # conftest.Cluster: importlib mode gives conftest no importable name


def test_created_topic_is_spread_round_robin_and_led(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    decision = cluster.create("a", partitions=6, replication_factor=2)
    partitions = [partition for _, partition in cluster.topic("a").sorted_partitions()]
    assert [p.leader for p in partitions].count(NodeId(1)) == 2
    assert [p.leader for p in partitions].count(NodeId(2)) == 2
    for partition in partitions:
        assert partition.leader == partition.replicas[0]
        assert partition.isr == partition.replicas
        assert len(set(partition.replicas)) == 2
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert decision.brokers == (1, 2, 3)


def test_defaults_are_one_partition_and_one_replica(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a")
    assert len(cluster.topic("a").partitions) == 1
    assert cluster.topic("a").replication_factor == 1


def test_configs_are_kept_in_canonical_form(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a", configs=(("retention.ms", "060"), ("flush.policy", "fsync")))
    assert dict(cluster.topic("a").configs) == {"retention.ms": "60", "flush.policy": "fsync"}


def test_repeat_with_the_same_id_is_a_success_and_changes_nothing(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a")
    before = cluster.image
    repeated = cluster.create("a", partitions=5)
    assert cluster.image is before
    assert isinstance(repeated.reply, TopicCreated)
    assert len(repeated.reply.topic.partitions) == 1
    assert repeated.brokers == (1,)


def test_same_name_with_another_id_exists_already(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a")
    with pytest.raises(TopicAlreadyExists):
        cluster.create("a", topic_id=TopicId(b"z" * 16))


def test_validate_only_answers_without_records(cluster: Cluster) -> None:
    cluster.start(1)
    decision = cluster.create("a", partitions=3, validate_only=True)
    assert decision.records == ()
    assert isinstance(decision.reply, TopicCreated)
    assert len(decision.reply.topic.partitions) == 3
    assert cluster.image.topic("a") is None


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "a/b"}, InvalidTopic),
        ({"name": "taken_name"}, InvalidTopic),
        ({"partitions": -1}, InvalidPartitions),
        ({"partitions": 10_001}, InvalidPartitions),
        ({"replication_factor": 2}, InvalidReplicationFactor),
        ({"replication_factor": -1}, InvalidReplicationFactor),
        ({"configs": (("retention.mss", "1"),)}, InvalidConfig),
        ({"configs": (("min.insync.replicas", "2"),)}, InvalidConfig),
        ({"topic_id": TopicId(b"short")}, InvalidRequest),
        ({"topic_id": TopicId(bytes(16))}, InvalidRequest),
        ({"topic_id": TopicId(b"taken.nametaken.")}, InvalidRequest),
    ],
)
def test_bad_topics_are_refused_and_leave_nothing(
    cluster: Cluster, fields: dict[str, object], error: type[QuorumlogError]
) -> None:
    cluster.start(1)
    cluster.create("taken.name")
    before = cluster.image
    with pytest.raises(error):
        cluster.create(**{"name": "b", **fields})
    assert cluster.image is before


def test_fenced_and_stopping_brokers_get_no_replicas(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.fence(2)
    cluster.stop(3)
    cluster.create("a", partitions=4)
    assert {p.leader for _, p in cluster.topic("a").sorted_partitions()} == {1}
    with pytest.raises(
        InvalidReplicationFactor, match="the 1 usable broker of 3: broker 2 is"
    ) as error:
        cluster.create("b", replication_factor=2)
    assert "broker 2 is fenced, broker 3 is stopping; start more" in str(error.value)


def test_topic_is_deleted_by_name_by_id_and_by_both(cluster: Cluster) -> None:
    cluster.start(1)
    for command in (
        DeleteTopic(name="a"),
        DeleteTopic(topic_id=TopicId(b"a" * 16)),
        DeleteTopic(name="a", topic_id=TopicId(b"a" * 16)),
    ):
        cluster.create("a")
        decision = cluster.do(command)
        assert isinstance(decision.reply, TopicDeleted)
        assert decision.brokers == (1,)
        assert cluster.image.topic("a") is None
        assert not cluster.image.topics_by_id
        assert not cluster.image.topics_by_key


def test_deletion_of_an_unknown_topic_is_refused(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a")
    with pytest.raises(UnknownTopicOrPartition):
        cluster.do(DeleteTopic(name="b"))
    with pytest.raises(UnknownTopicId):
        cluster.do(DeleteTopic(topic_id=TopicId(b"b" * 16)))
    with pytest.raises(UnknownTopicId):
        cluster.do(DeleteTopic(name="b", topic_id=TopicId(b"a" * 16)))
    with pytest.raises(InvalidRequest):
        cluster.do(DeleteTopic())


def test_name_is_free_again_after_deletion(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a.b")
    cluster.do(DeleteTopic(name="a.b"))
    cluster.create("a_b")
    assert cluster.image.topic("a_b") is not None


# --- brokers -----------------------------------------------------------------------------------


def test_registration_starts_fenced_with_its_offset_as_epoch(cluster: Cluster) -> None:
    cluster.register(1)
    broker = cluster.image.brokers[NodeId(1)]
    assert broker.fenced
    assert broker.epoch == 0
    cluster.unfence(1)
    assert not cluster.image.brokers[NodeId(1)].fenced


def test_same_incarnation_again_changes_nothing(cluster: Cluster) -> None:
    cluster.start(1)
    before = cluster.image
    assert cluster.register(1).records == ()
    assert cluster.image is before


def test_new_incarnation_of_a_lone_broker_leads_again_in_a_new_epoch(cluster: Cluster) -> None:
    """The last ISR member alone has all acknowledged records, so it stays in the ELR (KIP-966)."""
    cluster.start(1)
    cluster.create("a")
    cluster.register(1, incarnation=1)
    partition = cluster.partition("a")
    assert (partition.leader, partition.isr, partition.elr) == (NO_NODE, (), (1,))
    assert partition.leader_epoch == 1
    cluster.unfence(1)
    partition = cluster.partition("a")
    assert (partition.leader, partition.isr, partition.elr) == (1, (1,), ())
    assert (partition.leader_epoch, partition.partition_epoch) == (2, 2)
    assert not partition.recovering


def test_new_incarnation_leaves_every_isr_with_another_member(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.create("a", replication_factor=2)
    first, second = cluster.partition("a").replicas
    cluster.register(first, incarnation=1)
    partition = cluster.partition("a")
    assert (partition.leader, partition.isr, partition.elr) == (second, (second,), ())
    cluster.unfence(first)
    assert cluster.partition("a").isr == (second,), (
        "it rejoins by catching up, not by its registration"
    )


def test_fencing_moves_leaderships_to_active_isr_members(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.create("a", partitions=3, replication_factor=3)
    cluster.fence(2)
    for _, partition in cluster.topic("a").sorted_partitions():
        assert 2 not in partition.isr
        assert partition.leader in (1, 3)
    cluster.fence(1)
    cluster.fence(3)
    for _, partition in cluster.topic("a").sorted_partitions():
        assert (partition.leader, partition.isr) == (NO_NODE, ())
        assert set(partition.elr) == {1, 3}, "2 may lack what both others acknowledged"
    cluster.unfence(2)
    assert cluster.partition("a").leader == NO_NODE
    cluster.unfence(3)
    partition = cluster.partition("a")
    assert (partition.leader, partition.isr, partition.elr) == (3, (3,), (1,))


def test_fencing_twice_is_one_change(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a")
    cluster.fence(1)
    assert cluster.fence(1).records == ()


def test_stopping_broker_leads_nothing_and_is_not_unfenced(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a")
    cluster.stop(1)
    assert cluster.partition("a").leader == NO_NODE
    cluster.fence(1)
    assert cluster.unfence(1).records == ()


@pytest.mark.parametrize("broker_id", [1, 7])
def test_commands_of_an_old_broker_epoch_are_refused(cluster: Cluster, broker_id: int) -> None:
    cluster.start(1)
    stale = FenceBroker(broker_id=NodeId(broker_id), broker_epoch=Offset(99))
    with pytest.raises(StaleBrokerEpoch):
        decide(cluster.image, stale, cluster.config)


# --- producer ids --------------------------------------------------------------------------------


def allocated(cluster: Cluster, broker: int = NO_NODE, count: int = 0) -> tuple[int, int]:
    epoch = cluster.epoch(broker) if broker != NO_NODE else Offset(-1)
    command = AllocateProducerIds(broker_id=NodeId(broker), broker_epoch=epoch, count=count)
    reply = cluster.do(command).reply
    assert isinstance(reply, ProducerIdsAllocated)
    return reply.start, reply.count


def test_each_block_of_producer_ids_begins_where_the_one_before_ended(cluster: Cluster) -> None:
    cluster.start(1, 2)
    assert [allocated(cluster, 1), allocated(cluster, 2), allocated(cluster)] == [
        (0, 1000),
        (1000, 1000),
        (2000, 1000),
    ]
    assert cluster.image.next_producer_id == 3000


def test_a_block_of_producer_ids_has_the_requested_size(cluster: Cluster) -> None:
    cluster.start(1)
    assert [allocated(cluster, 1, count=count) for count in (1, 0, 1000)] == [
        (0, 1),
        (1, 1000),
        (1001, 1000),
    ]
    for count in (-1, 1001):
        with pytest.raises(InvalidRequest, match="producer_id_len"):
            allocated(cluster, 1, count=count)


def test_old_broker_epoch_gets_no_producer_ids(cluster: Cluster) -> None:
    cluster.start(1)
    old = cluster.epoch(1)
    cluster.register(1, incarnation=1)
    stale = AllocateProducerIds(broker_id=NodeId(1), broker_epoch=old)
    with pytest.raises(StaleBrokerEpoch):
        decide(cluster.image, stale, cluster.config)


def test_producer_ids_end_before_they_leave_their_63_bits(cluster: Cluster) -> None:
    given = pb.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=2**63 - 2000)
    record = pb.MetadataRecord(producer_ids=given)
    cluster.image = replay(cluster.image, record, offset=0, epoch=1)
    assert allocated(cluster) == (2**63 - 2000, 1000)
    with pytest.raises(UnknownServerError, match="no producer ids left"):
        allocated(cluster)


def test_record_that_assigns_producer_ids_twice_stops_the_replay(cluster: Cluster) -> None:
    given = pb.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=1000)
    record = pb.MetadataRecord(producer_ids=given)
    image = replay(cluster.image, record, offset=0, epoch=1)
    with pytest.raises(CorruptionError, match="twice"):
        replay(image, record, offset=1, epoch=1)
