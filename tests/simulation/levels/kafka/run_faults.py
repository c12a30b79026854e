"""Faults under runs of Produce requests, beside those of all whole clusters.

Single writes of a partition's log fail, a leader loses the controllers or its followers but not its
clients, quotas come and go, min.insync.replicas is raised, and segments become small.
"""

import errno
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

from quorumlog.metadata import MetadataImage
from quorumlog.metadata.client_quotas import PRODUCER_BYTE_RATE
from quorumlog.metadata.commands import (
    AlterClientQuotas,
    AlterConfigs,
    AlterReassignments,
    Command,
    CreateTopic,
    ElectLeaders,
    QuotaAlteration,
    Reassignment,
)
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.links import apart
from quorumlog.testing.checkers import Place

from ...cluster.nodes import Cluster, ClusterNode
from ...cluster.options import TopicPlan
from ...faults.cluster_faults import ClusterFault, ClusterFaultInjector, ClusterFaultPlan
from ..transactions.plan import EXTRA_CONFIGS

PAUSE_MS: Final = (500, 6_000)  # between two faults
ELECT_MS: Final = 150  # from the reassignment to the election
SPAN_MS: Final = (300, 6_000)
CONFIG_MS: Final = 400  # between two attempts to change the metadata
EVERYBODY: Final = (("client-id", None),)
MIN_ISR: Final = "min.insync.replicas"
SEGMENT_BYTES: Final = "segment.bytes"
OF_DEVICES: Final = (
    *(ClusterFault.FULL, ClusterFault.SYNC, ClusterFault.WRITE, ClusterFault.POWER),
    *(ClusterFault.WIPE, ClusterFault.MOVE),
)


class RunFault(StrEnum):
    """The classes of faults."""

    NO_SPACE = "no-space"  # one write of a leader's log finds no space
    BROKEN = "broken"  # one write of a leader's log fails
    LAPSE = "lapse"  # a leader loses all other nodes, but not its clients
    QUOTA = "quota"  # clients get a quota for a while
    MIN_ISR = "min-isr"  # every replica must be in sync for a while
    ROLL = "roll"  # segments become small
    LEADER = "leader"  # another replica becomes the preferred leader, and is elected


