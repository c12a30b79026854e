"""Why a replica is not in sync, a partition refuses acks=all, or a broker is fenced; pure.

Each finding says what is so, why, and what to do, in words that name brokers and partitions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..output import count_text

if TYPE_CHECKING:
    from ...clients import Broker, Partition, PartitionReplicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be."""

    what: str  # of whom it is, as "t-0"; empty for a broker
    why: str  # a sentence without its full stop
    remedy: str  # what to do, the same; empty: nothing
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None

    @property
    def text(self) -> str:
        """All of it for people."""
        why = f"{self.what}: {self.why}" if self.what else self.why[0].upper() + self.why[1:]
        return " ".join(f"{each}." for each in (why, self.remedy) if each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What became of asking a broker itself."""

    is_refused: bool = False  # nobody listens at its address
    error: str = ""  # why it did not answer otherwise; empty: it did
    controller: int | None = None  # with which it has a session; None: with none
    metadata_offset: int = -1  # how far it has applied the metadata


def not_in_sync(
    topic: str,
    partition: "Partition",
    seen: "PartitionReplicas | None",
    brokers: "Mapping[int, Broker]",
) -> Iterator[Finding]:
    """Say of each replica outside the ISR why it is; `seen` is what the leader tells."""
    for node in partition.replicas:
        if node not in partition.isr:
            why, remedy = _why_not(node, partition, seen, brokers)
            yield Finding(
                what=f"{topic}-{partition.partition}",
                why=why,
                remedy=remedy,
                topic=topic,
                partition=partition.partition,
                broker=node,
            )


def _why_not(
    node: int,
    partition: "Partition",
    seen: "PartitionReplicas | None",
    brokers: "Mapping[int, Broker]",
) -> tuple[str, str]:
    broker = brokers.get(node)
    if broker is None:
        return (
            f"broker {node} is not registered: it was taken out of the cluster, or never came up",
            f"Start it, or move its replicas: `quorumlog partitions reassign --drain {node}`",
        )
    if broker.fenced or broker.stopping:
        is_so = "is fenced" if broker.fenced else "is stopping"
        return (
            f"broker {node} {is_so}, so that it is in no ISR",
            f"`quorumlog explain fenced {node}` says why; once it is back it catches up by itself",
        )
    if partition.leader is None:
        return (
            "nobody leads, so that nobody can be followed",
            f"`quorumlog explain under-min-isr` says who could lead; broker {node} is alive",
        )
    if seen is None or seen.error is not None:
        said = "" if seen is None or seen.error is None else f" ({seen.error.message})"
        return (
            f"broker {node} is alive, and the leader, broker {partition.leader}, does not tell how "
            f"far it is{said}",
            f"Look at broker {partition.leader}, then ask again",
        )
    reason = next((each.reason for each in seen.replicas if each.broker == node), "")
    if not reason:
        return f"broker {node} has joined a moment ago", ""
    if node in partition.adding:
        return (
            reason,
            "A reassignment adds it: it copies the log, as fast as replication.throttled.rate "
            "allows, and joins when it has all",
        )
    return (
        reason,
        f"It joins by itself once it has caught up; if it does not, the disk, the network or the "
        f"load of broker {node} holds it up: look at its journal and its metrics",
    )


def under_min_isr(topic: str, partition: "Partition", brokers: "Mapping[int, Broker]") -> Finding:
    """Say why a partition refuses acks=all, and who could change that."""
    name, number = f"{topic}-{partition.partition}", partition.partition
    if partition.leader is None:
        why, remedy = _offline(topic, partition)
    else:
        away = [node for node in partition.replicas if node not in partition.isr]
        in_sync = count_text(len(partition.isr), "replica")
        why = (
            f"{in_sync} in sync ({_nodes(partition.isr)}), and min.insync.replicas asks for "
            f"{partition.min_isr}: acks=all is refused, reads and acks=1 go on"
        )
        alive = {node for node in away if node in brokers and not brokers[node].fenced}
        told = [f"broker {node} ({'behind' if node in alive else 'fenced'})" for node in away]
        remedy = (
            f"Missing: {', '.join(told)}; `quorumlog explain not-isr {topic} -p {number}` says more"
            if away
            else f"It has {count_text(len(partition.replicas), 'replica')} in all: `quorumlog "
            f"partitions reassign {topic} -p {number} --replication {partition.min_isr}`"
        )
    return Finding(what=name, why=why, remedy=remedy, topic=topic, partition=number)


def _offline(topic: str, partition: "Partition") -> tuple[str, str]:
    number = partition.partition
    if partition.elr:
        return (
            "nobody leads it, since no replica that has everything is alive",
            f"Start {_nodes(partition.elr, 'or')}: it has all that was acknowledged, and leads at "
            "once",
        )
    last = partition.last_known_elr
    was = f"; {_nodes(last, 'and')} had everything last" if last else ""
    start = (
        f"Start {_nodes(last, 'or')} with the disk that it had; if that is lost, " if last else ""
    )
    unclean = f"`quorumlog partitions elect-leader {topic} -p {number} --unclean`"
    return (
        f"nobody leads it, and nobody is known to have all that was acknowledged{was}",
        f"{start}{unclean} has a live replica lead, and gives up what that one lacks",
    )


def fenced(broker: "Broker", seen: Seen) -> Finding:
    """Say why a broker is fenced, or that it is not."""
    why, remedy = _why_fenced(broker, seen)
    return Finding(what="", why=why, remedy=remedy, broker=broker.id)


def _why_fenced(broker: "Broker", seen: Seen) -> tuple[str, str]:
    name, address = f"broker {broker.id}", broker.grpc_address
    if not broker.fenced and not broker.stopping:
        return f"{name} is not fenced: the controller counts on it", ""
    again = f"start it again: `quorumlog server`, or `quorumlog cluster start {broker.id}`"
    if seen.is_refused:
        how = "was stopped in order" if broker.stopping else "is down"
        return f"{name} {how}: nothing listens at {address}", f"If it shall serve, {again}"
    if seen.error:
        return (
            f"{name} does not answer at {address} ({seen.error.partition(';')[0]}): its process is "
            "paused or overloaded, or the network to it is cut",
            f"Look at its machine and its journal; if its process has ended, {again}",
        )
    if broker.stopping:
        return f"{name} is about to stop: it hands over what it leads", ""
    if seen.metadata_offset < broker.broker_epoch:
        return (
            f"{name} lives and catches up with the metadata: it has applied it up to "
            f"{seen.metadata_offset}, and registered at {broker.broker_epoch}",
            "Wait: it is counted on once it has applied its own registration",
        )
    if seen.controller is None:
        return (
            f"{name} lives, and has no session with the active controller: its heartbeats do not "
            "get through",
            "Look at the network between it and the controllers, and at `quorumlog quorum status`",
        )
    return (
        f"{name} lives and has a session with controller {seen.controller}",
        "Ask again: it is counted on at its next heartbeat",
    )


def not_registered(node: int, brokers: Iterable[int]) -> Finding:
    """Say why a broker is unknown."""
    there = ", ".join(map(str, sorted(brokers))) or "none"
    return Finding(
        what="",
        why=f"broker {node} is not registered; registered are: {there}",
        remedy="It never reached the active controller: look at its journal, and whether its "
        "controller.bootstrap or controller.voters names this cluster's controllers",
        broker=node,
    )


def _nodes(nodes: Sequence[int], joined: str = "and") -> str:
    """Return "broker 1", "brokers 1 and 2"."""
    if not nodes:
        return "none"
    if len(nodes) == 1:
        return f"broker {nodes[0]}"
    return f"brokers {', '.join(map(str, nodes[:-1]))} {joined} {nodes[-1]}"
