"""A leader asks for other in-sync replicas; each partition stands for itself. Decisions, pure.

A refusal is a result, no failure of the command. Who asks is told by its kind whether to learn
(the metadata is ahead of it), to go back to the committed ISR, or to ask another controller: one
that knows less than the asker must not answer "fenced", or the leader would be stuck (KAFKA-14154).
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
from ..image import MetadataImage, PartitionImage, TopicImage
from .brokers import registered
from .elections import Electorate, change_record
from .reassignment import finish
from .steps import Walk, decision_of


def alter_partitions(image: MetadataImage, command: AlterPartitions) -> AnyDecision:
    """Records for what is granted and differs; raises StaleBrokerEpoch for a past life."""
    registered(image, command.broker_id, command.broker_epoch)
    results: list[PartitionImage | QuorumlogError] = []

    def answer() -> tuple[Reply, tuple[NodeId, ...]]:
        return PartitionsAltered(results=tuple(results)), ()

    return decision_of("alter partitions", _walk(image, command, results), answer)


def _walk(
    image: MetadataImage,
    command: AlterPartitions,
    results: list[PartitionImage | QuorumlogError],
) -> Walk:
    electorate = Electorate(image)
    seen: set[tuple[TopicId, int]] = set()
    for change in command.changes:
        try:
            topic, before = _find(image, change)
            if (topic.id, change.partition) in seen:
                raise _refusal(
                    InvalidRequest, "it is named twice: ask for one change", topic, change
                )
            seen.add((topic.id, change.partition))
            _check_epochs(topic, before, change, asker=command.broker_id)
            _check_members(image, topic, before, change)
        except QuorumlogError as error:
            results.append(error)
            yield None
            continue
        after = _granted(electorate, topic, before, change)
        if after.leader == command.broker_id:
            results.append(after)
        else:
            results.append(
                _refusal(
                    NewLeaderElected,
                    f"the move it was in is over, and broker {after.leader} leads now: follow it",
                    topic,
                    change,
                )
            )
        yield None if after is before else change_record(topic.id, change.partition, before, after)


def _find(image: MetadataImage, change: IsrChange) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None:
        raise UnknownTopicId(
            f"there is no topic with id {change.topic_id.hex()}: it was deleted, or this controller"
            " does not know it yet"
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
    topic: TopicImage, before: PartitionImage, change: IsrChange, *, asker: NodeId
) -> None:
    """Whether the asker leads, and knows what it would change."""
    if change.leader_epoch > before.leader_epoch or change.partition_epoch > before.partition_epoch:
        raise NotController(
            f"{topic.name}-{change.partition}: this controller knows leader epoch"
            f" {before.leader_epoch} and partition epoch {before.partition_epoch}, the asker"
            f" {change.leader_epoch} and {change.partition_epoch}: ask the controller that told it"
        )
    if change.leader_epoch < before.leader_epoch:
        raise _refusal(
            FencedLeaderEpoch,
            f"leader epoch {change.leader_epoch} is over, the present one is {before.leader_epoch}",
            topic,
            change,
        )
    if asker != before.leader:
        leads = "nobody leads" if before.leader == NO_NODE else f"broker {before.leader} leads"
        raise _refusal(InvalidRequest, f"{leads}, not broker {asker}", topic, change)
    if change.partition_epoch < before.partition_epoch:
        raise _refusal(
            InvalidUpdateVersion,
            f"the change is based on partition epoch {change.partition_epoch}, the present one is"
            f" {before.partition_epoch}: learn it, then ask again",
            topic,
            change,
        )


def _check_members(
    image: MetadataImage, topic: TopicImage, before: PartitionImage, change: IsrChange
) -> None:
    """Whether those who shall be in sync may be, judged on one image (KIP-903, KAFKA-15221)."""
    members = [node for node, _ in change.isr]
    if len(set(members)) < len(members) or any(n not in before.replicas for n in members):
        raise _refusal(
            InvalidRequest,
            f"in-sync replicas {members} are not some of the replicas {list(before.replicas)},"
            " each once",
            topic,
            change,
        )
    if before.leader not in members:
        raise _refusal(
            InvalidRequest, f"in-sync replicas {members} lack the leader itself", topic, change
        )
    if before.recovering and not change.recovered and len(members) > 1:
        raise _refusal(
            InvalidRequest,
            "its leader is recovering: nobody joins before it says that it has recovered",
            topic,
            change,
        )
    for node, broker_epoch in change.isr:
        broker = image.brokers.get(node)
        why = ""
        if broker is None:
            why = "is not registered"
        elif broker.epoch != broker_epoch:
            why = f"is registered with epoch {broker.epoch}, not {broker_epoch}"
        elif not broker.is_active:
            why = "is fenced" if broker.fenced else "is stopping"
        if why:
            raise _refusal(IneligibleReplica, f"broker {node} {why}", topic, change)


def _granted(
    electorate: Electorate, topic: TopicImage, before: PartitionImage, change: IsrChange
) -> PartitionImage:
    """The partition with the ISR that was asked for, and its move over if that completes it."""
    electorate.look_at(topic)
    members = [node for node, _ in change.isr]
    if not before.is_moving and not before.recovering:
        return electorate.settle(before, before, isr=members)
    isr = tuple(node for node in before.replicas if node in members)
    wanted = replace(before, isr=isr, recovering=before.recovering and not change.recovered)
    finished = finish(electorate.image, topic, change.partition, before, isr)
    if finished is not None:
        wanted = replace(
            wanted, replicas=finished.replicas, isr=finished.isr, adding=(), removing=()
        )
    return electorate.settle(before, wanted)


def _refusal(
    kind: type[QuorumlogError], message: str, topic: TopicImage, change: IsrChange
) -> QuorumlogError:
    return kind(message, topic=topic.name, partition=change.partition)
