"""Planning, cancellation and completion of reassignments, and the wait for in-sync partitions."""

import sys
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from ...clients.admin.plans import (
    Plan,
    TopicPartition,
    current_assignment,
    parse_nodes,
    parse_plan,
    plan_reassignment,
)
from ...errors import InvalidRequest, QuorumlogError, TimedOut, UnknownTopicOrPartition
from ..names import check_partition, unknown_topic
from ..output import count_text

if TYPE_CHECKING:
    from ...clients.admin.descriptions import Partition, Topic
    from ...clients.admin.partitions import PartitionOutcome
    from ...clients.blocking import Log

POLL_S = 0.5  # between two requests for the reassignments in progress


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignOptions:
    """The options of `partitions reassign`; None: not given."""

    topic: str | None = None
    numbers: tuple[int, ...] = ()  # of partitions
    to: str | None = None  # node ids, comma-separated
    file: str | None = None
    cancel: bool = False
    brokers: str | None = None  # node ids, comma-separated
    drain: str | None = None  # the same
    replication: int | None = None

    def check(self) -> None:
        """Raise BadParameter unless exactly one target is given."""
        is_rule = (self.brokers, self.drain, self.replication) != (None, None, None)
        if (self.to is not None) + (self.file is not None) + self.cancel + is_rule != 1:
            raise typer.BadParameter(
                "give exactly one of --to, --file, --cancel, and a rule of --brokers, --drain, "
                "--replication"
            )
        if self.brokers is not None and self.drain is not None:
            raise typer.BadParameter("give --brokers or --drain, not both")
        if self.to is not None and not self.numbers:
            raise typer.BadParameter("--to requires TOPIC and --partition")
        if self.numbers and self.topic is None:
            raise typer.BadParameter("--partition requires TOPIC")


def topics_of(log: "Log", name: str | None) -> "list[Topic]":
    """Return a topic, or all topics; raise UnknownTopicOrPartition with similar names."""
    if name is None:
        return log.admin.describe_topics()
    try:
        return [log.admin.describe_topic(name)]
    except UnknownTopicOrPartition:
        raise unknown_topic(log, name) from None


def partitions_of_topics(
    topics: "Iterable[Topic]", numbers: Collection[int] | None
) -> list[TopicPartition]:
    """Return the partitions of topics, limited to `numbers` if given. Raise
    UnknownTopicOrPartition."""
    places = []
    for topic in topics:
        for number in numbers or ():
            check_partition(topic.name, number, len(topic.partitions))
        places += [
            (topic.name, each.partition)
            for each in topic.partitions
            if not numbers or each.partition in numbers
        ]
    return places


def make_plan(log: "Log", options: ReassignOptions) -> Plan:
    """Return the new replicas of each partition that moves."""
    if options.file is not None:
        return parse_plan(_content(options.file), source=options.file)
    if options.to is not None:
        target = parse_nodes(options.to, flag="--to")
        return dict.fromkeys(
            partitions_of_topics(topics_of(log, options.topic), options.numbers), target
        )
    every = log.admin.describe_topics()
    chosen = [each for each in every if options.topic in (None, each.name)]
    if options.topic is not None and not chosen:
        raise unknown_topic(log, options.topic)
    brokers = log.admin.describe_cluster().brokers
    places = partitions_of_topics(chosen, options.numbers)
    usable = {broker.id for broker in brokers if not broker.fenced and not broker.stopping}
    if options.brokers is not None:
        allowed = set(parse_nodes(options.brokers, flag="--brokers"))
        _check_known(allowed, {broker.id for broker in brokers})
    elif options.drain is not None:
        allowed = usable - set(parse_nodes(options.drain, flag="--drain"))
    else:
        held = current_assignment(chosen)  # replicas on a broker that is down may stay
        allowed = usable | {node for place in places for node in held[place]}
    return plan_reassignment(
        current_assignment(every), places, brokers, allowed=allowed, replication=options.replication
    )


def cancel_reassignments(log: "Log", options: ReassignOptions) -> "list[PartitionOutcome]":
    """Cancel the reassignments of the given partitions, of a topic, or of all topics."""
    if options.numbers:
        places = partitions_of_topics(topics_of(log, options.topic), options.numbers)
        return log.admin.cancel_reassignments(places)
    try:
        moves = log.admin.list_reassignments([] if options.topic is None else [options.topic])
    except UnknownTopicOrPartition:
        assert options.topic is not None, "UnknownTopicOrPartition without a topic"
        raise unknown_topic(log, options.topic) from None
    places = [(each.topic, each.partition) for each in moves]
    return log.admin.cancel_reassignments(places) if places else []


def wait_reassigned(log: "Log", places: Sequence[TopicPartition], seconds: float) -> None:
    """Wait until no partition has a reassignment in progress; raise TimedOut."""
    left, end = set(places), time.monotonic() + seconds
    while left:
        left &= {(each.topic, each.partition) for each in log.admin.list_reassignments()}
        if left and time.monotonic() > end:
            raise TimedOut(
                f"{count_text(len(left), 'reassignment')} in progress after {seconds:.0f} s; they "
                "continue, `quorumlog partitions status` shows them"
            )
        if left:
            time.sleep(POLL_S)


def wait_in_sync(
    log: "Log", names: Sequence[str], seconds: float
) -> "tuple[int, list[tuple[str, Partition]]]":
    """Wait until every partition has a leader and all replicas in its ISR, at most `seconds`.
    Replicas that a reassignment adds do not count.

    `names` limits the topics; without names internal topics are included. Return the number of
    partitions, and those that are not in sync at the end. Retriable errors, as during an election
    or while the broker that is asked restarts, are retried until the time is over; then the last
    one is raised. Raise UnknownTopicOrPartition for an unknown topic.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            topics = [topics_of(log, name)[0] for name in names] if names else topics_of(log, None)
        except UnknownTopicOrPartition:
            raise
        except QuorumlogError as error:
            if not error.retriable or time.monotonic() > end:
                raise
        else:
            every = [(topic.name, each) for topic in topics for each in topic.partitions]
            lagging = [each for each in every if not _is_in_sync(each[1])]
            if not lagging or time.monotonic() > end:
                return len(every), lagging
        time.sleep(POLL_S)


def _is_in_sync(partition: "Partition") -> bool:
    return partition.leader is not None and not partition.is_under_replicated


def _check_known(wanted: set[int], ids: set[int]) -> None:
    if wanted - ids:
        absent, known = (", ".join(map(str, sorted(each))) for each in (wanted - ids, ids))
        raise InvalidRequest(f"broker {absent} is not registered; registered brokers: {known}")


def _content(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from None
