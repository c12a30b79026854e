"""Produce requests that wait for their acknowledgement, and the rules of their ends.

A wait ends once: by the acknowledgement that its acks require, by an error when its leader loses
the leadership, by the time-out of its client, or with the process. A leader keeps no wait for
acknowledged records, and counts the pending waits alone.
"""

from dataclasses import dataclass
from typing import Final

from quorumlog.broker.partition import Partition
from quorumlog.broker.purgatory import Acks, PurgatoryEntry
from quorumlog.errors import NotLeaderOrFollower

from ...checkers.violation import Violation
from .broker import ModelBroker, ModelLog, Place, Value

CANCELLED_PER_PENDING: Final = 4
CANCELLED_MIN: Final = 256
"""Cancelled waits that a leader may keep: so many for each pending one, and this many besides."""


@dataclass(slots=True, eq=False)
class Wait:
    """One waiting produce request."""

    place: Place
    acks: Acks
    offset: int  # of its record
    value: Value
    entry: PurgatoryEntry | None = None  # None until it waits


_NONE: Final[tuple[dict[Wait, None], dict[Wait, None]]] = {}, {}


class ProduceWaits:
    """The pending waits of all leaders."""

    def __init__(self) -> None:
        # By node, life and partition: pending waits for all in-sync replicas and for the leader,
        # each in the order of their offsets.
        self._pending: dict[tuple[int, int, Place], tuple[dict[Wait, None], dict[Wait, None]]] = {}

    def add(self, broker: ModelBroker, wait: Wait) -> None:
        """Add a wait."""
        key = broker.node_id, broker.life, wait.place
        self._pending.setdefault(key, ({}, {}))[wait.acks is Acks.LEADER][wait] = None

    def count(self, broker: ModelBroker, place: Place) -> int:
        """Return the number of pending waits of a partition."""
        of_all, of_leader = self._of(broker, place)
        return len(of_all) + len(of_leader)

    def is_pending(self, broker: ModelBroker, wait: Wait) -> bool:
        """Return True if a request waits."""
        return wait in self._of(broker, wait.place)[wait.acks is Acks.LEADER]

    def cancel(self, broker: ModelBroker, life: int, wait: Wait) -> None:
        """Cancel a wait at its client's time-out, if it is pending."""
        if not broker.is_alive or broker.life != life:
            return
        assert wait.entry is not None, "a cancelled request does not wait"
        wait.entry.cancel()  # without effect after its release
        self._of(broker, wait.place)[wait.acks is Acks.LEADER].pop(wait, None)
        partition = broker.replicas.get(wait.place)
        if partition is not None:
            self.check_count(broker, wait.place, partition)

    def released(
        self, broker: ModelBroker, place: Place, partition: Partition, entry: PurgatoryEntry
    ) -> Wait:
        """End a wait, and check that it may end so."""
        wait, log = entry.token, broker.disk.log(place)
        assert isinstance(wait, Wait), f"a wait without its token: {wait}"
        pending = self._of(broker, place)[wait.acks is Acks.LEADER]
        if wait not in pending:
            raise Violation("WaitEndsOnce", f"{partition.name}: {wait.offset} ended before")
        del pending[wait]
        if entry.error is not None:
            if not isinstance(entry.error, NotLeaderOrFollower) or partition.is_leader:
                raise Violation("WaitError", f"{partition.name}: {entry.error!r} while it leads")
            return wait
        if not partition.is_leader:
            raise Violation("WaitError", f"{partition.name}: acknowledged without leading")
        end = partition.high_watermark if wait.acks is Acks.ALL else own_end(partition, log)
        if wait.offset >= end or log.entries[wait.offset][1] != wait.value:
            raise Violation(
                "AckedEarly",
                f"{partition.name}: acks={wait.acks.value} of {wait.value} at {wait.offset};"
                f" acknowledged up to {end}",
            )
        return wait

    def check(self, broker: ModelBroker, place: Place, partition: Partition) -> None:
        """Check that no acknowledged record's request waits, and that the waits are counted."""
        of_all, of_leader = self._of(broker, place)
        if partition.is_leader and (of_all or of_leader):
            ends = partition.high_watermark, own_end(partition, broker.disk.log(place))
            for pending, end in zip((of_all, of_leader), ends, strict=True):
                first = next(iter(pending), None)
                if first is not None and first.offset < end:
                    raise Violation(
                        "AckedLate",
                        f"{partition.name}: acks={first.acks.value} at {first.offset} waits;"
                        f" acknowledged up to {end}",
                    )
        self.check_count(broker, place, partition)

    def check_count(self, broker: ModelBroker, place: Place, partition: Partition) -> None:
        """Check the count of waits, which bounds them, and the number of cancelled ones."""
        pending, purgatory = self.count(broker, place), partition.purgatory
        if purgatory.count != pending:
            raise Violation(
                "WaitsCounted", f"{partition.name}: {pending} wait, {purgatory.count} counted"
            )
        kept = len(purgatory._acks_all._heap) + len(purgatory._acks_leader._heap)
        if kept > CANCELLED_MIN + (1 + CANCELLED_PER_PENDING) * pending:
            raise Violation("WaitsKept", f"{partition.name}: {kept} kept for {pending} waits")

    def ended(self, broker: ModelBroker) -> None:
        """Forget the waits of a process that ended."""
        ended = [key for key in self._pending if key[0] == broker.node_id]
        for key in ended:
            del self._pending[key]

    def _of(self, broker: ModelBroker, place: Place) -> tuple[dict[Wait, None], dict[Wait, None]]:
        return self._pending.get((broker.node_id, broker.life, place), _NONE)


def own_end(partition: Partition, log: ModelLog) -> int:
    """Return the end that counts for acks=1: the flushed one under flush.policy=fsync."""
    leader = partition.leader
    assert leader is not None, f"{partition.name} does not lead"
    return log.flushed if leader.state.counts_flushed else log.end
