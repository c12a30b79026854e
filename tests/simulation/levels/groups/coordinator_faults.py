"""Faults of coordinators, in addition to those of the cluster's nodes: they fail while commits
are in flight, or are cut off from other brokers but not from members."""

from typing import Final

from quorumlog.metadata.commands import ElectLeaders
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.links import apart, between

from ...cluster.nodes import Cluster, ClusterNode
from ...faults.cluster_faults import ClusterFaultInjector, ClusterFaultPlan
from .plan import OFFSETS_TOPIC

ACTS: Final = (
    *("crashed", "power", "stopped", "elected"),
    *("late", "cut off", "late", "cut off", "left alone"),
)
ACTS_ALONE: Final = 3  # the first ones need no other node
FENCED_SESSIONS: Final = 2  # of brokers: downtime after which one replica is in sync alone
LATE_MS: Final = (20, 800)  # delay between a coordinator and the others
LAST_MS: Final = (20, 2_000)  # before it is killed then
CUT_OFF_MS: Final = 3_000  # at least: the others elect another one in that time
SESSIONS: Final = 2  # of members, the further time it is cut off: others get its partitions
HEARS_IT_ALONE: Final = 0.5  # probability that a client reaches only the broker that is cut off
CONTROLLERS_ONLY: Final = 0.3  # probability that brokers without the controller role still reach it
ONE_WAY: Final = 0.3  # probability that one direction stays open


class CoordinatorFaultInjector(ClusterFaultInjector):
    """A fault injector of clusters that also injects faults of coordinators."""

    def __init__(
        self,
        cluster: Cluster,
        fault_plan: ClusterFaultPlan,
        entropy: SimEntropy,
        clients: list[str],
        *,
        coordinators_ms: tuple[int, int] | None,
        session_ms: int,
    ) -> None:
        """Create the injector.

        `coordinators_ms`: interval of coordinator faults; None: no such faults. `session_ms`: of
        members.
        """
        super().__init__(cluster, fault_plan, entropy, clients)
        self._coordinators_ms = coordinators_ms
        self._cut_off_ms = (CUT_OFF_MS, 2 * CUT_OFF_MS + SESSIONS * session_ms)
        self._drawn = entropy.stream("coordinators")
        if self._script is not None:
            self._script.adopt("coordinators", self._drawn)
        self._act_ms = 0

    def step(self) -> None:
        """Inject faults that are due."""
        super().step()
        now_ms = self._now_ms()
        if self._coordinators_ms is None:
            return
        for _ in self.due_faults("coordinator", is_due=now_ms >= self._act_ms):
            self._act_ms = now_ms + self._drawn.spread(*self._coordinators_ms)
            node = self.draw_coordinator()
            if node is not None and node.is_up and (act := self._hurt(node, now_ms)):
                self.happened[act] += 1
                if self._script is not None:
                    self._script.rename(act)

    def draw_coordinator(self) -> ClusterNode | None:
        """Return the coordinator of a drawn part of the groups."""
        return self.leader_of(OFFSETS_TOPIC)

    def leader_of(self, name: str) -> ClusterNode | None:
        """Return the leader of a drawn partition of a topic; None without one."""
        topic = self._cluster.newest_image.topic(name)
        if topic is None:
            return None
        states = [state for _, state in topic.sorted_partitions()]
        leader = states[self._drawn.below(len(states))].leader
        return self._cluster.node(leader) if leader >= 0 else None

    def _hurt(self, node: ClusterNode, now_ms: int) -> str:
        """Inject a fault; return its name, "" if it had no effect."""
        cluster, drawn = self._cluster, self._drawn
        others = [one.name for one in cluster.nodes if one is not node]
        act = ACTS[drawn.below(len(ACTS) if others else ACTS_ALONE)]
        match act:
            case "crashed":
                cluster.kill(node, power=False, down_ms=self._span_ms())
            case "power":
                return f"coordinator {act}" if self._cut_power(node) else ""
            case "stopped":
                return f"coordinator {act}" if cluster.stop_in_order(node) else ""
            case "elected":
                return f"coordinator {act}" if cluster.ask_controller(ElectLeaders()) else ""
            case "late":
                barriers, directions = (
                    self._cluster.world.fabric.barriers,
                    between([node.name], others),
                )
                barriers.clog(directions, drawn.spread(*LATE_MS))
                self._later(lambda: barriers.clog(directions, 0))
                self._scheduled_kills.append((now_ms + drawn.spread(*LAST_MS), node))
            case "left alone" if not cluster.options.is_combined:
                self._leave_alone(node, now_ms)
            case _:
                self._cut_off(node, now_ms)
        return f"coordinator {act}"

    def _leave_alone(self, node: ClusterNode, now_ms: int) -> None:
        """Make a coordinator the only in-sync replica, and cut it off when the others return.

        The replica that left the ISR last leads then (KIP-966). It accepts no writes, so that no
        commit waits.
        """
        down_ms = FENCED_SESSIONS * self._cluster.options.session_timeout_ms
        for other in self._cluster.brokers:
            if other is not node:
                self._cluster.kill(other, power=False, down_ms=down_ms)
        self._undo_at(now_ms + down_ms, lambda: self._cut_off(node, self._now_ms()))

    def _cut_off(self, node: ClusterNode, now_ms: int) -> None:
        """Cut a coordinator off from the others, while some clients reach only it."""
        cluster, drawn, barriers = self._cluster, self._drawn, self._cluster.world.fabric.barriers
        others = [one.name for one in cluster.nodes if one is not node]
        alone = [name for name in self._clients if drawn.chance(HEARS_IT_ALONE)]
        lost = others
        if drawn.chance(CONTROLLERS_ONLY):
            lost = [one.name for one in cluster.controllers if one is not node]
        directions = apart([node.name], lost)
        if drawn.chance(ONE_WAY):
            one_way = between([node.name], lost), between(lost, [node.name])
            directions = one_way[drawn.below(2)]
        directions += apart(alone, others)
        barriers.close(directions)
        until_ms = now_ms + drawn.spread(*self._cut_off_ms)
        self._undo_at(until_ms, lambda: barriers.open(directions))
