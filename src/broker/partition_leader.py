"""The leader's side of one partition in one leader epoch: admission of appends, progress of the
high watermark, and acknowledgements. The in-sync replicas are in `isr`."""

from dataclasses import dataclass
from typing import Any, Final

from ..errors import (
    MirrorTopic,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    NotMirror,
    OffsetNotAvailable,
    Overloaded,
    QuorumlogError,
)
from ..ids import BACKUP_MARK, NodeId, Offset
from ..records.control import TransactionMarker
from .isr import FollowerFetch, InSyncReplicas, IsrProposal, LeaderAndIsr
from .purgatory import Acks, ProducePurgatory, PurgatoryEntry
from .verification import VerifiedProducers


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The result of an event."""

    released: tuple[PurgatoryEntry, ...]
    high_watermark_moved: bool


NO_PROGRESS: Final = PartitionProgress((), False)
ONLY_MOVED: Final = PartitionProgress((), True)


class PartitionLeader:
    """The leadership of one partition. `Partition` creates one for each leader epoch."""

    __slots__ = ("_index", "_name", "_purgatory", "_topic", "high_watermark", "isr", "verified")

    def __init__(
        self,
        topic: str,
        index: int,
        *,
        isr: InSyncReplicas,
        purgatory: ProducePurgatory,
        high_watermark: Offset,
    ) -> None:
        self.isr = isr
        self.high_watermark = high_watermark  # of the partition; kept when the leadership ends
        self._topic = topic
        self._index = index
        self._name = isr.name
        self._purgatory = purgatory  # outlives the epoch if this node leads the next one too
        # Made for the first transactional batch. The next leader verifies again.
        self.verified: VerifiedProducers | None = None

    @property
    def state(self) -> LeaderAndIsr:
        """The metadata that the leader applies."""
        return self.isr.state

    def apply_metadata(self, state: LeaderAndIsr, now_ms: int) -> None:
        """Apply metadata of this leader epoch. A state with an older partition epoch only changes
        configs."""
        self.isr.now_ms = max(self.isr.now_ms, now_ms)
        self.isr.changed(_newer(self.isr.state, state))

    # --- requests ---------------------------------------------------------------------------------

    def admit(self, acks: Acks, *, lapsed: bool = False, is_mirrored: bool = False) -> LeaderAndIsr:
        """Return the metadata if an append may start.

        Raises NotLeaderOrFollower, NotEnoughReplicas, Overloaded, and MirrorTopic for a producer or
        NotMirror for a mirror (`is_mirrored`). After an error, nothing may be stored.

        `lapsed`: the controllers have not been reached for a session timeout. Another node may lead
        by then, so only appends that need all in-sync replicas are accepted.
        """
        state = self.isr.state
        if bool(state.mirrors) is not is_mirrored:
            raise self._mirror_error(state)
        if lapsed and acks is not Acks.ALL:
            # sometimes: a lapsed leader refuses a produce request
            raise NotLeaderOrFollower(
                "this broker has lost the controllers, so another one may lead; send with"
                " acks=all, or refresh the metadata",
                topic=self._topic,
                partition=self._index,
            )
        if acks is Acks.ALL and len(state.isr) < state.min_isr:
            raise NotEnoughReplicas(
                f"not enough in-sync replicas ({len(state.isr)} of"
                f" min.insync.replicas={state.min_isr}); wait for replicas to catch up",
                topic=self._topic,
                partition=self._index,
            )
        if acks is not Acks.NONE and self._purgatory.count >= self._purgatory.entries_max:
            raise Overloaded(
                f"too many waiting produce requests; {self._purgatory.count} wait, the limit is"
                f" {self._purgatory.entries_max}; retry later",
                topic=self._topic,
                partition=self._index,
            )
        return state

    def marked(self, marker: TransactionMarker) -> None:
        """Delete the verification of the transaction that an arrived marker ends."""
        if self.verified is not None:
            self.verified.marked(marker)

    def is_acknowledged(self, acks: Acks, next_offset: Offset) -> bool:
        """Return True if all records below `next_offset` are acknowledged as `acks` requires."""
        if acks is Acks.NONE:
            return True
        if acks is Acks.ALL:
            return self.high_watermark >= next_offset
        return self.isr.own_end() >= next_offset

    def wait_for(self, acks: Acks, next_offset: Offset, token: Any) -> PurgatoryEntry:
        """Add a wait for an acknowledgement; progress releases it, or the next role."""
        return self._purgatory.add(acks, next_offset, token)

    def check_committed(self) -> Offset:
        """Return the high watermark for readers that must not see it decrease.

        Raises OffsetNotAvailable until this leader has committed everything in its log at the start
        of its epoch: its predecessor may have reported a higher one.
        """
        if self.high_watermark < self.isr.epoch_start_offset:
            # sometimes: a reader asks before a new leader has committed its log
            raise OffsetNotAvailable(
                f"the leader of epoch {self.isr.state.leader_epoch} has committed up to offset"
                f" {self.high_watermark} of {self.isr.epoch_start_offset}; retry shortly",
                topic=self._topic,
                partition=self._index,
            )
        return self.high_watermark

    def preferred_replica(self, rack: str, offset: int) -> NodeId | None:
        """Return the replica in the reader's rack to read `offset` from; None: read from this
        node."""
        own = self.isr.brokers(self.isr.node_id)
        if not rack or (own is not None and own.rack == rack):
            return None
        return self.isr.replica_in_rack(rack, offset)

    # --- progress ---------------------------------------------------------------------------------

    def advance(self, *, log_end_offset: Offset, flushed_end_offset: Offset) -> PartitionProgress:
        """Apply progress of the own log: advance the high watermark and release waits."""
        assert flushed_end_offset <= log_end_offset, (
            f"{self._name}: flushed to {flushed_end_offset}, log ends at {log_end_offset}"
        )
        self.isr.log_end_offset, self.isr.flushed_end_offset = log_end_offset, flushed_end_offset
        return self._progress()

    def fetched(self, follower: NodeId, fetch: FollowerFetch, now_ms: int) -> PartitionProgress:
        """Apply a follower's fetch in this leader epoch, which proves that it has all records up to
        its end. Only for a log that does not diverge (KAFKA-13141): see `divergence`.

        Raises StaleBrokerEpoch, and InvalidRequest for a node that is not a replica.
        """
        assert fetch.leader_epoch == self.state.leader_epoch, (
            f"{self._name}: a fetch of epoch {fetch.leader_epoch} in epoch"
            f" {self.state.leader_epoch}"
        )
        self.isr.fetched(follower, fetch, now_ms)
        return self._progress()

    def tick(self, now_ms: int) -> PartitionProgress:
        """Advance the time, so that `isr_proposal` shrinks the ISR by lagging members. Call it
        about twice per replica.lag.time.max.ms."""
        self.isr.tick(now_ms)
        return self._progress()

    def isr_proposal(self) -> IsrProposal | None:
        """Return the ISR change to request from the controller; the same one until it is
        answered."""
        return self.isr.next_proposal(self.high_watermark)

    def isr_accepted(
        self,
        proposal: IsrProposal,
        *,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[NodeId, ...],
    ) -> PartitionProgress:
        """Apply the controller's answer with the committed state."""
        present = self.isr.state.leader_epoch
        if (
            proposal.leader_epoch != present
            or leader_epoch != present
            or self.isr.node_id not in isr
        ):
            # sometimes: an ISR change is accepted after its leader epoch ended
            return NO_PROGRESS  # the metadata will have the outcome
        self.isr.accepted(proposal, partition_epoch=partition_epoch, isr=isr)
        return self._progress()  # a smaller ISR may raise the high watermark (KAFKA-13091)

    def isr_refused(
        self, proposal: IsrProposal, error: QuorumlogError, now_ms: int
    ) -> PartitionProgress:
        """Apply a rejected or lost proposal; see `InSyncReplicas.refused`."""
        self.isr.refused(proposal, error, now_ms)
        # sometimes if self.isr.is_waiting: an ISR change awaits newer metadata
        return self._progress()

    def _progress(self) -> PartitionProgress:
        before = self.high_watermark
        end = self.isr.committed_end(above=before)
        is_moved = False
        if end is not None and end > before:
            self.high_watermark, is_moved = end, True
        if self._purgatory.count:
            released = self._purgatory.release(
                high_watermark=self.high_watermark, own_end=self.isr.own_end()
            )
            if released:
                return PartitionProgress(released, is_moved)
        return ONLY_MOVED if is_moved else NO_PROGRESS

    def _mirror_error(self, state: LeaderAndIsr) -> QuorumlogError:
        if state.mirrors.startswith(BACKUP_MARK):
            backup = state.mirrors.removeprefix(BACKUP_MARK).partition("/")[0]
            return MirrorTopic(
                f"this topic is being restored from backup {backup}, and only `quorumlog backup"
                " restore` writes to it; wait for its end, or continue an interrupted restore with"
                " --resume",
                topic=self._topic,
                partition=self._index,
            )
        if state.mirrors:
            return MirrorTopic(
                f"this topic mirrors one of cluster {state.mirrors.partition('/')[0]}, and only"
                " `quorumlog mirror` writes to it; write to the source, or end the mirroring with"
                f" `quorumlog mirror promote {self._topic}`",
                topic=self._topic,
                partition=self._index,
            )
        return NotMirror(
            "this topic is not a mirror: it was promoted, or not created as one; the mirror"
            " cannot write to it",
            topic=self._topic,
            partition=self._index,
        )

    # --- invariants -------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise AssertionError unless these hold, by number:

        1. The high watermark is at most the log end offset.
        2. The epoch starts at or before the log end offset: a leader does not truncate.
        3. The invariants of the in-sync replicas; see `InSyncReplicas.check_invariants`.
        """
        isr, name = self.isr, self._name
        assert self.high_watermark <= isr.log_end_offset, (
            f"leader invariant 1, {name}: the high watermark is {self.high_watermark}, the log ends"
            f" at {isr.log_end_offset}"
        )
        assert isr.epoch_start_offset <= isr.log_end_offset, (
            f"leader invariant 2, {name}: epoch {isr.state.leader_epoch} starts at"
            f" {isr.epoch_start_offset}, the log ends at {isr.log_end_offset}"
        )
        isr.check_invariants()


def _newer(present: LeaderAndIsr, state: LeaderAndIsr) -> LeaderAndIsr:
    """Return the state to apply within one leader epoch. A controller's answer may have brought a
    newer ISR than metadata applied after it; configs are always the metadata's."""
    if state.partition_epoch >= present.partition_epoch:
        return state
    # sometimes: metadata arrive after the response with a later ISR
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
