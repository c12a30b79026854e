"""One replica of a partition: leader, follower or neither.

Pure: numbers in, released waits out. The shell appends, reads and truncates; it tells this module
how far its own log has come and what others fetched, and wakes whatever the answer names.

Rules held here (KIP-101, KIP-279, KIP-320, KIP-903, KIP-966 prose):

1. The high watermark is the least end over the maximal ISR, never goes back while nothing is
   truncated below it, and is frozen while the ISR is smaller than min.insync.replicas.
2. Under `flush.policy=fsync` the end of a replica is its *flushed* end, wherever a rule says log
   end: for the high watermark, for joining the ISR, and for what acks=1 means.
3. Every request that names a leader epoch is fenced by it: older is FencedLeaderEpoch, newer is
   UnknownLeaderEpoch.
4. A wait is released once: by progress, or with the error of the end of this leadership.
5. What a follower reported counts in one leader epoch, and only while its log does not part from
   the leader's.
"""

from dataclasses import dataclass, field
from typing import Any

from ...errors import (
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
from ...ids import NO_EPOCH, NO_NODE, Epoch, NodeId, Offset
from .following import EndOffsetFor, follow
from .leading import Leadership
from .states import (
    NO_PROGRESS,
    Acks,
    BrokerFacts,
    BrokerOf,
    FollowAnswer,
    FollowerFetch,
    FollowerState,
    FollowStep,
    IsrProposal,
    LeaderState,
    Nothing,
    Progress,
    ReplicaStanding,
)
from .waits import Wait, Waits

LOG_START = Offset(0)
LAG_TIME_MAX_MS = 30_000  # replica.lag.time.max.ms


def _nobody(_: NodeId) -> BrokerFacts | None:
    return None


@dataclass(slots=True)
class Partition:
    """One node's view of one partition. Before `become_leader` or `become_follower`, and after
    `resign`, it is neither and refuses every request."""

    topic: str
    index: int
    node_id: NodeId
    waits_max: int  # bound on waiting produce requests; reaching it is Overloaded
    brokers: BrokerOf = _nobody
    lag_time_max_ms: int = LAG_TIME_MAX_MS
    high_watermark: Offset = LOG_START
    highest_epoch: Epoch = NO_EPOCH  # the newest leader epoch heard of, as leader or not
    follower: FollowerState | None = None
    elsewhere: NotLeaderOrFollower | None = None  # who leads, for those who ask here
    leadership: Leadership | None = None
    _all: Waits = field(default_factory=Waits)
    _leader: Waits = field(default_factory=Waits)  # acks=1

    # --- leadership -------------------------------------------------------------------------------

    def become_leader(
        self, state: LeaderState, *, log_end_offset: Offset, flushed_end_offset: Offset, now_ms: int
    ) -> Progress:
        """Lead with `state`, or go on leading with a changed one; returns what that released.

        A newer leader epoch forgets what other replicas reported in the old one (R11). Within one
        an older partition epoch is old news, and changes configs alone.
        """
        assert state.leader_epoch >= self.highest_epoch, (
            f"{self.name}: epoch {state.leader_epoch} after {self.highest_epoch}"
        )
        assert self.node_id in state.isr, f"{self.name}: leader {self.node_id} not in {state.isr}"
        leading = self.leadership
        if leading is None or state.leader_epoch > leading.state.leader_epoch:
            self.leadership = Leadership(
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
        self.follower, self.elsewhere = None, None
        self.highest_epoch = state.leader_epoch
        return self.advance(log_end_offset=log_end_offset, flushed_end_offset=flushed_end_offset)

    def become_follower(self, state: FollowerState, error: NotLeaderOrFollower) -> tuple[Wait, ...]:
        """Follow in `state` (nobody, where nobody leads); returns every wait, released with
        `error`, which also says to those who ask here who leads."""
        assert state.leader_epoch >= self.highest_epoch, (
            f"{self.name}: epoch {state.leader_epoch} after {self.highest_epoch}"
        )
        waits = self.resign(error, epoch=state.leader_epoch)
        self.follower = state
        return waits

    def resign(self, error: QuorumlogError, *, epoch: Epoch | None = None) -> tuple[Wait, ...]:
        """Lead and follow no more; returns every wait, released with `error`."""
        self.leadership = None
        self.follower = None
        self.elsewhere = error if isinstance(error, NotLeaderOrFollower) else None
        if epoch is not None:
            self.highest_epoch = max(self.highest_epoch, epoch)
        return (*self._all.fail(error), *self._leader.fail(error))

    @property
    def name(self) -> str:
        """ "topic-index", as its folder is called."""
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the partition now."""
        return self.leadership is not None

    @property
    def leader(self) -> LeaderState | None:
        """What the leader goes by, None: this node does not lead."""
        return None if self.leadership is None else self.leadership.state

    @property
    def followed(self) -> NodeId:
        """The leader that this node follows, NO_NODE: none."""
        return NO_NODE if self.follower is None else self.follower.leader_id

    @property
    def leader_epoch(self) -> Epoch:
        """The epoch it leads or follows with, or the newest it has heard of."""
        return self.highest_epoch

    @property
    def waiting(self) -> int:
        """Produce requests that wait now."""
        return self._all.count + self._leader.count

    # --- requests -----------------------------------------------------------------------------

    def check_epoch(self, leader_epoch: int | None) -> None:
        """Fence a request by the leader epoch it names, None: it names none; raises
        FencedLeaderEpoch, UnknownLeaderEpoch."""
        if leader_epoch is None:
            return
        if leader_epoch < self.highest_epoch:
            raise FencedLeaderEpoch(
                f"leader epoch {leader_epoch} is older than {self.highest_epoch}; "
                "refresh the metadata and ask the leader",
                topic=self.topic,
                partition=self.index,
            )
        if leader_epoch > self.highest_epoch:
            raise UnknownLeaderEpoch(
                f"leader epoch {leader_epoch} is newer than {self.highest_epoch} known here; "
                "repeat after a moment",
                topic=self.topic,
                partition=self.index,
            )

    def check_leader(self, leader_epoch: int | None) -> LeaderState:
        """Return the leadership a request may use; raises NotLeaderOrFollower, FencedLeaderEpoch,
        UnknownLeaderEpoch."""
        self.check_epoch(leader_epoch)
        if self.leadership is None:
            if self.elsewhere is not None:
                raise self.elsewhere.with_traceback(None)
            raise NotLeaderOrFollower(
                f"node {self.node_id} does not lead this partition; refresh the metadata",
                topic=self.topic,
                partition=self.index,
            )
        return self.leadership.state

    def check_readable(self, leader_epoch: int | None) -> None:
        """Say that consumers may read here below the high watermark, from the leader or from who
        follows one (KIP-392); raises what `check_leader` raises."""
        if self.followed == NO_NODE:
            self.check_leader(leader_epoch)
        else:
            self.check_epoch(leader_epoch)

    def preferred_replica(self, rack: str, offset: int) -> NodeId | None:
        """Return the replica that a reader in `rack` shall read `offset` from instead of this
        leader; None: from this node."""
        own = self.brokers(self.node_id)
        if not rack or self.leadership is None or (own is not None and own.rack == rack):
            return None
        return self.leadership.nearest(rack, offset)

    def admit(
        self,
        acks: Acks,
        leader_epoch: int | None,
        *,
        lapsed: bool = False,
        is_mirrored: bool = False,
    ) -> LeaderState:
        """Say that an append may begin; raises what `check_leader` raises, NotEnoughReplicas,
        Overloaded, MirrorTopic for a producer (or NotMirror for a mirror, `is_mirrored`), and then
        nothing may be stored.

        `lapsed`: the node has not heard from the controllers for a session time-out. Another may
        lead by now, so only what cannot be acknowledged without the in-sync replicas is taken.
        """
        state = self.check_leader(leader_epoch)
        if bool(state.mirrors) is not is_mirrored:
            raise self._mirrored_otherwise(state)
        if lapsed and acks is not Acks.ALL:
            raise NotLeaderOrFollower(
                "this node has lost its controllers, and another may lead; send with acks=all, or "
                "refresh the metadata",
                topic=self.topic,
                partition=self.index,
            )
        if acks is Acks.ALL and len(state.isr) < state.min_isr:
            raise NotEnoughReplicas(
                f"{len(state.isr)} in-sync replicas, min.insync.replicas is {state.min_isr}; "
                "wait for replicas to catch up",
                topic=self.topic,
                partition=self.index,
            )
        if acks is not Acks.NONE and self.waiting >= self.waits_max:
            raise Overloaded(
                f"{self.waiting} produce requests wait for acknowledgement, the bound is "
                f"{self.waits_max}; wait and repeat",
                topic=self.topic,
                partition=self.index,
            )
        return state

    def check_committed(self) -> Offset:
        """Return the high watermark for those who may not see it go back; raises what
        `check_leader` raises, and OffsetNotAvailable while this leader has not committed as much as
        was there when it began: the one before it may have told more."""
        self.check_leader(None)
        assert self.leadership is not None, f"{self.name}: checked to be the leader"
        if self.high_watermark < self.leadership.epoch_start_offset:
            raise OffsetNotAvailable(
                f"the leader of epoch {self.highest_epoch} has committed up to"
                f" {self.high_watermark} of {self.leadership.epoch_start_offset} records;"
                " repeat after a moment",
                topic=self.topic,
                partition=self.index,
            )
        return self.high_watermark

    def is_acknowledged(self, acks: Acks, next_offset: Offset) -> bool:
        """Whether everything below `next_offset` is held as `acks` demands."""
        if acks is Acks.NONE:
            return True
        if acks is Acks.ALL:
            return self.high_watermark >= next_offset
        return self.leadership is not None and self.leadership.own_end() >= next_offset

    def wait_for(self, acks: Acks, next_offset: Offset, token: Any) -> Wait:
        """Remember a request that is not acknowledged yet; progress or `resign` releases it."""
        assert acks is not Acks.NONE, "acks=0 waits for nothing"
        assert self.leadership is not None, f"{self.name}: waiting without leadership"
        return (self._all if acks is Acks.ALL else self._leader).add(next_offset, token)

    def forget(self, wait: Wait) -> None:
        """Drop a wait whose caller is gone; a released one is left alone."""
        if wait.kind is not None:
            wait.kind.forget(wait)

    # --- the leader's progress ----------------------------------------------------------------

    def advance(self, *, log_end_offset: Offset, flushed_end_offset: Offset) -> Progress:
        """The own log has come this far; move the high watermark and release what it satisfies."""
        assert flushed_end_offset <= log_end_offset, (
            f"{self.name}: flushed to {flushed_end_offset}, log ends at {log_end_offset}"
        )
        leading = self.leadership
        if leading is None:
            return NO_PROGRESS
        leading.log_end_offset, leading.flushed_end_offset = log_end_offset, flushed_end_offset
        return self._progress(leading)

    def fetched(self, follower: NodeId, fetch: FollowerFetch, now_ms: int) -> Progress:
        """A follower asks for what comes next, so it has what it says. Only for a fetch whose log
        does not part from the own one (KAFKA-13141): see `divergence`.

        Raises what `check_leader` raises, StaleBrokerEpoch, and InvalidRequest for a node that is
        no replica.
        """
        self.check_leader(fetch.leader_epoch)
        assert self.leadership is not None, f"{self.name}: checked to be the leader"
        self.leadership.fetched(follower, fetch, now_ms)
        return self._progress(self.leadership)

    def check_isr(self, now_ms: int) -> Progress:
        """Time has passed: members that lag shall leave; `isr_proposal` says so. To be called about
        twice in replica.lag.time.max.ms."""
        if self.leadership is None:
            return NO_PROGRESS
        self.leadership.passed(now_ms)
        return self._progress(self.leadership)

    def isr_proposal(self) -> IsrProposal | None:
        """What to ask the controller for now; the same one again until it is answered."""
        if self.leadership is None:
            return None
        return self.leadership.next_proposal(self.high_watermark)

    def isr_accepted(
        self,
        proposal: IsrProposal,
        *,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[NodeId, ...],
    ) -> Progress:
        """The controller has answered with the state that is committed now."""
        leading = self.leadership
        if (
            leading is None
            or proposal.leader_epoch != leading.state.leader_epoch
            or leader_epoch != leading.state.leader_epoch
            or self.node_id not in isr
        ):
            return NO_PROGRESS  # the metadata brings what became of it
        leading.accepted(proposal, partition_epoch=partition_epoch, isr=isr)
        return self._progress(leading)  # what the smaller ISR has may be enough now (KAFKA-13091)

    def isr_refused(self, proposal: IsrProposal, error: QuorumlogError) -> Progress:
        """The controller refused, or its answer was lost; see Leadership.refused."""
        if self.leadership is None:
            return NO_PROGRESS
        self.leadership.refused(proposal, error)
        return self._progress(self.leadership)

    @property
    def maximal_isr(self) -> tuple[NodeId, ...]:
        """The committed ISR with whoever was asked for beyond it; () when not leading."""
        return () if self.leadership is None else self.leadership.maximal_isr()

    @property
    def is_under_min_isr(self) -> bool:
        """Whether this leader commits nothing now, having too few in-sync replicas."""
        return self.leadership is not None and self.leadership.is_under_min_isr

    def standings(self, now_ms: int) -> list[ReplicaStanding]:
        """How every replica stands; [] when not leading."""
        return [] if self.leadership is None else self.leadership.standings(now_ms)

    # --- the follower's progress --------------------------------------------------------------

    def take(
        self,
        answer: FollowAnswer,
        *,
        log_start_offset: Offset,
        log_end_offset: Offset,
        end_offset_for: EndOffsetFor,
    ) -> FollowStep:
        """Say what the log must do about a leader's answer; the offsets and epochs are the own
        log's. An answer of another leader epoch than the followed one is dropped (KAFKA-13207)."""
        state = self.follower
        if state is None or answer.leader_epoch != state.leader_epoch:
            followed = "nobody" if state is None else f"epoch {state.leader_epoch}"
            return Nothing(f"an answer of leader epoch {answer.leader_epoch}, following {followed}")
        return follow(
            answer,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            end_offset_for=end_offset_for,
        )

    def replicated(
        self, *, leader_epoch: int, leader_high_watermark: int, log_end_offset: int
    ) -> bool:
        """A follower's log has all that the answer brought; move its high watermark, and return
        whether it moved. Never with an answer that says that the logs part (KAFKA-14704)."""
        if self.follower is None or leader_epoch != self.follower.leader_epoch:
            return False
        mark = min(leader_high_watermark, log_end_offset)
        if mark <= self.high_watermark:
            return False
        self.high_watermark = Offset(mark)
        return True

    def _mirrored_otherwise(self, state: LeaderState) -> QuorumlogError:
        if state.mirrors:
            return MirrorTopic(
                f"this topic mirrors one of cluster {state.mirrors.partition('/')[0]}, and only"
                f" `quorumlog mirror` writes it: write there, or end the mirroring by `quorumlog"
                f" mirror promote {self.topic}`",
                topic=self.topic,
                partition=self.index,
            )
        return NotMirror(
            "this topic is no mirror, or not any more: it was promoted, or made by somebody else;"
            " nothing is copied into it",
            topic=self.topic,
            partition=self.index,
        )

    def truncated(self, log_end_offset: Offset) -> None:
        """The own log was cut, and ends there. Below the high watermark only what an unclean
        election gave up is cut; the mark follows."""
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def restarted(self, offset: Offset) -> None:
        """The own log was emptied and starts anew at the offset: all before it is history, so the
        mark is there too (KAFKA-9491)."""
        self.high_watermark = offset

    # --- invariants ---------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Rule 1 and the books of the waits; cheap enough for every test step."""
        leading = self.leadership
        assert leading is None or self.follower is None, f"{self.name}: leads and follows"
        if leading is not None:
            assert self.high_watermark <= leading.log_end_offset, (
                f"{self.name}: high watermark {self.high_watermark} > {leading.log_end_offset}"
            )
        self._all.check_invariants(self.name)
        self._leader.check_invariants(self.name)

    def _progress(self, leading: Leadership) -> Progress:
        before = self.high_watermark
        end = leading.committed_end()
        if end is not None and end > before:
            self.high_watermark = end
        released = (*self._all.pop(self.high_watermark), *self._leader.pop(leading.own_end()))
        return Progress(released, self.high_watermark > before)


def _newer(present: LeaderState, state: LeaderState) -> LeaderState:
    """The state to go by within one leader epoch: an answer of the controller may have brought a
    newer ISR than the metadata that is applied after it; configs are the metadata's."""
    if state.partition_epoch >= present.partition_epoch:
        return state
    return LeaderState(
        leader_epoch=state.leader_epoch,
        partition_epoch=present.partition_epoch,
        isr=present.isr,
        min_isr=state.min_isr,
        counts_flushed=state.counts_flushed,
        replicas=state.replicas,
        recovering=present.recovering,
        mirrors=state.mirrors,
    )
