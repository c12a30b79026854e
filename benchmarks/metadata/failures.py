"""The partition model at the size of a large cluster, with failures of brokers."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.levels.partitions.broker import ModelBroker, Place
from tests.simulation.levels.partitions.invariants import PartitionInvariants
from tests.simulation.levels.partitions.isr import IsrUpdates
from tests.simulation.levels.partitions.lifecycle import BrokerLifecycle
from tests.simulation.levels.partitions.options import ReplicationOptions
from tests.simulation.levels.partitions.traffic import Traffic
from tests.simulation.levels.partitions.world import PartitionWorld

from quorumlog.broker.partition import Partition
from quorumlog.ids import NO_NODE, NodeId, TopicId
from quorumlog.metadata import CreateTopic, ElectLeaders
from quorumlog.metadata.image import PartitionImage

SECOND_US: Final = 1_000_000
PLACES_A_TOPIC: Final = 100
REPLICAS: Final = 3
AWAY_S: Final = 5  # downtime of a broker
HEAL_S_MAX: Final = 120  # until all are in sync after the last restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The size of the cluster, and the number of failures."""

    brokers: int
    topics: int
    failures: int
    seed: int = 1
    session_timeout_ms: int = 1_000
    appends_per_s: float = 1_000.0

    @property
    def written(self) -> int:
        """Return the number of partitions that clients append to: one in twenty."""
        return self.topics * PLACES_A_TOPIC // 20


@dataclass(slots=True)
class Tally:
    """The counters of a phase."""

    records: int = 0  # of metadata at its beginning
    acks: int = 0  # at its beginning
    refused: int = 0  # at its beginning
    began_us: int = 0
    leaders_lost: int = 0  # partitions that lost their leader without another one
    leaders_moved: int = 0  # from one broker to another
    shrunk: int = 0  # shrunk ISRs
    grown: int = 0


class Watching(PartitionInvariants):
    """The invariants of the simulation, and the leaders."""

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally()
        self.without: dict[Place, int] = {}  # times without a leader, in microseconds
        self.gaps_us: list[int] = []  # of partitions that have a leader again
        self.lacking: dict[Place, None] = {}  # replicas that are not in sync
        self.orphans: dict[Place, None] = {}  # without a leader in the metadata
        self.orphans_max = 0
        self.now_us = 0

    def changed(
        self, place: Place, before: PartitionImage | None, after: PartitionImage | None
    ) -> None:
        """Record the change of a partition by a decision."""
        if before is None or after is None:
            return
        tally = self.tally
        if after.leader == NO_NODE:
            self.orphans[place] = None
            self.orphans_max = max(self.orphans_max, len(self.orphans))
            tally.leaders_lost += before.leader != NO_NODE
        else:
            self.orphans.pop(place, None)
            tally.leaders_moved += after.leader != before.leader
        tally.shrunk += len(after.isr) < len(before.isr)
        tally.grown += len(after.isr) > len(before.isr)
        if len(after.isr) < len(after.replicas):
            self.lacking[place] = None
        else:
            self.lacking.pop(place, None)

    def fell(self, places: Iterable[Place], now_us: int) -> None:
        """Record a crash of the partitions' leader."""
        for place in places:
            self.without.setdefault(place, now_us)

    def became_leader(self, broker: ModelBroker, place: Place, partition: Partition) -> None:
        """Check a new leader, and record the end of a gap."""
        super().became_leader(broker, place, partition)
        since_us = self.without.pop(place, None)
        if since_us is not None:
            self.gaps_us.append(self.now_us - since_us)


