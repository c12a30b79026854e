"""One replica of a partition: leader, follower or neither.

Pure. The shell appends, reads and truncates; it reports the progress of the own log and the fetches
of followers, and wakes the waits that a call releases.

Rules (KIP-101, KIP-279, KIP-320, KIP-903, KIP-966):

1. The high watermark is the smallest end offset of the maximal ISR. It never decreases while no
record below it is truncated, and is frozen while the ISR is smaller than min.insync.replicas.
2. With `flush.policy=fsync`, the end offset of a replica is its *flushed* end offset: for the high
watermark, for ISR expansion, and for acks=1.
3. A request with a leader epoch is fenced by it: FencedLeaderEpoch if older, UnknownLeaderEpoch if
newer.
4. A wait is released once: by progress, or with an error at the end of the leadership.
5. A follower's report counts within one leader epoch, and only if its log does not diverge.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from ..errors import (
    FencedLeaderEpoch,
    MirrorTopic,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    NotMirror,
    OffsetNotAvailable,
    Overloaded,
    QuorumlogError,
    UnknownLeaderEpoch,
)
from ..ids import NO_EPOCH, NO_NODE, Epoch, NodeId, Offset
from .follower_state import EndOffsetFor, FollowAnswer, FollowerState, FollowStep, Skip, follow
from .leader_state import (
    BrokerFacts,
    BrokerOf,
    FollowerFetch,
    IsrProposal,
    LeaderAndIsr,
    LeaderState,
    ReplicaStatus,
)
from .waits import Wait, Waits

LOG_START = Offset(0)
LAG_TIME_MAX_MS = 30_000  # replica.lag.time.max.ms


class Acks(Enum):
    """The acknowledgement that a producer requests."""

    ALL = "all"  # all in-sync replicas
    NONE = "0"  # none
    LEADER = "1"  # the leader alone


@dataclass(init=False, unsafe_hash=True, slots=True)
class PartitionProgress:
    """The result of an event. Treated as immutable. `__init__` is written by hand because every
    append creates one, and mypyc leaves a generated one interpreted."""

    released: tuple[Wait, ...]
    high_watermark_moved: bool

    def __init__(self, released: tuple[Wait, ...], high_watermark_moved: bool) -> None:
        self.released = released
        self.high_watermark_moved = high_watermark_moved


NO_PROGRESS: Final = PartitionProgress((), False)


def _no_brokers(_: NodeId) -> BrokerFacts | None:
    return None


@dataclass(slots=True)
class Partition:
    """A node's state of one partition. Before `become_leader` or `become_follower`, and after
    `resign`, it has no role and refuses every request."""

    topic: str
    index: int
    node_id: NodeId
    waits_max: int  # limit of waiting produce requests, beyond which they fail with Overloaded
    brokers: BrokerOf = _no_brokers
    lag_time_max_ms: int = LAG_TIME_MAX_MS
    high_watermark: Offset = LOG_START
    highest_epoch: Epoch = NO_EPOCH  # the newest leader epoch seen, in any role
    follower: FollowerState | None = None
    not_leader_error: NotLeaderOrFollower | None = None  # answers requests that need the leader
    leadership: LeaderState | None = None
    _acks_all_waits: Waits = field(default_factory=Waits)
    _acks_leader_waits: Waits = field(default_factory=Waits)  # acks=1

    # --- leadership -------------------------------------------------------------------------------

    def become_leader(
        self,
        state: LeaderAndIsr,
        *,
        log_end_offset: Offset,
        flushed_end_offset: Offset,
        now_ms: int,
    ) -> PartitionProgress:
        """Start or continue to lead with `state`; return the progress.

        A newer leader epoch discards the replicas' reports of the previous one (R11). Within an
        epoch, a state with an older partition epoch only changes configs.
        """
        assert state.leader_epoch >= self.highest_epoch, (
            f"{self.name}: epoch {state.leader_epoch} after {self.highest_epoch}"
        )
        assert self.node_id in state.isr, f"{self.name}: leader {self.node_id} not in {state.isr}"
        leading = self.leadership
        if leading is None or state.leader_epoch > leading.state.leader_epoch:
            self.leadership = LeaderState(
                name=self.name,
                node_id=self.node_id,
                state=state,
                epoch_start_offset=log_end_offset,
                since_ms=now_ms,
                brokers=self.brokers,
                lag_time_max_ms=self.lag_time_max_ms,
                log_end_offset=log_end_offset,
                flushed_end_offset=flushed_end_offset,
                now_ms=now_ms,
            )
        else:
            leading.now_ms = max(leading.now_ms, now_ms)
            leading.changed(_newer(leading.state, state))
        self.follower, self.not_leader_error = None, None
        self.highest_epoch = state.leader_epoch
        return self.advance(log_end_offset=log_end_offset, flushed_end_offset=flushed_end_offset)

    def become_follower(self, state: FollowerState, error: NotLeaderOrFollower) -> tuple[Wait, ...]:
        """Follow the leader of `state`, if there is one; release every wait with `error`, which
        also answers requests that need the leader."""
        assert state.leader_epoch >= self.highest_epoch, (
            f"{self.name}: epoch {state.leader_epoch} after {self.highest_epoch}"
        )
        waits = self.resign(error, epoch=state.leader_epoch)
        self.follower = state
        return waits

    def resign(self, error: QuorumlogError, *, epoch: Epoch | None = None) -> tuple[Wait, ...]:
        """Give up any role; release every wait with `error`."""
        self.leadership = None
        self.follower = None
        self.not_leader_error = error if isinstance(error, NotLeaderOrFollower) else None
        if epoch is not None:
            self.highest_epoch = max(self.highest_epoch, epoch)
        return (*self._acks_all_waits.fail(error), *self._acks_leader_waits.fail(error))

    @property
    def name(self) -> str:
        """ "topic-index", the name of its folder."""
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        """True if this node leads the partition."""
        return self.leadership is not None

    @property
    def leader(self) -> LeaderAndIsr | None:
        """The metadata that the leader applies, or None if this node does not lead."""
        return None if self.leadership is None else self.leadership.state

    @property
    def followed(self) -> NodeId:
        """The leader that this node follows, or NO_NODE."""
        return NO_NODE if self.follower is None else self.follower.leader_id

    @property
    def leader_epoch(self) -> Epoch:
        """The current leader epoch, or the newest one seen."""
        return self.highest_epoch

    @property
    def waiting(self) -> int:
        """The number of waiting produce requests."""
        return self._acks_all_waits.count + self._acks_leader_waits.count

    # --- requests -----------------------------------------------------------------------------

    def check_epoch(self, leader_epoch: int | None) -> None:
        """Fence a request by its leader epoch; None: it has none.

        Raises FencedLeaderEpoch, UnknownLeaderEpoch.
        """
        if leader_epoch is None:
            return
        if leader_epoch < self.highest_epoch:
            raise FencedLeaderEpoch(
                f"leader epoch {leader_epoch} is older than the current epoch"
                f" {self.highest_epoch}; refresh the metadata and retry at the leader",
                topic=self.topic,
                partition=self.index,
            )
        if leader_epoch > self.highest_epoch:
            raise UnknownLeaderEpoch(
                f"leader epoch {leader_epoch} is newer than epoch {self.highest_epoch} of this"
                " broker; retry shortly",
                topic=self.topic,
                partition=self.index,
            )

    def check_leader(self, leader_epoch: int | None) -> LeaderAndIsr:
        """Return the metadata of the led partition; raise NotLeaderOrFollower, FencedLeaderEpoch,
        UnknownLeaderEpoch."""
        self.check_epoch(leader_epoch)
        if self.leadership is None:
            if self.not_leader_error is not None:
                raise self.not_leader_error.with_traceback(None)
            raise NotLeaderOrFollower(
                f"broker {self.node_id} does not lead this partition; refresh the metadata",
                topic=self.topic,
                partition=self.index,
            )
        return self.leadership.state

    def check_readable(self, leader_epoch: int | None) -> None:
        """Raise an error unless consumers may read here below the high watermark: from the leader,
        or from a follower (KIP-392). Raises the errors of `check_leader`."""
        if self.followed == NO_NODE:
            self.check_leader(leader_epoch)
        else:
            self.check_epoch(leader_epoch)

    def preferred_replica(self, rack: str, offset: int) -> NodeId | None:
        """Return the replica in the reader's rack to read `offset` from; None: read from this
        node."""
        own = self.brokers(self.node_id)
        if not rack or self.leadership is None or (own is not None and own.rack == rack):
            return None
        return self.leadership.replica_in_rack(rack, offset)

    def admit(
        self,
        acks: Acks,
        leader_epoch: int | None,
        *,
        lapsed: bool = False,
        is_mirrored: bool = False,
    ) -> LeaderAndIsr:
        """Return the metadata if an append may start.

        Raises the errors of `check_leader`, NotEnoughReplicas, Overloaded, and MirrorTopic for a
        producer or NotMirror for a mirror (`is_mirrored`). After an error, nothing may be stored.

        `lapsed`: the controllers have not been reached for a session timeout. Another node may lead
        by then, so only appends that need all in-sync replicas are accepted.
        """
        state = self.check_leader(leader_epoch)
        if bool(state.mirrors) is not is_mirrored:
            raise self._mirror_error(state)
        if lapsed and acks is not Acks.ALL:
            raise NotLeaderOrFollower(
                "this broker has lost the controllers, so another one may lead; send with"
                " acks=all, or refresh the metadata",
                topic=self.topic,
                partition=self.index,
            )
        if acks is Acks.ALL and len(state.isr) < state.min_isr:
            raise NotEnoughReplicas(
                f"not enough in-sync replicas ({len(state.isr)} of"
                f" min.insync.replicas={state.min_isr}); wait for replicas to catch up",
                topic=self.topic,
                partition=self.index,
            )
        if acks is not Acks.NONE and self.waiting >= self.waits_max:
            raise Overloaded(
                f"too many waiting produce requests; {self.waiting} wait, the limit is"
                f" {self.waits_max}; retry later",
                topic=self.topic,
                partition=self.index,
            )
        return state

    def check_committed(self) -> Offset:
        """Return the high watermark for readers that must not see it decrease.

        Raises the errors of `check_leader`, and OffsetNotAvailable until this leader has committed
        everything in its log at the start of its epoch: its predecessor may have reported a higher
        one.
        """
        self.check_leader(None)
        assert self.leadership is not None, f"{self.name}: checked to be the leader"
        if self.high_watermark < self.leadership.epoch_start_offset:
            raise OffsetNotAvailable(
                f"the leader of epoch {self.highest_epoch} has committed up to offset"
                f" {self.high_watermark} of {self.leadership.epoch_start_offset}; retry shortly",
                topic=self.topic,
                partition=self.index,
            )
        return self.high_watermark

    def is_acknowledged(self, acks: Acks, next_offset: Offset) -> bool:
        """Return True if all records below `next_offset` are acknowledged as `acks` requires."""
        if acks is Acks.NONE:
            return True
        if acks is Acks.ALL:
            return self.high_watermark >= next_offset
        return self.leadership is not None and self.leadership.own_end() >= next_offset

    def wait_for(self, acks: Acks, next_offset: Offset, token: Any) -> Wait:
        """Add a wait for an acknowledgement; progress or `resign` releases it."""
        assert acks is not Acks.NONE, "acks=0 does not wait"
        assert self.leadership is not None, f"{self.name}: waiting without leadership"
        return (self._acks_all_waits if acks is Acks.ALL else self._acks_leader_waits).add(
            next_offset, token
        )

    def cancel(self, wait: Wait) -> None:
        """Cancel a wait; no-op if it was released."""
        if wait.kind is not None:
            wait.kind.cancel(wait)

    # --- the leader's progress ----------------------------------------------------------------

    def advance(self, *, log_end_offset: Offset, flushed_end_offset: Offset) -> PartitionProgress:
        """Apply progress of the own log: advance the high watermark and release waits."""
        assert flushed_end_offset <= log_end_offset, (
            f"{self.name}: flushed to {flushed_end_offset}, log ends at {log_end_offset}"
        )
        leading = self.leadership
        if leading is None:
            return NO_PROGRESS
        leading.log_end_offset, leading.flushed_end_offset = log_end_offset, flushed_end_offset
        return self._progress(leading)

    def fetched(self, follower: NodeId, fetch: FollowerFetch, now_ms: int) -> PartitionProgress:
        """Apply a follower's fetch, which proves that it has all records up to its end. Only for a
        log that does not diverge (KAFKA-13141): see `divergence`.

        Raises the errors of `check_leader`, StaleBrokerEpoch, and InvalidRequest for a node that is
        not a replica.
        """
        self.check_leader(fetch.leader_epoch)
        assert self.leadership is not None, f"{self.name}: checked to be the leader"
        self.leadership.fetched(follower, fetch, now_ms)
        return self._progress(self.leadership)

    def tick(self, now_ms: int) -> PartitionProgress:
        """Advance the time, so that `isr_proposal` shrinks the ISR by lagging members. Call it
        about twice per replica.lag.time.max.ms."""
        if self.leadership is None:
            return NO_PROGRESS
        self.leadership.tick(now_ms)
        return self._progress(self.leadership)

    def isr_proposal(self) -> IsrProposal | None:
        """Return the ISR change to request from the controller; the same one until it is
        answered."""
        if self.leadership is None:
            return None
        return self.leadership.next_isr_proposal(self.high_watermark)

    def isr_accepted(
        self,
        proposal: IsrProposal,
        *,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[NodeId, ...],
    ) -> PartitionProgress:
        """Apply the controller's answer with the committed state."""
        leading = self.leadership
        if (
            leading is None
            or proposal.leader_epoch != leading.state.leader_epoch
            or leader_epoch != leading.state.leader_epoch
            or self.node_id not in isr
        ):
            return NO_PROGRESS  # the metadata will have the outcome
        leading.accepted(proposal, partition_epoch=partition_epoch, isr=isr)
        return self._progress(leading)  # a smaller ISR may raise the high watermark (KAFKA-13091)

    def isr_refused(self, proposal: IsrProposal, error: QuorumlogError) -> PartitionProgress:
        """Apply a rejected or lost proposal; see `LeaderState.refused`."""
        if self.leadership is None:
            return NO_PROGRESS
        self.leadership.refused(proposal, error)
        return self._progress(self.leadership)

    @property
    def maximal_isr(self) -> tuple[NodeId, ...]:
        """The committed ISR and the members proposed beyond it; () if this node does not lead."""
        return () if self.leadership is None else self.leadership.maximal_isr()

    @property
    def is_under_min_isr(self) -> bool:
        """True if this leader commits nothing, because the ISR is too small."""
        return self.leadership is not None and self.leadership.is_under_min_isr

    def replica_status(self, now_ms: int) -> list[ReplicaStatus]:
        """Return the status of every replica; [] if this node does not lead."""
        return [] if self.leadership is None else self.leadership.replica_status(now_ms)

    # --- the follower's progress --------------------------------------------------------------

    def take(
        self,
        answer: FollowAnswer,
        *,
        log_start_offset: Offset,
        log_end_offset: Offset,
        end_offset_for: EndOffsetFor,
    ) -> FollowStep:
        """Return the follower's next step for a leader's answer; offsets and epochs are those of
        the own log. An answer of another leader epoch is dropped (KAFKA-13207)."""
        state = self.follower
        if state is None or answer.leader_epoch != state.leader_epoch:
            followed = "no leader" if state is None else f"epoch {state.leader_epoch}"
            return Skip(
                f"the answer has leader epoch {answer.leader_epoch}; this replica follows"
                f" {followed}"
            )
        return follow(
            answer,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            end_offset_for=end_offset_for,
        )

    def replicated(
        self, *, leader_epoch: int, leader_high_watermark: int, log_end_offset: int
    ) -> bool:
        """Advance the follower's high watermark after the answer's records were appended; return
        True if it moved. Must not be called for an answer with a divergence (KAFKA-14704)."""
        if self.follower is None or leader_epoch != self.follower.leader_epoch:
            return False
        mark = min(leader_high_watermark, log_end_offset)
        if mark <= self.high_watermark:
            return False
        self.high_watermark = Offset(mark)
        return True

    def _mirror_error(self, state: LeaderAndIsr) -> QuorumlogError:
        if state.mirrors:
            return MirrorTopic(
                f"this topic mirrors one of cluster {state.mirrors.partition('/')[0]}, and only"
                " `quorumlog mirror` writes to it; write to the source, or end the mirroring with"
                f" `quorumlog mirror promote {self.topic}`",
                topic=self.topic,
                partition=self.index,
            )
        return NotMirror(
            "this topic is not a mirror: it was promoted, or not created as one; the mirror"
            " cannot write to it",
            topic=self.topic,
            partition=self.index,
        )

    def truncated(self, log_end_offset: Offset) -> None:
        """Apply a truncation of the own log. Records below the high watermark are truncated only
        after an unclean election; the high watermark then decreases."""
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def restarted(self, offset: Offset) -> None:
        """Apply a restart of the own log at the offset. All earlier records count as committed, so
        the high watermark is the offset (KAFKA-9491)."""
        self.high_watermark = offset

    # --- invariants ---------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Assert rule 1 and the count of waits; cheap enough for every test step."""
        leading = self.leadership
        assert leading is None or self.follower is None, f"{self.name}: leads and follows"
        if leading is not None:
            assert self.high_watermark <= leading.log_end_offset, (
                f"{self.name}: high watermark {self.high_watermark} > {leading.log_end_offset}"
            )
        self._acks_all_waits.check_invariants(self.name)
        self._acks_leader_waits.check_invariants(self.name)

    def _progress(self, leading: LeaderState) -> PartitionProgress:
        before = self.high_watermark
        end = leading.committed_end()
        if end is not None and end > before:
            self.high_watermark = end
        released = (
            *self._acks_all_waits.pop(self.high_watermark),
            *self._acks_leader_waits.pop(leading.own_end()),
        )
        return PartitionProgress(released, self.high_watermark > before)


def _newer(present: LeaderAndIsr, state: LeaderAndIsr) -> LeaderAndIsr:
    """Return the state to apply within one leader epoch. A controller's answer may have brought a
    newer ISR than metadata applied after it; configs are always the metadata's."""
    if state.partition_epoch >= present.partition_epoch:
        return state
    return LeaderAndIsr(
        leader_epoch=state.leader_epoch,
        partition_epoch=present.partition_epoch,
        isr=present.isr,
        min_isr=state.min_isr,
        counts_flushed=state.counts_flushed,
        replicas=state.replicas,
        recovering=present.recovering,
        mirrors=state.mirrors,
    )
