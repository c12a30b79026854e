"""Causes of replicas out of sync, partitions below min.insync.replicas, fenced brokers and held
back last stable offsets. Pure.

Each finding names the partition or broker, the cause, and the remedy.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...visible_text import count_text, duration_text, shell_word

if TYPE_CHECKING:
    from .descriptions import Broker, Partition
    from .fenced_brokers import FencingCause
    from .partitions import PartitionReplicas
    from .transactions import OpenTransaction, TransactionalId


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One unhealthy partition, broker or group, with its cause."""

    what: str  # its name, as "t-0"; empty for a broker
    why: str  # a sentence without its full stop
    remedy: str  # a sentence without its full stop; empty: none
    command: str = ""  # the command that carries out the remedy
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None

    @property
    def text(self) -> str:
        """The finding as sentences."""
        why = f"{self.what}: {self.why}" if self.what else self.why[0].upper() + self.why[1:]
        return " ".join(f"{each}." for each in (why, self.instruction) if each)

    @property
    def instruction(self) -> str:
        """The remedy with its command."""
        return f"{self.remedy}: `{self.command}`" if self.command else self.remedy


def not_in_sync(
    topic: str,
    partition: "Partition",
    by_leader: "PartitionReplicas | None",
    brokers: "Mapping[int, Broker]",
) -> Iterator[Finding]:
    """Yield a finding for each replica outside the ISR. `by_leader` is the replication state of the
    partition's leader, None if it was not available."""
    for node in partition.replicas:
        if node not in partition.isr:
            why, remedy = _not_in_sync_cause(node, partition, by_leader, brokers)
            yield Finding(
                what=f"{topic}-{partition.partition}",
                why=why,
                remedy=remedy,
                topic=topic,
                partition=partition.partition,
                broker=node,
            )


def _not_in_sync_cause(
    node: int,
    partition: "Partition",
    by_leader: "PartitionReplicas | None",
    brokers: "Mapping[int, Broker]",
) -> tuple[str, str]:
    broker = brokers.get(node)
    if broker is None:
        return (
            f"broker {node} is not registered: it was unregistered, or never started",
            f"Start it, or move its replicas: `quorumlog partitions reassign --drain {node}`",
        )
    if broker.fenced or broker.stopping:
        state = "is fenced" if broker.fenced else "is stopping"
        return (
            f"broker {node} {state}, which removes it from every ISR",
            f"`quorumlog explain fenced {node}` shows the cause; the replica catches up after the "
            "broker is back",
        )
    if partition.leader is None:
        return (
            f"the partition has no leader to replicate from; broker {node} is alive",
            "`quorumlog explain under-min-isr` shows which replica can lead",
        )
    if by_leader is None or by_leader.error is not None:
        error = (
            "" if by_leader is None or by_leader.error is None else f" ({by_leader.error.message})"
        )
        return (
            f"broker {node} is alive, but the leader, broker {partition.leader}, did not report "
            f"its replication state{error}",
            f"Check broker {partition.leader}, then retry",
        )
    reason = next((each.reason for each in by_leader.replicas if each.broker == node), "")
    if not reason:
        return f"broker {node} has just joined the ISR", ""
    if node in partition.adding:
        return (
            reason,
            "A reassignment adds the replica: it copies the log, limited by "
            "replication.throttled.rate, and joins the ISR when it has caught up",
        )
    return (
        reason,
        "It joins the ISR once it has caught up; if it does not catch up, check the log, the "
        f"metrics, the disk and the network of broker {node}",
    )


def under_min_isr(topic: str, partition: "Partition", brokers: "Mapping[int, Broker]") -> Finding:
    """Return the finding for a partition that rejects acks=all, with the missing replicas."""
    name, number = f"{topic}-{partition.partition}", partition.partition
    if partition.leader is None:
        why, remedy = _offline(topic, partition)
    else:
        away = [node for node in partition.replicas if node not in partition.isr]
        in_sync = count_text(len(partition.isr), "replica")
        why = (
            f"{in_sync} in sync ({_nodes(partition.isr)}), but min.insync.replicas is "
            f"{partition.min_isr}: acks=all fails, reads and acks=1 continue"
        )
        alive = {node for node in away if node in brokers and not brokers[node].fenced}
        missing = [f"broker {node} ({'behind' if node in alive else 'fenced'})" for node in away]
        remedy = (
            f"Missing: {', '.join(missing)}; `quorumlog explain not-isr {topic} -p {number}` shows "
            "the cause"
            if away
            else f"The partition has only {count_text(len(partition.replicas), 'replica')}: "
            f"`quorumlog partitions reassign {topic} -p {number} --replication {partition.min_isr}`"
        )
    return Finding(what=name, why=why, remedy=remedy, topic=topic, partition=number)


