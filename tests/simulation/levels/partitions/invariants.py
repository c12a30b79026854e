"""Invariants of level `partitions` (KIP-966's model, Jepsen's anomalies).

Each check costs the size of the change.
"""

from collections.abc import Iterable

from quorumlog.broker.partition import Partition
from quorumlog.ids import NO_NODE
from quorumlog.metadata import MetadataImage, effective_configs
from quorumlog.metadata.image import PartitionImage

from ...checkers.violation import Violation
from .broker import ModelBroker, ModelLog, Place, Value


class PartitionInvariants:
    """The committed and acknowledged records, and the checks against them."""

    def __init__(self) -> None:
        # By partition: entries below the high watermark of a replica, in order.
        self.committed: dict[Place, list[tuple[int, Value]]] = {}
        self.acked: dict[Place, dict[int, Value]] = {}  # by partition and offset
        # by node and life: checked up to this high watermark
        self._looked: dict[tuple[int, int, Place], int] = {}
        self.acks = 0
        self.lossy: set[Place] = set()  # partitions with a leader that had to recover
        self.starts: dict[Place, int] = {}  # the largest start of a deletion

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
        start = max(min(self._looked.get(key, 0), mark), log.start)
        if start > len(known):
            raise Violation("DeletedInCommitted", f"{partition.name}: {start} > {len(known)}")
        for offset in range(start, mark):
            if offset == len(known):
                known.append(log.entries[offset])
            elif known[offset] != log.entries[offset]:
                raise Violation(
                    "ConsistentRead",
                    f"{partition.name} at {offset}: node {broker.node_id} commits"
                    f" {log.entries[offset]}, {known[offset]} was committed before",
                )
        self._looked[key] = mark

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
            _check_partition(image, f"{topic.name}-{index}", state, min_isr)

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
