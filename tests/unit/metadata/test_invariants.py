"""Each invariant of the metadata fails when it is violated, with its number and the values."""

from dataclasses import replace
from typing import Any

import pytest
from immutables import Map
from msgspec import structs
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import CorruptionError
from quorumlog.ids import NO_NODE, Epoch, NodeId, Offset, TopicId
from quorumlog.metadata import MetadataImage, TopicImage
from quorumlog.metadata.invariants import check_change, check_invariants
from quorumlog.metadata.partition_set import NO_PARTITIONS
from quorumlog.metadata.replay import replay
from quorumlog.proto import metadata_records_pb2 as pb

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


@pytest.fixture
def led(cluster: Cluster) -> Cluster:
    """Topic "a" with two partitions on brokers 1, 2 and 3, led by broker 1."""
    for node in (1, 2, 3):
        cluster.start(node)
    cluster.assign("a", (1, 2, 3), (1, 2, 3))
    check_invariants(cluster.image)
    return cluster


def with_topic(image: MetadataImage, topic: TopicImage) -> MetadataImage:
    return replace(image, topics_by_id=image.topics_by_id.set(topic.id, topic))


def with_partition(led: Cluster, **changes: Any) -> MetadataImage:
    """Return the image with changes of partition a-0 that bypass replay and its checks."""
    topic = led.topic("a")
    partition = structs.replace(topic.partitions[0], **changes)
    after = structs.replace(topic, partitions=topic.partitions.set(0, partition))
    return with_topic(led.image, after)


def violated(image: MetadataImage, match: str) -> None:
    with pytest.raises(AssertionError, match=match):
        check_invariants(image)


def test_1_partition_has_no_replica(led: Cluster) -> None:
    image = with_partition(led, replicas=(), isr=(), leader=NO_NODE)
    violated(image, "^metadata a-0: invariant 1: no replica")


def test_2_leader_is_outside_the_isr(led: Cluster) -> None:
    violated(
        with_partition(led, isr=(TWO, THREE)),
        r"^metadata a-0: invariant 2: leader 1 is not in its ISR \(2, 3\)",
    )


@pytest.mark.parametrize("name", ["isr", "elr", "last_known_elr", "adding", "removing"])
def test_3_node_is_no_replica(led: Cluster, name: str) -> None:
    nodes = (ONE, NodeId(9)) if name == "isr" else (NodeId(9),)
    violated(with_partition(led, **{name: nodes}), "^metadata a-0: invariant 3: .*not a subset")


def test_4_isr_and_elr_overlap(led: Cluster) -> None:
    violated(with_partition(led, elr=(TWO,)), "^metadata a-0: invariant 4: .*overlap")


@pytest.mark.parametrize("name", ["replicas", "isr"])
def test_5_node_is_listed_twice(led: Cluster, name: str) -> None:
    image = with_partition(led, **{name: (ONE, TWO, THREE, TWO)})
    violated(image, "^metadata a-0: invariant 5: .*repeats a node")


def test_6_isr_has_no_leader(led: Cluster) -> None:
    violated(
        with_partition(led, leader=NO_NODE),
        r"^metadata a-0: invariant 6: ISR \(1, 2, 3\) has no leader",
    )


@pytest.mark.parametrize("change", ["fenced", "stopping", "unregistered"])
def test_7_isr_member_is_inactive(led: Cluster, change: str) -> None:
    brokers = led.image.brokers
    if change == "unregistered":
        brokers = brokers.delete(TWO)
    else:
        inactive: dict[str, Any] = {change: True}
        brokers = brokers.set(TWO, replace(brokers[TWO], **inactive))
    violated(
        replace(led.image, brokers=brokers), r"^metadata a-\d: invariant 7: .*has inactive \[2\]"
    )


def test_8_every_replica_is_removed(led: Cluster) -> None:
    image = with_partition(led, removing=(ONE, TWO, THREE))
    violated(image, "^metadata a-0: invariant 8: all replicas")


def test_9_last_known_elr_beside_an_isr(led: Cluster) -> None:
    violated(with_partition(led, last_known_elr=(TWO,)), "^metadata a-0: invariant 9: last known")


@pytest.mark.parametrize(
    "changes",
    [
        {"isr": (ONE, TWO)},
        {"isr": (ONE, TWO), "partition_epoch": -1},
        {"leader": TWO, "partition_epoch": 9},
        {"leader_epoch": Epoch(-1), "partition_epoch": 9},
    ],
)
def test_10_epoch_of_a_changed_partition_does_not_rise(
    led: Cluster, changes: dict[str, Any]
) -> None:
    after = with_partition(led, **changes)
    with pytest.raises(AssertionError, match=r"^metadata a-0: invariant 10: partition epoch 0 ->"):
        check_change(led.image, after, [(led.topic("a").id, 0)])


def test_11_in_sync_replica_leaves_too_few(led: Cluster) -> None:
    replicas = (ONE, TWO, NodeId(9))
    removed = r"^metadata a-0: invariant 11: \[3\] of ISR \(1, 2, 3\) and ELR \(\) leave"
    after = with_partition(led, replicas=replicas, isr=(ONE,), partition_epoch=9)
    with pytest.raises(AssertionError, match=removed):
        check_change(led.image, after, [(led.topic("a").id, 0)])
    enough = with_partition(led, replicas=replicas, isr=(ONE, TWO), partition_epoch=9)
    check_change(led.image, enough, [(led.topic("a").id, 0)])


def test_12_name_of_another_topic(led: Cluster) -> None:
    names = led.image.topics_by_name.set("b", led.topic("a").id)
    violated(replace(led.image, topics_by_name=names), "^metadata invariant 12: .*'b'")


def test_12_collision_key_of_a_deleted_topic(led: Cluster) -> None:
    keys = led.image.topics_by_key.set("b", TopicId(b"b" * 16))
    violated(replace(led.image, topics_by_key=keys), "^metadata invariant 12: 2 collision keys")


def test_13_partition_is_missing(led: Cluster) -> None:
    topic = led.topic("a")
    gap = structs.replace(topic, partitions=Map({1: topic.partitions[1]}))
    violated(with_topic(led.image, gap), r"^metadata invariant 13: a has partitions \[1\]")


def test_14_sets_of_partitions_are_wrong(led: Cluster) -> None:
    image, key = led.image, (led.topic("a").id, 0)
    placed = image.placed.set(TWO, image.placed[TWO].discard(*key))
    one = NO_PARTITIONS.add(*key)
    violated(replace(image, placed=placed), "^metadata invariant 14: partitions on 2: 1 counted")
    violated(replace(image, moving=one), "^metadata invariant 14: partitions moving: 1 counted")
    violated(replace(image, led_elsewhere=one), "^metadata invariant 14: partitions led elsewhere")


def test_15_broker_epoch_is_above_the_offset(led: Cluster) -> None:
    image = replace(led.image, offset=Offset(0))
    violated(image, r"^metadata invariant 15: broker \d has epoch \d+, the image has offset 0")


def test_replay_rejects_a_record_that_violates_one_of_the_first_four(led: Cluster) -> None:
    change = pb.PartitionChangeRecord(
        topic_id=led.topic("a").id, partition=0, isr=pb.Nodes(ids=[2, 3])
    )
    record = pb.MetadataRecord(partition_change=change)
    with pytest.raises(CorruptionError, match="a-0: invariant 2: leader 1 is not in its ISR"):
        replay(led.image, record, offset=led.image.offset + 1, epoch=1)