class RunFaultInjector(ClusterFaultInjector):
    """Injects the faults of all clusters and those of runs."""

    def __init__(
        self, cluster: Cluster, plan: ClusterFaultPlan, entropy: SimEntropy, clients: list[str]
    ) -> None:
        super().__init__(cluster, plan, entropy, clients)
        self._drawn = entropy.stream("runs")
        self._of_bursts = entropy.stream("bursts")
        self.pause_ms = PAUSE_MS
        self.burst_fails = 0.12  # probability that a write fails below a burst
        self._is_active = False  # within the time of faults
        self.kinds = [kind for kind in RunFault if self._drawn.chance(0.7)]  # enabled ones
        if self._script is not None:
            self._script.adopt("runs", self._drawn)
        self._next_run_fault_ms = 0
        self._next_config_ms = 0
        # the wanted values, by topic and config; None: the default
        self._configs: dict[tuple[str, str], str | None] = {}
        self._quota: float | None = None

    @property
    def has_device_faults(self) -> bool:
        """True if an error of a device, or a closed log, may have failed an append."""
        kinds = (*OF_DEVICES, RunFault.NO_SPACE, RunFault.BROKEN)
        return any(self.happened[kind] for kind in kinds)

    def facts(self) -> dict[str, int]:
        """Return the number of each fault under runs."""
        return {f"fault_{kind.replace('-', '_')}": self.happened[kind] for kind in RunFault}

    def before_burst(self, places: Sequence[Place]) -> None:
        """Sometimes fail the next write to one of the partitions to which a producer sends now."""
        if not (self._is_active and RunFault.NO_SPACE in self.kinds and places):
            return
        if self._of_bursts.chance(self.burst_fails):
            topic, index = places[self._of_bursts.below(len(places))]
            self.happened[RunFault.NO_SPACE] += self._leave_no_space(topic, index)

    def end_all(self, repaired: list[ClusterNode]) -> None:
        """Undo all faults; of the nodes, only `repaired` are repaired."""
        self._is_active = False
        super().end_all(repaired)

    def step(self) -> None:
        """Inject the faults that are due."""
        self._is_active = True
        super().step()
        now_ms = self._now_ms()
        is_due = bool(self.kinds) and now_ms >= self._next_run_fault_ms
        for _ in self.due_faults("run fault", is_due=is_due):
            kind = self.kinds[self._drawn.below(len(self.kinds))]
            if self._script is not None:
                self._script.rename(f"run fault: {kind}")
            self.happened[kind] += self._inject_run_fault(kind)
            self._next_run_fault_ms = now_ms + self._drawn.spread(*self.pause_ms)

    def look(self) -> None:
        """Create the topics that clients do not create, and bring the metadata to the wanted
        state; call at every step."""
        now_ms = self._now_ms()
        if now_ms < self._next_config_ms:
            return
        self._next_config_ms = now_ms + CONFIG_MS
        command = self._missing_change(self._cluster.newest_image)
        if command is not None:
            self._cluster.ask_controller(command)

    # --- inside --------------------------------------------------------------------------------

    def _inject_run_fault(self, kind: RunFault) -> bool:
        place = self._draw_place()
        if place is None:
            return False
        topic, index, leader = place
        match kind:
            case RunFault.NO_SPACE:
                return self._leave_no_space(topic.name, index)
            case RunFault.BROKEN:
                if leader.excuse or not leader.is_up:
                    return False
                return self.fail_once(leader, "write", errno.EIO, f"/{topic.name}-{index}/")
            case RunFault.LAPSE:
                others = [node.name for node in self._cluster.nodes if node is not leader]
                directions = apart([leader.name], others)
                barriers = self._cluster.world.fabric.barriers
                barriers.close(directions)
                self._run_fault_ends(lambda: barriers.open(directions))
            case RunFault.QUOTA:
                self._quota = float(self._drawn.spread(500, 20_000))
                self._run_fault_ends(lambda: setattr(self, "_quota", None))
            case RunFault.MIN_ISR:
                key = (topic.name, MIN_ISR)
                self._configs[key] = str(topic.replication)
                self._run_fault_ends(lambda: self._configs.update({key: str(topic.min_isr)}))
            case RunFault.LEADER:
                return self._elect_another(topic.name, index)
            case RunFault.ROLL:
                self._configs[topic.name, SEGMENT_BYTES] = str(self._drawn.spread(2_000, 20_000))
        return True

    def _leave_no_space(self, topic: str, index: int) -> bool:
        """Let the leader's next write to a log find no space. Return True if it has a leader."""
        found = self._cluster.newest_image.topic(topic)
        state = None if found is None else found.partitions.get(index)
        if state is None or state.leader < 0:
            return False
        leader = self._cluster.node(state.leader)
        if leader.excuse or not leader.is_up:
            return False
        part = f"/{topic}-{index}/"
        leader.sim.device.fail("write", errno.ENOSPC, path_part=part, times=1)
        return True

    def _elect_another(self, topic: str, index: int) -> bool:
        """Rotate a partition's replicas, then elect the preferred ones."""
        found = self._cluster.newest_image.topic(topic)
        assert found is not None, f"{topic} has a leader"
        first, *others = found.partitions[index].replicas
        rotated = Reassignment(topic=topic, partition=index, replicas=(*others, first))
        self._undo_at(
            self._now_ms() + ELECT_MS, partial(self._cluster.ask_controller, ElectLeaders())
        )
        return self._cluster.ask_controller(AlterReassignments(reassignments=(rotated,)))

    def _run_fault_ends(self, undo: Callable[[], object]) -> None:
        self._undo_at(self._now_ms() + self._drawn.spread(*SPAN_MS), undo)

    def _draw_place(self) -> tuple[TopicPlan, int, ClusterNode] | None:
        """Draw a partition of the clients with a leader."""
        places = self._cluster.options.places
        name, index = places[self._drawn.below(len(places))]
        found = self._cluster.newest_image.topic(name)
        state = None if found is None else found.partitions.get(index)
        if state is None or state.leader < 0:
            return None
        return self._cluster.options.topic(name), index, self._cluster.node(state.leader)

    def _missing_change(self, image: MetadataImage) -> Command | None:
        """Return a command towards the wanted state, None if the image has it."""
        for plan in self._cluster.options.topics:
            if plan.name in EXTRA_CONFIGS and image.topic(plan.name) is None:
                return CreateTopic(
                    name=plan.name,
                    partitions=plan.partitions,
                    replication_factor=plan.replication,
                    configs=tuple(plan.configs.items()),
                )
        quotas = image.client_quotas.get(EVERYBODY)
        quota = None if quotas is None else quotas.get(PRODUCER_BYTE_RATE)
        if quota != self._quota:
            change = QuotaAlteration(entity=EVERYBODY, changes=((PRODUCER_BYTE_RATE, self._quota),))
            return AlterClientQuotas(alterations=(change,))
        for (name, key), value in self._configs.items():
            found = image.topic(name)
            if found is not None and found.configs.get(key) != value:
                return AlterConfigs(topic=name, changes=((key, value),))
        return None
