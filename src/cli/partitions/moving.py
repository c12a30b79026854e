"""From what was typed to a plan of moves, and from moves under way to their end."""

import sys
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from ...errors import InvalidRequest, TimedOut, UnknownTopicOrPartition
from ..output import count_text
from ..topic_names import check_partition, unknown_topic
from .plans import Place, Plan, parse_nodes, parse_plan, planned, present_of

if TYPE_CHECKING:
    from ...clients import PartitionOutcome, Topic
    from ...clients.blocking import Log

LOOK_S = 0.5  # between two looks at moves under way


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line says of moves; None: nothing."""

    topic: str | None = None
    numbers: tuple[int, ...] = ()  # of partitions
    to: str | None = None  # node ids, by commas
    file: str | None = None
    cancel: bool = False
    brokers: str | None = None  # node ids, by commas
    drain: str | None = None  # the same
    replication: int | None = None

    def check(self) -> None:
        """Raise BadParameter unless it says one thing."""
        is_rule = (self.brokers, self.drain, self.replication) != (None, None, None)
        if (self.to is not None) + (self.file is not None) + self.cancel + is_rule != 1:
            raise typer.BadParameter(
                "say where to: --to, --file, --cancel, or a rule of --brokers, --drain, "
                "--replication"
            )
        if self.brokers is not None and self.drain is not None:
            raise typer.BadParameter("--brokers and --drain are two rules; give one")
        if self.to is not None and not self.numbers:
            raise typer.BadParameter("--to goes with a topic and --partition")
        if self.numbers and self.topic is None:
            raise typer.BadParameter("--partition goes with a topic")


def topics_of(log: "Log", name: str | None) -> "list[Topic]":
    """Return a topic, or all; raises UnknownTopicOrPartition with the nearest names."""
    if name is None:
        return log.admin.describe_topics()
    try:
        return [log.admin.describe_topic(name)]
    except UnknownTopicOrPartition:
        raise unknown_topic(log, name) from None


def places_of(topics: "Iterable[Topic]", numbers: Collection[int] | None) -> list[Place]:
    """Return the partitions of topics, those of some numbers only if any are given; raises
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


def plan_of(log: "Log", wanted: Wanted) -> Plan:
    """Return the moves that are wanted."""
    if wanted.file is not None:
        return parse_plan(_content(wanted.file), source=wanted.file)
    if wanted.to is not None:
        target = parse_nodes(wanted.to, flag="--to")
        return dict.fromkeys(places_of(topics_of(log, wanted.topic), wanted.numbers), target)
    every = log.admin.describe_topics()
    chosen = [each for each in every if wanted.topic in (None, each.name)]
    if wanted.topic is not None and not chosen:
        raise unknown_topic(log, wanted.topic)
    brokers = log.admin.describe_cluster().brokers
    places = places_of(chosen, wanted.numbers)
    usable = {broker.id for broker in brokers if not broker.fenced and not broker.stopping}
    if wanted.brokers is not None:
        allowed = set(parse_nodes(wanted.brokers, flag="--brokers"))
        _check_known(allowed, {broker.id for broker in brokers})
    elif wanted.drain is not None:
        allowed = usable - set(parse_nodes(wanted.drain, flag="--drain"))
    else:
        held = present_of(chosen)  # what is on a broker that is down may stay there
        allowed = usable | {node for place in places for node in held[place]}
    return planned(
        present_of(every), places, brokers, allowed=allowed, replication=wanted.replication
    )


def cancelled(log: "Log", wanted: Wanted) -> "list[PartitionOutcome]":
    """Give up the moves of some partitions, or all of a topic, or all there are."""
    if wanted.numbers:
        places = places_of(topics_of(log, wanted.topic), wanted.numbers)
        return log.admin.cancel_reassignments(places)
    try:
        moves = log.admin.list_reassignments([] if wanted.topic is None else [wanted.topic])
    except UnknownTopicOrPartition:
        assert wanted.topic is not None, "all topics were asked for"
        raise unknown_topic(log, wanted.topic) from None
    places = [(each.topic, each.partition) for each in moves]
    return log.admin.cancel_reassignments(places) if places else []


def wait_moved(log: "Log", places: Sequence[Place], seconds: float) -> None:
    """Return when none of the partitions is being moved; raises TimedOut."""
    left, end = set(places), time.monotonic() + seconds
    while left:
        left &= {(each.topic, each.partition) for each in log.admin.list_reassignments()}
        if left and time.monotonic() > end:
            raise TimedOut(
                f"{count_text(len(left), 'move')} not over within {seconds:.0f} s: they go on, "
                "`quorumlog partitions status` shows them"
            )
        if left:
            time.sleep(LOOK_S)


def _check_known(wanted: set[int], ids: set[int]) -> None:
    if wanted - ids:
        absent, there = (", ".join(map(str, sorted(each))) for each in (wanted - ids, ids))
        raise InvalidRequest(f"there is no broker {absent}; registered are: {there}")


def _content(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from None
