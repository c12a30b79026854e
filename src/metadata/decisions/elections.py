"""Leader, ISR and ELR of a partition: one rule for every change.

The terms are those of KIP-966. A replica in the *ISR* has all acknowledged records. A replica that
left the ISR when it became smaller than the min ISR is in the *ELR*: nothing was acknowledged
since, so it has all acknowledged records too. Replicas that lost records are removed from both. The
ISR may be empty; its last member is then in the ELR.

The leader stays while it is in sync and active. Otherwise the new leader is, in this order:

1. the first active replica of the assignment in the ISR, or in the ELR if the ISR is empty;
2. if both are empty, the last member of either, unless its disk was replaced: it may lack records,
   and leads as `recovering`;
3. if unclean election is allowed or requested, the first active replica, also as `recovering`;
4. none.

A leader from outside the ISR becomes its only member. Every walk is in sorted order, so that equal
images produce equal records.
"""

from collections.abc import Collection, Container, Iterator
from enum import Enum

from ...ids import NO_NODE, Epoch, NodeId, TopicId
from ...proto import metadata_records_pb2 as pb
from ..cluster_configs import may_elect_unclean
from ..image import MetadataImage, PartitionImage, TopicImage
from ..topic_configs import effective_configs, effective_min_isr
from .steps import Walk


class Loss(Enum):
    """The records that a broker may have lost since its previous registration."""

    NOTHING = "nothing"  # its disk and its page cache are unchanged
    UNFLUSHED = "unflushed"  # its machine was rebooted: records that were not flushed
    EVERYTHING = "everything"  # its disk was replaced, or it was unregistered


