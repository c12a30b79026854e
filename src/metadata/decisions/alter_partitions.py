"""ISR changes that leaders request (AlterPartition). Pure.

Partitions succeed or fail independently: the error of one is a result, not a failure of the
command. The kind of error determines the leader's reaction: wait for newer metadata, return to the
committed ISR, or retry at another controller. A controller whose metadata is older than the
leader's must not answer "fenced", or the leader would never recover (KAFKA-14154).
"""

from msgspec.structs import replace

from ...errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    NotController,
    QuorumlogError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...ids import NO_NODE, NodeId, TopicId
from ..commands import AlterPartitions, IsrChange, PartitionsAltered, Reply
from ..decision import AnyDecision
from ..image import AlteredPartition, MetadataImage, PartitionImage, TopicImage
from .brokers import registered
from .elections import Electorate, change_record
from .reassignment import finish
from .steps import Walk, decision_of


def alter_partitions(image: MetadataImage, command: AlterPartitions) -> AnyDecision:
    """Decide the ISR changes; raise StaleBrokerEpoch for an earlier registration of the broker,
    NotController for one that is not in this image yet."""
    if command.broker_epoch > image.offset:  # the offset of a registration is its epoch
        raise NotController(
            f"broker {command.broker_id} is registered with epoch {command.broker_epoch}; this"
            f" controller has metadata up to offset {image.offset}; retry at the active controller"
        )
    registered(image, command.broker_id, command.broker_epoch)
    results: list[AlteredPartition | QuorumlogError] = []

    def answer() -> tuple[Reply, tuple[NodeId, ...]]:
        return PartitionsAltered(results=tuple(results)), ()

    return decision_of("alter partitions", _walk(image, command, results), answer)


def _walk(
    image: MetadataImage,
    command: AlterPartitions,
    results: list[AlteredPartition | QuorumlogError],
) -> Walk:
    electorate = Electorate(image)
    seen: set[tuple[TopicId, int]] = set()
    for change in command.changes:
        try:
            topic, before = _find(image, change)
            if (topic.id, change.partition) in seen:
                raise _error(
                    InvalidRequest, "given more than once; give each partition once", topic, change
                )
            seen.add((topic.id, change.partition))
            _check_epochs(topic, before, change, leader=command.broker_id)
            _check_members(image, topic, before, change)
        except QuorumlogError as error:
            results.append(error)
            yield None
            continue
        after = _granted(electorate, topic, before, change)
        if after.leader == command.broker_id:
            results.append(after.as_altered)
        else:
            # sometimes: an ISR change completes a reassignment and moves the leader
            results.append(
                _error(
                    NewLeaderElected,
                    f"its reassignment is complete, and broker {after.leader} is the new leader",
                    topic,
                    change,
                )
            )
        yield None if after is before else change_record(topic.id, change.partition, before, after)


def _find(image: MetadataImage, change: IsrChange) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None:
        # sometimes: an ISR change for a deleted topic arrives
        raise UnknownTopicId(
            f"topic id {change.topic_id.hex()} does not exist: it was deleted, or this controller"
            " has not applied its creation"
        )
    partition = topic.partitions.get(change.partition)
    if partition is None:
        raise UnknownTopicOrPartition(
            f"the topic has {len(topic.partitions)} partitions",
            topic=topic.name,
            partition=change.partition,
        )
    return topic, partition


def _check_epochs(
    topic: TopicImage, before: PartitionImage, change: IsrChange, *, leader: NodeId
) -> None:
    """Raise an error unless the sender leads and the change is based on the current epochs."""
    if change.leader_epoch > before.leader_epoch or change.partition_epoch > before.partition_epoch:
        # sometimes: a leader has newer epochs than its controller
        raise NotController(
            f"{topic.name}-{change.partition}: leader epoch {change.leader_epoch} and partition"
            f" epoch {change.partition_epoch} are newer than {before.leader_epoch} and"
            f" {before.partition_epoch} at this controller; retry at the active controller"
        )
    if change.leader_epoch < before.leader_epoch:
        # sometimes: a deposed leader asks for an ISR change
        raise _error(
            FencedLeaderEpoch,
            f"leader epoch {change.leader_epoch} is old; the current one is {before.leader_epoch}",
            topic,
            change,
        )
    if leader != before.leader:
        current = "none" if before.leader == NO_NODE else f"broker {before.leader}"
        raise _error(
            InvalidRequest,
            f"broker {leader} is not the leader; the leader is {current}",
            topic,
            change,
        )
    if change.partition_epoch < before.partition_epoch:
        # sometimes: an ISR change is based on an old partition epoch
        raise _error(
            InvalidUpdateVersion,
            f"the change is based on partition epoch {change.partition_epoch}; the current one is"
            f" {before.partition_epoch}; apply the metadata, then retry",
            topic,
            change,
        )


def _check_members(
    image: MetadataImage, topic: TopicImage, before: PartitionImage, change: IsrChange
) -> None:
    """Raise an error unless the new ISR members are eligible on this image (KIP-903,
    KAFKA-15221)."""
    members = [node for node, _ in change.isr]
    if len(set(members)) < len(members) or any(n not in before.replicas for n in members):
        raise _error(
            InvalidRequest,
            f"ISR {members} is not a subset of the replicas {list(before.replicas)} without"
            " duplicates",
            topic,
            change,
        )
    if before.leader not in members:
        raise _error(InvalidRequest, f"ISR {members} does not include the leader", topic, change)
    if before.recovering and not change.recovered and len(members) > 1:
        raise _error(
            InvalidRequest,
            "its leader is recovering; no replica can join the ISR before it has recovered",
            topic,
            change,
        )
    for node, broker_epoch in change.isr:
        broker = image.brokers.get(node)
        why = ""
        if broker is None:
            why = "is not registered"
        elif broker.epoch != broker_epoch:
            # sometimes: a broker registers again before it joins an ISR
            why = f"is registered with epoch {broker.epoch}, not {broker_epoch}"
        elif not broker.is_active:
            # sometimes: a fenced or stopping broker is proposed for an ISR
            why = "is fenced" if broker.fenced else "is stopping"
        if why:
            raise _error(IneligibleReplica, f"broker {node} {why}", topic, change)


def _granted(
    electorate: Electorate, topic: TopicImage, before: PartitionImage, change: IsrChange
) -> PartitionImage:
    """Return the partition with the new ISR, and without its reassignment if that is complete."""
    electorate.select_topic(topic)
    members = [node for node, _ in change.isr]
    if not before.is_moving and not before.recovering:
        return electorate.settle(before, before, isr=members)
    isr = tuple(node for node in before.replicas if node in members)
    wanted = replace(before, isr=isr, recovering=before.recovering and not change.recovered)
    finished = finish(electorate.image, topic, change.partition, before, isr)
    if finished is not None:
        # sometimes if before.recovering: a reassignment completes while its leader recovers
        wanted = replace(
            wanted, replicas=finished.replicas, isr=finished.isr, adding=(), removing=()
        )
    return electorate.settle(before, wanted)


def _error(
    kind: type[QuorumlogError], message: str, topic: TopicImage, change: IsrChange
) -> QuorumlogError:
    return kind(message, topic=topic.name, partition=change.partition)
