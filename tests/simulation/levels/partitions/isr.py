"""ISR changes between leaders and the controller: requests, decisions, responses, each losable."""

import math
from typing import Any, Final

from quorumlog.broker.isr import ISR_PAUSE_MS, IsrProposal
from quorumlog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidUpdateVersion,
    NewLeaderElected,
    NotController,
    OutcomeUnknown,
    QuorumlogError,
    StaleBrokerEpoch,
)
from quorumlog.ids import Epoch, NodeId
from quorumlog.metadata import AlterPartitions, IsrChange, PartitionsAltered

from ...checkers.violation import Violation
from .broker import ModelBroker, Place
from .world import PartitionWorld

FINAL: Final = FencedLeaderEpoch, InvalidUpdateVersion, NewLeaderElected
"""Refusals of epochs, which never become current again."""


class IsrUpdates:
    """The leaders' requests for ISR changes."""

    def __init__(self, world: PartitionWorld) -> None:
        self.world = world
        self.sent = 0  # requests
        # By leader, its life and partition: the epochs of the last refused request, and until when
        # it must not be repeated.
        self._refused: dict[tuple[NodeId, int, Place], tuple[tuple[int, int], float]] = {}
        self._asking: dict[NodeId, bool] = {}  # brokers with a request in flight

    def check_isr_later(self, broker: ModelBroker, life: int) -> None:
        """Schedule the periodic check for lagging members."""
        self.world.at(
            self.world.options.lag_time_max_ms * 500,
            self.world.when_awake,
            broker,
            life,
            self._check_isr,
            broker,
        )

    def _check_isr(self, broker: ModelBroker) -> None:
        for place in sorted(broker.led):
            progress = broker.replicas[place].check_leader(None).tick(self.world.now_ms)
            self.world.traffic.progressed(broker, place, progress)
            broker.isr_candidates[place] = None
        self.ask_for_isr(broker.node_id)
        self.check_isr_later(broker, broker.life)

    def look_at_lacking(self, broker: ModelBroker) -> None:
        """Reconsider partitions with missing members after a change of brokers."""
        for place in broker.led:
            leader = broker.replicas[place].leader
            if leader is not None and len(leader.state.isr) < len(leader.state.replicas):
                broker.isr_candidates[place] = None

    def ask_for_isr(self, node: NodeId) -> None:
        """Request the ISR changes of this broker's reconsidered partitions."""
        broker = self.world.brokers[node]
        if self._asking.get(node) or not broker.isr_candidates:
            return
        asked = {
            place: proposal
            for place in sorted(broker.isr_candidates)
            if place in broker.led
            and (proposal := broker.replicas[place].check_leader(None).isr_proposal()) is not None
        }
        broker.isr_candidates.clear()
        if not asked:
            return
        for place, proposal in asked.items():
            self._check_repeated(broker, place, proposal)
        self._asking[node] = True
        self.sent += 1
        self.world.at(self.world.latency_us(), self._decide_isr, broker, broker.life, asked)

    def _check_repeated(self, broker: ModelBroker, place: Place, proposal: IsrProposal) -> None:
        """Check that a refused request is not repeated: never if its epochs are old, and after a
        pause if a replica was not eligible."""
        epochs, until_ms = self._refused.get((broker.node_id, broker.life, place), ((-1, -1), 0))
        if epochs == _epochs(proposal) and self.world.now_ms < until_ms:
            raise Violation(
                "RefusedBefore",
                f"node {broker.node_id} repeats {proposal} of partition {place[1]} before"
                f" {until_ms} ms",
            )

    def _decide_isr(self, broker: ModelBroker, life: int, asked: dict[Place, IsrProposal]) -> None:
        outcome: Any = OutcomeUnknown("the request was lost")
        if not self.world.is_lost():
            changes = tuple(_change(place, proposal) for place, proposal in asked.items())
            command = AlterPartitions(
                broker_id=broker.node_id, broker_epoch=broker.broker_epoch, changes=changes
            )
            try:
                if self.world.is_faulty and self.world.random.random() < self.world.options.loss:
                    raise NotController("another controller leads")
                outcome = self._decided(command)
            except QuorumlogError as error:
                outcome = error
            if self.world.is_lost():
                outcome = OutcomeUnknown("the response was lost")
        self.world.at(self.world.latency_us(), self._isr_answered, broker, life, asked, outcome)

    def _decided(self, command: AlterPartitions) -> Any:
        """Return the reply of the controller, or of a deposed one. Raises their errors."""
        world, deposed = self.world, self.world.options.deposed
        if not deposed or not world.is_faulty or world.random.random() >= deposed:
            return world.lifecycle.submit(command)
        image = world.random.choice(world.controller.recent)
        reply = world.controller.submit_to_deposed(command, image)
        return OutcomeUnknown("the controller was deposed") if reply is None else reply

    def _isr_answered(
        self, broker: ModelBroker, life: int, asked: dict[Place, IsrProposal], outcome: Any
    ) -> None:
        self._asking[broker.node_id] = False
        self.world.when_awake(broker, life, self._take_isr, broker, asked, outcome)

    def _take_isr(self, broker: ModelBroker, asked: dict[Place, IsrProposal], outcome: Any) -> None:
        results = (
            outcome.results if isinstance(outcome, PartitionsAltered) else [outcome] * len(asked)
        )
        for (place, proposal), result in zip(asked.items(), results, strict=True):
            partition = broker.replicas.get(place)
            if partition is None:
                continue
            broker.isr_candidates[place] = None
            leader = partition.leader
            if isinstance(result, QuorumlogError):
                self.world.note(f"isr refused: {type(result).__name__}", broker.node_id, place[1])
                if leader is None:
                    continue
                progress = leader.isr_refused(proposal, result, self.world.now_ms)
                if isinstance(result, (IneligibleReplica, *FINAL)):
                    is_final = isinstance(result, FINAL)
                    until_ms = math.inf if is_final else self.world.now_ms + ISR_PAUSE_MS
                    key = broker.node_id, broker.life, place
                    self._refused[key] = _epochs(proposal), until_ms
            elif leader is not None:
                progress = leader.isr_accepted(
                    proposal,
                    leader_epoch=result.leader_epoch,
                    partition_epoch=result.partition_epoch,
                    isr=result.isr,
                )
            else:
                continue
            self.world.traffic.progressed(broker, place, progress)
        if isinstance(outcome, StaleBrokerEpoch):
            return
        self.world.at(self.world.latency_us(), self._ask_awake, broker, broker.life)

    def _ask_awake(self, broker: ModelBroker, life: int) -> None:
        self.world.when_awake(broker, life, self.ask_for_isr, broker.node_id)


def _epochs(proposal: IsrProposal) -> tuple[int, int]:
    return proposal.leader_epoch, proposal.partition_epoch


def _change(place: Place, proposal: IsrProposal) -> IsrChange:
    return IsrChange(
        topic_id=place[0],
        partition=place[1],
        leader_epoch=Epoch(proposal.leader_epoch),
        partition_epoch=proposal.partition_epoch,
        isr=proposal.isr,
        recovered=proposal.recovered,
    )
