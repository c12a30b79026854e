"""Faults of coordinators of groups and of transactions, in addition to those of the nodes."""

from typing import Final

from quorumlog.services import (
    TRANSACTION_COORDINATION_VERIFY_TRANSACTIONS,
    TRANSACTION_COORDINATION_WRITE_MARKERS,
)
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.links import LinkEnd

from ...cluster.nodes import Cluster, ClusterNode
from ...faults.call_delays import CallDelays
from ...faults.cluster_faults import ClusterFaultPlan
from ..groups.coordinator_faults import CoordinatorFaultInjector
from .plan import INPUT, LAST, OFFSETS_TOPIC, OUTPUT, TRANSACTIONS_TOPIC

TARGETS: Final = (TRANSACTIONS_TOPIC, TRANSACTIONS_TOPIC, OFFSETS_TOPIC, INPUT, OUTPUT, LAST)
"""The topics of which leaders fail: half of the time those of coordinators."""

VERIFY: Final = TRANSACTION_COORDINATION_VERIFY_TRANSACTIONS.path
MARK: Final = TRANSACTION_COORDINATION_WRITE_MARKERS.path
DELAYED: Final = frozenset({(VERIFY, True), (MARK, False)})
"""The calls between brokers that arrive late: by path, True for the answer. A verification that is
outdated when it arrives, and a marker of a transaction that its producer has left behind."""
DELAY_MS: Final = (20, 2_500)


class TransactionFaultInjector(CoordinatorFaultInjector):
    """A fault injector that chooses coordinators of both kinds, and leaders of data."""

    def __init__(
        self,
        cluster: Cluster,
        fault_plan: ClusterFaultPlan,
        entropy: SimEntropy,
        clients: list[str],
        *,
        coordinators_ms: tuple[int, int] | None,
        session_ms: int,
        late_calls: float,
    ) -> None:
        """`late_calls`: the probability that a call of `DELAYED` arrives late."""
        super().__init__(
            cluster,
            fault_plan,
            entropy,
            clients,
            coordinators_ms=coordinators_ms,
            session_ms=session_ms,
        )
        self._late_calls = late_calls
        self._delays = entropy.stream("late calls")
        cluster.world.fabric.delay_ns = CallDelays(self._draw_delay_ms).delay_ns

    def draw_coordinator(self) -> ClusterNode | None:
        """Return the leader of a drawn partition of a drawn topic."""
        return self.leader_of(TARGETS[self._drawn.below(len(TARGETS))])

    def end_all(self, repaired: list[ClusterNode]) -> None:
        """Undo all faults; of the nodes, only `repaired` are repaired."""
        self._late_calls = 0.0
        super().end_all(repaired)

    def _draw_delay_ms(self, sender: LinkEnd, path: str, is_answer: bool) -> int:
        if (path, is_answer) not in DELAYED or not self._delays.chance(self._late_calls):
            return 0
        self.happened["late call"] += 1
        return self._delays.spread(*DELAY_MS)
