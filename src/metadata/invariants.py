"""Invariants of the metadata, by number. Pure.

Replay checks 1 to 4 for each changed partition, on every node. The controller checks 5 to 11 for
the partitions that a decision changes, before it appends the records, 4 us for each. Simulators
check the whole image after each decision and each committed batch.
"""

from collections.abc import Iterable, Iterator

from ..ids import NO_NODE, NodeId, TopicId
from ..proto import metadata_records_pb2 as pb
from .image import MetadataImage, PartitionImage, TopicImage
from .partition_set import PartitionSet
from .topic_configs import effective_min_isr


def partition_fault(partition: PartitionImage) -> str:
    """Return the violated invariant of 1 to 4, with its values; "" if they hold.

    1. A partition has replicas.
    2. The leader is in the ISR.
    3. ISR, ELR, last known ELR, adding and removing replicas are subsets of the replicas.
    4. ISR and ELR are disjoint.
    """
    replicas, isr = partition.replicas, partition.isr
    if not replicas:
        return "invariant 1: no replica"
    if partition.leader != NO_NODE and partition.leader not in isr:
        return f"invariant 2: leader {partition.leader} is not in its ISR {isr}"
    if not set(replicas).issuperset(
        isr + partition.elr + partition.adding + partition.removing + partition.last_known_elr
    ):
        return (
            f"invariant 3: ISR {isr}, ELR {partition.elr}, last known ELR"
            f" {partition.last_known_elr}, adding {partition.adding}, removing"
            f" {partition.removing}: not a subset of replicas {replicas}"
        )
    if partition.elr and set(isr) & set(partition.elr):
        return f"invariant 4: ISR {isr} and ELR {partition.elr} overlap"
    return ""


def check_partition(topic: TopicImage, index: int, *, active: frozenset[NodeId]) -> None:
    """Raise AssertionError unless these hold, by number; `active` are the registered brokers that
    are neither fenced nor stopping:

    1. to 4.: see `partition_fault`.
    5. No replica is listed twice.
    6. A partition with an ISR has a leader.
    7. Every ISR member is active.
    8. A replica remains after the removal of the removing ones.
    9. A last known ELR exists only while ISR and ELR are empty.
    """
    partition = topic.partitions[index]
    fault = partition_fault(partition) or _placement_fault(partition, active)
    assert not fault, f"metadata {topic.name}-{index}: {fault}"


def check_change(
    before: MetadataImage, after: MetadataImage, partitions: Iterable[tuple[TopicId, int]]
) -> None:
    """Raise AssertionError unless these hold for partitions that changed between two images, and 5
    to 9 for their new state, see `check_partition`; replay has checked 1 to 4. A fault of the old
    state may remain: a command must be able to repair it.

    10. Each change increments the partition epoch; the leader epoch does not fall, and rises with
        each other leader.
    11. A replica in the ISR or ELR leaves the assignment only if min.insync.replicas others are in
        the ISR.
    """
    active = active_brokers(after)
    for topic_id, index in partitions:
        topic = after.topics_by_id.get(topic_id)
        if topic is None:
            continue  # deleted after the change
        new, old = topic.partitions[index], before.partition(topic_id, index)
        fault = _placement_fault(new, active)
        if fault and old is not None and _placement_fault(old, active_brokers(before)):
            fault = ""
        if old is not None:
            fault = fault or _epoch_fault(old, new) or _removal_fault(topic, old, new)
        assert not fault, f"metadata {topic.name}-{index}: {fault}"


def active_brokers(image: MetadataImage) -> frozenset[NodeId]:
    """Return the brokers that can lead and host new replicas."""
    return frozenset(node for node, broker in image.brokers.items() if broker.is_active)


def _placement_fault(partition: PartitionImage, active: frozenset[NodeId]) -> str:
    """Return the violated invariant of 5 to 9; "" if they hold."""
    replicas, isr = partition.replicas, partition.isr
    for nodes in (replicas, isr, partition.elr, partition.last_known_elr):
        if nodes and len(frozenset(nodes)) != len(nodes):
            return f"invariant 5: {nodes} repeats a node"
    if isr and partition.leader == NO_NODE:
        return f"invariant 6: ISR {isr} has no leader"
    if not active.issuperset(isr):
        return f"invariant 7: ISR {isr} has inactive {[n for n in isr if n not in active]}"
    if partition.removing and len(partition.removing) == len(replicas):
        return f"invariant 8: all replicas {replicas} are removing"
    if partition.last_known_elr and (isr or partition.elr):
        return (
            f"invariant 9: last known ELR {partition.last_known_elr} beside ISR {isr} and ELR"
            f" {partition.elr}"
        )
    return ""


