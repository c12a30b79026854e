"""Invariants of level `partitions` (KIP-966's model, Jepsen's anomalies).

Each check costs the size of the change.
"""

from collections.abc import Iterable

from quorumlog.broker.partition import Partition
from quorumlog.ids import NO_NODE, NodeId
from quorumlog.metadata import MetadataImage, effective_configs
from quorumlog.metadata.image import PartitionImage

from ...checkers.violation import Violation
from .broker import (
    DELETED,
    FetchRequest,
    FetchResponse,
    ModelBroker,
    ModelLog,
    Place,
    Value,
)
from .controller import ModelController


class PartitionInvariants:
    """The committed and acknowledged records, and the checks against them."""

    def __init__(self) -> None:
        # By partition: entries below the high watermark of a replica, in order.
        self.committed: dict[Place, list[tuple[int, Value]]] = {}
        self.acked: dict[Place, dict[int, Value]] = {}  # by partition and offset
        # by node and life: checked up to this high watermark
        self._looked: dict[tuple[int, int, Place], int] = {}
        self.acks = 0
        # by node, life and partition: the replica with the high watermark that it had last
        self._marks: dict[tuple[int, int, Place], tuple[Partition, int]] = {}
        self.lossy: set[Place] = set()  # partitions with a leader that had to recover
        self.starts: dict[Place, int] = {}  # the largest start of a deletion

    def watch(
        self, brokers: dict[NodeId, ModelBroker], controller: ModelController, *, is_fsync: bool
    ) -> None:
        """Set the machines and the controller that the checks compare."""
        self._brokers, self._controller, self._is_fsync = brokers, controller, is_fsync

    def deleted(self, place: Place, start: int) -> None:
        """Record a deletion of the records below `start`."""
        self.starts[place] = max(self.starts.get(place, 0), start)

    def acknowledged(self, place: Place, offset: int, value: Value) -> None:
        """Record an acknowledged produce request with acks=all."""
        self.acked.setdefault(place, {})[offset] = value
        self.acks += 1

    def mark_moved(self, broker: ModelBroker, place: Place, partition: Partition) -> None:
        """Check ConsistentRead: replicas commit equal records."""
        log, mark = broker.disk.log(place), partition.high_watermark
        if mark > log.end:
            raise Violation("HighWatermarkInLog", f"{partition.name}: {mark} > {log.end}")
        if place in self.lossy:
            return
        self._check_start(place, log, partition.name)
        known = self.committed.setdefault(place, [])
        key = (broker.node_id, broker.life, place)
        start, is_new = max(min(self._looked.get(key, 0), mark), log.start), False
        if start > len(known):
            raise Violation("DeletedInCommitted", f"{partition.name}: {start} > {len(known)}")
        for offset in range(start, mark):
            if offset == len(known):
                known.append(log.entries[offset])
                is_new = True
            elif known[offset] != log.entries[offset]:
                raise Violation(
                    "ConsistentRead",
                    f"{partition.name} at {offset}: node {broker.node_id} commits"
                    f" {log.entries[offset]}, {known[offset]} was committed before",
                )
        self._looked[key] = mark
        image = self._controller.image
        state = image.partition(*place)
        if is_new and state is not None:
            self._check_candidates(image, place, state, partition.name)

    def _check_candidates(
        self, image: MetadataImage, place: Place, state: PartitionImage, name: str
    ) -> None:
        """Check that every replica that may be elected has all committed records."""
        end = len(self.committed.get(place, ()))
        for node in (*state.isr, *state.elr):
            registered, disk = image.brokers[node], self._brokers[node].disk
            if (registered.boot_id, registered.directory_id[-1]) != (str(disk.boot), disk.number):
                continue  # the controller has not learned of its loss yet
            log = disk.logs.get(place)
            held = 0 if log is None else log.flushed if self._is_fsync else log.end
            if held < end:
                raise Violation(
                    "CompleteCandidates",
                    f"{name}: node {node} of ISR {state.isr} and ELR {state.elr} has {held} of"
                    f" {end} committed records",
                )

    def mark_seen(
        self,
        broker: ModelBroker,
        place: Place,
        partition: Partition,
        *,
        is_reported: bool | None = None,
    ) -> None:
        """Check that a high watermark never decreases, and that `is_reported` says whether it has
        advanced; None: nothing is reported."""
        mark, key = partition.high_watermark, (broker.node_id, broker.life, place)
        known, before = self._marks.get(key, (None, 0))
        self._marks[key] = partition, mark
        if known is not partition:
            return
        name = f"{partition.name}: node {broker.node_id}"
        if mark < before and place not in self.lossy:
            raise Violation("MonotonicHighWatermark", f"{name} from {before} to {mark}")
        if mark > broker.disk.log(place).end:
            raise Violation("HighWatermarkInLog", f"{name}: {mark} > {broker.disk.log(place).end}")
        if is_reported is not None and is_reported != (mark > before):
            raise Violation(
                "ReportedProgress", f"{name} from {before} to {mark}, reported: {is_reported}"
            )

    def led(self, broker: ModelBroker, place: Place, partition: Partition) -> None:
        """Check MaximalIsr: a leader counts on every member of the controller's ISR."""
        state = self._controller.image.partition(*place)
        leader = partition.leader
        if state is None or leader is None or state.leader != broker.node_id:
            return
        if state.leader_epoch != partition.leader_epoch:
            return
        counted = leader.isr.maximal_isr()
        if not set(state.isr) <= set(counted):
            raise Violation(
                "MaximalIsr", f"{partition.name}: counts on {counted}, the ISR is {state.isr}"
            )

    def copied(
        self, broker: ModelBroker, asked: FetchRequest, reply: FetchResponse
    ) -> list[tuple[int, Value]]:
        """Return a follower's entries if a response may remove some; else none."""
        answer, log = reply.answer, broker.disk.log(asked.place)
        if answer.diverging is None and answer.first_offset in (None, log.end):
            return [] if answer.log_start_offset <= log.end else list(log.entries)
        return list(log.entries)

    def took(
        self,
        broker: ModelBroker,
        asked: FetchRequest,
        reply: FetchResponse,
        before: list[tuple[int, Value]],
    ) -> None:
        """Check a follower's log after a response of the leader of its epoch.

        Its last record before the new ones is that of the leader (the log matching property), and
        it has removed no record that the leader has (KIP-101, KIP-279).
        """
        leader, place = self._brokers[asked.leader], asked.place
        led = leader.replicas.get(place)
        if not leader.is_alive or led is None or not led.is_leader:
            return
        if not led.leader_epoch == reply.answer.leader_epoch == broker.replicas[place].leader_epoch:
            return  # one of them is in another epoch
        log, other = broker.disk.log(place), leader.disk.log(place)
        previous = log.end - len(reply.entries) - 1
        start = max(log.start, other.start)
        has_new = reply.answer.diverging is None and start <= previous < log.end - 1
        if has_new and log.entries[previous] != other.entries[previous]:
            raise Violation(
                "LogMatching",
                f"{led.name} at {previous}: node {broker.node_id} has {log.entries[previous]}"
                f" and appends what follows in epoch {led.leader_epoch}",
            )
        for offset in range(other.start, min(len(before), other.end)):
            if log.start <= offset < log.end or before[offset] == DELETED:
                continue
            if before[offset] == other.entries[offset]:
                raise Violation(
                    "NeedlessTruncation",
                    f"{led.name} at {offset}: node {broker.node_id} removes {before[offset]}, which"
                    f" leader {leader.node_id} has too",
                )

    def became_leader(self, broker: ModelBroker, place: Place, partition: Partition) -> None:
        """Check LeaderCompleteness: a leader has every committed and acknowledged record."""
        log = broker.disk.log(place)
        if place in self.lossy:
            return
        self._check_start(place, log, partition.name)
        known, start = self.committed.get(place, []), log.start
        if log.entries[start : len(known)] != known[start:]:
            at = next(
                i for i in range(start, len(known)) if i >= log.end or log.entries[i] != known[i]
            )
            raise Violation(
                "LeaderCompleteness",
                f"{partition.name}: node {broker.node_id} leads epoch {partition.leader_epoch}"
                f" with {log.end} records and lacks {known[at]} at {at} of {len(known)} committed",
            )
        for offset, value in self.acked.get(place, {}).items():
            if offset >= start and (offset >= log.end or log.entries[offset][1] != value):
                raise Violation("LostWrite", f"{partition.name}: {value} at {offset} is lost")

    def _check_start(self, place: Place, log: ModelLog, name: str) -> None:
        most = self.starts.get(place, 0)
        if log.start > most:
            raise Violation("LogStart", f"{name} starts at {log.start}; {most} was deleted at most")

    def decided(self, image: MetadataImage, places: Iterable[Place]) -> None:
        """Check the structure of the partitions that a decision changed."""
        for topic_id, index in places:
            topic = image.topics_by_id.get(topic_id)
            if topic is None or index not in topic.partitions:
                continue
            configs = effective_configs(
                dict(topic.configs), replication_factor=topic.replication_factor
            )
            state = topic.partitions[index]
            if state.recovering:
                self.lossy.add((topic_id, index))
            min_isr = min(int(configs["min.insync.replicas"]), len(state.replicas))
            name = f"{topic.name}-{index}"
            _check_partition(image, name, state, min_isr)
            if (topic_id, index) not in self.lossy:
                self._check_candidates(image, (topic_id, index), state, name)
            leader = self._brokers.get(state.leader)
            led = None if leader is None else leader.replicas.get((topic_id, index))
            if leader is not None and led is not None and leader.is_alive:
                self.led(leader, (topic_id, index), led)

    def final(self, place: Place, logs: list[ModelLog]) -> None:
        """Check after healing that all replicas have the same records, acknowledged ones
        included, above the largest log start."""
        start = max(log.start for log in logs)
        for log in logs[1:]:
            if log.entries[start:] != logs[0].entries[start:] or log.end != logs[0].end:
                raise Violation("Converged", f"{place}: {log.end} and {logs[0].end} records")
        if place in self.lossy:
            return
        for offset, value in self.acked.get(place, {}).items():
            if offset < start:
                continue
            if offset >= logs[0].end or logs[0].entries[offset][1] != value:
                raise Violation("LostWrite", f"{place}: {value} at {offset} is lost at the end")


def _check_partition(image: MetadataImage, name: str, state: PartitionImage, min_isr: int) -> None:
    for node in state.isr:
        broker = image.brokers.get(node)
        if broker is None or broker.fenced:
            raise Violation("FencedInIsr", f"{name}: {node} of ISR {state.isr} is fenced")
    if len(state.isr) >= min_isr and state.elr:
        raise Violation("ElrEmpty", f"{name}: ISR {state.isr}, ELR {state.elr}, min ISR {min_isr}")
    if set(state.isr) & set(state.elr):
        raise Violation("ElrDisjoint", f"{name}: ISR {state.isr}, ELR {state.elr}")
    if state.leader != NO_NODE and state.leader not in state.isr:
        raise Violation("LeaderInIsr", f"{name}: leader {state.leader} of ISR {state.isr}")