class Electorate:
    """The election rule for one decision: the active brokers and the configs of one topic."""

    __slots__ = ("_flushed", "_min_isr", "_topic", "active", "image", "may_be_unclean")

    def __init__(self, image: MetadataImage, *, without: NodeId = NO_NODE) -> None:
        """`without` is a broker that counts as inactive."""
        self.image = image
        self.active: frozenset[NodeId] = frozenset(
            node for node, broker in image.brokers.items() if broker.is_active and node != without
        )
        self._topic: TopicImage | None = None
        self.may_be_unclean = False  # of the selected topic
        self._min_isr: dict[int, int] = {}  # of the selected topic, by replication factor
        self._flushed: dict[int, bool] = {}  # True for flush.policy=fsync; same key

    def select_topic(self, topic: TopicImage) -> None:
        """Use the configs of this topic for the following calls."""
        if topic is self._topic:
            return
        self._topic = topic
        self.may_be_unclean = may_elect_unclean(topic.configs, self.image.cluster_configs)
        self._min_isr, self._flushed = {}, {}

    def min_isr(self, partition: PartitionImage) -> int:
        """Return the min ISR of a partition of the selected topic."""
        assert self._topic is not None, "select_topic() comes first"
        factor = partition.replication_factor
        found = self._min_isr.get(factor)
        if found is None:
            found = effective_min_isr(self._topic.configs, replication_factor=factor)
            self._min_isr[factor] = found
        return found

    def has_lost(self, partition: PartitionImage, loss: Loss) -> bool:
        """Return True if a loss affects a replica of a partition of the selected topic. With
        flush.policy=fsync acknowledged records survive a reboot."""
        if loss is not Loss.UNFLUSHED:
            return loss is Loss.EVERYTHING
        assert self._topic is not None, "select_topic() comes first"
        factor = partition.replication_factor
        found = self._flushed.get(factor)
        if found is None:
            configs = effective_configs(self._topic.configs, replication_factor=factor)
            found = configs["flush.policy"] == "fsync"
            self._flushed[factor] = found
        return not found

    def settle(
        self,
        before: PartitionImage,
        wanted: PartitionImage,
        *,
        isr: Collection[NodeId] | None = None,
        lost: NodeId = NO_NODE,
        is_wiped: bool = False,
        unclean: bool = False,
        first_leads: bool = False,
    ) -> PartitionImage:
        """Return the new state of a partition of the selected topic, with incremented epochs;
        `before` itself if nothing changes.

        `wanted` has the wanted replicas and ISR (`isr` overrides only the latter). Inactive brokers
        are removed from the ISR; ELR and leader follow from the rule above. `lost` is a replica
        that lost records, with `is_wiped` all of them. `unclean` allows an unclean election.
        `first_leads` elects the preferred leader if it is in sync.
        """
        active, replicas = self.active, wanted.replicas
        members = wanted.isr if isr is None else isr
        in_sync = tuple([n for n in replicas if n in members and n in active and n != lost])
        complete = [n for n in replicas if n != lost and (n in before.isr or n in before.elr)]
        leader, recovering = before.leader, wanted.recovering
        last_known: tuple[NodeId, ...] = ()
        if in_sync:
            if first_leads and replicas[0] in in_sync:
                leader = replicas[0]
            elif leader not in in_sync:
                leader = in_sync[0]
        else:
            leader = _first(complete, active)
            if leader == NO_NODE and not complete:
                last_known = _last_known(before, replicas, gone=lost if is_wiped else NO_NODE)
                leader = _first(last_known, active)
                recovering = recovering or leader != NO_NODE
            if leader == NO_NODE and (unclean or self.may_be_unclean):
                leader = _first(replicas, active)
                recovering = recovering or leader != NO_NODE
            if leader != NO_NODE:
                in_sync, last_known = (leader,), ()
        # sometimes if last_known: a partition waits for its last in-sync replica
        # sometimes if lost != NO_NODE and lost in before.elr: a member of the ELR loses records
        # sometimes if before.recovering and leader != before.leader: a recovering leader fails
        # sometimes if recovering and not wanted.recovering: an election may lose records
        # sometimes if before.leader != leader and leader in before.elr: a member of the ELR leads
        # sometimes if before.is_moving and before.leader != leader: an election in a reassignment
        is_enough = len(in_sync) >= self.min_isr(wanted)
        elr = () if is_enough else tuple([n for n in complete if n not in in_sync])
        # A new epoch fences a replica that leaves the assignment.
        is_new_epoch = leader != before.leader or (
            replicas is not before.replicas and any(n not in replicas for n in before.replicas)
        )
        after = PartitionImage(
            replicas=replicas,
            isr=in_sync,
            leader=leader,
            leader_epoch=Epoch(before.leader_epoch + is_new_epoch),
            partition_epoch=before.partition_epoch + 1,
            adding=wanted.adding,
            removing=wanted.removing,
            elr=elr,
            last_known_elr=last_known,
            recovering=recovering,
        )
        return after if is_new_epoch or _differ(before, after) else before


def change_record(
    topic_id: TopicId, index: int, before: PartitionImage, after: PartitionImage
) -> pb.MetadataRecord:
    """Return the record that changes `before` to `after`."""
    record = pb.MetadataRecord()
    change = record.partition_change
    change.topic_id, change.partition = topic_id, index
    if after.leader_epoch != before.leader_epoch:
        change.leader = after.leader
    if after.isr != before.isr:
        _set_nodes(change.isr, after.isr)
    if after.elr != before.elr:
        _set_nodes(change.elr, after.elr)
    if after.last_known_elr != before.last_known_elr:
        _set_nodes(change.last_known_elr, after.last_known_elr)
    if after.replicas is not before.replicas and after.replicas != before.replicas:
        _set_nodes(change.replicas, after.replicas)
    if after.adding != before.adding:
        _set_nodes(change.adding, after.adding)
    if after.removing != before.removing:
        _set_nodes(change.removing, after.removing)
    if after.recovering != before.recovering:
        change.recovering = after.recovering
    return record


def _set_nodes(into: pb.Nodes, nodes: tuple[NodeId, ...]) -> None:
    if nodes:
        into.ids.extend(nodes)
    else:
        into.SetInParent()  # an empty list is a change too