def _epoch_fault(old: PartitionImage, new: PartitionImage) -> str:
    """Return the violated invariant 10; "" if it holds."""
    is_later = new.partition_epoch > old.partition_epoch or old is new
    if is_later and new.leader_epoch >= old.leader_epoch + (new.leader != old.leader):
        return ""
    return (
        f"invariant 10: partition epoch {old.partition_epoch} -> {new.partition_epoch}, leader"
        f" epoch {old.leader_epoch} -> {new.leader_epoch}, leader {old.leader} -> {new.leader}"
    )


def _removal_fault(topic: TopicImage, old: PartitionImage, new: PartitionImage) -> str:
    """Return the violated invariant 11; "" if it holds."""
    if new.replicas == old.replicas:
        return ""
    removed = [node for node in (*old.isr, *old.elr) if node not in new.replicas]
    needed = effective_min_isr(topic.configs, replication_factor=len(new.replicas))
    if not removed or len(new.isr) >= needed:
        return ""
    return (
        f"invariant 11: {removed} of ISR {old.isr} and ELR {old.elr} leave the assignment, the ISR"
        f" {new.isr} has less than {needed} members"
    )


def changed_partitions(records: Iterable[pb.MetadataRecord]) -> Iterator[tuple[TopicId, int]]:
    """Yield the partitions that records create or change."""
    for record in records:
        match record.WhichOneof("record"):
            case "partition_change":
                change = record.partition_change
                yield TopicId(change.topic_id), change.partition
            case "partition":
                created = record.partition
                yield TopicId(created.topic_id), created.partition
            case _:
                pass


def check_invariants(image: MetadataImage) -> None:
    """Raise AssertionError unless these hold, and 1 to 9 for every partition, see
    `check_partition`; the cost is that of the whole image:

    12. The indexes by name and by collision key have exactly the topics of the image.
    13. The partitions of a topic are 0..n-1.
    14. The sets of partitions by broker, in motion, and without their preferred leader are right.
    15. No broker epoch is above the offset of the image.
    """
    topics = image.topics_by_id
    names = {topic.name: topic_id for topic_id, topic in topics.items()}
    assert dict(image.topics_by_name) == names, (
        f"metadata invariant 12: {sorted(image.topics_by_name)} for topics {sorted(names)}"
    )
    assert sorted(image.topics_by_key.values()) == sorted(topics), (
        f"metadata invariant 12: {len(image.topics_by_key)} collision keys, {len(topics)} topics"
    )
    placed: dict[NodeId, set[tuple[TopicId, int]]] = {}
    moving, elsewhere, active = set(), set(), active_brokers(image)
    for topic_id, topic in topics.items():
        indexes = sorted(topic.partitions)
        assert indexes == list(range(len(indexes))), (
            f"metadata invariant 13: {topic.name} has partitions {indexes}"
        )
        for index, partition in topic.partitions.items():
            check_partition(topic, index, active=active)
            for node in partition.replicas:
                placed.setdefault(node, set()).add((topic_id, index))
            if partition.is_moving:
                moving.add((topic_id, index))
            if partition.leader != partition.replicas[0]:
                elsewhere.add((topic_id, index))
    for node in {*placed, *image.placed}:
        _check_set(f"on {node}", image.placed.get(node), placed.get(node, set()))
    _check_set("moving", image.moving, moving)
    _check_set("led elsewhere", image.led_elsewhere, elsewhere)
    for broker in image.brokers.values():
        assert broker.epoch <= image.offset, (
            f"metadata invariant 15: broker {broker.id} has epoch {broker.epoch}, the image has"
            f" offset {image.offset}"
        )


def _check_set(name: str, found: PartitionSet | None, expected: set[tuple[TopicId, int]]) -> None:
    members = set() if found is None else set(found)
    count = 0 if found is None else len(found)
    assert (members, count) == (expected, len(expected)), (
        f"metadata invariant 14: partitions {name}: {count} counted, {len(members)} in the set,"
        f" {len(expected)} in the image"
    )
