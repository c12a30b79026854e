"""A run of level `partitions`: a safety phase with faults, then convergence.

In the safety phase only the invariants must hold. Then all faults end, every broker is started, and
every partition must have its leader, a full ISR and equal logs within a bound.

The guarantees bound the faults: if a power cut may lose acknowledged records
(flush.policy=replicated), at most min ISR - 1 machines lose power before everything is in sync
again. In some runs more machines lose power, disks are replaced, or unclean elections are allowed:
a partition may have lost records after its leader had to recover.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from quorumlog.ids import TopicId
from quorumlog.metadata import CreateTopic

from ...shrink.script import EventScript
from .faults import PartitionFaultInjector
from .isr import IsrUpdates
from .lifecycle import BrokerLifecycle
from .options import ReplicationOptions
from .requests import ClientRequests
from .scripted import ScriptedPartitionWorld
from .steady import SteadyState
from .traffic import Traffic
from .world import PartitionWorld

SECOND_US: Final = 1_000_000
HEAL_US: Final = 60 * SECOND_US  # bound of the convergence after the faults
SAFETY_US_MAX: Final = 120 * SECOND_US
SOURCE: Final = "other"  # the cluster that a mirror copies


class PartitionsRun:
    """A run of one seed; `play` raises Violation, or an AssertionError of the played code."""

    def __init__(
        self,
        seed: int,
        *,
        options: ReplicationOptions | None = None,
        trace: Callable[[str], None] | None = None,
        script: EventScript | None = None,
    ) -> None:
        self.world = (
            PartitionWorld(seed, options=options, trace=trace)
            if script is None
            else ScriptedPartitionWorld(seed, script, trace=trace)
        )
        self.world.lifecycle = BrokerLifecycle(self.world)
        self.world.traffic = Traffic(self.world)
        self.world.isr = IsrUpdates(self.world)
        self.faults = PartitionFaultInjector(self.world)
        self.requests = ClientRequests(self.world)
        self.facts: dict[str, int] = {}

    @property
    def event_count(self) -> int:
        """The number of events so far."""
        return self.world.events

    def play(self) -> None:
        """Run both phases."""
        self.begin()
        self.world.run(until_us=SAFETY_US_MAX, events=self.world.options.events)
        self.heal()
        deadline_us = self.world.now_us + HEAL_US
        while self.world.now_us < deadline_us and self._unfinished():
            self.world.run(until_us=self.world.now_us + SECOND_US // 4)
        self.world.note("healed", self.world.now_ms)
        left = self._unfinished()
        assert not left, f"not in order {HEAL_US // SECOND_US} s after the faults: {left}"
        SteadyState(self.world, self.requests).play()
        for place, state in self.world.partitions():
            logs = [self.world.brokers[node].disk.log(place) for node in state.replicas]
            self.world.checks.final(place, logs)
        self.facts = {
            "brokers": self.world.options.brokers,
            "acks": self.world.checks.acks,
            "committed": sum(len(known) for known in self.world.checks.committed.values()),
            "crashes": self.world.lifecycle.crashes,
            "changes": self.world.controller.changes,
            "leaders": self.world.controller.moves,
        }

    def begin(self) -> None:
        """Start every broker, create the topics, and schedule the load and the faults."""
        options = self.world.options
        for node in self.world.brokers:
            self.world.lifecycle.start(node)
        self.world.run(until_us=10 * SECOND_US, events=None)
        for number in range(options.topics):
            policy = "fsync" if options.fsync else "replicated"
            self.world.lifecycle.submit(
                CreateTopic(
                    name=f"topic-{number}",
                    topic_id=TopicId(bytes([number + 1]) * 16),
                    partitions=options.partitions,
                    replication_factor=options.replication_factor,
                    configs=(
                        ("min.insync.replicas", str(options.min_isr)),
                        ("flush.policy", policy),
                        ("unclean.leader.election.enable", str(options.is_unclean).lower()),
                        *((("mirror.source", SOURCE),) if self.world.is_mirror(number) else ()),
                    ),
                )
            )
        self.world.events = 0
        self.world.traffic.append_later()
        self.requests.again()
        for every_ms, fault in (
            (options.crash_every_ms, self.faults.crash),
            (options.power_every_ms, self.faults.cut_power),
            (options.strike_every_ms, self.faults.kill_replicas),
            (options.stop_every_ms, self.faults.stop),
            (options.pause_every_ms, self.faults.pause),
            (options.move_every_ms, self.faults.move),
            (options.elect_every_ms, self.faults.elect),
            (options.wipe_every_ms, self.faults.wipe),
            (options.delete_every_ms, self.faults.delete_records),
        ):
            if every_ms:
                self.faults.again(every_ms, fault)

    def heal(self) -> None:
        """End all faults and restart every broker."""
        self.world.is_faulty = False
        self.world.note("heal")
        for node, broker in self.world.brokers.items():
            self.world.resume(broker)
            if not broker.is_alive:
                self.world.lifecycle.start(node)

    def _unfinished(self) -> list[str]:
        """Return the first conditions of convergence that do not hold."""
        return list(islice(self._disorder(), 3))

    def _disorder(self) -> Iterator[str]:
        for place, state in self.world.partitions():
            leader = self.world.brokers.get(state.leader)
            whole = len(state.isr) == len(state.replicas) and not state.is_moving
            if leader is None or not whole or leader.replicas.get(place) is None:
                yield f"{place[1]}: {state}"
                continue
            end = leader.disk.log(place).end
            for node in state.replicas:
                replica = self.world.brokers[node].replicas.get(place)
                if self.world.brokers[node].image is not self.world.controller.image:
                    yield f"{place[1]}: node {node} has older metadata"
                if replica is None or not replica.high_watermark == end == (
                    self.world.brokers[node].disk.log(place).end
                ):
                    yield f"{place[1]}: node {node} behind {end}"
