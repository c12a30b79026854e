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

from ..errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    QuorumlogError,
    UnknownLeaderEpoch,
)
from ..ids import NO_EPOCH, NO_NODE, Epoch, NodeId, Offset
from .isr import BrokerFacts, BrokerOf, InSyncReplicas, LeaderAndIsr
from .partition_follower import EndOffsetFor, FollowAnswer, FollowerState, FollowStep, Skip, follow
from .partition_leader import NO_PROGRESS, ONLY_MOVED, PartitionLeader, PartitionProgress
from .purgatory import ProducePurgatory, PurgatoryEntry

LOG_START = Offset(0)
LAG_TIME_MAX_MS = 30_000  # replica.lag.time.max.ms


def _no_brokers(_: NodeId) -> BrokerFacts | None:
    return None


class Partition:
    """A node's state of one partition. Before `become_leader` or `become_follower`, and after
    `resign`, it has no role and refuses every request."""

    __slots__ = (
        "_brokers",
        "_high_watermark",
        "_lag_time_max_ms",
        "_not_leader_error",
        "follower",
        "index",
        "leader",
        "leader_epoch",
        "name",
        "node_id",
        "purgatory",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        node_id: NodeId,
        *,
        waits_max: int,
        brokers: BrokerOf = _no_brokers,
        lag_time_max_ms: int = LAG_TIME_MAX_MS,
    ) -> None:
        """`waits_max`: limit of waiting produce requests, beyond which they fail with
        Overloaded."""
        self.topic = topic
        self.index = index
        self.name = f"{topic}-{index}"  # of its folder
        self.node_id = node_id
        self.leader_epoch = NO_EPOCH  # the newest leader epoch seen, in any role
        self.leader: PartitionLeader | None = None
        self.follower: FollowerState | None = None
        self.purgatory = ProducePurgatory(waits_max)
        self._brokers = brokers
        self._lag_time_max_ms = lag_time_max_ms
        self._high_watermark = LOG_START  # while this node does not lead
        # The error for requests that need the leader.
        self._not_leader_error: NotLeaderOrFollower | None = None

    # --- roles ------------------------------------------------------------------------------------

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
        assert state.leader_epoch >= self.leader_epoch, (
            f"{self.name}: epoch {state.leader_epoch} after {self.leader_epoch}"
        )
        assert self.node_id in state.isr, f"{self.name}: leader {self.node_id} not in {state.isr}"
        leader = self.leader
        begins = leader is None or state.leader_epoch > leader.state.leader_epoch
        # sometimes if begins and leader is not None: a leader continues in the next epoch
        # sometimes if begins and self.purgatory.count: produce requests wait for two leaders
        if leader is None or begins:
            isr = InSyncReplicas(
                name=self.name,
                node_id=self.node_id,
                state=state,
                epoch_start_offset=log_end_offset,
                since_ms=now_ms,
                brokers=self._brokers,
                lag_time_max_ms=self._lag_time_max_ms,
                log_end_offset=log_end_offset,
                flushed_end_offset=flushed_end_offset,
                now_ms=now_ms,
            )
            leader = self.leader = PartitionLeader(
                self.topic,
                self.index,
                isr=isr,
                purgatory=self.purgatory,
                high_watermark=self.high_watermark,
            )
        else:
            leader.apply_metadata(state, now_ms)
        self.follower, self._not_leader_error = None, None
        self.leader_epoch = state.leader_epoch
        progress = leader.advance(
            log_end_offset=log_end_offset, flushed_end_offset=flushed_end_offset
        )
        if begins:
            self.check_roles()
        return progress

    def become_follower(
        self, state: FollowerState, error: NotLeaderOrFollower
    ) -> tuple[PurgatoryEntry, ...]:
        """Follow the leader of `state`, if there is one; release every wait with `error`, which
        also answers requests that need the leader."""
        assert state.leader_epoch >= self.leader_epoch, (
            f"{self.name}: epoch {state.leader_epoch} after {self.leader_epoch}"
        )
        waits = self.resign(error, epoch=state.leader_epoch)
        self.follower = state
        self.check_roles()
        return waits

    def resign(
        self, error: QuorumlogError, *, epoch: Epoch | None = None
    ) -> tuple[PurgatoryEntry, ...]:
        """Give up any role; release every wait with `error`."""
        # sometimes if self.purgatory.count: a leader resigns while produce requests wait
        self._high_watermark = self.high_watermark
        self.leader = None
        self.follower = None
        self._not_leader_error = error if isinstance(error, NotLeaderOrFollower) else None
        if epoch is not None:
            self.leader_epoch = max(self.leader_epoch, epoch)
        return self.purgatory.fail(error)

    @property
    def is_leader(self) -> bool:
        """True if this node leads the partition."""
        return self.leader is not None

    @property
    def followed(self) -> NodeId:
        """The leader that this node follows, or NO_NODE."""
        return NO_NODE if self.follower is None else self.follower.leader_id

    @property
    def high_watermark(self) -> Offset:
        """The high watermark: all records below it are committed."""
        return self._high_watermark if self.leader is None else self.leader.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: Offset) -> None:
        if self.leader is None:
            self._high_watermark = offset
        else:
            self.leader.high_watermark = offset

    # --- requests ---------------------------------------------------------------------------------

    def check_epoch(self, leader_epoch: int | None) -> None:
        """Fence a request by its leader epoch; None: it has none.

        Raises FencedLeaderEpoch, UnknownLeaderEpoch.
        """
        if leader_epoch is None:
            return
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"leader epoch {leader_epoch} is older than the current epoch"
                f" {self.leader_epoch}; refresh the metadata and retry at the leader",
                topic=self.topic,
                partition=self.index,
            )
        if leader_epoch > self.leader_epoch:
            raise UnknownLeaderEpoch(
                f"leader epoch {leader_epoch} is newer than epoch {self.leader_epoch} of this"
                " broker; retry shortly",
                topic=self.topic,
                partition=self.index,
            )

    def check_leader(self, leader_epoch: int | None) -> PartitionLeader:
        """Return the leadership; raise NotLeaderOrFollower, FencedLeaderEpoch,
        UnknownLeaderEpoch."""
        self.check_epoch(leader_epoch)
        if self.leader is None:
            if self._not_leader_error is not None:
                raise self._not_leader_error.with_traceback(None)
            raise NotLeaderOrFollower(
                f"broker {self.node_id} does not lead this partition; refresh the metadata",
                topic=self.topic,
                partition=self.index,
            )
        return self.leader

    def check_readable(self, leader_epoch: int | None) -> None:
        """Raise an error unless consumers may read here below the high watermark: from the leader,
        or from a follower (KIP-392). Raises the errors of `check_leader`."""
        if self.followed == NO_NODE:
            self.check_leader(leader_epoch)
        else:
            self.check_epoch(leader_epoch)

    # --- the follower's progress ------------------------------------------------------------------

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
            # sometimes: a follower gets an answer of another leader epoch
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
    ) -> PartitionProgress:
        """Advance the follower's high watermark after the answer's records were appended. Must not
        be called for an answer with a divergence (KAFKA-14704)."""
        if self.follower is None or leader_epoch != self.follower.leader_epoch:
            return NO_PROGRESS
        mark = min(leader_high_watermark, log_end_offset)
        if mark <= self.high_watermark:
            return NO_PROGRESS
        self.high_watermark = Offset(mark)
        return ONLY_MOVED

    def truncated(self, log_end_offset: Offset) -> None:
        """Apply a truncation of the own log. Records below the high watermark are truncated only
        after an unclean election; the high watermark then decreases."""
        # sometimes if log_end_offset < self.high_watermark: committed records are truncated
        self.high_watermark = min(self.high_watermark, log_end_offset)

    def restarted(self, offset: Offset) -> None:
        """Apply a restart of the own log at the offset. All earlier records count as committed, so
        the high watermark is the offset (KAFKA-9491)."""
        # sometimes: a follower restarts its log at the leader's start
        self.high_watermark = offset

    # --- invariants -------------------------------------------------------------------------------

    def check_roles(self) -> None:
        """Check invariants 1 to 4 of `check_invariants`, which the start of every role checks in
        production; the cost is that of the in-sync replicas."""
        leader, follower, name = self.leader, self.follower, self.name
        assert leader is None or follower is None, (
            f"partition invariant 1, {name}: leads in epoch {self.leader_epoch} and follows"
            f" {self.followed}"
        )
        epoch = self.leader_epoch
        if leader is not None:
            epoch = leader.state.leader_epoch
        elif follower is not None:
            epoch = follower.leader_epoch
        assert epoch == self.leader_epoch, (
            f"partition invariant 2, {name}: the role has epoch {epoch}, the newest one is"
            f" {self.leader_epoch}"
        )
        assert leader is not None or not self.purgatory.count, (
            f"partition invariant 3, {name}: {self.purgatory.count} produce requests wait"
            " without a leader"
        )
        if leader is not None:
            leader.check_invariants()

    def check_invariants(self) -> None:
        """Raise AssertionError unless these hold, by number:

        1. This node does not lead and follow at once.
        2. The leader epoch of the role is the newest one seen.
        3. Produce requests wait only while this node leads.
        4. The invariants of the leader; see `PartitionLeader.check_invariants`.
        5. The invariants of the purgatory; see `Purgatory.check_invariants`.
        """
        self.check_roles()
        self.purgatory.check_invariants(self.name)
