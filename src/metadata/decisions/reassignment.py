"""Partitions move from brokers to others: grow, catch up, shrink. Decisions, pure.

A move first makes the replicas the union of old and new ones. The leader takes those that were
added into the ISR as they catch up; the change that completes them also ends the move (`finish`).
Nothing here puts a broker into an ISR, and nothing leaves one smaller than the min ISR.

While it is under way, `adding` are the replicas that the partition did not have before, `removing`
those that it will not have. A new target takes the place of the old one; what the old one added and
the new one does not want goes at once, but for members of ISR or ELR: those stand in both lists
until the end, since taking them away might leave too few. Cancelling is a move back.
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
    """What a partition is once its move is over: nothing is added or removed any more, the ELR is
    empty, and its leader (elected among `isr`) begins a new epoch even if it is the same one, so
    that those who were removed are told apart from then on."""

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]  # at least the min ISR


def finish(
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    partition: PartitionImage,
    isr: tuple[NodeId, ...],
) -> Finished | None:
    """Return how the partition's move ends if its ISR becomes `isr`, None: not by that.

    It ends once every added replica is in sync and what stays is in sync often enough.
    """
    added = set(partition.adding) - set(partition.removing)
    if not partition.is_moving or not added <= set(isr):
        return None
    stay = tuple(node for node in isr if node not in partition.removing)
    replicas = tuple(node for node in partition.replicas if node not in partition.removing)
    if len(stay) < effective_min_isr(topic.configs, replication_factor=len(replicas)):
        return None
    return Finished(replicas=replicas, isr=stay)


def alter_reassignments(image: MetadataImage, command: AlterReassignments) -> AnyDecision:
    """Each partition stands for itself; one that is named twice is moved to the last target."""
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
                electorate.look_at(topic)
                after = _altered(image, electorate, topic, wanted, before)
            except QuorumlogError as refusal:
                error = refusal
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
    """The moves that are under way, by ascending topic name and index."""
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
    present = len(set(before.replicas) - set(before.removing))  # once a move under way is over
    if wanted.replicas is not None and len(wanted.replicas) != present:
        raise InvalidReplicationFactor(
            f"the partition has {present} replicas, and the move would make it"
            f" {len(wanted.replicas)}: allow that if you mean it",
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
    """Return the partition once its move has begun, or is over at once because nothing has to be
    copied."""
    if wanted.replicas is None:
        if not before.is_moving:
            raise NoReassignmentInProgress(
                "the partition is not being moved", topic=topic.name, partition=wanted.partition
            )
        target = _origin(before)
    else:
        check_replicas(image, wanted.replicas, name=topic.name)
        target = wanted.replicas
    begun = _begun(before, target)
    finished = finish(image, topic, wanted.partition, begun, before.isr)
    if finished is not None:
        begun = replace(begun, replicas=finished.replicas, isr=finished.isr, adding=(), removing=())
    return electorate.settle(before, begun)


def _begun(before: PartitionImage, target: tuple[NodeId, ...]) -> PartitionImage:
    """Return the partition with the replicas of a move to `target`."""
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
    """The replicas without those that a move adds."""
    return tuple(node for node in partition.replicas if node not in partition.adding)
