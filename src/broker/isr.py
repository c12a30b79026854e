"""The in-sync replicas (ISR) of a partition, as its leader sees them: ISR shrink, ISR expansion,
and the end offset that all in-sync replicas have reached.

The leader decides which ISR to propose. `replication.shell.alter_partition` sends the proposal, and
the controller commits it.

All state belongs to one leader epoch; reports of an older epoch are ignored (kafka-tlaplus, R11). A
replica is judged by one snapshot of the metadata (KAFKA-15221).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from ..errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    QuorumlogError,
    StaleBrokerEpoch,
)
from ..ids import Epoch, NodeId, Offset

ISR_PAUSE_MS: Final = 500
"""The pause after a rejected proposal; the metadata with the reason is still on its way."""

# Errors after which the state of the partition is in the metadata, or will be. An earlier copy of
# the request may have changed it, so the maximal ISR is kept until that metadata arrives. Unknown
# topics are not among them: a deposed controller may lack one, and then no metadata follows.
_WAIT_FOR_METADATA: Final = (
    FencedLeaderEpoch,
    InvalidUpdateVersion,
    InvalidRequest,
    NewLeaderElected,
    StaleBrokerEpoch,
)


@dataclass(unsafe_hash=True, slots=True)
class BrokerFacts:
    """The metadata of a broker. Treated as immutable, as `FollowerFetch`."""

    broker_epoch: Offset
    is_active: bool  # neither fenced nor shutting down
    rack: str = ""  # empty: none


BrokerOf: TypeAlias = Callable[[NodeId], BrokerFacts | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr:
    """The metadata of a partition that this node leads."""

    leader_epoch: Epoch
    partition_epoch: int
    isr: tuple[NodeId, ...]  # committed; includes this node
    min_isr: int  # min.insync.replicas, at most the number of replicas
    counts_flushed: bool  # flush.policy=fsync: end offsets are flushed end offsets
    replicas: tuple[NodeId, ...] = ()  # the assignment, the preferred leader first
    recovering: bool = False  # after an unclean election; no replica may join the ISR yet
    mirrors: str = ""  # mirror.source: only a mirror appends; empty: producers append


@dataclass(unsafe_hash=True, slots=True)
class FollowerFetch:
    """The state of a follower's log, sent with its fetch; all records below the ends are present.
    Treated as immutable. `__init__` is written by hand because every fetch creates one, and that of
    a frozen dataclass is slow."""

    broker_epoch: Offset  # of the follower's registration
    leader_epoch: Epoch  # that it follows
    log_end_offset: Offset
    flushed_end_offset: Offset  # <= log_end_offset
    log_start_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """The ISR change requested from the controller; at most one is pending."""

    leader_epoch: Epoch
    partition_epoch: int  # of the state that it is based on
    isr: tuple[tuple[NodeId, Offset], ...]  # members with their known broker epochs
    recovered: bool  # the leader has recovered from an unclean election

    @property
    def members(self) -> tuple[NodeId, ...]:
        """The node ids of the requested ISR."""
        return tuple(node for node, _ in self.isr)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """The replication status of one replica, for operators."""

    node_id: NodeId
    log_end_offset: Offset | int  # -1: unknown in this leader epoch
    caught_up_ms_ago: int  # since it last had every record; -1: not in this leader epoch
    in_sync: bool
    reason: str  # of being out of sync; "" if in sync


@dataclass(slots=True)
class RemoteReplica:
    """The state that one follower reported in this leader epoch."""

    broker_epoch: Offset
    log_end_offset: Offset
    flushed_end_offset: Offset
    log_start_offset: Offset
    caught_up_ms: int  # when it last had every record of the leader
    fetched_ms: int
    leader_end_at_fetch: Offset  # the leader's log end at its last fetch
    # A log end of the leader that it has received and may not have flushed, with the time of that
    # fetch; -1: none.
    received_end: int = -1
    received_ms: int = -1


@dataclass(slots=True)
class InSyncReplicas:
    """The replicas of one partition in one leader epoch, and the ISR among them."""

    name: str  # of the partition
    node_id: NodeId
    state: LeaderAndIsr
    epoch_start_offset: Offset  # log end offset at the start of the epoch
    since_ms: int  # start of the epoch
    brokers: BrokerOf
    lag_time_max_ms: int  # replica.lag.time.max.ms
    log_end_offset: Offset
    flushed_end_offset: Offset
    remotes: dict[NodeId, RemoteReplica] = field(default_factory=dict)
    proposal: IsrProposal | None = None  # pending, or to be sent again
    is_waiting: bool = False  # the proposal was rejected; the metadata decides
    is_ineligible: bool = False  # a controller rejected the proposal for one of its members
    now_ms: int = 0  # the latest time received
    paused_until_ms: int = 0

    # --- high watermark ---------------------------------------------------------------------------

    def own_end(self) -> Offset:
        """Return the own end offset: the flushed one if the policy is fsync."""
        return self.flushed_end_offset if self.state.counts_flushed else self.log_end_offset

    def end_of(self, remote: RemoteReplica) -> Offset:
        """Return a follower's end offset: the flushed one if the policy is fsync."""
        return remote.flushed_end_offset if self.state.counts_flushed else remote.log_end_offset

    def maximal_isr(self) -> tuple[NodeId, ...]:
        """Return the committed ISR and the members proposed beyond it. The controller may have
        accepted the proposal already, and may elect any of them."""
        if self.proposal is None:
            return self.state.isr
        asked = self.proposal.members
        return (*self.state.isr, *(node for node in asked if node not in self.state.isr))

    @property
    def is_under_min_isr(self) -> bool:
        """True if no record is committed, because the ISR is smaller than min.insync.replicas."""
        return len(self.state.isr) < self.state.min_isr

    def committed_end(self, above: int = -1) -> Offset | None:
        """Return the offset up to which all records are committed; None: unknown, or at most
        `above`."""
        state = self.state
        if len(state.isr) < state.min_isr:
            return None
        end: int = self.flushed_end_offset if state.counts_flushed else self.log_end_offset
        members = state.isr if self.proposal is None else self.maximal_isr()
        for node in members:
            if node != self.node_id:
                remote = self.remotes.get(node)
                if remote is None:
                    return None  # a member without a report in this epoch blocks the high watermark
                end = min(end, self.end_of(remote))
                if end <= above:
                    return None
        for node, remote in self.remotes.items():
            # A replica that keeps up must be able to join, so the high watermark does not pass it.
            if node not in members and self.end_of(remote) < end and self._keeps_up(node, remote):
                end = min(end, self.end_of(remote))
        return Offset(end)

    def replica_in_rack(self, rack: str, offset: int) -> NodeId | None:
        """Return the in-sync follower in `rack` that has `offset` and the largest end offset."""
        near = [
            (remote.log_end_offset, node)
            for node in self.state.isr
            if (facts := self.brokers(node)) is not None
            and (remote := self.remotes.get(node)) is not None
            and (facts.is_active and facts.rack == rack)
            and remote.broker_epoch == facts.broker_epoch
            and remote.log_start_offset <= offset <= remote.log_end_offset
        ]
        return max(near, key=lambda each: each[0])[1] if near else None

    # --- fetches -------------------------------------------------------------------------------

    def fetched(self, follower: NodeId, fetch: FollowerFetch, now_ms: int) -> None:
        """Record the fetch of a follower; its log must not diverge.

        Raises InvalidRequest, StaleBrokerEpoch.
        """
        self.now_ms = max(self.now_ms, now_ms)
        self._drop_ineligible()
        if follower == self.node_id or follower not in self.state.replicas:
            raise InvalidRequest(
                f"node {follower} is not a follower of {self.name}; its replicas are"
                f" {self.state.replicas}"
            )
        facts, remote = self.brokers(follower), self.remotes.get(follower)
        known = -1 if facts is None else facts.broker_epoch
        if remote is not None:
            known = max(known, remote.broker_epoch)  # its fetches may be newer than the metadata
        if fetch.broker_epoch < known:
            # sometimes: a fetch of an earlier registration arrives
            raise StaleBrokerEpoch(
                f"broker {follower} fetches with broker epoch {fetch.broker_epoch}; it is"
                f" registered with {known}"
            )
        if remote is None or remote.broker_epoch != fetch.broker_epoch:
            # sometimes if remote is not None: a follower registers again within one leader epoch
            is_member = follower in self.state.isr
            remote = RemoteReplica(
                broker_epoch=fetch.broker_epoch,
                log_end_offset=fetch.log_end_offset,
                flushed_end_offset=fetch.flushed_end_offset,
                log_start_offset=fetch.log_start_offset,
                caught_up_ms=self.since_ms if is_member and remote is None else -1,
                fetched_ms=-1,
                leader_end_at_fetch=Offset(0),
            )
            self.remotes[follower] = remote
        remote.log_end_offset = fetch.log_end_offset
        remote.flushed_end_offset = fetch.flushed_end_offset
        remote.log_start_offset = fetch.log_start_offset
        end = self.end_of(remote)
        if end >= self.log_end_offset:
            remote.caught_up_ms = max(remote.caught_up_ms, now_ms)
        else:
            has_received = remote.log_end_offset >= remote.leader_end_at_fetch
            if remote.received_end < 0 and remote.fetched_ms >= 0 and has_received:
                # Kept until it is flushed: a follower fetches more often than it flushes.
                remote.received_end = remote.leader_end_at_fetch
                remote.received_ms = remote.fetched_ms
            if 0 <= remote.received_end <= end:
                remote.caught_up_ms = max(remote.caught_up_ms, remote.received_ms)
                remote.received_end = -1
        remote.fetched_ms, remote.leader_end_at_fetch = now_ms, self.log_end_offset

    def tick(self, now_ms: int) -> None:
        """Advance the time. A replica without missing records counts as caught up now, whenever it
        last fetched, since it can only lag behind a later append."""
        self.now_ms = max(self.now_ms, now_ms)
        self._drop_ineligible()
        for remote in self.remotes.values():
            if self.end_of(remote) >= self.log_end_offset:
                remote.caught_up_ms = max(remote.caught_up_ms, now_ms)

    # --- in-sync replicas -------------------------------------------------------------------------

    def next_proposal(self, high_watermark: Offset) -> IsrProposal | None:
        """Return the ISR shrink or expansion to request from the controller, or None.

        A pending proposal is returned again until it is answered.
        """
        self._drop_ineligible()
        if self.is_waiting or self.now_ms < self.paused_until_ms:
            return None
        if self.proposal is not None:
            return self.proposal
        current = self.state.isr
        remaining, joining = self._shrink_isr(), self._expand_isr(high_watermark)
        members = [
            node for node in self.state.replicas or current if node in remaining or node in joining
        ]
        if set(members) == set(current) and not self.state.recovering:
            return None
        isr = []
        for node in members:
            facts = self.brokers(node)
            if facts is None:
                return None  # the brokers' metadata lag behind the ISR; temporary
            isr.append((node, facts.broker_epoch))
        self.proposal = IsrProposal(
            leader_epoch=self.state.leader_epoch,
            partition_epoch=self.state.partition_epoch,
            isr=tuple(isr),
            recovered=self.state.recovering,
        )
        return self.proposal

    def _shrink_isr(self) -> list[NodeId]:
        """Return the ISR without the members that lag (Kafka's maybeShrinkIsr)."""
        return [node for node in self.state.isr if not self._is_lagging(node)]

    def _expand_isr(self, high_watermark: Offset) -> list[NodeId]:
        """Return the replicas that may join the ISR (Kafka's maybeExpandIsr)."""
        return [
            node
            for node in self.state.replicas
            if node not in self.state.isr and self._may_join(node, high_watermark)
        ]

    def changed(self, state: LeaderAndIsr) -> None:
        """Apply newer metadata of this leader epoch. A proposal based on an older state is then
        decided."""
        if state.partition_epoch > self.state.partition_epoch:
            # sometimes if self.proposal is not None: metadata decide an ISR change first
            self.proposal, self.is_waiting, self.is_ineligible = None, False, False
        self.state = state

    def accepted(
        self, proposal: IsrProposal, *, partition_epoch: int, isr: tuple[NodeId, ...]
    ) -> None:
        """Apply the ISR that the controller has committed for the proposal."""
        # sometimes if partition_epoch <= self.state.partition_epoch: an ISR change is accepted late
        if partition_epoch > self.state.partition_epoch:
            recovering = self.state.recovering and not proposal.recovered
            self.changed(
                replace(self.state, partition_epoch=partition_epoch, isr=isr, recovering=recovering)
            )

    def refused(self, proposal: IsrProposal, error: QuorumlogError, now_ms: int) -> None:
        """Handle a failed proposal according to what the error says about its outcome."""
        self.now_ms = max(self.now_ms, now_ms)
        if proposal is not self.proposal:
            return
        if isinstance(error, IneligibleReplica):
            self.is_ineligible = True
            self.paused_until_ms = self.now_ms + ISR_PAUSE_MS
            self._drop_ineligible()
        elif isinstance(error, _WAIT_FOR_METADATA):
            self.is_waiting = True

    def _drop_ineligible(self) -> None:
        """Drop the members of a rejected proposal that the metadata here exclude too: no ISR has
        them any more. If the rest adds no replica, the committed ISR is in force.

        Until then the maximal ISR stays: the rejection may be that of a deposed controller with
        older metadata, after another one accepted an earlier copy.
        """
        proposal = self.proposal
        if not self.is_ineligible or proposal is None:
            return
        kept = []
        for node, broker_epoch in proposal.isr:
            facts = self.brokers(node)
            is_eligible = (
                facts is not None and facts.is_active and facts.broker_epoch == broker_epoch
            )
            if node == self.node_id or is_eligible:
                kept.append((node, broker_epoch))
        # sometimes if len(kept) == len(proposal.isr): a deposed controller rejects a replica
        if len(kept) < len(proposal.isr):
            adds = any(node not in self.state.isr for node, _ in kept)
            self.proposal = replace(proposal, isr=tuple(kept)) if adds else None
            self.is_ineligible = False

    def replica_status(self, now_ms: int) -> list[ReplicaStatus]:
        """Return the status of every replica."""
        found = []
        for node in self.state.replicas or self.state.isr:
            remote = self.remotes.get(node)
            in_sync = node in self.state.isr
            end, ago = -1, -1
            if node == self.node_id:
                end, ago = self.log_end_offset, 0
            elif remote is not None:
                end = remote.log_end_offset
                ago = now_ms - remote.caught_up_ms if remote.caught_up_ms >= 0 else -1
            found.append(
                ReplicaStatus(
                    node_id=node,
                    log_end_offset=end,
                    caught_up_ms_ago=ago,
                    in_sync=in_sync,
                    reason="" if in_sync else self._reason(node, now_ms),
                )
            )
        return found

    def _reason(self, node: NodeId, now_ms: int) -> str:
        facts, remote = self.brokers(node), self.remotes.get(node)
        if facts is None:
            return f"broker {node} is not registered"
        if not facts.is_active:
            return f"broker {node} is fenced or stopping"
        if remote is None:
            return f"broker {node} has not fetched since this leader epoch began"
        if remote.broker_epoch != facts.broker_epoch:
            return f"broker {node} has not fetched since its last registration"
        behind = self.log_end_offset - self.end_of(remote)
        if self.end_of(remote) < self.epoch_start_offset or behind > 0:
            return (
                f"broker {node} is {behind} records behind; its last fetch was"
                f" {now_ms - remote.fetched_ms} ms ago"
            )
        return f"broker {node} has caught up; the ISR expansion is pending"

    def _keeps_up(self, node: NodeId, remote: RemoteReplica) -> bool:
        """Return True if a replica outside the ISR may join and has caught up recently."""
        return (
            remote.caught_up_ms >= 0
            and self.now_ms - remote.caught_up_ms <= self.lag_time_max_ms
            and self._is_eligible(node, remote)
        )

    def _may_join(self, node: NodeId, high_watermark: Offset) -> bool:
        remote = self.remotes.get(node)
        # sometimes if remote is not None and self.state.recovering: a replica waits for recovery
        if remote is None or self.state.recovering:
            return False
        # sometimes if self.end_of(remote) < self.epoch_start_offset: a replica lacks older records
        end = self.end_of(remote)
        return (
            end >= high_watermark
            and end >= self.epoch_start_offset
            and not self._is_lagging(node)  # else it would leave the ISR again at once
            and self._is_eligible(node, remote)
        )

    def _is_eligible(self, node: NodeId, remote: RemoteReplica) -> bool:
        facts = self.brokers(node)  # read once: epoch and activity must match
        return facts is not None and facts.is_active and facts.broker_epoch == remote.broker_epoch

    def _is_lagging(self, node: NodeId) -> bool:
        if node == self.node_id:
            return False
        remote = self.remotes.get(node)
        if remote is None:
            return self.now_ms - self.since_ms > self.lag_time_max_ms
        if self.end_of(remote) >= self.log_end_offset:
            return False
        since = (
            max(remote.caught_up_ms, self.since_ms)
            if remote.caught_up_ms < 0
            else remote.caught_up_ms
        )
        return self.now_ms - since > self.lag_time_max_ms

    # --- invariants -------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise AssertionError unless these hold, by number:

        1. The flushed end offset of this node is at most its log end offset.
        2. The ISR contains this node, and each replica once.
        3. A proposal is based on the current leader epoch and partition epoch, and contains this
           node.
        4. The leader waits for metadata, or has a rejected member, only with a proposal.
        5. This node is none of the remote replicas.
        """
        state, proposal, name = self.state, self.proposal, self.name
        assert self.flushed_end_offset <= self.log_end_offset, (
            f"ISR invariant 1, {name}: flushed to {self.flushed_end_offset}, the log ends at"
            f" {self.log_end_offset}"
        )
        assert state.isr.count(self.node_id) == 1, (
            f"ISR invariant 2, {name}: the ISR of leader {self.node_id} is {state.isr}"
        )
        assert len(set(state.isr)) == len(state.isr), (
            f"ISR invariant 2, {name}: the ISR {state.isr} contains a replica twice"
        )
        if proposal is not None:
            asked = proposal.leader_epoch, proposal.partition_epoch
            assert asked == (state.leader_epoch, state.partition_epoch), (
                f"ISR invariant 3, {name}: the proposal is for epochs {asked}, the present ones are"
                f" {state.leader_epoch} and {state.partition_epoch}"
            )
            assert self.node_id in proposal.members, (
                f"ISR invariant 3, {name}: leader {self.node_id} proposes the ISR"
                f" {proposal.members}"
            )
        assert proposal is not None or not (self.is_waiting or self.is_ineligible), (
            f"ISR invariant 4, {name}: waits for metadata without a proposal"
        )
        assert self.node_id not in self.remotes, (
            f"ISR invariant 5, {name}: {self.node_id} is a remote replica of itself"
        )
