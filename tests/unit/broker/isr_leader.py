"""A partition leader with two followers, without a log."""

from dataclasses import dataclass, field

from quorumlog.broker.isr import BrokerFacts, FollowerFetch, IsrProposal, LeaderAndIsr
from quorumlog.broker.partition import Partition
from quorumlog.broker.partition_leader import PartitionLeader, PartitionProgress
from quorumlog.ids import Epoch, NodeId, Offset

ME, OTHER, THIRD = NodeId(1), NodeId(2), NodeId(3)
LAG_MS = 1_000


@dataclass
class IsrLeader:
    """A leader with two other replicas whose registrations the test may change."""

    isr: tuple[NodeId, ...] = (ME,)
    min_isr: int = 1
    end: int = 0
    counts_flushed: bool = False
    recovering: bool = False
    facts: dict[NodeId, BrokerFacts | None] = field(
        default_factory=lambda: {n: BrokerFacts(Offset(n), True) for n in (ME, OTHER, THIRD)}
    )

    def __post_init__(self) -> None:
        self.partition = Partition(
            "t",
            0,
            ME,
            waits_max=9,
            brokers=lambda node: self.facts.get(node),
            lag_time_max_ms=LAG_MS,
        )
        self.lead()

    def state(self, *, epoch: int = 1, partition_epoch: int = 0) -> LeaderAndIsr:
        return LeaderAndIsr(
            leader_epoch=Epoch(epoch),
            partition_epoch=partition_epoch,
            replicas=(ME, OTHER, THIRD),
            isr=self.isr,
            min_isr=self.min_isr,
            counts_flushed=self.counts_flushed,
            recovering=self.recovering,
        )

    def lead(
        self, *, epoch: int = 1, partition_epoch: int = 0, now_ms: int = 0
    ) -> PartitionProgress:
        return self.partition.become_leader(
            self.state(epoch=epoch, partition_epoch=partition_epoch),
            log_end_offset=Offset(self.end),
            flushed_end_offset=Offset(0),
            now_ms=now_ms,
        )

    def append(self, end: int) -> PartitionProgress:
        self.end = end
        return self.leader.advance(log_end_offset=Offset(end), flushed_end_offset=Offset(0))

    def fetch(
        self,
        node: NodeId,
        end: int,
        *,
        now_ms: int = 0,
        flushed: int = 0,
        epoch: int = 1,
        broker_epoch: int | None = None,
    ) -> PartitionProgress:
        fetch = FollowerFetch(
            broker_epoch=Offset(node if broker_epoch is None else broker_epoch),
            leader_epoch=Epoch(epoch),
            log_end_offset=Offset(end),
            flushed_end_offset=Offset(flushed),
            log_start_offset=Offset(0),
        )
        progress = self.partition.check_leader(epoch).fetched(node, fetch, now_ms)
        self.partition.check_invariants()
        return progress

    def proposal(self) -> IsrProposal:
        found = self.leader.isr_proposal()
        assert found is not None, "the leader has no proposal"
        return found

    def accept(self, proposal: IsrProposal) -> PartitionProgress:
        self.isr = proposal.members
        return self.leader.isr_accepted(
            proposal,
            leader_epoch=proposal.leader_epoch,
            partition_epoch=proposal.partition_epoch + 1,
            isr=proposal.members,
        )

    @property
    def leader(self) -> PartitionLeader:
        return self.partition.check_leader(None)

    @property
    def mark(self) -> int:
        return self.partition.high_watermark
