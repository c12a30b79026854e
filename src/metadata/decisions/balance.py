"""Leaderships are given to other replicas: on demand, and back to the preferred ones by and by.

The first replica of an assignment is the preferred leader: assignments are even in them, so load
is even when they lead. The controller gives a broker's leaderships back once too large a share of
them is led by others. Decisions, pure; they look at the partitions that are led elsewhere, and
never at all.
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
    """What became of the partitions so far, and who must know."""

    def __init__(self) -> None:
        self._outcomes: list[PartitionOutcome] = []
        self._brokers: set[NodeId] = set()

    def refused(self, topic: str, partition: int, error: QuorumlogError) -> None:
        self._outcomes.append(PartitionOutcome(topic=topic, partition=partition, error=error))

    def elected(self, topic: str, partition: int, leaders: tuple[NodeId, NodeId]) -> None:
        self._outcomes.append(PartitionOutcome(topic=topic, partition=partition))
        self._brokers.update(leaders)

    def answer(self) -> tuple[Reply, tuple[NodeId, ...]]:
        brokers = tuple(sorted(self._brokers - {NO_NODE}))
        return PartitionOutcomes(outcomes=tuple(self._outcomes)), brokers


def elect_leaders(image: MetadataImage, command: ElectLeaders) -> AnyDecision:
    """Elect in each partition named, or preferred leaders wherever others lead and they may."""
    outcomes = _Outcomes()
    if command.partitions:
        walk = _elect_named(image, command, outcomes)
    elif command.unclean:
        raise InvalidRequest(
            "an unclean election may lose records: name the partitions that it is for"
        )
    else:
        walk = _elect_preferred(image, outcomes)
    return decision_of("elect leaders", walk, outcomes.answer)


def balance_leaders(image: MetadataImage) -> AnyDecision:
    """Give leaderships back to the brokers of which too large a share is led by others, and a
    leader to the partitions that wait for one which their topic's configs allow by now."""
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
                "there is no such partition", topic=name, partition=index
            )
            outcomes.refused(name, index, error)
            yield None
            continue
        if (name, index) in seen:
            twice = InvalidRequest("it is named twice: name it once", topic=name, partition=index)
            outcomes.refused(name, index, twice)
            yield None
            continue
        seen.add((name, index))
        electorate.look_at(topic)
        after = electorate.settle(
            before, before, unclean=command.unclean, first_leads=not command.unclean
        )
        refusal = _refusal(topic, index, after, changed=after is not before, how=command)
        if refusal is None:
            outcomes.elected(name, index, (before.leader, after.leader))
            yield change_record(topic.id, index, before, after)
        else:
            outcomes.refused(name, index, refusal)
            yield None


def _refusal(
    topic: TopicImage, index: int, after: PartitionImage, *, changed: bool, how: ElectLeaders
) -> QuorumlogError | None:
    """Why an election comes to nothing, None: it does not."""
    first = after.replicas[0]
    if how.unclean:
        if after.leader == NO_NODE:
            return EligibleLeadersNotAvailable(
                f"none of its replicas {list(after.replicas)} is alive: start one of them",
                topic=topic.name,
                partition=index,
            )
    elif after.leader != first:
        return PreferredLeaderNotAvailable(
            f"its first replica, broker {first}, is not alive or not in sync: in sync are"
            f" {list(after.isr)}",
            topic=topic.name,
            partition=index,
        )
    if changed:
        return None
    return ElectionNotNeeded(f"broker {after.leader} leads it", topic=topic.name, partition=index)


def _elect_preferred(
    image: MetadataImage, outcomes: _Outcomes, *, of: Collection[NodeId] | None = None
) -> Walk:
    """Elections of first replicas that are in sync and do not lead; `of`: only of these brokers."""
    electorate = Electorate(image)
    for topic_id, index in image.led_elsewhere:
        topic = image.topics_by_id[topic_id]
        before = topic.partitions[index]
        first = before.replicas[0]
        if first not in before.isr or (of is not None and first not in of):
            yield None
            continue
        electorate.look_at(topic)
        after = electorate.settle(before, before, first_leads=True)
        outcomes.elected(topic.name, index, (before.leader, after.leader))
        yield change_record(topic_id, index, before, after)


def _balance(image: MetadataImage, outcomes: _Outcomes) -> Walk:
    electorate = Electorate(image)
    waiting: dict[NodeId, int] = {}  # leaderships that each broker could take over as its own
    for topic_id, index in image.led_elsewhere:
        topic = image.topics_by_id[topic_id]
        before = topic.partitions[index]
        record = None
        if before.leader == NO_NODE:
            electorate.look_at(topic)
            after = electorate.settle(before, before)
            if after is not before:
                outcomes.elected(topic.name, index, (before.leader, after.leader))
                record = change_record(topic_id, index, before, after)
        elif before.replicas[0] in before.isr:
            waiting[before.replicas[0]] = waiting.get(before.replicas[0], 0) + 1
        yield record
    if not cluster_switch(image.cluster_configs, "auto.leader.rebalance.enable"):
        return
    imbalanced: set[NodeId] = set()
    for node, count in sorted(waiting.items()):
        if (yield from _is_imbalanced(image, node, count)):
            imbalanced.add(node)
    if imbalanced:
        yield from _elect_preferred(image, outcomes, of=imbalanced)


def _is_imbalanced(image: MetadataImage, node: NodeId, waiting: int) -> Generator[None, None, bool]:
    """Whether too large a share of what is a broker's own is led by others; looks at no more of it
    than it takes to say no."""
    percentage = cluster_number(image.cluster_configs, "leader.imbalance.per.broker.percentage")
    own = 0
    for topic_id, index in image.partitions_on(node):
        own += image.topics_by_id[topic_id].partitions[index].replicas[0] == node
        if waiting * 100 <= percentage * own:
            return False
        yield None
    return True