def _offline(topic: str, partition: "Partition") -> tuple[str, str]:
    number = partition.partition
    if partition.elr:
        return (
            "no leader: no live replica has all acknowledged records",
            f"Start {_nodes(partition.elr, 'or')}, which has all acknowledged records and becomes "
            "leader",
        )
    last = partition.last_known_elr
    was = f"; {_nodes(last, 'and')} had them last" if last else ""
    start = f"Start {_nodes(last, 'or')} with its old disk; if that is lost, " if last else ""
    unclean = f"`quorumlog partitions elect-leader {topic} -p {number} --unclean`"
    return (
        f"no leader, and no replica is known to have all acknowledged records{was}",
        f"{start}{unclean} elects a live replica and loses the records that it lacks",
    )


def fenced(cause: "FencingCause") -> Finding:
    """Return the finding of a broker's fencing, or that it is not fenced."""
    return Finding(what="", why=cause.why, remedy=cause.remedy, broker=cause.broker)


def not_registered(node: int, brokers: Iterable[int]) -> Finding:
    """Return the finding for a broker that is not registered."""
    registered = ", ".join(map(str, sorted(brokers))) or "none"
    return Finding(
        what="",
        why=f"broker {node} is not registered; registered brokers: {registered}",
        remedy="It never reached the active controller: check its log, and whether its "
        "controller.bootstrap or controller.voters has the addresses of this cluster's controllers",
        broker=node,
    )


def _nodes(nodes: Sequence[int], joined: str = "and") -> str:
    """Return "broker 1", or "brokers 1 and 2"."""
    if not nodes:
        return "none"
    if len(nodes) == 1:
        return f"broker {nodes[0]}"
    return f"brokers {', '.join(map(str, nodes[:-1]))} {joined} {nodes[-1]}"


def unstable(
    lags: Mapping[tuple[str, int], tuple[int, int]],
    found: "Sequence[OpenTransaction]",
    ids: "Mapping[int, TransactionalId]",
    hanging: "Sequence[OpenTransaction]",
    *,
    now_ms: int,
) -> list[Finding]:
    """Return a finding for each partition with a last stable offset below the high watermark.

    `lags` has both offsets, `found` the open transactions by partition and offset, `ids` the
    transactional ids by producer id.
    """
    oldest: dict[tuple[str, int], OpenTransaction] = {}
    for each in found:
        oldest.setdefault((each.topic, each.partition), each)
    findings = []
    for place, (stable, high_watermark) in lags.items():
        if stable >= high_watermark:
            continue
        held = oldest.get(place)
        why = (
            f"the last stable offset {stable:,} is {count_text(high_watermark - stable, 'offset')} "
            f"below the high watermark {high_watermark:,}"
        )
        remedy, command = "Try again", ""
        if held is None:
            why += "; the transaction that held it has ended since"
        else:
            listed = ids.get(held.producer.producer_id)
            reason, remedy, command = _open_cause(held, listed, hanging, now_ms)
            why += f": {reason}"
        findings.append(
            Finding(
                what=f"{place[0]}-{place[1]}",
                why=why,
                remedy=remedy,
                command=command,
                topic=place[0],
                partition=place[1],
            )
        )
    return findings


def _open_cause(
    held: "OpenTransaction",
    listed: "TransactionalId | None",
    hanging: "Sequence[OpenTransaction]",
    now_ms: int,
) -> tuple[str, str, str]:
    """Return the cause of an open transaction, the remedy, and its command, "" without one."""
    start = f"{held.first_offset:,}"
    what = f"a transaction of producer id {held.producer.producer_id} is open from {start}"
    if held in hanging:
        return (
            f"{what} and no coordinator has it: it hangs",
            "Abort it",
            f"quorumlog transactions find-hanging {held.topic} -p {held.partition} --abort",
        )
    if listed is None:
        return f"{what}; its transactional id is not listed", "Try again", ""
    age = ""
    if listed.started_ms >= 0:
        age = f" for {duration_text(max(0, now_ms - listed.started_ms) // 1000 * 1000)}"
    name = listed.staged_name
    holder = f"a transaction of {listed.name}"
    if name is not None:
        holder = f"a task attempt of the staged commits {name}"
    what = f"{holder} is open from {start}{age} ({listed.state})"
    if not listed.is_open:
        return (
            f"{what}: it is decided, and its marker is not written yet",
            "Check that the partition has a leader and enough in-sync replicas",
            "",
        )
    if name is not None:
        return (
            what,
            "Wait for the commit, or abort the write",
            f"quorumlog transactions abort {shell_word(name)}",
        )
    return (
        what,
        "Wait for the producer or its transaction timeout, or abort it",
        f"quorumlog transactions abort {shell_word(listed.name)}",
    )
