"""Leader elections on demand, and the periodic election of preferred leaders. Pure.

The first replica of an assignment is the preferred leader. Placement spreads preferred leaders
evenly, so that the load is even while they lead. The controller elects the preferred leaders of a
broker if too large a share of its partitions is led by others. Decisions walk only the partitions
that are led elsewhere.
"""

from collections.abc import Collection, Generator

from ...errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    PreferredLeaderNotAvailable,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from ...ids import NO_NODE, NodeId
from ..cluster_configs import cluster_number, cluster_switch
from ..commands import ElectLeaders, PartitionOutcome, PartitionOutcomes, Reply
from ..decision import AnyDecision
from ..image import MetadataImage, PartitionImage, TopicImage
from .elections import Electorate, change_record
from .steps import Walk, decision_of


class _Outcomes:
    """The outcomes of the partitions so far, and the brokers that they concern."""

    def __init__(self) -> None:
        self._outcomes: list[PartitionOutcome] = []
        self._brokers: set[NodeId] = set()

    def rejected(self, topic: str, partition: int, error: QuorumlogError) -> None:
        self._outcomes.append(PartitionOutcome(topic=topic, partition=partition, error=error))

    def elected(self, topic: str, partition: int, leaders: tuple[NodeId, NodeId]) -> None:
        self._outcomes.append(PartitionOutcome(topic=topic, partition=partition))
        self._brokers.update(leaders)

    def answer(self) -> tuple[Reply, tuple[NodeId, ...]]:
        brokers = tuple(sorted(self._brokers - {NO_NODE}))
        return PartitionOutcomes(outcomes=tuple(self._outcomes)), brokers


def elect_leaders(image: MetadataImage, command: ElectLeaders) -> AnyDecision:
    """Decide elections of the named partitions, or of all preferred leaders that are in sync."""
    outcomes = _Outcomes()
    if command.partitions:
        walk = _elect_named(image, command, outcomes)
    elif command.unclean:
        raise InvalidRequest("an unclean election can lose records; name its partitions")
    else:
        walk = _elect_preferred(image, outcomes)
    return decision_of("elect leaders", walk, outcomes.answer)


def balance_leaders(image: MetadataImage) -> AnyDecision:
    """Decide elections of the preferred leaders of imbalanced brokers, and of leaders for
    partitions without one whose topic configs allow an election now."""
    outcomes = _Outcomes()
    return decision_of("balance leaders", _balance(image, outcomes), outcomes.answer)


def _elect_named(image: MetadataImage, command: ElectLeaders, outcomes: _Outcomes) -> Walk:
    electorate = Electorate(image)
    seen: set[tuple[str, int]] = set()
    for name, index in command.partitions:
        topic = image.topic(name)
        before = topic.partitions.get(index) if topic is not None else None
        if topic is None or before is None:
            error = UnknownTopicOrPartition(
                "the partition does not exist", topic=name, partition=index
            )
            outcomes.rejected(name, index, error)
            yield None
            continue
        if (name, index) in seen:
            twice = InvalidRequest(
                "given more than once; give each partition once", topic=name, partition=index
            )
            outcomes.rejected(name, index, twice)
            yield None
            continue
        seen.add((name, index))
        electorate.select_topic(topic)
        after = electorate.settle(
            before, before, unclean=command.unclean, first_leads=not command.unclean
        )
        failure = _election_error(topic, index, after, changed=after is not before, how=command)
        if failure is None:
            outcomes.elected(name, index, (before.leader, after.leader))
            yield change_record(topic.id, index, before, after)
        else:
            outcomes.rejected(name, index, failure)
            yield None


def _election_error(
    topic: TopicImage, index: int, after: PartitionImage, *, changed: bool, how: ElectLeaders
) -> QuorumlogError | None:
    """Return the error of an election without the wanted result, None if it succeeded."""
    first = after.replicas[0]
    if how.unclean:
        if after.leader == NO_NODE:
            return EligibleLeadersNotAvailable(
                f"none of the replicas {list(after.replicas)} is alive; start one of them",
                topic=topic.name,
                partition=index,
            )
    elif after.leader != first:
        return PreferredLeaderNotAvailable(
            f"the preferred leader, broker {first}, is not alive or not in sync; the ISR is"
            f" {list(after.isr)}",
            topic=topic.name,
            partition=index,
        )
    if changed:
        return None
    return ElectionNotNeeded(
        f"broker {after.leader} is the leader already", topic=topic.name, partition=index
    )


def _elect_preferred(
    image: MetadataImage, outcomes: _Outcomes, *, of: Collection[NodeId] | None = None
) -> Walk:
    """Elect preferred leaders that are in sync and do not lead; `of` limits the brokers."""
    electorate = Electorate(image)
    for topic_id, index in image.led_elsewhere:
        topic = image.topics_by_id[topic_id]
        before = topic.partitions[index]
        first = before.replicas[0]
        if first not in before.isr or (of is not None and first not in of):
            yield None
            continue
        electorate.select_topic(topic)
        after = electorate.settle(before, before, first_leads=True)
        outcomes.elected(topic.name, index, (before.leader, after.leader))
        yield change_record(topic_id, index, before, after)


def _balance(image: MetadataImage, outcomes: _Outcomes) -> Walk:
    electorate = Electorate(image)
    electable: dict[NodeId, int] = {}  # by broker: partitions where it could be elected
    for topic_id, index in image.led_elsewhere:
        topic = image.topics_by_id[topic_id]
        before = topic.partitions[index]
        record = None
        if before.leader == NO_NODE:
            electorate.select_topic(topic)
            after = electorate.settle(before, before)
            if after is not before:
                outcomes.elected(topic.name, index, (before.leader, after.leader))
                record = change_record(topic_id, index, before, after)
        elif before.replicas[0] in before.isr:
            electable[before.replicas[0]] = electable.get(before.replicas[0], 0) + 1
        yield record
    if not cluster_switch(image.cluster_configs, "auto.leader.rebalance.enable"):
        return
    imbalanced: set[NodeId] = set()
    for node, count in sorted(electable.items()):
        if (yield from _is_imbalanced(image, node, count)):
            imbalanced.add(node)
    if imbalanced:
        yield from _elect_preferred(image, outcomes, of=imbalanced)


def _is_imbalanced(
    image: MetadataImage, node: NodeId, electable: int
) -> Generator[None, None, bool]:
    """Return True if too large a share of the partitions that a broker prefers is led by others.
    Stops at the first partition that proves the opposite."""
    percentage = cluster_number(image.cluster_configs, "leader.imbalance.per.broker.percentage")
    own = 0
    for topic_id, index in image.partitions_on(node):
        own += image.topics_by_id[topic_id].partitions[index].replicas[0] == node
        if electable * 100 <= percentage * own:
            return False
        yield None
    return True
