"""What is done to coordinators besides all that happens to a cluster's nodes: they go while commits
are in flight, and they are cut off from the other brokers while members hear them still."""

from typing import Final

from quorumlog.metadata.commands import ElectLeaders
from quorumlog.simulation.barriers import apart, between
from quorumlog.simulation.entropy import SimEntropy

from ...cluster.nodes import Cluster, ClusterNode
from ...faults.cluster_faults import ClusterFaultInjector, FaultPlan
from .plan import OFFSETS_TOPIC

ACTS: Final = (
    *("crashed", "power", "stopped", "elected"),
    *("late", "cut off", "late", "cut off", "left alone"),
)
ACTS_ALONE: Final = 3  # the first of them need no other node
FENCED_SESSIONS: Final = 2  # of brokers: so long the others are down, that one may be in sync alone
LATE_MS: Final = (20, 800)  # what is said between a coordinator and the others
LAST_MS: Final = (20, 2_000)  # that it lives on then
CUT_OFF_MS: Final = 3_000  # at least: the others elect another one meanwhile
SESSIONS: Final = 2  # of members, that it is cut off for at most besides: others get what they had
HEARS_IT_ALONE: Final = 0.5  # how often a client hears of the brokers only the one that is cut off
CONTROLLERS_ONLY: Final = 0.3  # how often brokers that are no controllers hear it still
ONE_WAY: Final = 0.3  # how often one direction stays open: it hears nobody, or nobody hears it


class CoordinatorNemesis(ClusterFaultInjector):
    """See the module."""

    def __init__(
        self,
        cluster: Cluster,
        fault_plan: FaultPlan,
        entropy: SimEntropy,
        clients: list[str],
        *,
        coordinators_ms: tuple[int, int] | None,
        session_ms: int,
    ) -> None:
        """`coordinators_ms`: between two things that happen to coordinators; None: nothing.
        `session_ms`: of members."""
        super().__init__(cluster, fault_plan, entropy, clients)
        self._coordinators_ms = coordinators_ms
        self._cut_off_ms = (CUT_OFF_MS, 2 * CUT_OFF_MS + SESSIONS * session_ms)
        self._drawn = entropy.stream("coordinators")
        self._act_ms = 0

    def step(self) -> None:
        """A moment has passed."""
        super().step()
        now_ms = self._world.now_ms()
        if self._coordinators_ms is None or now_ms < self._act_ms:
            return
        self._act_ms = now_ms + self._drawn.spread(*self._coordinators_ms)
        node = self._coordinator()
        if node is not None and node.is_up and (act := self._hurt(node, now_ms)):
            self.happened[act] += 1

    def _coordinator(self) -> ClusterNode | None:
        """Who coordinates a drawn part of the groups."""
        topic = self._cluster.newest_image.topic(OFFSETS_TOPIC)
        if topic is None:
            return None
        states = [state for _, state in topic.sorted_partitions()]
        leader = states[self._drawn.below(len(states))].leader
        return self._cluster.node(leader) if leader >= 0 else None

    def _hurt(self, node: ClusterNode, now_ms: int) -> str:
        """Do something to it; what was done, "": nothing."""
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
                barriers, directions = self._world.fabric.barriers, between([node.name], others)
                barriers.clog(directions, drawn.spread(*LATE_MS))
                self._later(lambda: barriers.clog(directions, 0))
                self._scheduled_kills.append((now_ms + drawn.spread(*LAST_MS), node))
            case "left alone" if not cluster.options.is_combined:
                self._leave_alone(node, now_ms)
            case _:
                self._cut_off(node, now_ms)
        return f"coordinator {act}"

    def _leave_alone(self, node: ClusterNode, now_ms: int) -> None:
        """Have it be in sync alone, and cut it off when the others come back: who fell out of sync
        last leads then (KIP-966). It takes no writes, so that nothing of what it tells waits."""
        down_ms = FENCED_SESSIONS * self._cluster.options.session_timeout_ms
        for other in self._cluster.brokers:
            if other is not node:
                self._cluster.kill(other, power=False, down_ms=down_ms)
        self._undo_at(now_ms + down_ms, lambda: self._cut_off(node, self._world.now_ms()))

    def _cut_off(self, node: ClusterNode, now_ms: int) -> None:
        """Have it and the others not hear each other, while some clients hear only it."""
        cluster, drawn, barriers = self._cluster, self._drawn, self._world.fabric.barriers
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
