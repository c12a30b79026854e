"""What a leader knows of the other replicas, and what it makes of it: the high watermark, and who
shall be in the ISR.

Everything here is of one leader epoch: what replicas reported in an older one counts for nothing
(kafka-tlaplus, R11). A replica is judged on one captured state of the metadata (KAFKA-15221).
"""

from dataclasses import dataclass, field, replace
from typing import Final

from ...errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    QuorumlogError,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...ids import NodeId, Offset
from .states import BrokerOf, FollowerFetch, IsrProposal, LeaderState, ReplicaStanding

ISR_PAUSE_MS: Final = 500
"""After a refusal nobody is proposed for so long: the metadata that says why is on its way."""

# Refusals after which the metadata has, or will have, the partition's state: it may have been
# changed by an earlier copy of the request, so the maximal ISR stays until it comes.
_WAIT_FOR_METADATA: Final = (
    FencedLeaderEpoch,
    InvalidUpdateVersion,
    InvalidRequest,
    NewLeaderElected,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)


@dataclass(slots=True)
class RemoteReplica:
    """What one follower reported in this leader epoch."""

    broker_epoch: Offset
    log_end_offset: Offset
    flushed_end_offset: Offset
    log_start_offset: Offset
    caught_up_ms: int  # when it last had everything the leader had
    fetched_ms: int
    leader_end_at_fetch: Offset  # the leader's log end when it fetched last


