"""Faults of coordinators of groups and of transactions, in addition to those of the nodes."""

from ...cluster.nodes import ClusterNode
from ..groups.coordinator_faults import CoordinatorFaultInjector
from .plan import INPUT, LAST, OFFSETS_TOPIC, OUTPUT, TRANSACTIONS_TOPIC

TARGETS = (TRANSACTIONS_TOPIC, TRANSACTIONS_TOPIC, OFFSETS_TOPIC, INPUT, OUTPUT, LAST)
"""The topics of which leaders fail: half of the time those of coordinators."""


class TransactionFaultInjector(CoordinatorFaultInjector):
    """A fault injector that chooses coordinators of both kinds, and leaders of data."""

    def draw_coordinator(self) -> ClusterNode | None:
        """Return the leader of a drawn partition of a drawn topic."""
        return self.leader_of(TARGETS[self._drawn.below(len(TARGETS))])
