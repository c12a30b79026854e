"""Requests ISR changes (AlterPartition) from the controllers for the partitions that this node
leads.

One request at a time, with all proposals that are pending by then, so no partition has two pending
requests. Until the answer, a partition uses its maximal ISR.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from ....errors import IneligibleReplica, QuorumlogError
from ....ids import Epoch
from ....metadata.commands import IsrChange, PartitionsAltered
from ....metadata.image import AlteredPartition
from ....runtime import Clock
from ...isr import IsrProposal
from ..replica import Replica

_LOG = logging.getLogger("quorumlog.broker")

PARTITIONS_A_REQUEST: Final = 1_000
TIMEOUT_MS: Final = 5_000
PAUSE_MS: Final = (50, 1_000)
"""The pauses after failed requests, doubled each time."""
REVIEW_MS: Final = 600
"""The pause before a proposal with an ineligible replica is reviewed again."""


class AlterPartitionLink(Protocol):
    """The broker's session with the controllers, for ISR requests."""

    async def alter_partitions(
        self, changes: Sequence[IsrChange], *, timeout_ms: int
    ) -> PartitionsAltered:
        """Send once; return one result for each partition, once committed."""


class AlterPartitionManager:
    """The ISR requests of one broker; `run` must run."""

    def __init__(self, clock: Clock, link: AlterPartitionLink) -> None:
        self._clock = clock
        self._link = link
        self._waiting: dict[Replica, None] = {}  # with a pending proposal
        self._wake = asyncio.Event()
        self._pause_ms = 0

    def request_change(self, replica: Replica) -> None:
        """Queue the partition's proposal, if it has one."""
        leader = replica.partition.leader
        if leader is None or replica in self._waiting:
            return
        if leader.isr_proposal() is not None:
            self._waiting[replica] = None
            self._wake.set()

    async def run(self) -> None:
        """Send requests until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._send(self._take_proposals())
                if self._pause_ms:
                    await asyncio.sleep(self._pause_ms / 1000)

    def _take_proposals(self) -> list[tuple[Replica, IsrProposal]]:
        taken = []
        for replica in list(self._waiting)[:PARTITIONS_A_REQUEST]:
            del self._waiting[replica]
            leader = replica.partition.leader
            proposal = None if leader is None else leader.isr_proposal()
            if proposal is not None:
                taken.append((replica, proposal))
        return taken

    async def _send(self, sent: list[tuple[Replica, IsrProposal]]) -> None:
        if not sent:
            return
        try:
            reply = await self._link.alter_partitions(
                [_change(replica, proposal) for replica, proposal in sent],
                timeout_ms=TIMEOUT_MS,
            )
        except QuorumlogError as error:
            self._pause_ms = min(max(PAUSE_MS[0], 2 * self._pause_ms), PAUSE_MS[1])
            _LOG.info("broker.isr_not_changed partitions=%d error=%s", len(sent), error)
            for replica, proposal in sent:
                self._refused(replica, proposal, error)
            return
        self._pause_ms = 0
        for (replica, proposal), result in zip(sent, reply.results, strict=False):
            if isinstance(result, QuorumlogError):
                if result.retriable:
                    self._pause_ms = PAUSE_MS[0]
                self._refused(replica, proposal, result)
            else:
                self._accepted(replica, proposal, result)

    def _accepted(self, replica: Replica, proposal: IsrProposal, result: AlteredPartition) -> None:
        name = replica.partition.name
        _LOG.info(
            "broker.isr_changed partition=%s isr=%s leader_epoch=%d partition_epoch=%d",
            name,
            list(result.isr),
            result.leader_epoch,
            result.partition_epoch,
        )
        leader = replica.partition.leader
        if leader is not None:
            progress = leader.isr_accepted(
                proposal,
                leader_epoch=result.leader_epoch,
                partition_epoch=result.partition_epoch,
                isr=result.isr,
            )
            replica.progressed(progress)
        self.request_change(replica)

    def _refused(self, replica: Replica, proposal: IsrProposal, error: QuorumlogError) -> None:
        _LOG.debug("broker.isr_refused partition=%s error=%s", replica.partition.name, error)
        leader = replica.partition.leader
        if leader is not None:
            replica.progressed(leader.isr_refused(proposal, error, self._clock.now_ms()))
        self.request_change(replica)
        if isinstance(error, IneligibleReplica):
            asyncio.get_running_loop().call_later(REVIEW_MS / 1000, self._review, replica)

    def _review(self, replica: Replica) -> None:
        leader = replica.partition.leader
        if leader is not None:
            replica.progressed(leader.tick(self._clock.now_ms()))
        self.request_change(replica)


def _change(replica: Replica, proposal: IsrProposal) -> IsrChange:
    return IsrChange(
        topic_id=replica.topic_id,
        partition=replica.partition.index,
        leader_epoch=Epoch(proposal.leader_epoch),
        partition_epoch=proposal.partition_epoch,
        isr=proposal.isr,
        recovered=proposal.recovered,
    )