@dataclass(slots=True)
class Leadership:
    """One leader epoch, seen from the leader."""

    name: str  # of the partition
    node_id: NodeId
    state: LeaderState
    epoch_start_offset: Offset  # the own log's end when it began
    since_ms: int  # when it began
    brokers: BrokerOf
    lag_time_max_ms: int  # replica.lag.time.max.ms
    log_end_offset: Offset
    flushed_end_offset: Offset
    remotes: dict[NodeId, RemoteReplica] = field(default_factory=dict)
    proposal: IsrProposal | None = None  # under way, or to be asked again
    is_waiting: bool = False  # the proposal was refused: the metadata will say what holds
    now_ms: int = 0  # the newest time that was told
    paused_until_ms: int = 0

    # --- high watermark ---------------------------------------------------------------------------

    def own_end(self) -> Offset:
        """The own log's end as far as it counts."""
        return self.flushed_end_offset if self.state.counts_flushed else self.log_end_offset

    def end_of(self, remote: RemoteReplica) -> Offset:
        """A follower's end as far as it counts."""
        return remote.flushed_end_offset if self.state.counts_flushed else remote.log_end_offset

    def maximal_isr(self) -> tuple[NodeId, ...]:
        """The committed ISR and whoever was asked for beyond it: the controller may have accepted
        that already, and elect from it."""
        asked = () if self.proposal is None else self.proposal.members
        return (*self.state.isr, *(node for node in asked if node not in self.state.isr))

    @property
    def is_under_min_isr(self) -> bool:
        """Whether nothing is committed now, since too few would survive with it."""
        return len(self.state.isr) < self.state.min_isr

    def committed_end(self) -> Offset | None:
        """How far everything is committed by now; None: not to be told, the mark stays."""
        if self.is_under_min_isr:
            return None
        end: int = self.own_end()
        members = self.maximal_isr()
        for node in members:
            if node != self.node_id:
                remote = self.remotes.get(node)
                if remote is None:
                    return None  # a member that has not reported in this epoch holds the mark
                end = min(end, self.end_of(remote))
        for node, remote in self.remotes.items():
            # A replica that keeps up must be able to join: the mark does not run away from it.
            if node not in members and self.end_of(remote) < end and self._keeps_up(node, remote):
                end = min(end, self.end_of(remote))
        return Offset(end)

    def nearest(self, rack: str, offset: int) -> NodeId | None:
        """Return the in-sync follower in `rack` that has `offset` and most behind it."""
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
        """Take a fetch whose log does not part from the own one; raises InvalidRequest,
        StaleBrokerEpoch."""
        self.now_ms = max(self.now_ms, now_ms)
        if follower == self.node_id or follower not in self.state.replicas:
            raise InvalidRequest(
                f"node {follower} is no other replica of {self.name}: {self.state.replicas}"
            )
        facts, remote = self.brokers(follower), self.remotes.get(follower)
        known = -1 if facts is None else facts.broker_epoch
        if remote is not None:
            known = max(known, remote.broker_epoch)  # its own fetches may be ahead of the metadata
        if fetch.broker_epoch < known:
            raise StaleBrokerEpoch(
                f"broker {follower} fetches with epoch {fetch.broker_epoch}, it is registered"
                f" with {known}"
            )
        if remote is None or remote.broker_epoch != fetch.broker_epoch:
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
        elif remote.fetched_ms >= 0 and end >= remote.leader_end_at_fetch:
            remote.caught_up_ms = max(remote.caught_up_ms, remote.fetched_ms)
        remote.fetched_ms, remote.leader_end_at_fetch = now_ms, self.log_end_offset

    def passed(self, now_ms: int) -> None:
        """Time has passed. Who has everything is level now, however long ago it fetched: it is
        the next append that it may lag behind."""
        self.now_ms = max(self.now_ms, now_ms)
        for remote in self.remotes.values():
            if self.end_of(remote) >= self.log_end_offset:
                remote.caught_up_ms = max(remote.caught_up_ms, now_ms)

    # --- in-sync replicas -------------------------------------------------------------------------

    def next_proposal(self, high_watermark: Offset) -> IsrProposal | None:
        """What to ask the controller for: the same again until it is answered, None: nothing."""
        if self.proposal is not None:
            return None if self.is_waiting else self.proposal
        if self.now_ms < self.paused_until_ms:
            return None
        current = self.state.isr
        members = [
            node
            for node in self.state.replicas or current
            if (node in current and not self._lags(node))
            or (node not in current and self._may_join(node, high_watermark))
        ]
        if set(members) == set(current) and not self.state.recovering:
            return None
        isr = []
        for node in members:
            facts = self.brokers(node)
            if facts is None:
                return None  # the metadata knows more of the ISR than of its brokers: not for long
            isr.append((node, facts.broker_epoch))
        self.proposal = IsrProposal(
            leader_epoch=self.state.leader_epoch,
            partition_epoch=self.state.partition_epoch,
            isr=tuple(isr),
            recovered=self.state.recovering,
        )
        return self.proposal

    def changed(self, state: LeaderState) -> None:
        """The metadata has a newer state of this leader epoch. What was asked on the older one was
        taken, and is this, or will never be."""
        if state.partition_epoch > self.state.partition_epoch:
            self.proposal, self.is_waiting = None, False
        self.state = state

    def accepted(
        self, proposal: IsrProposal, *, partition_epoch: int, isr: tuple[NodeId, ...]
    ) -> None:
        """The controller has committed an ISR for the proposal."""
        if partition_epoch > self.state.partition_epoch:
            recovering = self.state.recovering and not proposal.recovered
            self.changed(
                replace(self.state, partition_epoch=partition_epoch, isr=isr, recovering=recovering)
            )

    def refused(self, proposal: IsrProposal, error: QuorumlogError) -> None:
        """The proposal failed; what it is worth then depends on what that says of its outcome."""
        if proposal is not self.proposal:
            return
        if isinstance(error, IneligibleReplica):
            # Certainly not taken, and the partition epoch is right: back to what is committed.
            self.proposal = None
            self.paused_until_ms = self.now_ms + ISR_PAUSE_MS
        elif isinstance(error, _WAIT_FOR_METADATA):
            self.is_waiting = True

    def standings(self, now_ms: int) -> list[ReplicaStanding]:
        """How every replica stands."""
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
                ReplicaStanding(
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
            return f"broker {node} has not fetched since it registered anew"
        behind = self.log_end_offset - self.end_of(remote)
        if self.end_of(remote) < self.epoch_start_offset or behind > 0:
            return (
                f"broker {node} is {behind} records behind and fetched last"
                f" {now_ms - remote.fetched_ms} ms ago"
            )
        return f"broker {node} has caught up: the controller is being asked"

    def _keeps_up(self, node: NodeId, remote: RemoteReplica) -> bool:
        """Whether a replica outside the ISR may join and was level with the leader lately."""
        return (
            remote.caught_up_ms >= 0
            and self.now_ms - remote.caught_up_ms <= self.lag_time_max_ms
            and self._is_eligible(node, remote)
        )

    def _may_join(self, node: NodeId, high_watermark: Offset) -> bool:
        remote = self.remotes.get(node)
        if remote is None or self.state.recovering:
            return False
        end = self.end_of(remote)
        return (
            end >= high_watermark
            and end >= self.epoch_start_offset
            and not self._lags(node)  # or it would leave again at once, and join, and leave
            and self._is_eligible(node, remote)
        )

    def _is_eligible(self, node: NodeId, remote: RemoteReplica) -> bool:
        facts = self.brokers(node)  # once: epoch and activity belong together
        return facts is not None and facts.is_active and facts.broker_epoch == remote.broker_epoch

    def _lags(self, node: NodeId) -> bool:
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
