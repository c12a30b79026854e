"""Reassignment of partitions to other brokers. Pure.

A reassignment first sets the replicas to the union of old and new ones. The leader adds new
replicas to the ISR as they catch up; the ISR change that includes all of them also completes the
reassignment (`finish`). No decision here adds a broker to an ISR, or leaves an ISR below the min
ISR.

During a reassignment `adding` are the replicas that the partition did not have before, `removing`
those that it will lose. A new target replaces the old one. Replicas that only the old target added
are removed at once, except for members of ISR or ELR: they are in both lists until the end, because
removing them could leave too few. A cancellation is a reassignment back.
"""

from dataclasses import dataclass

from msgspec.structs import replace

from ...errors import (
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from ...ids import NodeId
from ..commands import AlterReassignments, PartitionOutcome, PartitionOutcomes, Reassignment, Reply
from ..decision import AnyDecision
from ..image import MetadataImage, PartitionImage, TopicImage
from ..topic_configs import effective_min_isr
from .elections import Electorate, change_record
from .steps import Walk, decision_of
from .topics import check_replicas, named_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The replicas and ISR of a partition after its reassignment.

    `adding`, `removing` and the ELR are then empty. The leader, elected from `isr`, begins a new
    epoch even if it is unchanged, which fences the removed replicas.
    """

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]  # at least the min ISR


def finish(
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    isr: tuple[NodeId, ...],
) -> Finished | None:
    """Return the partition after its reassignment if an ISR of `isr` completes it, else None.

    It is complete if every added replica is in sync and the remaining ISR has at least the min ISR.
    """
    added = set(partition.adding) - set(partition.removing)
    if not partition.is_moving or not added <= set(isr):
        return None
    stay = tuple(node for node in isr if node not in partition.removing)
    replicas = tuple(node for node in partition.replicas if node not in partition.removing)
    if len(stay) < effective_min_isr(topic.configs, replication_factor=len(replicas)):
        # sometimes: a reassignment waits for the min ISR without removed replicas
        return None
    return Finished(replicas=replicas, isr=stay)


def alter_reassignments(image: MetadataImage, command: AlterReassignments) -> AnyDecision:
    """Decide reassignments. Partitions succeed or fail independently; for a partition that occurs
    more than once the last target applies."""
    outcomes: list[PartitionOutcome] = []
    concerned: set[NodeId] = set()

    def walk() -> Walk:
        electorate = Electorate(image)
        changed: dict[tuple[str, int], PartitionImage] = {}
        for wanted in command.reassignments:
            key = wanted.topic, wanted.partition
            error: QuorumlogError | None = None
            record = None
            try:
                topic, before = _partition(image, wanted)
                before = changed.get(key, before)
                if command.keep_replication_factor:
                    _check_same_number(wanted, before)
                electorate.select_topic(topic)
                after = _altered(image, electorate, topic, wanted, before)
            except QuorumlogError as rejection:
                error = rejection
            else:
                if after is not before:
                    record = change_record(topic.id, wanted.partition, before, after)
                    changed[key] = after
                    concerned.update(before.replicas, after.replicas)
            outcomes.append(
                PartitionOutcome(topic=wanted.topic, partition=wanted.partition, error=error)
            )
            yield record

    def answer() -> tuple[Reply, tuple[NodeId, ...]]:
        return PartitionOutcomes(outcomes=tuple(outcomes)), tuple(sorted(concerned))

    return decision_of("move partitions", walk(), answer)


def moving_partitions(image: MetadataImage) -> list[tuple[TopicImage, int, PartitionImage]]:
    """Return the reassignments in progress, by ascending topic name and index."""
    found = [(image.topics_by_id[topic_id], index) for topic_id, index in image.moving]
    found.sort(key=lambda each: (each[0].name, each[1]))
    return [(topic, index, topic.partitions[index]) for topic, index in found]


def _partition(image: MetadataImage, wanted: Reassignment) -> tuple[TopicImage, PartitionImage]:
    topic = named_topic(image, wanted.topic)
    partition = topic.partitions.get(wanted.partition)
    if partition is None:
        raise UnknownTopicOrPartition(
            f"the topic has partitions 0..{len(topic.partitions) - 1}",
            topic=topic.name,
            partition=wanted.partition,
        )
    return topic, partition


def _check_same_number(wanted: Reassignment, before: PartitionImage) -> None:
    present = len(set(before.replicas) - set(before.removing))  # after a reassignment in progress
    if wanted.replicas is not None and len(wanted.replicas) != present:
        raise InvalidReplicationFactor(
            f"the reassignment changes the number of replicas from {present} to"
            f" {len(wanted.replicas)}; allow a change of the replication factor",
            topic=wanted.topic,
            partition=wanted.partition,
        )


def _altered(
    image: MetadataImage,
    electorate: Electorate,
    topic: TopicImage,
    wanted: Reassignment,
    before: PartitionImage,
) -> PartitionImage:
    """Return the partition with its new reassignment, or after it if no replica must be copied."""
    if wanted.replicas is None:
        if not before.is_moving:
            raise NoReassignmentInProgress(
                "no reassignment in progress", topic=topic.name, partition=wanted.partition
            )
        # sometimes: a reassignment is cancelled
        target = _origin(before)
    else:
        check_replicas(image, wanted.replicas, name=topic.name)
        target = wanted.replicas
    moving = _with_target(before, target)
    # sometimes if {*moving.removing} & {*before.adding}: a reassignment gives up a new replica
    finished = finish(image, topic, wanted.partition, moving, before.isr)
    if finished is not None:
        moving = replace(
            moving, replicas=finished.replicas, isr=finished.isr, adding=(), removing=()
        )
    return electorate.settle(before, moving)


def _with_target(before: PartitionImage, target: tuple[NodeId, ...]) -> PartitionImage:
    """Return the partition with the replicas of a reassignment to `target`."""
    origin = _origin(before)
    holding = {*before.isr, *before.elr, *before.last_known_elr}
    given_up = [n for n in before.adding if n not in target and n in holding]
    leaving = [n for n in origin if n not in target]
    return replace(
        before,
        replicas=(*target, *leaving, *given_up),
        adding=(*(n for n in target if n not in origin), *given_up),
        removing=(*leaving, *given_up),
    )


def _origin(partition: PartitionImage) -> tuple[NodeId, ...]:
    """Return the replicas before the reassignment in progress."""
    return tuple(node for node in partition.replicas if node not in partition.adding)