class Rolling:
    """A run; the step that finds a violation raises it."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.watching = Watching()
        self.world = PartitionWorld(
            scale.seed,
            options=ReplicationOptions(
                brokers=scale.brokers,
                replication_factor=REPLICAS,
                min_isr=2,
                lag_time_max_ms=30_000,
                session_timeout_ms=scale.session_timeout_ms,
                fetch_entries_max=1_000,
                appends_per_s=scale.appends_per_s,
            ),
            trace=None,
            checks=self.watching,
        )
        self.world.lifecycle = BrokerLifecycle(self.world)
        self.world.traffic = Traffic(self.world, target=self._target)
        self.world.isr = IsrUpdates(self.world)
        self.world.controller.watches.append(self.watching.changed)
        self._written: list[Place] = []

    def begin(self) -> None:
        """Start every broker, create the topics, wait until their replicas follow, and begin to
        write."""
        world = self.world
        for node in world.brokers:
            world.lifecycle.start(node)
        self._pass(1)
        for number in range(self.scale.topics):
            topic_id = TopicId((number + 1).to_bytes(4) * 4)
            world.lifecycle.submit(
                CreateTopic(
                    name=f"topic-{number}",
                    topic_id=topic_id,
                    partitions=PLACES_A_TOPIC,
                    replication_factor=REPLICAS,
                    configs=(("min.insync.replicas", "2"), ("flush.policy", "replicated")),
                )
            )
            step = self.scale.topics * PLACES_A_TOPIC // self.scale.written
            self._written += [(topic_id, index) for index in range(0, PLACES_A_TOPIC, step)]
        self._pass(5)
        world.traffic.append_later()

    def one_after_the_other(self) -> dict[str, Any]:
        """Crash a broker; when it is back and all replicas are in sync, the next one."""
        self._begin_phase()
        for node in self._victims():
            self._crash(node)
            self._pass(AWAY_S)
            self._heal()
        return self._told("one after the other")

    def all_at_once(self) -> dict[str, Any]:
        """Crash all of them within a millisecond."""
        self._begin_phase()
        for node in self._victims():
            self._crash(node)
        self._pass(AWAY_S)
        self._heal()
        return self._told("at the same time")

    def check(self) -> None:
        """Stop the clients; then check that all replicas are equal and have all acknowledged
        records."""
        self.world.is_faulty = False
        self._pass(2)
        for place, state in self.world.partitions():
            assert len(state.isr) == REPLICAS, f"{place}: {state}"
            logs = [self.world.brokers[node].disk.log(place) for node in state.replicas]
            self.world.checks.final(place, logs)

    def _target(self) -> tuple[ModelBroker, Place] | None:
        """Return a written partition, and its leader in the metadata."""
        place = self.world.random.choice(self._written)
        state = self.world.controller.image.partition(*place)
        assert state is not None, f"{place} does not exist"
        broker = self.world.brokers.get(state.leader)
        if broker is None or not broker.is_alive or place not in broker.led:
            return None
        return broker, place

    def _victims(self) -> list[NodeId]:
        return self.world.random.sample(sorted(self.world.brokers), self.scale.failures)

    def _crash(self, node: NodeId) -> None:
        self.watching.fell(self.world.brokers[node].led, self.world.now_us)
        self.world.note("crash", node)
        self.world.lifecycle.end(node, clean=False, back_us=AWAY_S * SECOND_US)

    def _heal(self) -> None:
        """Wait until all replicas are in sync; then elect preferred leaders."""
        deadline_us = self.world.now_us + HEAL_S_MAX * SECOND_US
        while self.watching.lacking or self.watching.without:
            assert self.world.now_us < deadline_us, (
                f"after {HEAL_S_MAX} s {len(self.watching.lacking)} partitions lack replicas and"
                f" {len(self.watching.without)} a leader"
            )
            self._pass(0.1)
        self.world.lifecycle.attempt(ElectLeaders())
        self._pass(1)

    def _pass(self, seconds: float) -> None:
        """Advance virtual time, and the time of the watch every millisecond."""
        until_us = self.world.now_us + int(seconds * SECOND_US)
        while self.world.now_us < until_us:
            self.watching.now_us = self.world.now_us
            self.world.run(until_us=min(until_us, self.world.now_us + 1_000))

    def _begin_phase(self) -> None:
        self.watching.tally = Tally(
            records=self.world.controller.end,
            acks=self.watching.acks,
            refused=self.world.traffic.refused,
            began_us=self.world.now_us,
        )
        self.watching.gaps_us, self.watching.orphans_max = [], 0

    def _told(self, name: str) -> dict[str, Any]:
        tally, gaps_us = self.watching.tally, sorted(self.watching.gaps_us)
        return {
            "name": name,
            "virtual_s": round((self.world.now_us - tally.began_us) / SECOND_US, 1),
            "metadata_records": self.world.controller.end - tally.records,
            "leaders_moved": tally.leaders_moved,
            "isr_shrunk": tally.shrunk,
            "isr_grown": tally.grown,
            "orphans_max": self.watching.orphans_max,
            "gaps": len(gaps_us),
            "gap_median_ms": round(statistics.median(gaps_us) / 1000),
            "gap_p99_ms": round(gaps_us[len(gaps_us) * 99 // 100] / 1000),
            "gap_max_ms": round(gaps_us[-1] / 1000),
            "acknowledged": self.watching.acks - tally.acks,
            "refused": self.world.traffic.refused - tally.refused,
        }