def on_broker_gone(image: MetadataImage, gone: NodeId, loss: Loss = Loss.NOTHING) -> Walk:
    """Yield the changes that remove a broker from every ISR and leadership, and from the ELRs of
    partitions where it lost records."""
    electorate = Electorate(image, without=gone)
    is_wiped = loss is Loss.EVERYTHING
    for topic, index, partition in _partitions_on(image, gone):
        electorate.select_topic(topic)
        has_lost = electorate.has_lost(partition, loss)
        if not (
            gone in partition.isr
            or (has_lost and gone in partition.elr)
            or (is_wiped and gone in partition.last_known_elr)
        ):
            yield None
            continue
        lost = gone if has_lost else NO_NODE
        # sometimes if gone in partition.adding: a broker fails while a reassignment adds it
        after = electorate.settle(partition, partition, lost=lost, is_wiped=is_wiped)
        assert after is not partition, f"{topic.name}-{index} unchanged without broker {gone}"
        yield change_record(topic.id, index, partition, after)


def on_broker_back(image: MetadataImage, back: NodeId) -> Walk:
    """Yield elections in partitions without a leader; `back` is active in the image."""
    electorate = Electorate(image)
    for topic, index, partition in _partitions_on(image, back):
        yield None if partition.leader != NO_NODE else _settled(electorate, topic, index, partition)


def on_leaderless(image: MetadataImage) -> Walk:
    """Yield elections in partitions without a leader, after a config change that allows more."""
    electorate = Electorate(image)
    for topic_id, index in image.led_elsewhere:
        topic = image.topics_by_id[topic_id]
        partition = topic.partitions[index]
        yield None if partition.leader != NO_NODE else _settled(electorate, topic, index, partition)


def on_topic_configs(before: MetadataImage, after: MetadataImage, topic_id: TopicId) -> Walk:
    """Yield the partition changes that a topic's new configs require.

    A new min ISR increments the partition epoch of every partition. The leader's next ISR change is
    then based on the new min ISR; with the old one it could acknowledge records that a member of
    the ELR lacks.
    """
    old, new = Electorate(before), Electorate(after)
    topic = after.topics_by_id[topic_id]
    old.select_topic(before.topics_by_id[topic_id])
    for index, partition in topic.sorted_partitions():
        new.select_topic(topic)
        record = _settled(new, topic, index, partition)
        if record is None and old.min_isr(partition) != new.min_isr(partition):
            # sometimes: a min ISR changes nothing but the partition epoch
            record = change_record(topic_id, index, partition, partition)
        yield record


def _settled(
    electorate: Electorate, topic: TopicImage, index: int, partition: PartitionImage
) -> pb.MetadataRecord | None:
    electorate.select_topic(topic)
    after = electorate.settle(partition, partition)
    return None if after is partition else change_record(topic.id, index, partition, after)


def _partitions_on(
    image: MetadataImage, node: NodeId
) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for topic_id, index in image.partitions_on(node):
        topic = image.topics_by_id[topic_id]
        yield topic, index, topic.partitions[index]


def _last_known(
    before: PartitionImage, replicas: tuple[NodeId, ...], *, gone: NodeId
) -> tuple[NodeId, ...]:
    """Return the last members of ISR and ELR, now that both are empty, without `gone`."""
    last = (before.isr + before.elr) or before.last_known_elr
    return tuple([n for n in replicas if n in last and n != gone])


def _differ(before: PartitionImage, after: PartitionImage) -> bool:
    """Return True if anything but the epochs differs."""
    return (
        before.isr != after.isr
        or before.elr != after.elr
        or before.last_known_elr != after.last_known_elr
        or before.replicas != after.replicas
        or before.adding != after.adding
        or before.removing != after.removing
        or before.recovering != after.recovering
    )


def _first(nodes: tuple[NodeId, ...] | list[NodeId], active: Container[NodeId]) -> NodeId:
    for node in nodes:
        if node in active:
            return node
    return NO_NODE
