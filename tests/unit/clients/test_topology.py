"""The metadata cache keeps the newest epoch and looks up stale entries again."""

from quorumlog.clients.topology import Topology
from quorumlog.ids import Epoch
from quorumlog.proto import admin_pb2


def described(epoch: int, leader: int, topic_id: bytes = b"1" * 16) -> admin_pb2.TopicDescription:
    return admin_pb2.TopicDescription(
        name="t",
        topic_id=topic_id,
        partitions=[admin_pb2.PartitionDescription(partition=0, leader=leader, leader_epoch=epoch)],
    )


def known() -> Topology:
    topology = Topology()
    topology.record_brokers(
        admin_pb2.BrokerDescription(id=node, grpc_address=f"b{node}:1") for node in (1, 2)
    )
    topology.merge_topic(described(epoch=5, leader=1), now_ms=10)
    return topology


def test_an_answer_of_an_older_epoch_changes_nothing() -> None:
    topology = known()
    topology.merge_topic(described(epoch=4, leader=2), now_ms=20)
    leader = topology.leader("t", 0)
    assert leader is not None
    assert (leader.address, leader.epoch) == ("b1:1", Epoch(5))


def test_a_new_topic_of_the_same_name_starts_over() -> None:
    topology = known()
    topology.merge_topic(described(epoch=0, leader=2, topic_id=b"2" * 16), now_ms=20)
    leader = topology.leader("t", 0)
    assert leader is not None
    assert (leader.address, leader.epoch) == ("b2:1", Epoch(0))


def test_invalidation_keeps_the_epoch() -> None:
    topology = known()
    topology.mark_stale("t")
    topology.merge_topic(described(epoch=4, leader=2), now_ms=20)
    leader = topology.leader("t", 0)
    assert leader is not None
    assert leader.epoch == 5


def test_a_partition_without_leader_or_address_has_no_leader() -> None:
    topology = known()
    topology.merge_topic(described(epoch=6, leader=3), now_ms=20)
    assert topology.leader("t", 0) is None
    topology.merge_topic(described(epoch=7, leader=-1), now_ms=20)
    assert topology.leader("t", 0) is None
    assert topology.leader("t", 1) is None
    assert topology.leader("other", 0) is None


def test_metadata_offset_never_decreases() -> None:
    topology = known()
    topology.record_offset(7)
    topology.record_offset(3)
    assert topology.metadata_offset == 7
